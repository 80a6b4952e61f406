/* SPDX-License-Identifier: MIT */
/* Calls that must succeed, and ranks as threads of the test. */
#include <string.h>

#include "support/cz_test.h"

void cz_test_assert_ok(cz_status status, const char *call, const char *file, int line)
{
    if (status == CZ_OK)
        return;
    print_error("%s: %s: %s\n", call, cz_status_name(status), cz_last_error());
    _fail(file, line);
}

const int cz_test_worlds[6] = {1, 2, 3, 4, 5, 8};

cz_status cz_test_run_ranks(int world_size, cz_rank_main body, void *arg, char why[256])
{
    cz_launch_options options = CZ_LAUNCH_OPTIONS_INIT;
    options.ranks = world_size;
    options.timeout_seconds = 60;
    const cz_status status = cz_launch(body, arg, &options);
    snprintf(why, 256, "%s", status == CZ_OK ? "" : cz_last_error());
    return status;
}

void assert_ranks_ok(int world_size, cz_rank_main body, void *arg)
{
    char why[256];
    if (cz_test_run_ranks(world_size, body, arg, why) != CZ_OK)
        fail_msg("world size %d: %s", world_size, why);
}

cz_status expect(cz_status got, cz_status wanted, const char *sentence)
{
    if (got == wanted && (got == CZ_OK || !sentence || strstr(cz_last_error(), sentence)))
        return CZ_OK;
    return cz_fail(CZ_ERR_STATE, "got %s '%.120s', wanted %s '%s'", cz_status_name(got),
                   got == CZ_OK ? "" : cz_last_error(), cz_status_name(wanted),
                   sentence ? sentence : "");
}
