/* SPDX-License-Identifier: MIT */
/* The rules that docs/add-a-rule.md shows: the program there runs; each rule, sharded on any number
 * of ranks in any way it allows, has the bits of one process that is not sharded. */
#include "support/cz_test.h"
#include "support/training.h"

#include <string.h>

int program_main(void);
#define main program_main
#include "clip.c"
#undef main
#include "lamb.c"
#include "muon.c"

static const int worlds[] = {1, 2, 3, 5, 7};

/* Cuts inside parameters, at their ends, and none; some with two dimensions. */
static const int64_t sizes[] = {35, 0, 1, 1000, 48, 16, 127, 63};
static const int64_t rows[] = {5, 0, 0, 20, 8, 0, 0, 9};
enum { PARAMS = sizeof sizes / sizeof *sizes };

static void check(cz_test_training training, int first_partition)
{
    char why[256];
    for (int partition = first_partition; partition < 2; partition++)
        for (int gradients = 0; gradients < 2; gradients++)
            for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
                training.partition = (cz_partition)partition;
                training.gradients = (cz_gradients)gradients;
                if (cz_test_train(&training, worlds[w], NULL, why) != CZ_OK)
                    fail_msg("%s, partition %d, gradients %d, world size %d: %s",
                             training.rule->name, partition, gradients, worlds[w], why);
            }
}

static cz_test_training plain(const cz_rule *rule)
{
    static const cz_hyper hypers[] = {{"lr", 0.01}, {NULL, 0}};
    return (cz_test_training){.param_count = PARAMS,
                              .sizes = sizes,
                              .rows = rows,
                              .dtype = CZ_F32,
                              .rule = rule,
                              .hypers = hypers,
                              .steps = 5};
}

/* Some have no gradient now and then, on some ranks or all. */
static bool mostly(int rank, int step, int64_t param)
{
    return param == 3 ? step != 1 : param == 4 ? rank == 0 || step > 2 : true;
}

static cz_status freeze_and_unfreeze(const cz_test_subject *subject, int step)
{
    return step > 2 ? CZ_OK : cz_model_set_requires_grad(subject->model, 6, step == 2);
}

static void check_all(const cz_rule *rule, int first_partition)
{
    cz_test_training training = plain(rule);
    check(training, first_partition);
    training.has_gradient = mostly;
    training.edit = freeze_and_unfreeze;
    check(training, first_partition);
}

TEST(the_program_runs)
{
    assert_int_equal(program_main(), 0);
}

TEST(element_wise)
{
    check_all(&clip_rule, CZ_PARTITION_ELEMENTS);
}

TEST(partial_sums)
{
    check_all(&lamb_rule, CZ_PARTITION_ELEMENTS);
}

TEST(whole_tensors)
{
    check_all(&muon_rule, CZ_PARTITION_GREEDY);
}

/* They do what they say: held to the clip, scaled by the norms, orthogonal. */
static void step_alone(const cz_rule *rule, int dimensions, const int64_t *shape, float *p,
                       float *g)
{
    cz_model *model;
    cz_optim *optim;
    assert_ok(cz_model_create(&model));
    assert_ok(cz_model_add(model, "p", p, g, CZ_F32, dimensions, shape));
    assert_ok(cz_optim_create(&optim, model, rule, CZ_HYPERS({"lr", 1}), NULL));
    assert_ok(cz_optim_step(optim, NULL, NULL));
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

TEST(what_they_compute)
{
    float p[6] = {0}, g[6] = {0.5f, 3, -4, 0, 1, -1};
    step_alone(&clip_rule, 1, (int64_t[]){6}, p, g);
    assert_memory_equal(p, ((float[]){-0.5f, -1, 1, 0, -1, 1}), sizeof p);
    float q[2] = {3, 4}, h[2] = {1, -1}; /* |q| = 5; without decay the move is about (1, -1) */
    step_alone(&lamb_rule, 1, (int64_t[]){2}, q, h);
    assert_true(fabsf(q[0] - (3 - 5 * (1 + 0.03f) / hypotf(1.03f, 0.96f))) < 1e-3f);
    float r[6] = {0}, k[6] = {3, 1, 2, -1, 2, 0.5f};
    step_alone(&muon_rule, 2, (int64_t[]){2, 3}, r, k);
    const float across = r[0] * r[3] + r[1] * r[4] + r[2] * r[5];
    const float first = r[0] * r[0] + r[1] * r[1] + r[2] * r[2];
    assert_true(fabsf(across) < 0.3f && first > 0.4f && first < 1.6f);
}
