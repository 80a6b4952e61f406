/* SPDX-License-Identifier: MIT */
/* The library on MPI: collectives give the values, and sums the bits, that they give on every
 * backend; on sub-groups, several at once, and beside MPI calls of the program. collectives LEVEL,
 * under mpirun. */
#include "mpi/mpi_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { LARGEST = 300007, HELD = 8 };

static const level *at;
static float input[LARGEST], output[LARGEST], many[HELD][1000];

/* ---- what is said where there is no carrier ---- */

static int lines_said;

static void count_lines(cz_log_level severity, const char *line, void *context)
{
    CHECK(strstr(line, "no carrier thread") && strstr(line, "cz_progress()"), "%s", line);
    CHECK((strstr(line, "serialized_is_ours") != NULL) == (at->mpi == MPI_THREAD_SERIALIZED), "%s",
          line);
    lines_said++;
}

static cz_group *create(size_t segment_bytes)
{
    cz_group_info info = CZ_GROUP_INFO_INIT;
    cz_group *group;
    const cz_group_options segments = {.size = sizeof segments, .segment_bytes = segment_bytes};
    cz_mpi_options options = CZ_MPI_OPTIONS_INIT;
    options.serialized_is_ours = at->ours;
    OK(cz_group_create_mpi(&group, MPI_COMM_WORLD, &options, &segments));
    CHECK(cz_group_rank(group) == my_rank && cz_group_size(group) == world_size, "rank, size");
    CHECK(cz_mpi_carrier(group) == at->carrier, "carrier");
    OK(cz_group_get_info(group, &info));
    CHECK(strcmp(info.backend, "mpi") == 0, "%s", info.backend);
    return group;
}

static void test_sums(cz_group *group, int64_t count)
{
    const int me = cz_group_rank(group), size = cz_group_size(group);
    for (int64_t i = 0; i < count; i++)
        input[i] = value(me, i);
    OK(cz_all_reduce(group, input, count, CZ_F32, CZ_SUM, NULL));
    for (int64_t i = 0; i < count; i++)
        CHECK(input[i] == tree_sum(0, size, i), "element %d of %d", (int)i, (int)count);
    const int64_t part = count / size;
    for (int64_t i = 0; i < part * size; i++)
        input[i] = value(me, i);
    OK(cz_reduce_scatter(group, input, output, part, CZ_F32, CZ_AVERAGE, NULL));
    for (int64_t i = 0; i < part; i++)
        CHECK(output[i] == tree_sum(0, size, me * part + i) / (float)size, "element %d", (int)i);
    OK(cz_all_gather(group, output, input, part, CZ_F32, NULL));
    for (int64_t i = 0; i < part * size; i++)
        CHECK(input[i] == tree_sum(0, size, i) / (float)size, "gathered element %d", (int)i);
}

static void test_moves(cz_group *group)
{
    const int me = cz_group_rank(group), size = cz_group_size(group);
    int64_t from[64], to[64], counts[64], one = 1000 + me, got = -1;
    for (int root = 0; root < size; root++) {
        one = 1000 + me;
        OK(cz_broadcast(group, &one, 1, CZ_I64, root, NULL));
        CHECK(one == 1000 + root, "broadcast from %d: %d", root, (int)one);
        one = me;
        OK(cz_gather(group, &one, to, 1, CZ_I64, root, NULL));
        for (int r = 0; r < size && me == root; r++)
            CHECK(to[r] == r, "gather");
        OK(cz_scatter(group, to, &got, 1, CZ_I64, root, NULL));
        CHECK(got == me, "scatter");
        OK(cz_reduce(group, &one, &got, 1, CZ_I64, CZ_MAX, root, NULL));
        CHECK(me != root || got == size - 1, "reduce");
    }
    for (int r = 0; r < size; r++)
        from[r] = me * 100 + r;
    OK(cz_all_to_all(group, from, to, 1, CZ_I64, NULL));
    for (int r = 0; r < size; r++)
        CHECK(to[r] == r * 100 + me, "all_to_all");
    int64_t begin = 0, mine = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = r % 3;
        mine = r == me ? begin : mine;
        begin += counts[r];
    }
    for (int64_t i = 0; i < counts[me]; i++)
        from[i] = mine + i;
    OK(cz_all_gather_v(group, from, to, counts, CZ_I64, NULL));
    for (int64_t i = 0; i < begin; i++)
        CHECK(to[i] == i, "all_gather_v");
    OK(cz_barrier(group, NULL));
}

