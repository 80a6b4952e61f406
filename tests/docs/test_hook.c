/* SPDX-License-Identifier: MIT */
/* The hook that docs/add-a-hook.md shows: the program there runs, votes are counted for any world
 * and cap, and what it cannot do it refuses. */
#include "hooks/hook_test.h"

#include "vote.c"
#define each_rank program_rank
int program_main(void);
#define main program_main
#include "train.c"
#undef main
#undef each_rank

enum { COUNT = 50 };

static float gradient(int rank, int64_t i)
{
    return (float)((i * 7 + rank * 3) % 11 - 5) / 4;
}

static cz_status voted(subject *s)
{
    const int ranks = cz_group_size(s->group);
    float in[COUNT], got[COUNT];
    for (int64_t i = 0; i < COUNT; i++)
        in[i] = gradient(cz_group_rank(s->group), i);
    CZ_TRY(cz_ddp_register_hook(s->ddp, &vote_hook));
    for (int pass = 0; pass < 3; pass++) {
        CZ_TRY(subject_pass(s, in, NULL));
        subject_result(s, got);
        CZ_TRY(equal_everywhere(s->group, got, sizeof got));
        for (int64_t i = 0; i < COUNT; i++) {
            int votes = 0;
            for (int r = 0; r < ranks; r++)
                votes += gradient(r, i) > 0;
            const int sign = (2 * votes > ranks) - (2 * votes < ranks);
            if ((got[i] > 0) - (got[i] < 0) != sign)
                return cz_fail(CZ_ERR_STATE, "element %d is %g with %d of %d votes", (int)i,
                               (double)got[i], votes, ranks);
        }
    }
    return CZ_OK;
}

static cz_status voted_rank(cz_group *group, void *arg)
{
    subject s;
    cz_status status = subject_create(&s, group, arg);
    if (status == CZ_OK && s.layout->dtype == CZ_F32)
        status = voted(&s);
    if (status == CZ_OK && s.layout->dtype != CZ_F32) {
        const float in[COUNT] = {0};
        status = cz_ddp_register_hook(s.ddp, &vote_hook);
        THEN(expect(subject_pass(&s, in, NULL), CZ_ERR_UNSUPPORTED, "vote: wanted are f32"));
    }
    subject_clear(&s);
    return status;
}

TEST(the_hook_of_the_page_votes)
{
    static const size_t caps[] = {1, 100, 1 << 20};
    for (int w = 0; w < WORLDS; w++)
        for (int k = 0; k < 4; k++) {
            layout l = {.count = 3, .shapes = {{3, 8}, {25}, {1}}};
            l.dtype = k < 3 ? CZ_F32 : CZ_F64;
            l.options.bucket_bytes = l.options.first_bucket_bytes = caps[k % 3];
            assert_ranks_ok(worlds[w], voted_rank, &l);
        }
}

TEST(the_program_runs)
{
    assert_int_equal(program_main(), 0);
}
