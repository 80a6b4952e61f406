/* SPDX-License-Identifier: MIT */
/* A sharded optimizer that reduces gradients itself, on MPI: after every step the bits of one
 * unsharded process, with every element-wise rule, with gradients that are missing on some ranks or
 * on all and parameters that are frozen, with 16-bit values and gradients among those in f32, and
 * when a rank leaves. zero LEVEL train|mixed|leaves, under mpirun. */
#include "mpi/mpi_test.h"

#include "czero/czero.h"

enum { PARAMS = 9, ELEMENTS = 71200, STEPS = 5 };
/* The largest takes several rounds, on two ranks and on more. */
static const int64_t sizes[PARAMS] = {40, 0, 3, 131, 70007, 16, 300, 64, 611};

static cz_group *group;

typedef struct net {
    cz_model *model;
    float values[ELEMENTS], grads[ELEMENTS];
    void *value[PARAMS], *grad[PARAMS];
} net;

static net trained, reference;
static cz_zero *zero;
static cz_optim *optim; /* of the reference */
static bool mixed;      /* every second parameter is bf16, with gradients that are */

static cz_dtype dtype_of(int p)
{
    return mixed && p % 2 ? CZ_BF16 : CZ_F32;
}

static size_t size_of(cz_dtype dtype)
{
    return dtype == CZ_BF16 ? sizeof(uint16_t) : sizeof(float);
}

/* What is put has few digits: bf16 cuts off zeros. */
static void put(cz_dtype dtype, void *to, int64_t i, float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    if (dtype == CZ_BF16)
        ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
    else
        ((float *)to)[i] = number;
}

/* The reference has means, which are f32 always. */
static void make_net(net *n, bool is_reference)
{
    int64_t begin = 0;
    OK(cz_model_create(&n->model));
    for (int p = 0; p < PARAMS; begin += sizes[p++]) {
        char name[24];
        snprintf(name, sizeof name, "p%d", p);
        n->value[p] = n->values + begin;
        n->grad[p] = n->grads + begin;
        const cz_tensor value = {n->value[p], dtype_of(p), CZ_DENSE, 2, {1, sizes[p]}, NULL};
        const cz_tensor grad = {
            n->grad[p], is_reference ? CZ_F32 : dtype_of(p), CZ_DENSE, 2, {1, sizes[p]}, NULL};
        for (int64_t i = 0; i < sizes[p]; i++)
            put(dtype_of(p), n->value[p], i, (float)(i % 97 + p) / 64);
        OK(cz_model_add_tensor(n->model, name, &value, &grad));
    }
}

static void make(const cz_rule *rule, cz_partition partition)
{
    const cz_hyper *hypers = CZ_HYPERS({"lr", 0.01});
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    make_net(&trained, false);
    make_net(&reference, true);
    options.partition = partition;
    OK(cz_zero_create(&zero, group, trained.model, rule, hypers, &options));
    OK(cz_optim_create(&optim, reference.model, rule, hypers, NULL));
}

static void destroy(void)
{
    cz_zero_destroy(&zero);
    cz_optim_destroy(&optim);
    cz_model_destroy(&trained.model);
    cz_model_destroy(&reference.model);
}

/* Nowhere in step 1, on rank 0 only in step 2. */
static bool has_gradient(int rank, int step, int p)
{
    return !(step == 1 && p == 4) && !(step == 2 && p % 3 == 1 && rank > 0);
}

/* Exact in every order of sums. */
static float part(int rank, int step, int p, int64_t i)
{
    return (float)((rank + 1) * ((i + p + step) % 5 - 2) + p) / 32;
}

static void set_gradients(int step)
{
    for (int p = 0; p < PARAMS; p++) {
        const bool mine = has_gradient(my_rank, step, p), any = has_gradient(0, step, p);
        OK(cz_model_set_gradient(trained.model, p, mine ? trained.grad[p] : NULL));
        OK(cz_model_set_gradient(reference.model, p, any ? reference.grad[p] : NULL));
        for (int64_t i = 0; i < sizes[p]; i++) {
            float sum = 0;
            for (int r = 0; r < world_size; r++)
                sum += has_gradient(r, step, p) ? part(r, step, p, i) : 0;
            put(CZ_F32, reference.grad[p], i, sum / (float)world_size);
            put(dtype_of(p), trained.grad[p], i, part(my_rank, step, p, i));
        }
    }
}

/* Frozen from step 3 on. */
static void freeze(int step)
{
    for (int p = 3; p < PARAMS && step == 3; p += 3) {
        OK(cz_model_set_requires_grad(trained.model, p, false));
        OK(cz_model_set_requires_grad(reference.model, p, false));
    }
}

static void one_step(const cz_rule *rule, int step)
{
    freeze(step);
    set_gradients(step);
    OK(cz_zero_step(zero, NULL, NULL));
    OK(cz_optim_step(optim, NULL, NULL));
    for (int p = 0; p < PARAMS; p++)
        CHECK(memcmp(trained.value[p], reference.value[p],
                     (size_t)sizes[p] * size_of(dtype_of(p))) == 0,
              "%s, step %d: parameter %d differs", rule->name, step, p);
}

static void train(void)
{
    static const cz_partition partitions[] = {CZ_PARTITION_ELEMENTS, CZ_PARTITION_GREEDY};
    for (int k = 0; cz_rule_name(k); k++)
        for (int i = 0; i < 2; i++) {
            make(cz_rule_find(cz_rule_name(k)), partitions[i]);
            for (int step = 0; step < STEPS; step++)
                one_step(cz_rule_find(cz_rule_name(k)), step);
            destroy();
        }
}

static void train_mixed(void)
{
    mixed = true;
    train();
}

/* The last rank goes between two steps, while the others are in the next. */
static void leaves(void)
{
    make(cz_rule_adamw(), CZ_PARTITION_ELEMENTS);
    for (int step = 0; step < 3; step++)
        one_step(cz_rule_adamw(), step);
    if (my_rank == world_size - 1)
        usleep(20000);
    else
        CHECK(cz_zero_step(zero, NULL, NULL) == CZ_ERR_PEER, "a step without a rank");
    destroy();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"train", train}, {"mixed", train_mixed}, {"leaves", leaves}};
    const level *at = begin(argc, argv);
    cz_mpi_options mpi = CZ_MPI_OPTIONS_INIT;
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    mpi.serialized_is_ours = at->ours;
    options.timeout_seconds = 60;
    OK(cz_group_create_mpi(&group, MPI_COMM_WORLD, &mpi, &options));
    for (size_t k = 0; argc > 2 && k < sizeof all / sizeof *all; k++)
        if (strcmp(argv[2], all[k].name) == 0)
            all[k].run();
    cz_group_destroy(&group);
    MPI_Finalize();
    return 0;
}
