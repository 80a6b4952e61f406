/* SPDX-License-Identifier: MIT */
/* Copying of what is not read again soon. */
#ifndef CZ_BASE_COPY_H
#define CZ_BASE_COPY_H

#include <stddef.h>

/* As memcpy. Lines of `to` are neither read before they are written nor kept in caches: a third less traffic. The
 * C library does so only from some multiple of 10 MB on. */
void cz__copy_past_caches(void *to, const void *from, size_t bytes);

#endif
