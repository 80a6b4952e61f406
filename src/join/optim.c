/* SPDX-License-Identifier: MIT */
/* An optimizer that is not sharded, with uneven inputs. */
#include "czero/join.h"

#include "base/status.h"

static cz_status enter(void *object, cz_join *join, int number)
{
    (void)join;
    (void)number;
    return object ? CZ_OK : cz__fail(CZ_ERR_ARGUMENT, "join: optim is NULL");
}

static cz_status shadow(void *object, cz_join *join)
{
    return cz_optim_step(object, cz_join_step(join), NULL);
}

cz_joinable cz_optim_joinable(cz_optim *optim)
{
    return (cz_joinable){sizeof(cz_joinable), "optim", optim, enter, shadow, NULL, NULL};
}
