/* SPDX-License-Identifier: MIT */
/* Ranks that disagree, or whose own arguments are wrong: all ranks get the same status and
 * sentence, which names rank and thing; no data moves and the group works on. */
#include "group/collective.h"
#include "group/group_test.h"

enum { COUNT = 40, PATTERN = 0x33 };

/* A call that is right, or, on the odd rank, wrong in one thing. */
typedef cz_status (*call)(cz_group *group, bool odd, float *buffer, float *other,
                          const cz_operation_options *options);

typedef struct fault {
    call call;
    cz_status status;
    const char *word; /* in the sentence */
    bool two;         /* a disagreement needs two ranks */
} fault;

#define CALL(name)                                                                                 \
    static cz_status name(cz_group *group, bool odd, float *buffer, float *other,                  \
                          const cz_operation_options *options)

CALL(null_buffer)
{
    return cz_all_reduce(group, odd ? NULL : buffer, COUNT, CZ_F32, CZ_SUM, options);
}

CALL(null_output)
{
    return cz_reduce_scatter(group, other, odd ? NULL : buffer, 4, CZ_F32, CZ_SUM, options);
}

CALL(null_input)
{
    return cz_all_gather(group, odd ? NULL : buffer, other, 4, CZ_F32, options);
}

CALL(negative_count)
{
    return cz_all_reduce(group, buffer, odd ? -1 : COUNT, CZ_F32, CZ_SUM, options);
}

CALL(huge_count)
{
    return cz_broadcast(group, buffer, odd ? INT64_MAX / 4 : COUNT, CZ_F32, 0, options);
}

CALL(huge_blocks) /* a count that is a size, but not world_size times */
{
    return cz_all_gather(group, buffer, other, odd ? INT64_MAX / 65 : 4, CZ_F32, options);
}

CALL(no_type)
{
    return cz_all_reduce(group, buffer, COUNT, odd ? (cz_dtype)0 : CZ_F32, CZ_SUM, options);
}

CALL(unknown_type)
{
    return cz_broadcast(group, buffer, COUNT, odd ? (cz_dtype)99 : CZ_F32, 0, options);
}

CALL(negative_root)
{
    return cz_broadcast(group, buffer, COUNT, CZ_F32, odd ? -1 : 0, options);
}

CALL(root_outside)
{
    return cz_broadcast(group, buffer, COUNT, CZ_F32, odd ? cz_group_size(group) : 0, options);
}

CALL(no_reduction)
{
    return cz_all_reduce(group, buffer, COUNT, CZ_F32, odd ? (cz_reduction)0 : CZ_SUM, options);
}

CALL(unknown_reduction)
{
    return cz_reduce_scatter(group, other, buffer, 4, CZ_F32, odd ? (cz_reduction)99 : CZ_SUM,
                             options);
}

CALL(integer_average)
{
    return cz_all_reduce(group, buffer, COUNT, CZ_I32, odd ? CZ_AVERAGE : CZ_SUM, options);
}

CALL(options_of_the_future)
{
    struct {
        cz_operation_options known;
        int unknown;
    } more = {.known = options ? *options : (cz_operation_options){0}, .unknown = 1};
    more.known.size = sizeof more;
    return cz_all_reduce(group, buffer, COUNT, CZ_F32, CZ_SUM, odd ? &more.known : options);
}

CALL(other_operation)
{
    return odd ? cz_broadcast(group, buffer, COUNT, CZ_F32, 0, options)
               : cz_all_reduce(group, buffer, COUNT, CZ_F32, CZ_SUM, options);
}

CALL(barrier_among_sums)
{
    return odd ? cz_barrier(group, options)
               : cz_all_reduce(group, buffer, COUNT, CZ_F32, CZ_SUM, options);
}

CALL(other_count)
{
    return cz_all_reduce(group, buffer, odd ? COUNT - 3 : COUNT, CZ_F32, CZ_SUM, options);
}

CALL(other_count_of_nothing)
{
    return cz_all_gather(group, buffer, other, odd ? 0 : 4, CZ_F32, options);
}

CALL(other_type)
{
    return cz_all_reduce(group, buffer, COUNT, odd ? CZ_I32 : CZ_F32, CZ_SUM, options);
}

CALL(other_reduction)
{
    return cz_reduce_scatter(group, other, buffer, 4, CZ_F32, odd ? CZ_MAX : CZ_AVERAGE, options);
}

CALL(other_root)
{
    return cz_broadcast(group, buffer, COUNT, CZ_F32, odd, options);
}

