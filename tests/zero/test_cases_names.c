/* SPDX-License-Identifier: MIT */
/* State belongs to the parameter of that name, wherever it is in the model. */
#include "support/spans.h"
#include "zero/cases.h"

enum { SIX = 6 };

typedef struct order {
    const char *names[2];
    int64_t sizes[2];
    cz_state_dict *saved;
} order;

static float of(const char *name, int64_t i) /* a gradient: each parameter its own */
{
    return (float)(name[0] == 'a' ? i + 1 : -2 * i - 1) / 8;
}

/* Named, or in one flat block without names: then they are called by their number. */
static cz_status open_order(cz_model **model, const order *o, float *memory)
{
    CZ_TRY(cz_model_create(model));
    for (int k = 0; o->names[0] && k < 2; k++)
        CZ_TRY(cz_model_add(*model, o->names[k], memory + SIX * k, memory + 2 * SIX + SIX * k,
                            CZ_F32, 1, &o->sizes[k]));
    return o->names[0]
               ? CZ_OK
               : cz_model_add_flat(*model, memory, memory + 2 * SIX, CZ_F32, 2, NULL, o->sizes);
}

/* Save if nothing is saved; else load and look whether the moments are where they belong. */
static cz_status save_or_load(cz_zero *zero, cz_group *group, order *o, const float *memory)
{
    const int rank = cz_group_rank(group);
    if (!o->saved) {
        CZ_TRY(cz_zero_step(zero, NULL, NULL));
        CZ_TRY(cz_zero_consolidate_state_dict(zero, 0));
        return rank == 0 ? cz_zero_state_dict(zero, &o->saved) : CZ_OK;
    }
    CZ_TRY(cz_zero_load_state_dict(zero, o->saved));
    cz_span_iterator iterator;
    cz_span span;
    cz_span_iterate(cz_test_shard_map(zero), rank, &iterator);
    while (cz_span_next(&iterator, &span))
        for (int64_t i = span.begin; i < span.end; i++) {
            const void *data;
            int64_t count;
            CZ_TRY(cz_optim_state(cz_zero_local_optim(zero), span.param, "momentum_buffer", i,
                                  &data, &count));
            if (!data || *(const float *)data != of(o->names[span.param], i))
                return cz_fail(CZ_ERR_STATE, "'%s' has other moments", o->names[span.param]);
        }
    return CZ_OK;
}

static cz_status order_body(cz_group *group, void *context)
{
    order *o = context;
    float memory[4 * SIX] = {0};
    cz_model *model = NULL;
    cz_zero *zero = NULL;
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < SIX; i++)
            memory[2 * SIX + SIX * k + i] = of(o->names[0] ? o->names[k] : "a", i);
    cz_status status = open_order(&model, o, memory);
    THEN(cz_zero_create(&zero, group, model, cz_rule_sgd(),
                        CZ_HYPERS({"lr", 0.5}, {"momentum", 0.5}), NULL));
    THEN(save_or_load(zero, group, o, memory));
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    return status;
}

TEST(state_follows_names)
{
    for (int world = 1; world <= LARGEST_WORLD; world++) {
        order o = {{"a", "b"}, {SIX, SIX}, NULL};
        char why[256];
        expect_ok(world, 0, order_body, &o);
        o.names[0] = "b";
        o.names[1] = "a";
        expect_ok(LARGEST_WORLD + 1 - world, 0, order_body, &o);
        o.names[0] = NULL; /* "0" and "1" */
        assert_int_equal(cz_test_run_ranks(world, order_body, &o, why), CZ_ERR_ARGUMENT);
        assert_non_null(strstr(why, "'a' of group 0 is not in the model"));
        cz_state_dict_destroy(&o.saved);
    }
}

/* Without names their numbers are all there is: other sizes are found out. */
TEST(state_without_names_is_refused_where_order_differs)
{
    for (int world = 1; world <= LARGEST_WORLD; world++) {
        order o = {{NULL, NULL}, {SIX, SIX - 1}, NULL};
        char why[256];
        expect_ok(world, 0, order_body, &o);
        o.sizes[0] = SIX - 1;
        o.sizes[1] = SIX;
        assert_int_equal(cz_test_run_ranks(world, order_body, &o, why), CZ_ERR_ARGUMENT);
        assert_non_null(strstr(why, "their shapes differ"));
        cz_state_dict_destroy(&o.saved);
    }
}
