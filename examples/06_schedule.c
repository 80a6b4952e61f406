/* SPDX-License-Identifier: MIT */
/* A learning rate that rises and falls, and state dictionaries: half way, what the optimizer and
 * the scheduler know is taken out; new ones that are given it go on as if nothing had happened. A
 * state dictionary is the same for any number of ranks; a program may keep it in memory, send it,
 * or save it in a form of its own (for files there are checkpoints, see 09_resume.c). */
#include <stdlib.h>
#include <string.h>

#include "czero/czero.h"

enum { N = 100, STEPS = 60, WARMUP = 10 };

typedef struct trainer {
    float weights[N], gradients[N];
    cz_model *model;
    cz_zero *zero;
    cz_sched *sched;
} trainer;

static cz_status begin(trainer *t, cz_group *group)
{
    cz_sched *parts[2];
    memset(t, 0, sizeof *t);
    CZ_TRY(cz_model_create(&t->model));
    CZ_TRY(cz_model_add(t->model, "weights", t->weights, t->gradients, CZ_F32, 1, (int64_t[]){N}));
    CZ_TRY(cz_zero_create(&t->zero, group, t->model, cz_rule_adam(), CZ_HYPERS({"lr", 0.2}), NULL));
    cz_optim *optim = cz_zero_local_optim(t->zero); /* its groups are the sharded optimizer's */
    CZ_TRY(cz_sched_create_linear(&parts[0], optim, 0.1, 1, WARMUP, NULL));
    CZ_TRY(cz_sched_create_cosine(&parts[1], optim, STEPS - WARMUP, 0, NULL));
    return cz_sched_create_sequential(&t->sched, parts, 2, (int64_t[]){WARMUP}); /* owns them now */
}

static void end(trainer *t)
{
    cz_sched_destroy(&t->sched);
    cz_zero_destroy(&t->zero);
    cz_model_destroy(&t->model);
}

/* Rank r pulls weight i towards i / N + r - (the mean of all r), so they settle at i / N. */
static cz_status run(trainer *t, cz_group *group, int from, int to)
{
    const float pull = (float)cz_group_rank(group) - 0.5f * (float)(cz_group_size(group) - 1);
    for (int step = from; step < to; step++) {
        double distance = 0;
        for (int i = 0; i < N; i++) {
            const float away = t->weights[i] - (float)i / N;
            distance += 0.5 * away * away / N;
            t->gradients[i] = away - pull;
        }
        if (cz_group_rank(group) == 0 && step % 5 == 0)
            printf("step %2d  rate %.4f  loss %.4f\n", step, cz_sched_last_lr(t->sched, 0),
                   distance);
        CZ_TRY(cz_zero_step(t->zero, NULL, NULL));
        CZ_TRY(cz_sched_step(t->sched));
    }
    return CZ_OK;
}

static cz_status train(cz_group *group, void *context)
{
    trainer first, second;
    cz_state_dict *optimizer, *schedule;
    CZ_TRY(begin(&first, group));
    CZ_TRY(run(&first, group, 0, STEPS / 2));
    /* Each has a shard until now. */
    CZ_TRY(cz_zero_consolidate_state_dict(first.zero, CZ_ALL_RANKS));
    CZ_TRY(cz_zero_state_dict(first.zero, &optimizer));
    CZ_TRY(cz_sched_state_dict(first.sched, &schedule));

    CZ_TRY(begin(&second, group));
    memcpy(second.weights, first.weights, sizeof second.weights);
    CZ_TRY(cz_zero_load_state_dict(second.zero, optimizer));
    CZ_TRY(cz_sched_load_state_dict(second.sched, schedule));
    cz_state_dict_destroy(&optimizer);
    cz_state_dict_destroy(&schedule);
    CZ_TRY(run(&second, group, STEPS / 2, STEPS));
    if (cz_group_rank(group) == 0)
        printf("the same without a break:\n");
    CZ_TRY(run(&first, group, STEPS / 2, STEPS));
    const bool same = memcmp(first.weights, second.weights, sizeof first.weights) == 0;
    if (cz_group_rank(group) == 0)
        printf("weights have %s bits\n", same ? "the same" : "other");
    end(&second);
    end(&first);
    return CZ_OK;
}

int main(void)
{
    cz_launch_options launch = CZ_LAUNCH_OPTIONS_INIT;
    launch.ranks = getenv("CZERO_RANKS") ? 0 : 3;
    CZ_CHECK(cz_launch(train, NULL, &launch));
    return 0;
}
