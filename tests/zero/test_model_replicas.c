/* SPDX-License-Identifier: MIT */
/* Replicas that differ, in parameters and in buffers, are found with an optimizer and without one,
 * in one sentence on all ranks. */
#include <string.h>

#include "czero/zero.h"
#include "support/cz_test.h"

enum { MOST = 7, SENTENCE = 256, LONG = 5000 };

typedef struct trial {
    int odd_rank; /* -1: none */
    int odd;      /* which tensor differs: 0, 1: parameters, 2, 3: buffers */
    bool sharded, parameters_only, other_model;
    char sentences[MOST][SENTENCE];
} trial;

typedef struct replica {
    float first[LONG], second[3], gradients[LONG];
    double mean[2], variance[2];
    cz_model *model;
    cz_zero *zero;
} replica;

static cz_status open_replica(replica *r, cz_group *group, const trial *t)
{
    const bool odd = cz_group_rank(group) == t->odd_rank;
    CZ_TRY(cz_model_create(&r->model));
    CZ_TRY(cz_model_add(r->model, "weight", r->first, r->gradients, CZ_F32, 1, (int64_t[]){LONG}));
    CZ_TRY(cz_model_add(r->model, odd && t->other_model ? "biases" : "bias", r->second, r->second,
                        CZ_F32, 1, (int64_t[]){3}));
    CZ_TRY(cz_model_add_buffer(r->model, "mean", r->mean, CZ_F64, 1, (int64_t[]){2}));
    CZ_TRY(cz_model_add_buffer(r->model, "variance", r->variance, CZ_F64, 1, (int64_t[]){2}));
    if (t->sharded)
        CZ_TRY(
            cz_zero_create(&r->zero, group, r->model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL));
    if (odd && !t->other_model)
        *(t->odd == 0   ? (char *)&r->first[LONG - 1]
          : t->odd == 1 ? (char *)&r->second[1]
          : t->odd == 2 ? (char *)&r->mean[0]
                        : (char *)&r->variance[1]) = 1;
    return CZ_OK;
}

static cz_status ask(cz_group *group, void *context)
{
    trial *t = context;
    cz_replicas_options options = CZ_REPLICAS_OPTIONS_INIT;
    replica *r = calloc(1, sizeof *r);
    cz_status status = open_replica(r, group, t);
    options.parameters_only = t->parameters_only;
    THEN(t->sharded ? cz_zero_check_replicas(r->zero)
                    : cz_model_check_replicas(group, r->model, &options));
    snprintf(t->sentences[cz_group_rank(group)], SENTENCE, "%s",
             status == CZ_OK ? "CZ_OK" : cz_last_error());
    if (status == CZ_OK || status == CZ_ERR_MISMATCH)
        status = cz_barrier(group, NULL);
    cz_zero_destroy(&r->zero);
    cz_model_destroy(&r->model);
    free(r);
    return status;
}

static void expect_on(int world, trial *t, const char *word)
{
    char rank[40];
    assert_ranks_ok(world, ask, t);
    snprintf(rank, sizeof rank, "rank %d", t->odd_rank);
    if (!strstr(t->sentences[0], word) ||
        (t->odd_rank >= 0 && world > 2 && strcmp(word, "CZ_OK") != 0 &&
         !strstr(t->sentences[0], rank)))
        fail_msg("world size %d, wanted '%s' and %s: %s", world, word, rank, t->sentences[0]);
    for (int r = 1; r < world; r++)
        assert_string_equal(t->sentences[r], t->sentences[0]);
}

static const int worlds[] = {1, 2, 3, 5, 7};

TEST(parameters_and_buffers_that_differ_are_found)
{
    static const char *const words[] = {"parameter 0 'weight'", "parameter 1 'bias'",
                                        "buffer 0 'mean'", "buffer 1 'variance'"};
    for (int w = 0; w < 5; w++)
        for (int sharded = 0; sharded < 2; sharded++) {
            expect_on(worlds[w], &(trial){.odd_rank = -1, .sharded = sharded}, "CZ_OK");
            for (int odd = 0; worlds[w] > 1 && odd < 4; odd++)
                expect_on(worlds[w],
                          &(trial){.odd_rank = odd % worlds[w], .odd = odd, .sharded = sharded},
                          words[odd]);
        }
}

TEST(buffers_may_be_left_out)
{
    expect_on(3, &(trial){.odd_rank = 1, .odd = 3, .parameters_only = true}, "CZ_OK");
    expect_on(3, &(trial){.odd_rank = 1, .odd = 1, .parameters_only = true}, "'bias'");
}

TEST(other_models_are_named)
{
    expect_on(3, &(trial){.odd_rank = 2, .other_model = true}, "parameter 1 is 'biases' on rank 2");
}
