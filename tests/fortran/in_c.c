/* SPDX-License-Identifier: MIT */
/* The same things as in Fortran, done in C: what tests of the modules compare with. */
#include <string.h>

#include "czero/czero.h"

enum { A = 12, B = 5 };

int in_c_shape(cz_model *model, int64_t number, int64_t shape[8], int *dtype);
cz_status in_c_train(cz_group *group, const char *rule, const char *name, double number,
                     int partition, double max_norm, int with_groups, int dtype, int steps, void *a,
                     void *b, uint64_t fingerprint[2]);
cz_status in_c_rates(const char *kind, double *rates, int count);

int in_c_shape(cz_model *model, int64_t number, int64_t shape[8], int *dtype)
{
    cz_model_param param = CZ_MODEL_PARAM_INIT;
    cz_model_info info = CZ_MODEL_INFO_INIT;
    if (cz_model_get_info(model, &info) != CZ_OK ||
        cz_model_get_param(model, number >= 0 ? number : info.param_count - 1 - number, &param) !=
            CZ_OK)
        return -1;
    const cz_tensor *tensor = param.value;
    if (param.gradient && param.gradient->data == tensor->data)
        return -2;
    memcpy(shape, tensor->shape, sizeof tensor->shape);
    *dtype = tensor->dtype;
    return tensor->dimensions;
}

/* Every rank has other gradients, of the values as they are now. */
#define FILL(type, gradients, values, count)                                                       \
    for (int i = 0; i < (count); i++)                                                              \
        ((type *)(gradients))[i] = ((type *)(values))[i] * (type)0.3 + (type)(rank + 1) * (type)i;

cz_status in_c_train(cz_group *group, const char *rule, const char *name, double number,
                     int partition, double max_norm, int with_groups, int dtype, int steps, void *a,
                     void *b, uint64_t fingerprint[2])
{
    double ga[A], gb[B]; /* room for either type */
    const int rank = cz_group_rank(group);
    const int64_t first[] = {0}, second[] = {1};
    const cz_hyper hypers[] = {{"lr", 0.05}, {name[0] ? name : NULL, number}, {NULL, 0}};
    const cz_hyper slower[] = {{"lr", 0.01}, {NULL, 0}};
    cz_param_group groups[2] = {CZ_PARAM_GROUP_INIT, CZ_PARAM_GROUP_INIT};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_step_options step_options = CZ_STEP_OPTIONS_INIT;
    cz_model *model;
    cz_zero *zero;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "a", a, ga, (cz_dtype)dtype, 2, (int64_t[]){4, 3}));
    CZ_TRY(cz_model_add(model, "b", b, gb, (cz_dtype)dtype, 1, (int64_t[]){B}));
    options.partition = (cz_partition)partition;
    if (with_groups) {
        groups[0].params = second;
        groups[0].param_count = 1;
        groups[0].hypers = slower;
        groups[1].params = first;
        groups[1].param_count = 1;
        options.groups = groups;
        options.group_count = 2;
    }
    CZ_TRY(cz_zero_create(&zero, group, model, cz_rule_find(rule), hypers, &options));
    step_options.max_norm = max_norm;
    for (int step = 0; step < steps; step++) {
        if (dtype == CZ_F32) {
            FILL(float, ga, a, A)
            FILL(float, gb, b, B)
        } else {
            FILL(double, ga, a, A)
            FILL(double, gb, b, B)
        }
        CZ_TRY(cz_zero_step(zero, max_norm > 0 ? &step_options : NULL, NULL));
    }
    CZ_TRY(cz_zero_fingerprint(zero, fingerprint));
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    return CZ_OK;
}

static double halved(int64_t epoch, int64_t param_group, void *context)
{
    return 1 / (double)(epoch + param_group + 1);
}

