/* SPDX-License-Identifier: MIT */
/* The program that docs/parts.md shows has one result on any number of ranks, and learns. */
#include <math.h>

#include "group/group_test.h"

int program_main(void);
#define main program_main
#include "program.c"
#undef main

static cz_status each_rank(cz_group *group, void *arg)
{
    return train(group, cz_group_rank(group) == 0 ? arg : NULL);
}

TEST(the_program_of_the_page_has_the_same_bits_on_any_number_of_ranks)
{
    static const int worlds[] = {1, 2, 3, 5, 7, 12};
    double first = 0;
    for (int w = 0; w < (int)(sizeof worlds / sizeof *worlds); w++) {
        outcome outcomes[PARTS];
        double loss = NAN;
        run_ranks(worlds[w], NULL, each_rank, &loss, outcomes);
        assert_all_ok(worlds[w], outcomes, "%d ranks", worlds[w]);
        first = w == 0 ? loss : first;
        if (memcmp(&loss, &first, sizeof loss) != 0)
            fail_msg("%d ranks: the loss is %a, on one it is %a", worlds[w], loss, first);
    }
    assert_true(first > 0 && first < 0.1);
}

TEST(it_runs)
{
    assert_int_equal(program_main(), 0);
}
