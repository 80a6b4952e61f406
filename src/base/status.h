/* SPDX-License-Identifier: MIT */
/* The sentence that goes with a status, kept per thread. */
#ifndef CZ_BASE_STATUS_H
#define CZ_BASE_STATUS_H

#include "czero/status.h"

/* Set the calling thread's sentence and return `status`. Arguments may point into the old
 * sentence. */
cz_status cz__fail(cz_status status, const char *format, ...) CZ_PRINTF(2, 3);

/* Analysers see one file at a time, and do not know that the status comes back. */
#ifdef CZ_STATIC_ANALYSIS
#define cz__fail(status, ...) ((void)cz__fail(status, __VA_ARGS__), (status))
#endif

/* As cz__fail, for a sentence of "what: why" where `why` is the thread's present sentence. */
cz_status cz__fail_in(cz_status status, const char *what);

/* The status of a call of the program's own code, which may fail without a word: an older sentence
 * is not taken for its reason, the status's name stands in. */
#define CZ__CALL_PROGRAM(call) (cz__sentence_clear(), cz__sentence_complete(call))
void cz__sentence_clear(void);
cz_status cz__sentence_complete(cz_status status);

/* Put the thread's sentence aside while it works for others, and take it up again: what failed
 * meanwhile is forgotten. Nests. */
typedef struct cz__sentence {
    const char *text;
    void *owned;
} cz__sentence;
cz__sentence cz__sentence_hold(void);
void cz__sentence_resume(cz__sentence held); /* each that is held ends so, or */
void cz__sentence_drop(cz__sentence held);   /* so */

#endif