static const fault faults[] = {
    {null_buffer, CZ_ERR_ARGUMENT, "NULL", false},
    {null_output, CZ_ERR_ARGUMENT, "NULL", false},
    {null_input, CZ_ERR_ARGUMENT, "NULL", false},
    {negative_count, CZ_ERR_ARGUMENT, "count is -1", false},
    {huge_count, CZ_ERR_ARGUMENT, "count is", false},
    {huge_blocks, CZ_ERR_ARGUMENT, "count is", false},
    {no_type, CZ_ERR_ARGUMENT, "unknown type 0", false},
    {unknown_type, CZ_ERR_ARGUMENT, "unknown type 99", false},
    {negative_root, CZ_ERR_ARGUMENT, "root is -1", false},
    {root_outside, CZ_ERR_ARGUMENT, "root is", false},
    {no_reduction, CZ_ERR_ARGUMENT, "unknown reduction 0", false},
    {unknown_reduction, CZ_ERR_ARGUMENT, "unknown reduction 99", false},
    {integer_average, CZ_ERR_UNSUPPORTED, "average of i32", false},
    {options_of_the_future, CZ_ERR_UNSUPPORTED, "cz_operation_options", false},
    {other_operation, CZ_ERR_MISMATCH, "called broadcast", true},
    {barrier_among_sums, CZ_ERR_MISMATCH, "called barrier", true},
    {other_count, CZ_ERR_MISMATCH, "gave 37", true},
    {other_count_of_nothing, CZ_ERR_MISMATCH, "gave 0", true},
    {other_type, CZ_ERR_MISMATCH, "i32", true},
    {other_reduction, CZ_ERR_MISMATCH, "max", true},
    {other_root, CZ_ERR_MISMATCH, "root 1", true},
};
enum { FAULT_COUNT = sizeof faults / sizeof *faults };

static outcome outcomes[FAULT_COUNT][MANY_RANKS][MANY_RANKS]; /* fault, odd rank, rank */

static cz_status untouched(const void *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        CHECK(((const unsigned char *)memory)[i] == PATTERN, "byte %zu was written", i);
    return CZ_OK;
}

/* One call in which `odd` is wrong, waited for at once or later, then one in which all are
 * right. */
static cz_status meet(cz_group *group, const fault *f, int odd, outcome *mine)
{
    const int rank = cz_group_rank(group);
    float buffer[COUNT], other[COUNT * MANY_RANKS], one = 1;
    cz_work *work = NULL;
    memset(buffer, PATTERN, sizeof buffer);
    memset(other, PATTERN, sizeof other);
    if (odd % 2 == 0 || f->call == options_of_the_future) {
        note(mine, f->call(group, rank == odd, buffer, other, CZ_LABEL("thing")));
    } else {
        CZ_TRY(f->call(group, rank == odd, buffer, other, CZ_START("thing", &work)));
        note(mine, cz_work_wait(work));
        cz_work_destroy(&work);
    }
    CZ_TRY(untouched(buffer, sizeof buffer));
    CZ_TRY(untouched(other, sizeof other));
    CZ_TRY(cz_all_reduce(group, &one, 1, CZ_F32, CZ_SUM, NULL));
    CHECK(one == (float)cz_group_size(group), "after it the sum of ones is %g", one);
    return CZ_OK;
}

static cz_status each_rank(cz_group *group, void *arg)
{
    for (int f = 0; f < FAULT_COUNT; f++)
        for (int odd = 0; odd < cz_group_size(group); odd++)
            CZ_TRY(meet(group, &faults[f], odd, &outcomes[f][odd][cz_group_rank(group)]));
    return CZ_OK;
}

/* A disagreement with rank 0 may be told as one of the others with it. */
static void check_outcomes(int world, int f, int odd)
{
    char name[32];
    const outcome *first = &outcomes[f][odd][0];
    snprintf(name, sizeof name, "rank %d", odd);
    for (int r = 0; r < world; r++) {
        const outcome *this = &outcomes[f][odd][r];
        if (faults[f].two && world == 1 && this->status == CZ_OK)
            continue;
        if (this->status != faults[f].status)
            fail_msg("fault %d of rank %d of %d: rank %d got %s (%s)", f, odd, world, r,
                     cz_status_name(this->status), this->sentence);
        if (!strstr(this->sentence, name) || !strstr(this->sentence, faults[f].word))
            fail_msg("fault %d: \"%s\" lacks \"%s\" or \"%s\"", f, this->sentence, name,
                     faults[f].word);
        assert_string_equal(this->sentence, first->sentence);
    }
}

