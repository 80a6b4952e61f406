/* SPDX-License-Identifier: MIT */
/* Which ranks an operation waits for: each once, in order, whatever the messages. */
#include <stdlib.h>

#include "group/internal.h"
#include "support/cz_test.h"

static void put_up(cz__flight *flight, int peer)
{
    flight->transfer.peer = peer;
    flight->up = true;
}

static void expect_awaited(const cz_work *work, const char *expected)
{
    char text[64];
    cz__flights_awaited(work, text, sizeof text);
    assert_string_equal(text, expected);
}

static void test_each_rank_once(void **state)
{
    cz_group group = {.size = 6};
    cz_work *work = calloc(1, sizeof *work);
    assert_non_null(work);
    work->group = &group;
    work->parcels = calloc((size_t)CZ__ROUNDS * 6, sizeof *work->parcels);
    assert_non_null(work->parcels);
    put_up(&work->up_from[1], 4);
    expect_awaited(work, "rank 4");
    put_up(&work->up_from[0],
           2); /* the verdict, still on its way to a child that the data waits for */
    put_up(&work->parcels[2].send, 2);
    put_up(&work->parcels[6 + 2].receive, 2);
    put_up(&work->parcels[6 + 4].receive, 4);
    put_up(&work->parcels[6 + 0].receive, 0);
    work->parcels[3].send.transfer.peer = 3; /* landed */
    expect_awaited(work, "ranks 0, 2, 4");
    free(work->parcels);
    free(work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_rank_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
