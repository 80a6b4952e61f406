/* SPDX-License-Identifier: MIT */
/* Steps with uneven inputs: a rank that has joined makes the others' steps, so that its shard goes on. */
#include "base/status.h"
#include "join/join.h"
#include "zero/zero.h"

static cz_status enter(void *object, cz_join *join, int number)
{
    cz_zero *zero = object;
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "join: zero is NULL");
    if (join && !zero->ddp && zero->gradients == CZ_GRADIENTS_LOCAL &&
        cz_join_division(join) == CZ_JOIN_BY_WEIGHT)
        return cz__fail(CZ_ERR_UNSUPPORTED, "join: the sharded optimizer reduces gradients itself "
                                            "and knows no weights; a ddp does");
    CZ_TRY(
        cz__join_enter(&zero->join, join, number, zero->group, &zero->object, "sharded optimizer"));
    zero->join_number = number;
    return CZ_OK;
}

static cz_status shadow(void *object, cz_join *join)
{
    cz_zero *zero = object;
    zero->shadows = true;
    const cz_status status = cz_zero_step(zero, cz_join_step(join), NULL);
    zero->shadows = false;
    return status;
}

cz_joinable cz_zero_joinable(cz_zero *zero)
{
    return (cz_joinable){sizeof(cz_joinable), "zero", zero, enter, shadow, NULL, NULL};
}
