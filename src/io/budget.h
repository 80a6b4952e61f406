/* SPDX-License-Identifier: MIT */
/* What a file may cost. Numbers in a file do not drive memory or time: what is made of one is paid from a budget in
 * proportion to its bytes, and what does not fit is refused before it is made. CZERO_FILE_LIMIT gives more, or lifts
 * it. Everything here is local. */
#ifndef CZ_IO_BUDGET_H
#define CZ_IO_BUDGET_H

#include "czero/base.h"

/* A file of N bytes may cost CZ__BUDGET_FREE + CZ__BUDGET_TIMES * N bytes. */
#define CZ__BUDGET_FREE ((uint64_t)32 << 20)
#define CZ__BUDGET_TIMES ((uint64_t)20)
#define CZ__BUDGET_VARIABLE "CZERO_FILE_LIMIT"

typedef struct cz__budget {
    const char *where;   /* borrowed: begins the sentence */
    uint64_t input;      /* bytes of the file */
    uint64_t most, used; /* bytes that it may cost, and does */
} cz__budget;

cz__budget cz__budget_of(const char *where, uint64_t input);

/* Pay for `bytes`, before they are allocated, for what the sentence calls `what`. CZ_ERR_UNSUPPORTED: more than is left;
 * nothing was paid. */
cz_status cz__budget_spend(cz__budget *budget, uint64_t bytes, const char *what);

#endif
