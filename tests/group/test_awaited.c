/* SPDX-License-Identifier: MIT */
/* Which ranks an operation waits for: each once, in order, whichever engines say so. */
#include <stdlib.h>

#include "group/internal.h"
#include "support/cz_test.h"

static bool awaits_2_and_4(const cz_work *work, int rank)
{
    return rank == 2 || rank == 4;
}

static bool awaits_even(const cz_work *work, int rank)
{
    return rank % 2 == 0;
}

static bool awaits_4(const cz_work *work, int rank)
{
    return rank == 4;
}

static void expect_awaited(const cz_work *work, const char *expected)
{
    char text[64];
    cz__operation_awaited(work, text, sizeof text);
    assert_string_equal(text, expected);
}

TEST(each_rank_once)
{
    const cz__engine first = {.awaits = awaits_2_and_4}, second = {.awaits = awaits_even},
                     last = {.awaits = awaits_4};
    cz_group group = {.size = 6};
    cz_work *work = calloc(1, sizeof *work);
    assert_non_null(work);
    work->group = &group;
    expect_awaited(work, "some rank");
    work->phase = CZ__PHASE_MEET;
    work->rendezvous.engine = &last;
    expect_awaited(work, "rank 4");
    work->rendezvous.engine = &first; /* a verdict that is still on its way */
    work->phase = CZ__PHASE_DATA;
    work->data.engine = &second;
    expect_awaited(work, "ranks 0, 2, 4");
    free(work);
}

TEST(a_request_is_awaited_until_it_has_landed)
{
    cz__request request = {.transfer.peer = 3, .up = true};
    assert_true(cz__request_awaits(&request, 3));
    assert_false(cz__request_awaits(&request, 2));
    request.up = false;
    assert_false(cz__request_awaits(&request, 3));
}
