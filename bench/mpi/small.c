/* SPDX-License-Identifier: MIT */
/* Small trainings between processes: a net of a few tensors, its gradients there. What codes that
 * train over MPI write by hand, MPI_Allreduce of each tensor and AdamW on every rank; the same with
 * one all-reduce of everything, MPI's or czero's; and czero's zero_step, a ddp pass with its step
 * after it, and one that makes it at its end. All alternate, in memory of each process. Under
 * mpirun. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "czero/czero.h"
#include "czero/mpi.h"
#include "mpi/shared.h"
#include "shared/result.h"

enum { NETS = 6, MOST_TENSORS = 12 };

/* Tensors of nets: layers of a perceptron, weights and biases in turn. */
static const struct {
    int64_t total;
    int tensors;
} nets[NETS] = {{465, 4}, {1000, 2}, {10000, 6}, {100000, 8}, {1000000, 10}, {10000000, 12}};

typedef enum side { EACH, WHOLE, ALL_REDUCE, ZERO, DDP, DDP_STEP, SIDES } side;
static const char *const side_names[SIDES] = {"by hand",   "one MPI_Allreduce", "all_reduce",
                                              "zero_step", "ddp, zero_step",    "ddp with step"};

typedef struct bench {
    cz_group *group;
    bench_meet *meet;
    int rank, ranks, rounds, repeats[SIDES];
    int64_t only;
    bool quick;
    const char *label;
    int64_t total, sizes[MOST_TENSORS];
    int tensors;
    float *values, *gradients, *moment, *second;
    int64_t steps; /* by hand */
    cz_model *model, *ddp_models[2];
    cz_zero *zero, *ddp_zeros[2];
    cz_ddp *ddps[2]; /* with a step after the pass, and in it */
} bench;

/* Half of the elements to each odd layer's weights, small biases. */
static void cut(bench *b, int net)
{
    int64_t left = nets[net].total;
    b->total = left;
    b->tensors = nets[net].tensors;
    for (int t = b->tensors - 1; t > 0; t--) {
        b->sizes[t] = t % 2 ? left / 40 + 1 : left / 3;
        left -= b->sizes[t];
    }
    b->sizes[0] = left;
}

/* PyTorch's AdamW: as fast as a compiler makes it. */
static void adamw(bench *b)
{
    const float rate = 1e-4f, decay = 0.01f, beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f;
    const float correction1 = 1 - powf(beta1, (float)++b->steps);
    const float correction2 = sqrtf(1 - powf(beta2, (float)b->steps));
    for (int64_t i = 0; i < b->total; i++) {
        const float g = b->gradients[i] /= (float)b->ranks;
        b->moment[i] = beta1 * b->moment[i] + (1 - beta1) * g;
        b->second[i] = beta2 * b->second[i] + (1 - beta2) * g * g;
        b->values[i] *= 1 - rate * decay;
        b->values[i] -=
            rate / correction1 * b->moment[i] / (sqrtf(b->second[i]) / correction2 + epsilon);
    }
}