TEST(each_rank_in_turn_is_odd)
{
    for (int world = 2; world <= LARGEST_WORLD; world++) {
        expect_ok(world, 0, each_rank, NULL);
        for (int f = 0; f < FAULT_COUNT; f++)
            for (int odd = 0; odd < world; odd++)
                check_outcomes(world, f, odd);
    }
}

TEST(one_rank_alone)
{
    static const int local[] = {0, 3, 4, 6, 8, 10, 12}; /* faults that need nobody else */
    float buffer[COUNT], other[COUNT];
    cz_group *group = NULL;
    assert_ok(cz_group_create_self(&group, NULL));
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        const fault *f = &faults[local[i]];
        assert_int_equal(f->call(group, true, buffer, other, NULL), f->status);
        assert_non_null(strstr(cz_last_error(), f->word));
    }
    assert_ok(cz_barrier(group, NULL));
    cz_group_destroy(&group);
}

/* Of several wrong ranks the lowest is named. */
static cz_status each_rank_two_wrong(cz_group *group, void *arg)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    float x = 1;
    for (int a = 0; a < size; a++)
        for (int b = a + 1; b < size; b++) {
            outcome got;
            char wanted[32];
            snprintf(wanted, sizeof wanted, "rank %d: ", a);
            note(&got, rank == a   ? cz_broadcast(group, NULL, 1, CZ_F32, 0, NULL)
                       : rank == b ? cz_all_reduce(group, &x, -5, CZ_F32, CZ_SUM, NULL)
                                   : cz_barrier(group, NULL));
            /* a disagreement among ranks below counts as well */
            CHECK(got.status == CZ_ERR_ARGUMENT || (got.status == CZ_ERR_MISMATCH && a > 0),
                  "ranks %d and %d wrong: %s", a, b, got.sentence);
            CHECK(got.status != CZ_ERR_ARGUMENT || strncmp(got.sentence, wanted, 8) == 0,
                  "ranks %d and %d wrong: %s", a, b, got.sentence);
        }
    return CZ_OK;
}

TEST(the_lowest_is_named)
{
    for (int world = 2; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, each_rank_two_wrong, NULL);
}

/* Agreement: everybody's status, and whether fingerprints are equal. */
static cz_status each_rank_agree(cz_group *group, void *arg)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    bool same = false;
    CZ_TRY(cz__agree(group, CZ_OK, 42, &same, "alike"));
    CHECK(same, "equal fingerprints are different");
    for (int odd = 0; odd < size && size > 1; odd++) {
        CZ_TRY(cz__agree(group, CZ_OK, rank == odd ? 43 : 42, &same, "unlike"));
        CHECK(!same, "the fingerprint of rank %d is like the others", odd);
    }
    for (int odd = 0; odd < size; odd++) {
        outcome got;
        char wanted[64];
        const cz_status mine = rank >= odd ? cz_fail(CZ_ERR_IO, "disk %d is full", rank) : CZ_OK;
        note(&got, cz__agree(group, mine, 0, NULL, NULL));
        snprintf(wanted, sizeof wanted, "rank %d: disk %d is full", odd, odd);
        CHECK(got.status == CZ_ERR_IO && strcmp(got.sentence, wanted) == 0, "wanted %s, got %s",
              wanted, got.sentence);
    }
    return CZ_OK;
}

TEST(agreement)
{
    for (int world = 1; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, each_rank_agree, NULL);
}

/* Sentences and labels longer than there is room for are cut, not written beyond. */
static cz_status each_rank_long(cz_group *group, void *arg)
{
    char text[1000];
    outcome got;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    const cz_status mine = cz_group_rank(group) ? CZ_OK : cz_fail(CZ_ERR_IO, "%s", text);
    note(&got, cz__agree(group, mine, 0, NULL, text));
    CHECK(got.status == CZ_ERR_IO && strncmp(got.sentence, "rank 0: xxx", 11) == 0, "got %s",
          got.sentence);
    const cz_status status = cz_group_rank(group)
                                 ? cz_barrier(group, CZ_LABEL(text))
                                 : cz_broadcast(group, text, 1, CZ_U8, 0, CZ_LABEL(text));
    CHECK(status == (cz_group_size(group) > 1 ? CZ_ERR_MISMATCH : CZ_OK), "got %s",
          cz_last_error());
    return CZ_OK;
}

TEST(long_texts_are_cut)
{
    for (int world = 1; world <= 4; world++)
        expect_ok(world, 0, each_rank_long, NULL);
}
