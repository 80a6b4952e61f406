/* SPDX-License-Identifier: MIT */
/* Results have the same bits for every segment size: each collective on blocks of several segments
 * and on blocks smaller than one. */
#include "group/group_test.h"

enum { RESULTS = 13, BLOCK = 1500, BYTES = MANY_RANKS * BLOCK * 4 };

/* What one rank got, byte for byte. */
typedef struct results {
    unsigned char of[RESULTS][BYTES];
} results;

static cz_status every_reduction(cz_group *group, const void *in, results *out, int64_t n)
{
    const int size = cz_group_size(group), root = size - 1;
    int64_t counts[MANY_RANKS];
    for (int r = 0; r < size; r++)
        counts[r] = r % 3 == 1 ? 0 : n - 7 * r;
    memcpy(out->of[0], in, (size_t)(n * size) * 4);
    memcpy(out->of[1], in, (size_t)n * 2);
    CZ_TRY(cz_all_reduce(group, out->of[0], n * size, CZ_F32, CZ_SUM, NULL));
    CZ_TRY(cz_all_reduce(group, out->of[1], n, CZ_BF16, CZ_AVERAGE, NULL));
    CZ_TRY(cz_reduce(group, in, out->of[2], n, CZ_F32, CZ_PRODUCT, root, NULL));
    CZ_TRY(cz_reduce_scatter(group, in, out->of[3], n, CZ_F32, CZ_SUM, NULL));
    return cz_reduce_scatter_v(group, in, out->of[4], counts, CZ_F32, CZ_AVERAGE, NULL);
}

static cz_status every_move(cz_group *group, const void *in, results *out, int64_t n)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group), root = size / 2;
    int64_t counts[MANY_RANKS], sends[MANY_RANKS], receives[MANY_RANKS];
    for (int r = 0; r < size; r++) {
        counts[r] = r % 3 == 1 ? 0 : n - 7 * r;
        sends[r] = (rank + 2 * r) % 3 ? 0 : n - 5 * rank - r;
        receives[r] = (r + 2 * rank) % 3 ? 0 : n - 5 * r - rank;
    }
    memcpy(out->of[5], in, (size_t)(n * size) * 4);
    CZ_TRY(cz_broadcast(group, out->of[5], n * size, CZ_F32, root, NULL));
    CZ_TRY(cz_all_gather(group, in, out->of[6], n, CZ_F32, NULL));
    CZ_TRY(cz_gather(group, in, out->of[7], n, CZ_F32, root, NULL));
    CZ_TRY(cz_scatter(group, in, out->of[8], n, CZ_F32, root, NULL));
    CZ_TRY(cz_all_to_all(group, in, out->of[9], n, CZ_F32, NULL));
    CZ_TRY(cz_all_gather_v(group, in, out->of[10], counts, CZ_F32, NULL));
    CZ_TRY(cz_scatter_v(group, in, out->of[11], counts, CZ_F32, root, NULL));
    return cz_all_to_all_v(group, in, sends, out->of[12], receives, CZ_F32, NULL);
}

typedef struct plan {
    results *results; /* of each rank */
    int64_t count;    /* elements of a block */
} plan;

static cz_status each_rank(cz_group *group, void *arg)
{
    const plan *p = arg;
    const int rank = cz_group_rank(group);
    float *in = malloc(BYTES);
    CHECK(in, "no memory");
    fill(CZ_F32, 900 + (uint64_t)rank, BYTES / 4, in);
    cz_status status = every_reduction(group, in, &p->results[rank], p->count);
    THEN(every_move(group, in, &p->results[rank], p->count));
    free(in);
    return status;
}

/* Segments of 0 bytes: the bits that are wanted, of threads. */
static void run(int world, size_t segment_bytes, int64_t count, results *out)
{
    plan p = {out, count};
    memset(out, 0, (size_t)world * sizeof *out);
    if (segment_bytes) {
        expect_ok(world, segment_bytes, each_rank, &p);
        return;
    }
    cz_group *groups[MANY_RANKS];
    outcome outcomes[MANY_RANKS];
    assert_ok(cz_group_create_threads(groups, world, NULL));
    run_groups(world, groups, each_rank, &p, outcomes);
    assert_all_ok(world, outcomes, "%s", __func__);
}

TEST(the_same_bits)
{
    static const size_t segments[] = {64, 192, 4096};
    static const int64_t counts[] = {100, BLOCK};
    results *wanted = malloc((size_t)LARGEST_WORLD * sizeof *wanted);
    results *got = malloc((size_t)LARGEST_WORLD * sizeof *got);
    assert_true(wanted && got);
    for (int world = 1; world <= LARGEST_WORLD; world++)
        for (int c = 0; c < 2; c++) {
            run(world, 0, counts[c], wanted);
            for (int s = 0; s < 3; s++) {
                run(world, segments[s], counts[c], got);
                for (int i = 0; i < world * RESULTS; i++)
                    if (memcmp(got[i / RESULTS].of[i % RESULTS],
                               wanted[i / RESULTS].of[i % RESULTS], BYTES) != 0)
                        fail_msg("rank %d of %d, blocks of %d: operation %d has other bits in "
                                 "segments of %zu",
                                 i / RESULTS, world, (int)counts[c], i % RESULTS, segments[s]);
            }
        }
    free(wanted);
    free(got);
}
