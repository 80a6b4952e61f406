/* SPDX-License-Identifier: MIT */
/* Memory that MPI ranks of one machine share: they see one block, none has one unless all have,
 * ranks leave in any order; sharded optimizers over values in it have the bits of one unsharded
 * process. shared LEVEL, under mpirun. */
#include "mpi/mpi_test.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "czero/czero.h"

enum { PARAMS = 7, ELEMENTS = 140568, STEPS = 4 };
static const int64_t sizes[PARAMS] = {40, 0, 3, 131, 7, 140000, 387};

static cz_group *group;

/* ---- blocks ---- */

static void see_one_block(void)
{
    cz_shared *shared;
    const size_t bytes = ((size_t)4 << 20) + 100;
    void *block;
    OK(cz_shared_create(&shared, group, bytes, &block));
    int *numbers = block;
    CHECK((uintptr_t)numbers % 64 == 0, "a block");
    CHECK(cz_memory_bytes(CZ_MEMORY_GENERAL) >= bytes || my_rank > 0, "it is counted");
    numbers[100 * my_rank] = my_rank + 1;
    OK(cz_barrier(group, NULL));
    for (int r = 0; r < world_size; r++)
        CHECK(numbers[100 * r] == r + 1, "rank %d's number is %d", r, numbers[100 * r]);
    OK(cz_barrier(group, NULL));
    usleep((unsigned)(world_size - my_rank) * 3000); /* rank 0, which made it, is not the last */
    CHECK(numbers[0] == 1, "gone before this rank was");
    cz_shared_destroy(&shared);
}

