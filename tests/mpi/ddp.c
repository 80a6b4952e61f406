/* SPDX-License-Identifier: MIT */
/* Data-parallel models on MPI, under an unsharded optimizer and under a sharded one that steps
 * after the passes or inside them: the bits of one unsharded process whatever the order of marks;
 * what happens when a rank fails in a pass, leaves, or dies. ddp LEVEL train|fails|leaves|dies,
 * under mpirun. */
#include "mpi/mpi_test.h"

#include <signal.h>

#include "czero/czero.h"

enum { PARAMS = 8, ELEMENTS = 561, STEPS = 5 };
static const int64_t sizes[PARAMS] = {40, 0, 3, 131, 7, 16, 300, 64};

static const level *at;
static cz_group *group;

typedef struct net {
    cz_model *model;
    float values[ELEMENTS], grads[ELEMENTS];
    int64_t begins[PARAMS];
} net;

typedef struct mode {
    bool sharded;
    cz_partition partition;
    cz_overlap overlap;
    bool late, all_reduce;
    size_t bucket_bytes;
} mode;

static net trained, reference;
static cz_ddp *ddp;
static cz_zero *zero;
static cz_optim *optim, *plain; /* of the reference, and of the trained one if it is not sharded */

static cz_group *create_group(double timeout)
{
    cz_group *made;
    cz_mpi_options mpi = CZ_MPI_OPTIONS_INIT;
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    mpi.serialized_is_ours = at->ours;
    options.timeout_seconds = timeout;
    options.warn_seconds = timeout / 2;
    OK(cz_group_create_mpi(&made, MPI_COMM_WORLD, &mpi, &options));
    return made;
}

/* Values that only rank 0 knows. */
static void make_net(net *n, int rank)
{
    int64_t begin = 0;
    OK(cz_model_create(&n->model));
    for (int p = 0; p < PARAMS; begin += sizes[p++]) {
        char name[24];
        snprintf(name, sizeof name, "p%d", p);
        n->begins[p] = begin;
        for (int64_t i = 0; i < sizes[p]; i++)
            n->values[begin + i] = rank == 0 ? (float)(i + p) / 64 : -7;
        OK(cz_model_add(n->model, name, n->values + begin, n->grads + begin, CZ_F32, 1, &sizes[p]));
    }
}

static void make(const mode *m)
{
    cz_ddp_options buckets = CZ_DDP_OPTIONS_INIT;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    make_net(&trained, my_rank);
    make_net(&reference, 0);
    buckets.bucket_bytes = m->bucket_bytes;
    buckets.first_bucket_bytes = m->bucket_bytes / 2 + 1;
    buckets.all_reduce = m->all_reduce;
    OK(cz_ddp_create(&ddp, group, trained.model, &buckets));
    options.partition = m->partition;
    options.ddp = ddp;
    options.overlap = m->overlap;
    options.overlap_gather = m->late;
    if (m->sharded)
        OK(cz_zero_create(&zero, group, trained.model, cz_rule_adam(), NULL, &options));
    else
        OK(cz_optim_create(&plain, trained.model, cz_rule_adam(), NULL, NULL));
    OK(cz_optim_create(&optim, reference.model, cz_rule_adam(), NULL, NULL));
}

static void destroy(void)
{
    cz_zero_destroy(&zero);
    cz_optim_destroy(&plain);
    cz_optim_destroy(&optim);
    cz_ddp_destroy(&ddp);
    cz_model_destroy(&trained.model);
    cz_model_destroy(&reference.model);
}

static int micro_batches(int step)
{
    static const int counts[] = {4, 1, 2};
    return counts[step % 3];
}

/* Exact in every order of sums. */
static float part(int rank, int step, int micro, int p, int64_t i)
{
    return (float)((rank + 1) * ((i + p + step) % 5 - 2) + micro) / 32;
}

/* The k-th parameter that is marked: another order on each rank, and in each pass. */
static int marked(int k, int step, int micro)
{
    static const int strides[] = {1, 3, 5, 7};
    return (k * strides[(my_rank + step + micro) % 4] + my_rank + 3 * step) % PARAMS;
}

/* Gradients of a micro-batch, and marks of the first `count`. */
static void backward(int step, int micro, int count)
{
    for (int k = 0; k < count; k++) {
        const int p = marked(k, step, micro);
        float *grad = trained.grads + trained.begins[p];
        for (int64_t i = 0; i < sizes[p]; i++)
            grad[i] += part(my_rank, step, micro, p, i);
        OK(cz_ddp_mark_ready(ddp, p));
    }
}

static void reference_step(int step)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++) {
            double sum = 0;
            for (int r = 0; r < world_size; r++)
                for (int m = 0; m < micro_batches(step); m++)
                    sum += (double)part(r, step, m, p, i);
            reference.grads[reference.begins[p] + i] = (float)sum / (float)world_size;
        }
    OK(cz_optim_step(optim, NULL, NULL));
}

static void one_step(int step)
{
    const int last = micro_batches(step) - 1;
    memset(trained.grads, 0, sizeof trained.grads);
    for (int micro = 0; micro <= last; micro++) {
        OK(cz_ddp_begin(ddp, micro == last));
        backward(step, micro, PARAMS);
        OK(cz_ddp_finish(ddp));
    }
    OK(zero ? cz_zero_step(zero, NULL, NULL) : cz_optim_step(plain, NULL, NULL));
    reference_step(step);
    for (int k = 0; k < PARAMS; k++) {
        const int p = marked(k, step, 1);
        const size_t bytes = (size_t)sizes[p] * sizeof(float);
        if (zero)
            OK(cz_zero_wait_param(zero, p));
        CHECK(memcmp(trained.values + trained.begins[p], reference.values + trained.begins[p],
                     bytes) == 0,
              "step %d: parameter %d differs", step, p);
    }
}

