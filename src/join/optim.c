/* SPDX-License-Identifier: MIT */
/* An optimizer that is not sharded, with uneven inputs. */
#include "czero/join.h"

#include "base/options.h"
#include "base/status.h"
#include "join/join.h"

static cz_status enter(void *object, cz_join *join, int number)
{
    (void)join;
    (void)number;
    return object ? CZ_OK : cz__fail(CZ_ERR_ARGUMENT, "join: optim is NULL");
}

static cz_status shadow(void *object, cz_join *join)
{
    return cz_optim_step(object, cz__join_step(join), NULL);
}

cz_status cz_optim_joinable(cz_optim *optim, cz_joinable *out)
{
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "optim joinable: out is NULL");
    const cz_joinable ours = {sizeof(cz_joinable), "optim", optim, enter, shadow, NULL, NULL};
    return cz__options_write(out, &ours, sizeof ours, "cz_joinable");
}