static cz_status create(cz_sched **out, const char *kind, cz_optim *optim)
{
    const int64_t milestones[] = {2, 5};
    if (strcmp(kind, "step") == 0)
        return cz_sched_create_step(out, optim, 3, 0.5, NULL);
    if (strcmp(kind, "multi_step") == 0)
        return cz_sched_create_multi_step(out, optim, milestones, 2, 0.1, NULL);
    if (strcmp(kind, "exponential") == 0)
        return cz_sched_create_exponential(out, optim, 0.9, NULL);
    if (strcmp(kind, "constant") == 0)
        return cz_sched_create_constant(out, optim, 0.25, 4, NULL);
    if (strcmp(kind, "linear") == 0)
        return cz_sched_create_linear(out, optim, 0.1, 0.7, 6, NULL);
    if (strcmp(kind, "polynomial") == 0)
        return cz_sched_create_polynomial(out, optim, 7, 1.5, NULL);
    if (strcmp(kind, "cosine") == 0)
        return cz_sched_create_cosine(out, optim, 6, 0.001, NULL);
    if (strcmp(kind, "warm_restarts") == 0)
        return cz_sched_create_warm_restarts(out, optim, 2, 3, 0.002, NULL);
    if (strcmp(kind, "lambda") == 0)
        return cz_sched_create_lambda(out, optim, halved, NULL, NULL);
    if (strcmp(kind, "multiplicative") == 0)
        return cz_sched_create_multiplicative(out, optim, halved, NULL, NULL);
    if (strcmp(kind, "one_cycle") == 0) {
        const double max_lrs[] = {0.7};
        cz_sched_one_cycle_options options = CZ_SCHED_ONE_CYCLE_OPTIONS_INIT;
        options.pct_start = 0.4;
        options.base_momentum = 0.7;
        options.max_momentum = 0.8;
        options.div_factor = 9;
        options.final_div_factor = 100;
        options.max_lrs = max_lrs;
        options.linear = 1;
        options.three_phase = 1;
        return cz_sched_create_one_cycle(out, optim, 0.5, 10, &options);
    }
    if (strcmp(kind, "cyclic") == 0) {
        const double base_lrs[] = {0.02}, max_lrs[] = {0.3};
        cz_sched_cyclic_options options = CZ_SCHED_CYCLIC_OPTIONS_INIT;
        options.step_size_up = 2;
        options.step_size_down = 3;
        options.gamma = 0.8;
        options.base_momentum = 0.6;
        options.max_momentum = 0.9;
        options.base_lrs = base_lrs;
        options.max_lrs = max_lrs;
        options.mode = CZ_SCHED_EXP_RANGE;
        return cz_sched_create_cyclic(out, optim, 0.01, 0.2, &options);
    }
    if (strcmp(kind, "plateau") == 0) {
        const double min_lrs[] = {0.003};
        cz_sched_plateau_options options = CZ_SCHED_PLATEAU_OPTIONS_INIT;
        options.factor = 0.3;
        options.patience = 1;
        options.threshold = 0.5;
        options.cooldown = 1;
        options.min_lrs = min_lrs;
        options.eps = 1e-9;
        options.maximize = 1;
        options.absolute = 1;
        return cz_sched_create_plateau(out, optim, &options);
    }
    cz_sched *members[2];
    CZ_TRY(cz_sched_create_linear(&members[0], optim, 0.1, 1, 3, NULL));
    CZ_TRY(cz_sched_create_exponential(&members[1], optim, 0.9, NULL));
    return strcmp(kind, "chained") == 0
               ? cz_sched_create_chained(out, members, 2)
               : cz_sched_create_sequential(out, members, 2, (int64_t[]){3});
}

cz_status in_c_rates(const char *kind, double *rates, int count)
{
    double w = 1, g = 1;
    cz_model *model;
    cz_optim *optim;
    cz_sched *sched;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "w", &w, &g, CZ_F64, 0, NULL));
    CZ_TRY(cz_optim_create(&optim, model, cz_rule_adam(), CZ_HYPERS({"lr", 0.1}), NULL));
    CZ_TRY(create(&sched, kind, optim));
    for (int i = 0; i < count; i++) {
        double beta1;
        CZ_TRY(cz_optim_step(optim, NULL, NULL));
        if (strcmp(kind, "plateau") == 0)
            CZ_TRY(cz_sched_step_metric(sched, i < 4 ? i : 4));
        else
            CZ_TRY(cz_sched_step(sched));
        CZ_TRY(cz_optim_get_hyper(optim, 0, "lr", &rates[i]));
        CZ_TRY(cz_optim_get_hyper(optim, 0, "beta1", &beta1));
        rates[i] += 1000 * beta1;
    }
    cz_sched_destroy(&sched);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
    return CZ_OK;
}
