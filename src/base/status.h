/* SPDX-License-Identifier: MIT */
/* The sentence that goes with a status, kept per thread. */
#ifndef CZ_BASE_STATUS_H
#define CZ_BASE_STATUS_H

#include "czero/status.h"

/* Set the calling thread's sentence and return `status`. Arguments may point into the old sentence. */
cz_status cz__fail(cz_status status, const char *format, ...) CZ_PRINTF(2, 3);

/* As cz__fail, for a sentence of "what: why" where `why` is the thread's present sentence. */
cz_status cz__fail_in(cz_status status, const char *what);

#endif
