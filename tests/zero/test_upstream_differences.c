/* SPDX-License-Identifier: MIT */
/* What upstream's ZeroRedundancyOptimizer does by accident, done otherwise:
 * docs/pytorch-differences.md. */
#include "zero/upstream.h"
#include "zero/zero.h"
#include "tensor/model.h"

static const cz_test_net_shape shape = {.layers = 3, .widths = {3, 7, 5, 2}};
static const int64_t weights[] = {0, 2, 4}, biases[] = {1, 3, 5};
static const cz_param_group first_group = {sizeof first_group, weights, 3, NULL};
static const cz_param_group second_group = {sizeof second_group, biases, 3, NULL};

static uint64_t own_seed(const cz_group *group)
{
    return 100 * (uint64_t)(cz_group_rank(group) + 1);
}

static cz_status open_pair(pair *p, cz_group *group, mode m, const cz_rule *rule)
{
    CZ_TRY(pair_open(p, group, &shape, &shape, 1, 4));
    return pair_optimize(p, m, rule, CZ_HYPERS({"lr", 0.0625}), &first_group, 1);
}

static cz_status add_second(pair *p)
{
    CZ_TRY(cz_zero_add_param_group(p->zero, &second_group));
    return cz_optim_add_param_group(p->optim, &second_group);
}

