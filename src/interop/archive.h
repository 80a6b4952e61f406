/* SPDX-License-Identifier: MIT */
/* An archive for those who read its input themselves: a conversion takes elements from it, a plan shapes. */
#ifndef CZ_INTEROP_ARCHIVE_H
#define CZ_INTEROP_ARCHIVE_H

#include "checkpoint/input.h"
#include "czero/archive.h"

/* cz_archive_open(), of one whose optimizer has that rule, where a file of torch leaves open which it is; NULL: whichever. */
cz_status cz__archive_open_of_rule(cz_archive **out, const char *path, int64_t step,
                                   const char *rule);

/* Borrowed. */
cz__input *cz__archive_input(cz_archive *archive);

#endif
