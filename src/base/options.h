/* SPDX-License-Identifier: MIT */
/* Option structs that grow, and values from the environment. */
#ifndef CZ_BASE_OPTIONS_H
#define CZ_BASE_OPTIONS_H

#include "czero/base.h"

/* Larger structs are none: a size that was never set is found here, not by reading that far. */
#define CZ__OPTIONS_BYTES 4096

/* Copy the caller's option struct (its first member is `size_t size`, the size it was compiled
 * with) into ours, which is zeroed first; NULL leaves it zeroed. The shorter size counts; bytes
 * beyond ours must be zero. `ours->size` becomes our_size. CZ_ERR_ARGUMENT: a size below
 * sizeof(size_t) or above CZ__OPTIONS_BYTES; CZ_ERR_UNSUPPORTED: an option that this library does
 * not know. `name` is the struct's, for the sentence. */
cz_status cz__options_read(void *ours, size_t our_size, const void *theirs, const char *name);

/* The same for element `index` of an array, whose elements are as long as the first one says. */
cz_status cz__options_read_element(void *ours, size_t our_size, const void *array, int64_t index,
                                   const char *name);

/* The other way: fill the caller's struct as far as it goes, but for its size, which is the
 * caller's. CZ_ERR_ARGUMENT as above. */
cz_status cz__options_write(void *theirs, const void *ours, size_t our_size, const char *name);

/* Is that the size of a struct? CZ_ERR_ARGUMENT as above. */
cz_status cz__options_check_size(size_t size, const char *name);

/* A field that no version of the library has used yet. CZ_ERR_UNSUPPORTED: it is not 0. */
cz_status cz__options_check_reserved(int64_t value, const char *name);

/* The number in an environment variable, or `otherwise` where it is unset or empty. What is no
 * number or outside [minimum, maximum] gives a line in the log and `otherwise`. */
double cz__environment_number(const char *variable, double minimum, double maximum,
                              double otherwise);

#endif