#define CASE(name)                                                                                 \
    RANK_BODY(name, pair, pair_close, group, *(const mode *)context)                               \
    TEST(name)                                                                                     \
    {                                                                                              \
        for (int world = 1; world <= 5; world += world < 3 ? 1 : 2)                                \
            run_all(world, name##_body, #name);                                                    \
    }

/* ---- parameters of an added group can be frozen and unfrozen ---- */

static cz_status set_trained(pair *p, int64_t param, bool trained)
{
    CZ_TRY(cz_model_set_requires_grad(p->sharded.model, param, trained));
    return cz_model_set_requires_grad(p->plain.model, param, trained);
}

static cz_status added_ones_are_frozen(pair *p, cz_group *group, mode m)
{
    float before = 0;
    CZ_TRY(open_pair(p, group, m, cz_rule_adam()));
    CZ_TRY(set_trained(p, 1, false)); /* before it is in a group */
    for (int step = 0; step < 9; step++) {
        if (step == 1)
            CZ_TRY(add_second(p));
        if (step == 3) {
            CZ_TRY(set_trained(p, 1, true));
            CZ_TRY(set_trained(p, 3, false));
            before = *cz_test_net_value(&p->sharded, 3);
        }
        if (step == 6) {
            if (*cz_test_net_value(&p->sharded, 3) != before)
                return cz_fail(CZ_ERR_STATE, "a frozen parameter moved");
            CZ_TRY(set_trained(p, 3, true));
        }
        CZ_TRY(pair_step(p, own_seed(group) + (uint64_t)step));
    }
    return *cz_test_net_value(&p->sharded, 3) != before
               ? cz_zero_check_replicas(p->zero)
               : cz_fail(CZ_ERR_STATE, "an unfrozen parameter stays");
}
CASE(added_ones_are_frozen)

/* ---- frozen ones are left alone, also if their owner has a gradient ---- */

static cz_status gradients_of_frozen_ones(pair *p, cz_group *group, mode m)
{
    double loss;
    CZ_TRY(open_pair(p, group, m, cz_rule_sgd()));
    CZ_TRY(pair_step(p, own_seed(group)));
    const float before = *cz_test_net_value(&p->sharded, 2);
    CZ_TRY(cz_test_net_pass(&p->sharded, p->batch, p->inputs, NULL, false, &loss));
    CZ_TRY(cz_model_set_requires_grad(p->sharded.model, 2, false));
    for (int step = 0; step < 3; step++)
        CZ_TRY(cz_zero_step(p->zero, NULL, NULL));
    if (!cz__model_gradient(p->sharded.model, 2) || *cz_test_net_value(&p->sharded, 2) != before)
        return cz_fail(CZ_ERR_STATE, "a frozen parameter moved");
    return cz_zero_check_replicas(p->zero);
}
CASE(gradients_of_frozen_ones)

/* ---- a group that is added has the type of the others ---- */

static cz_status added_ones_of_another_type(pair *p, cz_group *group, mode m)
{
    double value[8] = {0};
    const int64_t count = 8;
    const cz_param_group other = {sizeof other, (const int64_t[]){1, 6}, 2, NULL};
    CZ_TRY(pair_open(p, group, &shape, &shape, 1, 4));
    CZ_TRY(cz_model_add(p->sharded.model, "double", value, value, CZ_F64, 1, &count));
    CZ_TRY(cz_model_add(p->plain.model, "double", value, value, CZ_F64, 1, &count));
    m.partition = m.partition == CZ_PARTITION_GIVEN ? CZ_PARTITION_GREEDY : m.partition;
    CZ_TRY(pair_optimize(p, m, cz_rule_adam(), NULL, &first_group, 1));
    CZ_TRY(pair_step(p, own_seed(group)));
    CZ_TRY(expect(cz_zero_add_param_group(p->zero, &other), CZ_ERR_ARGUMENT, "'double' is f64"));
    CZ_TRY(expect(cz_optim_add_param_group(p->optim, &other), CZ_ERR_ARGUMENT, "'double' is f64"));
    if (cz__zero_group_count(p->zero) != 1 || cz__model_value(p->sharded.model, 0)->dtype != CZ_F32)
        return cz_fail(CZ_ERR_STATE, "something was changed");
    CZ_TRY(add_second(p)); /* its first member was in the group that was refused */
    return pair_step(p, own_seed(group) + 1);
}
CASE(added_ones_of_another_type)

/* ---- hyper-parameters live in one place ---- */

static cz_status one_place(pair *p, cz_group *group, mode m)
{
    cz_optim *local;
    double lr, added;
    CZ_TRY(open_pair(p, group, m, cz_rule_adam()));
    local = cz_zero_local_optim(p->zero);
    CZ_TRY(cz_optim_set_hyper(cz_zero_local_optim(p->zero), 0, "lr", 0.5));
    CZ_TRY(cz_optim_get_hyper(local, 0, "lr", &lr));
    if (lr != 0.5)
        return cz_fail(CZ_ERR_STATE, "the shard's lr is %g", lr);
    CZ_TRY(cz_optim_set_hyper(local, CZ_ALL_GROUPS, "lr", 0.25)); /* a step does not undo it */
    CZ_TRY(cz_optim_set_hyper(p->optim, CZ_ALL_GROUPS, "lr", 0.25));
    CZ_TRY(cz_optim_add_hyper(local, 0, "note", 3));
    CZ_TRY(pair_step(p, own_seed(group)));
    CZ_TRY(cz_optim_get_hyper(cz_zero_local_optim(p->zero), 0, "lr", &lr));
    CZ_TRY(cz_optim_get_hyper(cz_zero_local_optim(p->zero), 0, "note", &added));
    return lr == 0.25 && added == 3 ? CZ_OK : cz_fail(CZ_ERR_STATE, "%g and %g", lr, added);
}
CASE(one_place)

/* ---- what is consolidated is of one moment, options too ---- */

static cz_status options_of_the_snapshot(pair *p, cz_group *group, mode m)
{
    cz_state_dict *dict;
    double lr = 0;
    CZ_TRY(open_pair(p, group, m, cz_rule_adam()));
    CZ_TRY(cz_zero_consolidate_state_dict(p->zero, CZ_ALL_RANKS));
    CZ_TRY(cz_optim_set_hyper(cz_zero_local_optim(p->zero), 0, "lr", 0.5));
    CZ_TRY(cz_zero_state_dict(p->zero, &dict));
    const cz_status status = cz_state_dict_get_real(entry(dict, "param_groups", "0"), "lr", &lr);
    cz_state_dict_destroy(&dict);
    return status == CZ_OK && lr != 0.0625 ? cz_fail(CZ_ERR_STATE, "lr is %g", lr) : status;
}
CASE(options_of_the_snapshot)

/* ---- loading: all or nothing, converted, and what has no entry begins anew ---- */

static cz_status same_dict(pair *p, const cz_state_dict *wanted)
{
    cz_state_dict *present;
    CZ_TRY(whole_dict(p->zero, &present));
    const bool same = cz_state_dict_equal(present, wanted);
    cz_state_dict_destroy(&present);
    return same ? CZ_OK : cz_fail(CZ_ERR_STATE, "the state is another one");
}

/* A dictionary that is wrong on one rank only, in what it loads last. */
static cz_status load_wrong(pair *p, cz_group *group, cz_state_dict *dict)
{
    const bool odd = cz_group_rank(group) == cz_group_size(group) - 1;
    cz_state_dict *present = NULL;
    CZ_TRY(pair_step(p, own_seed(group) + 1));
    CZ_TRY(whole_dict(p->zero, &present));
    cz_status status = CZ_OK;
    if (odd)
        status = cz_state_dict_remove(entry(dict, "state", "2.weight"), "exp_avg_sq");
    THEN(expect(cz_zero_load_state_dict(p->zero, dict), CZ_ERR_ARGUMENT,
                "'2.weight' has no 'exp_avg_sq'"));
    THEN(same_dict(p, present));
    cz_state_dict_destroy(&present);
    CZ_TRY(status);
    return pair_step(p, own_seed(group) + 2);
}

static cz_status wrong_on_one_rank(pair *p, cz_group *group, mode m)
{
    cz_state_dict *dict = NULL;
    CZ_TRY(open_pair(p, group, m, cz_rule_adam()));
    CZ_TRY(pair_step(p, own_seed(group)));
    CZ_TRY(whole_dict(p->zero, &dict));
    const cz_status status = load_wrong(p, group, dict);
    cz_state_dict_destroy(&dict);
    return status;
}
CASE(wrong_on_one_rank)

/* Moments in f64 and the step as a real, as other programs store them; one parameter is left
 * out. */
static cz_status make_foreign(cz_state_dict *dict)
{
    static const char *const slots[] = {"exp_avg", "exp_avg_sq"};
    cz_state_dict *weight = entry(dict, "state", "0.weight");
    const cz_state_dict *all;
    double wide[21];
    for (int k = 0; k < 2; k++) {
        cz_tensor tensor;
        CZ_TRY(cz_state_dict_get_tensor(weight, slots[k], &tensor));
        for (int64_t i = 0; i < 21; i++)
            wide[i] = (double)((float *)tensor.data)[i] / 3;
        tensor.data = wide;
        tensor.dtype = CZ_F64;
        CZ_TRY(cz_state_dict_set_tensor(weight, slots[k], &tensor));
    }
    CZ_TRY(cz_state_dict_set_real(weight, "step", 1));
    CZ_TRY(cz_state_dict_get_dict(dict, "state", &all));
    return cz_state_dict_remove((cz_state_dict *)all, "2.weight");
}

static cz_status foreign_state(pair *p, cz_group *group, mode m)
{
    cz_state_dict *dict = NULL, *after = NULL;
    CZ_TRY(open_pair(p, group, m, cz_rule_adam()));
    CZ_TRY(pair_step(p, own_seed(group)));
    CZ_TRY(whole_dict(p->zero, &dict));
    cz_status status = make_foreign(dict);
    THEN(cz_zero_load_state_dict(p->zero, dict));
    THEN(cz_optim_load_state_dict(p->optim, dict, NULL));
    THEN(whole_dict(p->zero, &after));
    if (status == CZ_OK && entry(after, "state", "2.weight"))
        status = cz_fail(CZ_ERR_STATE, "a parameter without entry has kept its state");
    THEN(pair_step(p, own_seed(group) + 1));
    cz_state_dict_destroy(&dict);
    cz_state_dict_destroy(&after);
    return status;
}
CASE(foreign_state)