static void refuse_sizes(void)
{
    cz_shared *shared;
    CHECK(cz_shared_create(&shared, group, my_rank == 0 ? 4096 : 8192, NULL) ==
                  (world_size > 1 ? CZ_ERR_MISMATCH : CZ_OK) &&
              !shared == (world_size > 1),
          "%s", cz_last_error());
    cz_shared_destroy(&shared);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* with an address space that is larger by itself */
#else
enum { SANITIZED = 0 };
#endif

/* The last rank has no address space left for the block: nobody gets one. */
static void run_out_of_space(void)
{
    cz_shared *shared;
    struct rlimit before;
    const size_t bytes = (size_t)64 << 30;
    const bool short_of = my_rank == world_size - 1;
    CHECK(getrlimit(RLIMIT_AS, &before) == 0, "getrlimit");
    const struct rlimit less = {(rlim_t)bytes / 2, before.rlim_max};
    if (short_of)
        CHECK(setrlimit(RLIMIT_AS, &less) == 0, "setrlimit");
    const cz_status status = cz_shared_create(&shared, group, bytes, NULL);
    if (short_of)
        CHECK(setrlimit(RLIMIT_AS, &before) == 0, "setrlimit");
    CHECK(status == CZ_ERR_MEMORY && !shared, "%s: %s", cz_status_name(status), cz_last_error());
    CHECK(world_size == 1 || strstr(cz_last_error(), "rank "), "%s", cz_last_error());
    OK(cz_barrier(group, NULL));
}

/* ---- trainings ---- */

typedef struct mode {
    cz_partition partition;
    bool ddp;
    cz_overlap overlap;
    bool late, norm;
} mode;

typedef struct net {
    cz_model *model;
    float *values, *grads;
    int64_t begins[PARAMS];
} net;

static net trained, reference;
static cz_shared *shared;
static cz_ddp *ddp;
static cz_zero *zero;
static cz_optim *optim;

static void make_net(net *n, float *values)
{
    int64_t begin = 0;
    n->values = values;
    n->grads = calloc(ELEMENTS, sizeof(float));
    CHECK(n->values && n->grads, "memory");
    OK(cz_model_create(&n->model));
    for (int p = 0; p < PARAMS; begin += sizes[p++]) {
        char name[24];
        snprintf(name, sizeof name, "p%d", p);
        n->begins[p] = begin;
        OK(cz_model_add(n->model, name, values + begin, n->grads + begin, CZ_F32, 1, &sizes[p]));
    }
}

static void set_values(float *values)
{
    for (int64_t i = 0; i < ELEMENTS; i++)
        values[i] = (float)(i % 97) / 64;
}

static void make(const mode *m)
{
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_ddp_options buckets = CZ_DDP_OPTIONS_INIT;
    void *block;
    OK(cz_shared_create(&shared, group, ELEMENTS * sizeof(float), &block));
    make_net(&trained, block);
    make_net(&reference, calloc(ELEMENTS, sizeof(float)));
    set_values(reference.values);
    if (my_rank == 0)
        set_values(trained.values);
    buckets.bucket_bytes = buckets.first_bucket_bytes = 900;
    if (m->ddp)
        OK(cz_ddp_create(&ddp, group, trained.model, &buckets));
    options.partition = m->partition;
    options.ddp = ddp;
    options.overlap = m->overlap;
    options.overlap_gather = m->late;
    OK(cz_zero_create(&zero, group, trained.model, cz_rule_adam(), NULL, &options));
    OK(cz_zero_broadcast_parameters(zero, 0));
    OK(cz_optim_create(&optim, reference.model, cz_rule_adam(), NULL, NULL));
}

static void destroy(void)
{
    cz_zero_destroy(&zero);
    cz_optim_destroy(&optim);
    cz_ddp_destroy(&ddp);
    cz_model_destroy(&trained.model);
    cz_model_destroy(&reference.model);
    cz_shared_destroy(&shared);
    free(trained.grads);
    free(reference.grads);
    free(reference.values);
}

/* Exact in every order of sums. */
static float part(int rank, int step, int64_t i)
{
    return (float)((rank + 1) * ((i + step) % 5 - 2) + 1) / 32;
}

/* Until its mark a parameter has the values of the step before. */
static void backward(int step)
{
    for (int k = PARAMS - 1; k >= 0; k--) {
        const int p = (k + (ddp ? my_rank : 0)) % PARAMS;
        const int64_t begin = trained.begins[p];
        for (int64_t i = begin; i < begin + sizes[p]; i++)
            trained.grads[i] = part(my_rank, step, i);
        OK(cz_zero_wait_param(zero, p));
        if (my_rank == world_size - 1)
            usleep(200);
        CHECK(memcmp(trained.values + begin, reference.values + begin,
                     (size_t)sizes[p] * sizeof(float)) == 0,
              "step %d: parameter %d was written before its mark", step, p);
        if (ddp)
            OK(cz_ddp_mark_ready(ddp, p));
    }
}

static void reference_step(int step, const cz_step_options *options)
{
    for (int64_t i = 0; i < ELEMENTS; i++) {
        double sum = 0;
        for (int r = 0; r < world_size; r++)
            sum += (double)part(r, step, i);
        reference.grads[i] = (float)sum / (float)world_size;
    }
    OK(cz_optim_step(optim, options, NULL));
}

static void train(const mode *m)
{
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    cz_trace_totals sync = CZ_TRACE_TOTALS_INIT;
    make(m);
    options.norm = m->norm;
    for (int step = 0; step < STEPS; step++) {
        if (ddp)
            OK(cz_ddp_begin(ddp, true));
        backward(step);
        if (ddp)
            OK(cz_ddp_finish(ddp));
        OK(cz_zero_step(zero, m->overlap ? NULL : &options, NULL));
        reference_step(step, &options);
        for (int p = 0; p < PARAMS; p++) {
            OK(cz_zero_wait_param(zero, p));
            CHECK(memcmp(trained.values + trained.begins[p], reference.values + reference.begins[p],
                         (size_t)sizes[p] * sizeof(float)) == 0,
                  "step %d: parameter %d differs", step, p);
        }
    }
    OK(cz_zero_trace(zero, CZ_TRACE_SYNC, &sync));
    CHECK(sync.bytes == 0, "values were sent");
    OK(cz_zero_check_replicas(zero));
    destroy();
}

static void train_in_all_modes(void)
{
    for (int partition = 0; partition < 2; partition++) {
        const cz_partition by = (cz_partition)partition;
        train(&(mode){by, false, CZ_OVERLAP_NONE, false, false});
        train(&(mode){by, false, CZ_OVERLAP_NONE, false, true});
        train(&(mode){by, true, CZ_OVERLAP_NONE, false, false});
        train(&(mode){by, true, CZ_OVERLAP_INTERLEAVED, false, false});
        train(&(mode){by, true, CZ_OVERLAP_INTERLEAVED, true, false});
        train(&(mode){by, true, CZ_OVERLAP_STEP, false, false});
    }
    train(&(mode){CZ_PARTITION_BUCKETS, true, CZ_OVERLAP_INTERLEAVED, true, false});
    train(&(mode){CZ_PARTITION_BUCKET_PIECES, true, CZ_OVERLAP_INTERLEAVED, false, false});
}

int main(int argc, char **argv)
{
    const level *at = begin(argc, argv);
    cz_mpi_options mpi = CZ_MPI_OPTIONS_INIT;
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    mpi.serialized_is_ours = at->ours;
    options.timeout_seconds = 60;
    OK(cz_group_create_mpi(&group, MPI_COMM_WORLD, &mpi, &options));
    for (int k = 0; k < 3; k++)
        see_one_block();
    refuse_sizes();
    if (!SANITIZED)
        run_out_of_space();
    see_one_block();
    train_in_all_modes();
    cz_group_destroy(&group);
    MPI_Finalize();
    if (my_rank == 0)
        printf("shared %s: %d ranks: all as promised\n", at->name, world_size);
    return 0;
}
