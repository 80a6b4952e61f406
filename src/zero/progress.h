/* SPDX-License-Identifier: MIT */
/* What all ranks together know of each parameter's progress. */
#ifndef CZ_ZERO_PROGRESS_H
#define CZ_ZERO_PROGRESS_H

#include "optim/dict.h"
#include "zero/zero.h"

typedef struct cz__zero_progress {
    int64_t *words; /* owned, as the others: what travels */
    int64_t *steps;
    unsigned *used;
    double *scalars;
} cz__zero_progress;

/* Collective. CZ_ERR_MEMORY is seen by all ranks. To be cleared also after an error. */
cz_status cz__zero_progress_create(const cz_zero *zero, cz__zero_progress *progress);
/* Nothing has been used on any rank. Local. */
cz_status cz__zero_progress_none(const cz_zero *zero, cz__zero_progress *progress);
void cz__zero_progress_clear(cz__zero_progress *progress);

static inline cz__progress cz__zero_progress_view(const cz__zero_progress *progress)
{
    return (cz__progress){progress->steps, progress->used, progress->scalars};
}

#endif