/* What rank r sends to rank `to`: nothing to most, up to some hundred elements to others. */
static int64_t pair_count(int round, int r, int to)
{
    const uint32_t word = (uint32_t)(round * 10007 + r * 101 + to) * 2654435761u;
    return word >> 20 & 1 ? 0 : (int64_t)(word >> 8 & 255) * (round % 3);
}

static void test_pairs(cz_group *group)
{
    const int me = cz_group_rank(group), size = cz_group_size(group);
    int64_t sends[64], receives[64];
    for (int round = 0; round < 6; round++) {
        int64_t k = 0;
        for (int r = 0; r < size; r++) {
            sends[r] = pair_count(round, me, r);
            receives[r] = pair_count(round, r, me);
            for (int64_t i = 0; i < sends[r]; i++)
                input[k++] = value(me * 64 + r, i);
        }
        OK(cz_all_to_all_v(group, input, sends, output, receives, CZ_F32, NULL));
        k = 0;
        for (int r = 0; r < size; r++)
            for (int64_t i = 0; i < receives[r]; i++)
                CHECK(output[k++] == value(r * 64 + me, i), "from rank %d", r);
    }
    const int from = size / 2, to = size - 1; /* the only pair that does not fit */
    char wanted[64];
    snprintf(wanted, sizeof wanted, "rank %d sends 5 elements to rank %d, which",
             cz_group_global_rank(group, from), cz_group_global_rank(group, to));
    for (int r = 0; r < size; r++)
        sends[r] = me == from && r == to ? 5 : 4, receives[r] = 4;
    CHECK(cz_all_to_all_v(group, input, sends, output, receives, CZ_F32, NULL) == CZ_ERR_MISMATCH &&
              strstr(cz_last_error(), wanted),
          "%s", cz_last_error());
    OK(cz_all_to_all_v(group, input, receives, output, receives, CZ_F32, NULL));
}

static void test_object(cz_group *group)
{
    void *object;
    size_t bytes;
    OK(cz_broadcast_object(group, "some words", 11, cz_group_size(group) - 1, &object, &bytes));
    CHECK(bytes == 11 && strcmp(object, "some words") == 0, "%zu bytes", bytes);
    cz_object_free(object);
}

static void test_disagreement(cz_group *group)
{
    float data[4] = {1, 1, 1, 1};
    if (cz_group_size(group) == 1)
        return;
    CHECK(cz_all_reduce(group, data, 2 + cz_group_rank(group) % 2, CZ_F32, CZ_SUM, NULL) ==
              CZ_ERR_MISMATCH,
          "%s", cz_last_error());
    OK(cz_all_reduce(group, data, 4, CZ_F32, CZ_SUM, NULL));
    CHECK(data[3] == (float)cz_group_size(group), "%g", (double)data[3]);
}

/* Started on two groups in turn, waited for from the last to the first. */
static void test_several_in_flight(cz_group *a, cz_group *b)
{
    cz_work *works[HELD];
    for (int round = 0; round < 20; round++) {
        for (int k = 0; k < HELD; k++) {
            cz_group *group = k % 2 ? a : b;
            for (int i = 0; i < 1000; i++)
                many[k][i] = value(cz_group_rank(group), i + k);
            OK(cz_all_reduce(group, many[k], 1000, CZ_F32, CZ_SUM, CZ_START("held", &works[k])));
        }
        if (round % 5 == 0)
            usleep(500);
        for (int k = HELD - 1; k >= 0; k--) {
            const int size = cz_group_size(k % 2 ? a : b);
            OK(cz_work_wait(works[k]));
            cz_work_destroy(&works[k]);
            for (int i = 0; i < 1000; i++)
                CHECK(many[k][i] == tree_sum(0, size, i + k), "work %d, element %d", k, i);
        }
    }
}

