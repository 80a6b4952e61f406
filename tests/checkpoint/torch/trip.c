/* SPDX-License-Identifier: MIT */
/* trip RULE WORLD IN OUT FIRST COUNT [HYPER=VALUE…] [parameters-only | plain]: import IN ("-":
 * begin anew), train COUNT steps from step FIRST, export to OUT. trip.py does the same with torch,
 * and compares. Gradients are exact in both: (i + 3 p + 5 step) mod 9 - 4, over 32, and a quarter
 * of the parameter. HYPER=VALUE is for the second parameter group; plain: there is one, and no
 * buffer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "czero/czero.h"
#include "support/cz_test.h"

enum { PARAMS = 4, LARGEST = 30, HYPERS = 8 };

static const struct {
    const char *name;
    int64_t count;
    int dimensions;
    int64_t shape[2];
} params[PARAMS] = {{"body.weight", 30, 2, {5, 6}},
                    {"body.bias", 5, 1, {5}},
                    {"scale", 1, 0, {0}},
                    {"head.weight", 10, 2, {2, 5}}};

typedef struct job {
    const char *rule, *in, *out;
    int world, first, count, parameters_only, plain;
    cz_hyper hypers[HYPERS];
} job;

typedef struct trainee {
    cz_model *model;
    cz_zero *zero;
    cz_checkpoint *checkpoint;
    float values[PARAMS][LARGEST], grads[PARAMS][LARGEST];
    int64_t seen;
    double mean[3];
} trainee;

static cz_status build(trainee *t, cz_group *group, const job *j)
{
    static const int64_t three = 3, first[] = {0, 1, 2, 3}, *const second = first + 2;
    CZ_TRY(cz_model_create(&t->model));
    for (int p = 0; p < PARAMS; p++) {
        for (int i = 0; i < LARGEST; i++)
            t->values[p][i] = (float)((i + p) % 7 - 3) / 8;
        CZ_TRY(cz_model_add(t->model, params[p].name, t->values[p], t->grads[p], CZ_F32,
                            params[p].dimensions, params[p].shape));
    }
    if (!j->plain) {
        CZ_TRY(cz_model_add_buffer(t->model, "body.seen", &t->seen, CZ_I64, 0, NULL));
        CZ_TRY(cz_model_add_buffer(t->model, "body.mean", t->mean, CZ_F64, 1, &three));
    }
    const cz_param_group groups[] = {
        {.size = sizeof(cz_param_group),
         .params = first,
         .param_count = j->plain ? 4 : 2,
         .hypers = NULL},
        {.size = sizeof(cz_param_group), .params = second, .param_count = 2, .hypers = j->hypers}};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.groups = groups;
    options.group_count = j->plain ? 1 : 2;
    options.partition = CZ_PARTITION_ELEMENTS;
    options.gradients = CZ_GRADIENTS_REDUCED;
    CZ_TRY(cz_zero_create(&t->zero, group, t->model, cz_rule_find(j->rule), CZ_HYPERS({"lr", 0.5}),
                          &options));
    cz_checkpoint_options with = CZ_CHECKPOINT_OPTIONS_INIT;
    with.zero = t->zero;
    return cz_checkpoint_create(&t->checkpoint, group, "not used", &with);
}

static cz_status step(trainee *t, int number)
{
    for (int p = 0; p < PARAMS; p++)
        for (int i = 0; i < params[p].count; i++)
            t->grads[p][i] =
                (float)((i + 3 * p + 5 * number) % 9 - 4) / 32 + t->values[p][i] * 0.25f;
    t->seen++;
    t->mean[number % 3] += 0.5;
    return cz_zero_step(t->zero, NULL, NULL);
}

static cz_status travel(trainee *t, const job *j)
{
    cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
    options.step = j->first + j->count;
    options.parameters_only = j->parameters_only;
    if (strcmp(j->in, "-") != 0)
        CZ_TRY(cz_checkpoint_import(t->checkpoint, j->in, NULL, NULL));
    for (int k = 0; k < j->count; k++)
        CZ_TRY(step(t, j->first + k));
    return cz_checkpoint_export(t->checkpoint, j->out, &options);
}

static cz_status body(cz_group *group, void *context)
{
    trainee *t = calloc(1, sizeof *t);
    cz_status status = build(t, group, context);
    THEN(travel(t, context));
    cz_checkpoint_destroy(&t->checkpoint);
    cz_zero_destroy(&t->zero);
    cz_model_destroy(&t->model);
    free(t);
    return status;
}

int main(int count, char **words)
{
    char why[256];
    job j = {0};
    if (count < 7 || count > 7 + HYPERS - 1)
        return 2;
    j = (job){.rule = words[1],
              .world = atoi(words[2]),
              .in = words[3],
              .out = words[4],
              .first = atoi(words[5]),
              .count = atoi(words[6])};
    j.parameters_only = strcmp(words[count - 1], "parameters-only") == 0;
    j.plain = strcmp(words[count - 1], "plain") == 0;
    count -= j.parameters_only || j.plain;
    for (int i = 7; i < count; i++) {
        char *equals = strchr(words[i], '=');
        if (!equals)
            return 2;
        *equals = 0;
        j.hypers[i - 7] = (cz_hyper){words[i], atof(equals + 1)};
    }
    if (cz_test_run_ranks(j.world, body, &j, why) == CZ_OK)
        return 0;
    fprintf(stderr, "%s\n", why);
    return 1;
}
