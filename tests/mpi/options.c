/* SPDX-License-Identifier: MIT */
/* Options of groups that differ between ranks: refused when the group is made, by all ranks with
 * one sentence that has the option and both values; or harmless. options LEVEL, under mpirun. */
#include "mpi/mpi_test.h"

enum { LARGEST = 300001 };

static float buffer[LARGEST];

static cz_status create(cz_group **group, const cz_group_options *options, const level *at)
{
    cz_mpi_options mpi = CZ_MPI_OPTIONS_INIT;
    mpi.serialized_is_ours = at->ours;
    return cz_group_create_mpi(group, MPI_COMM_WORLD, &mpi, options);
}

static void expect_refused(const level *at, const cz_group_options *options, const char *words)
{
    char sentence[320] = "", first[320];
    cz_group *group;
    const cz_status status = create(&group, options, at);
    CHECK(status == CZ_ERR_MISMATCH, "%s: %s", cz_status_name(status), cz_last_error());
    CHECK(group == NULL, "a group was made");
    snprintf(sentence, sizeof sentence, "%s", cz_last_error());
    CHECK(strstr(sentence, words), "'%s' not in: %s", words, sentence);
    memcpy(first, sentence, sizeof first);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    CHECK(strcmp(first, sentence) == 0, "rank 0 has: %s, this one: %s", first, sentence);
}

static void expect_same_sums(const level *at, const cz_group_options *options)
{
    cz_group *group;
    OK(create(&group, options, at));
    for (int64_t i = 0; i < LARGEST; i++)
        buffer[i] = value(my_rank, i);
    OK(cz_all_reduce(group, buffer, LARGEST, CZ_F32, CZ_SUM, NULL));
    for (int64_t i = 0; i < LARGEST; i++)
        CHECK(buffer[i] == tree_sum(0, world_size, i), "element %d", (int)i);
    cz_group_destroy(&group);
}

int main(int argc, char **argv)
{
    const level *at = begin(argc, argv);
    const int odd = my_rank == world_size - 1;
    char words[128];
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    options.timeout_seconds = 30;
    expect_same_sums(at, &options);
    for (size_t bytes = 4096; bytes <= (1 << 20); bytes *= 256) {
        options.segment_bytes = odd ? bytes : 64 << 10;
        snprintf(words, sizeof words, "segment_bytes is %zu on rank %d, 65536 on rank", bytes,
                 world_size - 1);
        expect_refused(at, &options, words);
    }
    options.segment_bytes = 0;
    options.checked = odd;
    snprintf(words, sizeof words, "checked is 1 on rank %d, 0 on rank", world_size - 1);
    expect_refused(at, &options, words);
    options.checked = 0;
    options.timeout_seconds = odd ? 20 : 30;
    options.warn_seconds = odd ? 10 : 0;
    expect_same_sums(at, &options);
    MPI_Finalize();
    return 0;
}