/* Where ranks are: by the name that each takes for its machine's. */
static void test_places(cz_group *group)
{
    enum { MOST = 64, BYTES = 64 };
    static char names[MOST * BYTES];
    char name[BYTES] = "";
    cz_group_info info = CZ_GROUP_INFO_INIT;
    const char *set = getenv("CZERO_MPI_NODE");
    const int me = cz_group_rank(group), size = cz_group_size(group);
    int before = 0, here = 0, cores = 0;
    CHECK(size <= MOST, "%d ranks", size);
    if (set)
        snprintf(name, sizeof name, "%s", set);
    else
        CHECK(gethostname(name, sizeof name - 1) == 0, "no name");
    OK(cz_all_gather(group, name, names, BYTES, CZ_U8, NULL));
    for (int r = 0; r < size; r++) {
        const bool same = strcmp(names + (size_t)r * BYTES, name) == 0;
        before += same && r < me;
        here += same;
    }
    OK(cz_group_get_info(group, &info));
    CHECK(info.local_rank == before, "local rank %d", info.local_rank);
    CHECK(info.local_size == here, "local size %d", info.local_size);
    OK(cz_group_local_cores(group, &cores));
    CHECK(cores >= 1, "%d cores", cores);
}

static void test_sub_groups(cz_group *world)
{
    cz_group *half, *quarter, *pair;
    const int list[] = {world_size - 1, 0};
    OK(cz_group_split(world, my_rank % 2, -my_rank, &half)); /* in reverse order */
    test_moves(half);
    test_pairs(half);
    test_sums(half, 1001);
    test_places(half);
    OK(cz_group_split(half, cz_group_rank(half) % 2, 0, &quarter));
    test_sums(quarter, 100);
    OK(cz_group_subset(world, list, world_size > 1 ? 2 : 1, &pair));
    if (pair)
        test_moves(pair);
    test_several_in_flight(quarter, world);
    cz_group_destroy(&half);
    test_several_in_flight(quarter, quarter);
    cz_group_destroy(&quarter);
    cz_group_destroy(&pair);
}

/* The sums are checked bit by bit, so other segments give the same. */
static void test_segments(void)
{
    static const size_t bytes[] = {64, 192, 4096, 0};
    for (int i = 0; i < 4; i++) {
        cz_group *group = create(bytes[i]);
        for (int64_t count = 5; count <= 20000; count *= 60)
            test_sums(group, count);
        test_pairs(group);
        cz_group_destroy(&group);
    }
}

/* ---- MPI used by the program meanwhile ---- */

static atomic_bool stop;
static MPI_Comm own; /* the program's */

static void *use_mpi(void *rounds)
{
    int go_on = 1;
    for (; go_on; atomic_fetch_add((atomic_int *)rounds, 1)) {
        int local = !atomic_load(&stop), sum = 0;
        const int one = 1;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, own);
        CHECK(sum == world_size, "the program's own sum is %d", sum);
        MPI_Allreduce(&local, &go_on, 1, MPI_INT, MPI_MAX, own);
        usleep(200);
    }
    return NULL;
}

static void test_beside_mpi(cz_group *group)
{
    pthread_t thread;
    atomic_int rounds = 0;
    if (at->mpi != MPI_THREAD_MULTIPLE)
        return;
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    CHECK(pthread_create(&thread, NULL, use_mpi, &rounds) == 0, "no thread");
    for (int i = 0; i < 30; i++) {
        test_sums(group, 2000);
        test_moves(group);
    }
    while (atomic_load(&rounds) < 3)
        usleep(100);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    MPI_Comm_free(&own);
}

int main(int argc, char **argv)
{
    at = begin(argc, argv);
    cz_log_set_sink(count_lines, NULL);
    cz_group *group = create(0), *second = create(0);
    cz_log_set_sink(NULL, NULL);
    CHECK(lines_said == !at->carrier, "said %d times", lines_said);
    for (int64_t count = 0; count <= LARGEST; count = count * 20 + 7)
        test_sums(group, count);
    test_moves(group);
    test_pairs(group);
    test_object(group);
    test_disagreement(group);
    test_several_in_flight(group, second);
    test_places(group);
    test_sub_groups(group);
    test_segments();
    test_beside_mpi(second);
    cz_group_destroy(&group);
    test_moves(second);
    cz_group_destroy(&second);
    MPI_Finalize();
    return 0;
}
