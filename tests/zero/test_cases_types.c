/* SPDX-License-Identifier: MIT */
/* 16-bit parameters (they need a master copy), 8-bit state, averaged weights, sparse tensors. It
 * says so, on all ranks, and does nothing else. */
#include "zero/cases.h"

typedef struct subject {
    cz_model *model;
    cz_zero *zero;
    cz_optim *optim;
    cz_state_dict *dict;
    double memory[256]; /* more than any tensor here needs */
} subject;

static void clear(subject *s)
{
    cz_state_dict_destroy(&s->dict);
    cz_zero_destroy(&s->zero);
    cz_optim_destroy(&s->optim);
    cz_model_destroy(&s->model);
}

#define CASE(name)                                                                                 \
    RANK_BODY(name, subject, clear, group)                                                         \
    TEST(name)                                                                                     \
    {                                                                                              \
        for (int world = 1; world <= LARGEST_WORLD; world++)                                       \
            expect_ok(world, 0, name##_body, NULL);                                                \
    }

enum { COUNT = 16 };

/* A model of one parameter, fresh each time. */
static cz_status make_model(subject *s, cz_dtype dtype, cz_layout layout)
{
    const cz_tensor tensor = {s->memory, dtype, layout, 2, {1, COUNT}, NULL};
    const cz_tensor gradient = {s->memory + COUNT, dtype, layout, 2, {1, COUNT}, NULL};
    clear(s);
    CZ_TRY(cz_model_create(&s->model));
    return cz_model_add_tensor(s->model, "p", &tensor, &gradient);
}

/* Sharded or not, with any rule. */
static cz_status refused(subject *s, cz_group *group, const cz_hyper *hypers, cz_status status,
                         const char *sentence)
{
    const char *name;
    for (int k = 0; (name = cz_rule_name(k)); k++) {
        const cz_rule *rule = cz_rule_find(name);
        const cz_hyper *given = hypers ? hypers : CZ_HYPERS({"lr", 1e-3});
        CZ_TRY(
            expect(cz_zero_create(&s->zero, group, s->model, rule, given, NULL), status, sentence));
        CZ_TRY(expect(cz_optim_create(&s->optim, s->model, rule, given, NULL), status, sentence));
        if (s->zero || s->optim)
            return cz_fail(CZ_ERR_STATE, "%s: a handle", name);
    }
    return CZ_OK;
}

/* ---- state that another library or a later one has saved ---- */

static cz_status saved_entry(subject *s, cz_group *group, cz_state_dict **found)
{
    const cz_state_dict *inner;
    CZ_TRY(make_model(s, CZ_F32, CZ_DENSE));
    CZ_TRY(cz_zero_create(&s->zero, group, s->model, cz_rule_adam(), NULL, NULL));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, CZ_ALL_RANKS));
    CZ_TRY(cz_zero_state_dict(s->zero, &s->dict));
    CZ_TRY(cz_state_dict_get_dict(s->dict, "state", &inner));
    CZ_TRY(cz_state_dict_get_dict(inner, "p", &inner));
    *found = (cz_state_dict *)inner;
    return CZ_OK;
}

/* A tensor in it that this library does not know, or of a type that it cannot read. */
static cz_status refuse_tensor(subject *s, cz_group *group, const char *slot, cz_dtype dtype,
                               int64_t count, const char *sentence)
{
    const cz_tensor tensor = {s->memory, dtype, CZ_DENSE, 1, {count}, NULL};
    cz_state_dict *found;
    CZ_TRY(saved_entry(s, group, &found));
    CZ_TRY(cz_state_dict_set_tensor(found, slot, &tensor));
    CZ_TRY(expect(cz_zero_load_state_dict(s->zero, s->dict), CZ_ERR_ARGUMENT, sentence));
    return cz_zero_step(s->zero, NULL, NULL); /* it goes on */
}

static cz_status master_copies_are_refused_with_a_sentence(subject *s, cz_group *group)
{
    return refuse_tensor(s, group, "master", CZ_F32, COUNT, "a value 'master', which adam has not");
}
CASE(master_copies_are_refused_with_a_sentence)

/* moments in 8 bits, and the table by which they are read. */
static cz_status state_of_8_bits_is_refused_with_a_sentence(subject *s, cz_group *group)
{
    CZ_TRY(refuse_tensor(s, group, "exp_avg", CZ_U8, COUNT, "'exp_avg' of parameter 'p' is u8"));
    CZ_TRY(refuse_tensor(s, group, "quantisation_map", CZ_F32, 256, "which adam has not"));
    CZ_TRY(make_model(s, CZ_U8, CZ_DENSE));
    CZ_TRY(refused(s, group, NULL, CZ_ERR_UNSUPPORTED, "u8"));
    return cz_rule_find("adam8bit") ? cz_fail(CZ_ERR_STATE, "there is such a rule") : CZ_OK;
}
CASE(state_of_8_bits_is_refused_with_a_sentence)

/* an average of the weights. */
static cz_status averaged_weights_are_refused_with_a_sentence(subject *s, cz_group *group)
{
    CZ_TRY(make_model(s, CZ_F32, CZ_DENSE));
    CZ_TRY(refused(s, group, CZ_HYPERS({"lr", 1e-3}, {"ema_decay", 0.5}), CZ_ERR_ARGUMENT,
                   "no hyper-parameter 'ema_decay'"));
    return refuse_tensor(s, group, "ema", CZ_F32, COUNT, "a value 'ema', which adam has not");
}
CASE(averaged_weights_are_refused_with_a_sentence)

/* sparse parameters and gradients. */
static cz_status sparse_tensors_are_refused_with_a_sentence(subject *s, cz_group *group)
{
    const cz_tensor dense = {s->memory, CZ_F32, CZ_DENSE, 1, {COUNT}, NULL};
    const cz_tensor sparse = {s->memory, CZ_F32, CZ_SPARSE_ROWS, 1, {COUNT}, NULL};
    CZ_TRY(cz_model_create(&s->model));
    CZ_TRY(expect(cz_model_add_tensor(s->model, "p", &dense, &sparse), CZ_ERR_ARGUMENT, "layout"));
    CZ_TRY(make_model(s, CZ_F32, CZ_SPARSE_ROWS));
    CZ_TRY(
        expect(cz_zero_create(&s->zero, group, s->model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL),
               CZ_ERR_UNSUPPORTED, "parameter 0 'p' is sparse"));
    return expect(cz_optim_create(&s->optim, s->model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL),
                  CZ_ERR_UNSUPPORTED, "sparse");
}
CASE(sparse_tensors_are_refused_with_a_sentence)
