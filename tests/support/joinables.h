/* SPDX-License-Identifier: MIT */
/* Joinables as values, for lists of them. */
#ifndef CZ_TEST_JOINABLES_H
#define CZ_TEST_JOINABLES_H

#include "czero/czero.h"

static inline cz_joinable cz_test_join_ddp(cz_ddp *ddp)
{
    cz_joinable joinable = CZ_JOINABLE_INIT;
    (void)cz_ddp_joinable(ddp, &joinable);
    return joinable;
}

static inline cz_joinable cz_test_join_zero(cz_zero *zero)
{
    cz_joinable joinable = CZ_JOINABLE_INIT;
    (void)cz_zero_joinable(zero, &joinable);
    return joinable;
}

static inline cz_joinable cz_test_join_optim(cz_optim *optim)
{
    cz_joinable joinable = CZ_JOINABLE_INIT;
    (void)cz_optim_joinable(optim, &joinable);
    return joinable;
}

#endif