static const mode modes[] = {
    {.bucket_bytes = 1},
    {.bucket_bytes = 300},
    {.sharded = true, .bucket_bytes = 300},
    {.sharded = true, .bucket_bytes = 1 << 20, .all_reduce = true},
    {.sharded = true, .bucket_bytes = 1, .overlap = CZ_OVERLAP_STEP},
    {.sharded = true, .bucket_bytes = 1, .overlap = CZ_OVERLAP_INTERLEAVED},
    {.sharded = true, .bucket_bytes = 300, .overlap = CZ_OVERLAP_INTERLEAVED},
    {.sharded = true,
     .bucket_bytes = 1 << 20,
     .overlap = CZ_OVERLAP_INTERLEAVED,
     .all_reduce = true},
    {.sharded = true, .bucket_bytes = 300, .overlap = CZ_OVERLAP_INTERLEAVED, .late = true}};
enum { MODES = sizeof modes / sizeof *modes };

static void train(void)
{
    static const cz_partition partitions[] = {CZ_PARTITION_ELEMENTS, CZ_PARTITION_GREEDY,
                                              CZ_PARTITION_BUCKETS, CZ_PARTITION_BUCKET_PIECES};
    group = create_group(60);
    for (int k = 0; k < MODES; k++)
        for (int partition = 0; partition < (modes[k].sharded ? 4 : 1); partition++) {
            mode m = modes[k];
            m.partition = partitions[partition];
            make(&m);
            for (int step = 0; step < STEPS; step++)
                one_step(step);
            destroy();
        }
    cz_group_destroy(&group);
}

static void expect(cz_status got, cz_status wanted, const char *text)
{
    CHECK(got == wanted && strstr(cz_last_error(), text), "%s: %s, not %s: …%s…",
          cz_status_name(got), cz_last_error(), cz_status_name(wanted), text);
}

/* The last rank lacks a mark in a pass: all ranks hear which, are alike, and the next pass
 * works. */
static void fail_once(const mode *m)
{
    char text[64];
    make(m);
    for (int round = 0; round < 3; round++) {
        const int lacking = my_rank == world_size - 1;
        OK(cz_ddp_begin(ddp, true));
        backward(round, 0, PARAMS - lacking);
        snprintf(text, sizeof text, "not marked ready");
        expect(cz_ddp_finish(ddp), CZ_ERR_STATE, text);
        if (zero)
            OK(cz_zero_check_replicas(zero));
        OK(cz_ddp_begin(ddp, true));
        backward(round, 0, PARAMS);
        OK(cz_ddp_finish(ddp));
        OK(zero ? cz_zero_step(zero, NULL, NULL) : CZ_OK);
        if (zero)
            OK(cz_zero_check_replicas(zero));
    }
    destroy();
}

static void fails(void)
{
    group = create_group(60);
    for (int k = 0; k < MODES; k++)
        fail_once(&modes[k]);
    cz_group_destroy(&group);
}

/* Passes, and in the middle of one the last rank goes; the others get an error, and can destroy
 * all. */
static void lose_a_rank(void (*go)(void))
{
    for (int k = 0; k < 2; k++) {
        const cz_status status = cz_ddp_begin(ddp, true);
        CHECK(status == CZ_OK, "%s", cz_last_error());
        backward(k, 0, k == 1 && my_rank == world_size - 1 ? PARAMS / 2 : PARAMS);
        if (k == 1 && my_rank == world_size - 1)
            go();
        if (k == 0) {
            OK(cz_ddp_finish(ddp));
            continue;
        }
        const cz_status end = cz_ddp_finish(ddp);
        CHECK((end == CZ_ERR_PEER || end == CZ_ERR_TIMEOUT) && strstr(cz_last_error(), "bucket"),
              "%s: %s", cz_status_name(end), cz_last_error());
        const cz_status next = cz_ddp_begin(ddp, true);
        CHECK(next != CZ_OK, "a pass without a rank");
    }
    destroy();
    cz_group_destroy(&group);
}

static void leave(void)
{
    destroy();
    cz_group_destroy(&group);
    MPI_Finalize();
    exit(0);
}

static void leaves(void)
{
    static const mode m = {.sharded = true, .bucket_bytes = 300, .overlap = CZ_OVERLAP_INTERLEAVED};
    group = create_group(20);
    make(&m);
    lose_a_rank(leave);
}

static void die(void)
{
    raise(SIGKILL);
}

/* With --enable-recovery; MPI_Finalize would wait for the dead. */
static void dies(void)
{
    static const mode m = {.sharded = true, .bucket_bytes = 300, .overlap = CZ_OVERLAP_INTERLEAVED};
    group = create_group(5);
    make(&m);
    lose_a_rank(die);
    printf("rank %d of %d goes on\n", my_rank, world_size);
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"train", train}, {"fails", fails}, {"leaves", leaves}, {"dies", dies}};
    at = begin(argc, argv);
    for (size_t k = 0; argc > 2 && k < sizeof all / sizeof *all; k++)
        if (strcmp(argv[2], all[k].name) == 0)
            all[k].run();
    MPI_Finalize();
    return 0;
}