static cz_status step(bench *b, side which)
{
    float *at = b->gradients;
    if (which == EACH || which == WHOLE) {
        for (int t = 0; t < b->tensors && which == EACH; at += b->sizes[t++])
            MPI_Allreduce(MPI_IN_PLACE, at, (int)b->sizes[t], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (which == WHOLE)
            MPI_Allreduce(MPI_IN_PLACE, at, (int)b->total, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        adamw(b);
        return CZ_OK;
    }
    if (which == ALL_REDUCE) {
        CZ_TRY(cz_all_reduce(b->group, at, b->total, CZ_F32, CZ_SUM, NULL));
        adamw(b);
        return CZ_OK;
    }
    if (which == ZERO)
        return cz_zero_step(b->zero, NULL, NULL);
    const int k = which == DDP_STEP;
    CZ_TRY(cz_ddp_begin(b->ddps[k], true));
    for (int t = b->tensors - 1; t >= 0; t--)
        CZ_TRY(cz_ddp_mark_ready(b->ddps[k], t));
    CZ_TRY(cz_ddp_finish(b->ddps[k]));
    return cz_zero_step(b->ddp_zeros[k], NULL, NULL);
}

/* Seconds of a step, the mean of as many as `repeats` says. Gradients stay as they are: a mean of
 * equal ones. */
static cz_status measure(bench *b, side which, double *seconds)
{
    for (int64_t i = 0; i < b->total; i++)
        b->gradients[i] = 1e-4f;
    bench_meet_all(b->meet, b->rank);
    const double begin = bench_seconds();
    for (int i = 0; i < b->repeats[which]; i++)
        CZ_TRY(step(b, which));
    bench_meet_all(b->meet, b->rank);
    *seconds = (bench_seconds() - begin) / b->repeats[which];
    return CZ_OK;
}

/* As many steps as fit into a moment, the same number on all ranks. */
static cz_status fit(bench *b, side which)
{
    const double moment = b->quick ? 2e-3 : 2e-2;
    double seconds;
    b->repeats[which] = 20;
    CZ_TRY(measure(b, which, &seconds));
    CZ_TRY(measure(b, which, &seconds));
    b->repeats[which] = moment / seconds > 1 ? (int)fmin(moment / seconds, 1e5) : 1;
    MPI_Bcast(&b->repeats[which], 1, MPI_INT, 0, MPI_COMM_WORLD);
    return CZ_OK;
}

static cz_status fill_model(const bench *b, cz_model **model)
{
    char name[32];
    float *value = b->values, *gradient = b->gradients;
    CZ_TRY(cz_model_create(model));
    for (int t = 0; t < b->tensors; t++) {
        snprintf(name, sizeof name, "layer.%d", t);
        CZ_TRY(cz_model_add(*model, name, value, gradient, CZ_F32, 1, &b->sizes[t]));
        value += b->sizes[t];
        gradient += b->sizes[t];
    }
    return CZ_OK;
}

static cz_status create(bench *b)
{
    const cz_hyper *hypers = CZ_HYPERS({"lr", 1e-4}, {"weight_decay", 0.01});
    CZ_TRY(fill_model(b, &b->model));
    CZ_TRY(cz_zero_create(&b->zero, b->group, b->model, cz_rule_adamw(), hypers, NULL));
    for (int k = 0; k < 2; k++) {
        CZ_TRY(fill_model(b, &b->ddp_models[k]));
        CZ_TRY(cz_ddp_create(&b->ddps[k], b->group, b->ddp_models[k], NULL));
        const cz_zero_options options = {.size = sizeof options,
                                         .ddp = b->ddps[k],
                                         .overlap = k ? CZ_OVERLAP_STEP : CZ_OVERLAP_NONE};
        CZ_TRY(cz_zero_create(&b->ddp_zeros[k], b->group, b->ddp_models[k], cz_rule_adamw(), hypers,
                              &options));
    }
    return CZ_OK;
}

static cz_status run_net(bench *b, int net)
{
    static bench_samples samples[SIDES];
    double seconds;
    cut(b, net);
    CZ_TRY(create(b));
    for (int which = 0; which < SIDES; which++)
        CZ_TRY(fit(b, which));
    for (int round = 0; round < b->rounds; round++)
        for (int which = 0; which < SIDES; which++) {
            CZ_TRY(measure(b, which, &seconds));
            for (int ours = ALL_REDUCE; ours < SIDES && which <= WHOLE; ours++)
                if (which == EACH || ours == ALL_REDUCE)
                    samples[ours].limit[round] = seconds;
            samples[which].ours[round] = seconds;
        }
    for (int which = WHOLE; which < SIDES && b->rank == 0; which++) {
        char name[128];
        samples[which].rounds = b->rounds;
        if (which == WHOLE)
            for (int round = 0; round < b->rounds; round++)
                samples[which].limit[round] = samples[EACH].ours[round];
        snprintf(name, sizeof name, "mpi small %s%s%s%s", side_names[which], *b->label ? " (" : "",
                 b->label, *b->label ? ")" : "");
        bench_say(&(bench_row){.name = name,
                               .bytes = (size_t)b->total * sizeof(float),
                               .ranks = b->ranks,
                               .against = side_names[which == ALL_REDUCE ? WHOLE : EACH]},
                  &samples[which]);
    }
    for (int k = 0; k < 2; k++) {
        cz_zero_destroy(&b->ddp_zeros[k]);
        cz_ddp_destroy(&b->ddps[k]);
        cz_model_destroy(&b->ddp_models[k]);
    }
    cz_zero_destroy(&b->zero);
    cz_model_destroy(&b->model);
    return CZ_OK;
}

static cz_status run_all(bench *b)
{
    const size_t most = (size_t)nets[NETS - 1].total;
    float *memory = calloc(4 * most, sizeof *memory);
    if (!memory)
        return CZ_ERR_MEMORY;
    b->values = memory;
    b->gradients = memory + most;
    b->moment = memory + 2 * most;
    b->second = memory + 3 * most;
    CZ_TRY(cz_group_create_mpi(&b->group, MPI_COMM_WORLD, NULL, NULL));
    for (int net = 0; net < (b->quick ? 4 : NETS); net++)
        if (!b->only || b->only == nets[net].total)
            CZ_TRY(run_net(b, net));
    cz_group_destroy(&b->group);
    free(memory);
    return CZ_OK;
}

int main(int argc, char **argv)
{
    static bench b = {.label = ""};
    int rounds = 0, only = 0;
    MPI_Win window;
    bench_arguments(argc, argv, "Small steps between processes, and the usual loop by hand.",
                    (const bench_option[]){{"--quick", "small sizes, few rounds", .flag = &b.quick},
                                           {"--rounds", "of each (11)", .number = &rounds},
                                           {"--only", "one net, by its elements", .number = &only},
                                           {"--label", "what the settings are", .text = &b.label},
                                           {0}});
    bench_mpi_begin(&argc, &argv, &b.rank, &b.ranks);
    b.only = only;
    b.rounds = rounds > 0 && rounds <= BENCH_ROUNDS ? rounds : b.quick ? 3 : 11;
    b.meet = make_meet(&window, b.rank, b.ranks);
    if (b.rank == 0)
        bench_heading(
            "small steps of processes, limit: the loop by hand (above 1: czero is faster)");
    bench_mpi_check(run_all(&b), b.rank);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
