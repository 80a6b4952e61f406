/* SPDX-License-Identifier: MIT */
/* Averaging against the same in one process: when, over whom, what, and to the last bit. */
#include "averaging/replicas.h"
#include "averaging/averager.h"

enum { STEPS = 14 };

typedef struct trial {
    cz_averager_level levels[3];
    int64_t level_count; /* 0: periodic, the period is that of the first */
    int64_t warmup;
    bool (*has_gradient)(int rank, int step, int p); /* NULL: always */
    int frozen;                                      /* from step 3 on; -1: none */
} trial;

static bool has(const trial *t, int rank, int step, int p)
{
    return !t->has_gradient || t->has_gradient(rank, step, p);
}

static int ranks_due(const trial *t, int world, int64_t step)
{
    const int64_t since = step - t->warmup;
    int ranks = 0;
    if (since < 0)
        return 0;
    if (t->level_count == 0)
        return since % t->levels[0].period == 0 ? world : 0;
    for (int k = 0; k < t->level_count; k++)
        ranks = since % t->levels[k].period == 0 ? t->levels[k].ranks : ranks;
    return ranks;
}

static void average_all(const trial *t, replica *all, int world, int ranks, int step)
{
    for (int first = 0; ranks > 1 && first < world; first += ranks)
        for (int p = 0; p < PARAMS; p++) {
            bool any = false;
            for (int r = first; r < first + ranks; r++)
                any = any || has(t, r, step, p);
            if (any && (p != t->frozen || step < 3))
                average(all, first, ranks, p);
        }
}

static bool nowhere(int rank, int step, int p)
{
    return false;
}

static cz_status create(cz_averager **averager, cz_group *group, cz_model *model, const trial *t)
{
    cz_averager_options options = CZ_AVERAGER_OPTIONS_INIT;
    options.warmup_steps = t->warmup;
    options.allow_no_gradients = t->has_gradient == nowhere;
    return t->level_count == 0
               ? cz_averager_create_periodic(averager, group, model, t->levels[0].period, &options)
               : cz_averager_create_hierarchical(averager, group, model, t->levels, t->level_count,
                                                 &options);
}

static cz_status one_step(const trial *t, cz_group *group, cz_averager *averager, cz_model *model,
                          replica *mine, replica *all, int step)
{
    const int rank = cz_group_rank(group), world = cz_group_size(group);
    const int wanted = ranks_due(t, world, step);
    int ranks = -1;
    char gradient;
    if (step == 3 && t->frozen >= 0)
        CZ_TRY(cz_model_set_requires_grad(model, t->frozen, false));
    for (int p = 0; p < PARAMS; p++)
        CZ_TRY(cz_model_set_gradient(model, p, has(t, rank, step, p) ? &gradient : NULL));
    drift(mine, rank, step);
    for (int r = 0; r < world; r++)
        drift(&all[r], r, step);
    CZ_TRY(cz_averager_average(averager, &ranks));
    average_all(t, all, world, wanted, step);
    if (ranks != (wanted > 1 ? wanted : 0) || averager->step != step + 1)
        return cz_fail(CZ_ERR_STATE, "step %d: averaged over %d, wanted %d; counted %d", step,
                       ranks, wanted, (int)averager->step);
    return compare(mine, &all[rank], step);
}

static cz_status each_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    const int world = cz_group_size(group);
    cz_averager *averager = NULL;
    cz_model *model = NULL;
    replica *all = calloc((size_t)world + 1, sizeof *all), *mine = &all[world];
    for (int r = 0; r <= world; r++)
        fill(&all[r]);
    cz_status status = make_model(&model, mine);
    THEN(create(&averager, group, model, t));
    for (int s = 0; s < STEPS && status == CZ_OK; s++)
        status = one_step(t, group, averager, model, mine, all, s);
    cz_model_destroy(&model); /* before what stands on it */
    cz_averager_destroy(&averager);
    free(all);
    return status;
}

static void run(int world, trial *t)
{
    char why[256];
    if (cz_test_run_ranks(world, each_rank, t, why) != CZ_OK)
        fail_msg("%d ranks, %d levels, period %d, warm-up %d: %s", world, (int)t->level_count,
                 (int)t->levels[0].period, (int)t->warmup, why);
}

static const int worlds[] = {1, 2, 3, 5, 7};

TEST(periodic)
{
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
        for (int64_t period = 1; period <= 3; period++)
            for (int64_t warmup = 0; warmup <= 4; warmup += 4) {
                trial t = {.levels = {LEVEL(period, 0)}, .warmup = warmup, .frozen = -1};
                run(worlds[w], &t);
            }
}

/* The warm-up is counted alike: a level's first turn is right after it, whatever divides its
 * length. */
TEST(hierarchical)
{
    static const struct {
        int world;
        trial t;
    } trials[] = {
        {1, {{LEVEL(2, 1), LEVEL(3, 1)}, 2, 0, NULL, -1}},
        {2, {{LEVEL(1, 1), LEVEL(3, 2)}, 2, 1, NULL, -1}},
        {4, {{LEVEL(2, 2), LEVEL(4, 4)}, 2, 0, NULL, -1}},
        {4, {{LEVEL(2, 2), LEVEL(4, 4)}, 2, 3, NULL, -1}},
        {6, {{LEVEL(1, 2), LEVEL(2, 3), LEVEL(4, 6)}, 3, 1, NULL, -1}},
        {6,
         {{LEVEL(2, 6), LEVEL(3, 2), LEVEL(5, 6)},
          3,
          0,
          NULL,
          -1}}, /* the last one counts, not the largest */
        {8, {{LEVEL(1, 2), LEVEL(2, 4), LEVEL(8, 8)}, 3, 5, NULL, -1}},
        {9, {{LEVEL(2, 3), LEVEL(3, 9)}, 2, 2, NULL, -1}},
    };
    for (size_t k = 0; k < sizeof trials / sizeof *trials; k++) {
        trial t = trials[k].t;
        run(trials[k].world, &t);
    }
}

/* A single level over everybody is the periodic one. */
TEST(one_level)
{
    trial t = {{LEVEL(3, 5)}, 1, 4, NULL, -1};
    run(5, &t);
}

static bool here_and_there(int rank, int step, int p)
{
    return p == 0 || (p == 2 && rank == step % 3) || (p == 3 && step % 2 == 0) ||
           (p == 4 && rank > 1) || p == 5;
}

/* Upstream averages what each rank happens to have a gradient for: other lists on other ranks. */
TEST(gradients_on_some_ranks_and_frozen)
{
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        trial t = {
            .levels = {LEVEL(2, 0)}, .warmup = 1, .has_gradient = here_and_there, .frozen = 5};
        run(worlds[w], &t);
    }
    trial t = {{LEVEL(1, 2), LEVEL(2, 6)}, 2, 0, here_and_there, 5};
    run(6, &t);
}

TEST(no_gradient_anywhere)
{
    trial t = {.levels = {LEVEL(1, 0)}, .has_gradient = nowhere, .frozen = -1};
    run(3, &t);
}
