/* SPDX-License-Identifier: MIT */
/* Parts of a batch on MPI: after every step the bits of a plain loop over all parts, with every way
 * of stepping, weights, parameters that some parts do not use, and parameters that take several
 * rounds. parts LEVEL, under mpirun. */
#include "mpi/mpi_test.h"

#include "support/part_trials.h"

static cz_group *group;

static void try_here(const part_trial *t)
{
    part_values values;
    if (t->parts < world_size)
        return;
    OK(part_trial_work_out(t, &values));
    CHECK(part_trial_run(group, t, &values) == CZ_OK,
          "way %d, %d parts, weighing %d, absent %d, norm %g, %s: %s", t->way, t->parts,
          t->weighing, t->some_absent, t->max_norm, t->sizes == large_params ? "large" : "small",
          cz_last_error());
    part_values_free(&values);
}

static void try_numbers_of_parts(void)
{
    static const int parts[] = {1, 2, 3, 4, 5, 7, 8, 13, 31};
    for (int k = 0; k < (int)(sizeof parts / sizeof *parts); k++) {
        part_trial t = plain_part_trial(ALONE, parts[k]);
        try_here(&t);
        t.way = OVERLAP_STEP;
        try_here(&t);
    }
}

static void try_ways(void)
{
    for (int way = 0; way < WAYS; way++)
        for (int weighing = 0; weighing < WEIGHINGS; weighing++) {
            part_trial t = plain_part_trial((stepping)way, 12);
            t.weighing = (weights_kind)weighing;
            try_here(&t);
            t.some_absent = true;
            try_here(&t);
        }
}

static void try_clipping(void)
{
    static const stepping ways[] = {ALONE, ALONE_WHOLE, OVERLAP_NONE, WHOLE};
    for (int k = 0; k < (int)(sizeof ways / sizeof *ways); k++) {
        part_trial t = plain_part_trial(ways[k], 12);
        t.max_norm = 0.5;
        try_here(&t);
        t.rule = cz_rule_adam();
        t.dtype = CZ_F64;
        t.weighing = UNEVEN;
        try_here(&t);
    }
}

static void try_large_params(void)
{
    for (int way = 0; way < WAYS; way++) {
        part_trial t = plain_part_trial((stepping)way, 7);
        t.sizes = large_params;
        t.bucket_bytes = 1 << 16;
        t.some_absent = way % 2;
        try_here(&t);
    }
}

static void make_group(const level *at, size_t segment_bytes)
{
    cz_mpi_options mpi = CZ_MPI_OPTIONS_INIT;
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    mpi.serialized_is_ours = at->ours;
    options.timeout_seconds = 60;
    options.segment_bytes = segment_bytes;
    OK(cz_group_create_mpi(&group, MPI_COMM_WORLD, &mpi, &options));
}

int main(int argc, char **argv)
{
    const level *at = begin(argc, argv);
    make_group(at, 0);
    try_numbers_of_parts();
    try_ways();
    try_clipping();
    try_large_params();
    cz_group_destroy(&group);
    make_group(at, 4096); /* a chunk of a few hundred bytes */
    try_large_params();
    cz_group_destroy(&group);
    MPI_Finalize();
    return 0;
}
