/* SPDX-License-Identifier: MIT */
/* What is in a checkpoint against what is here. */
#ifndef CZ_CHECKPOINT_COMPARE_H
#define CZ_CHECKPOINT_COMPARE_H

#include "checkpoint/index.h"
#include "czero/optim.h"
#include "io/text.h"

typedef struct cz__comparison {
    int64_t *from; /* owned: for each tensor here, its place in the file; -1: it stays as it is */
    bool state;    /* the optimizer's state is loaded */
    cz__text differences; /* a line each */
} cz__comparison;

void cz__comparison_clear(cz__comparison *comparison);

/* Compare. `convert`: values of another floating type may lose digits. Only CZ_ERR_MEMORY; whether differences
 * are allowed is the caller's to decide. */
cz_status cz__compare(cz__comparison *comparison, const cz__index *here, const cz__index *file,
                      bool convert);

/* What of the file's outline fits the parameter groups here, where differences are allowed: state of parameters that
 * are loaded, hyper-parameters of the groups that the members are from; where these were several, a note says which was
 * taken. *out is owned. CZ_ERR_MEMORY. */
cz_status cz__adapt_outline(cz_state_dict **out, const cz_optim *optim, const cz__index *here,
                            const cz__index *file, const cz__comparison *comparison,
                            cz__text *notes);

#endif
