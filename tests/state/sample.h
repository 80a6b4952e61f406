/* SPDX-License-Identifier: MIT */
/* A dictionary with every kind of value in it, for the tests of this folder. */
#ifndef CZ_TESTS_STATE_SAMPLE_H
#define CZ_TESTS_STATE_SAMPLE_H

#include "support/cz_test.h"

#include "czero/state.h"

static const char *const sample_texts[] = {"a", "", "a longer one"};
static const float sample_numbers[] = {1, -0.0f, 3, 4, 5, 6};

static inline cz_tensor sample_tensor(void)
{
    return (cz_tensor){.data = (void *)sample_numbers,
                       .dtype = CZ_F32,
                       .dimensions = 2,
                       .shape = {2, 3, 99}}; /* beyond the dimensions: says nothing */
}

/* Root: epoch, rate, name, names, param_groups/0/lr, state/w1/exp_avg. Rank bodies could use it
 * too. */
static inline cz_status fill_sample(cz_state_dict *root)
{
    cz_state_dict *child;
    const cz_tensor tensor = sample_tensor();
    CZ_TRY(cz_state_dict_set_integer(root, "epoch", INT64_MIN));
    CZ_TRY(cz_state_dict_set_real(root, "rate", 0.1));
    CZ_TRY(cz_state_dict_set_text(root, "name", "adamw"));
    CZ_TRY(cz_state_dict_set_texts(root, "names", sample_texts, 3));
    CZ_TRY(cz_state_dict_add_dict(root, "param_groups", &child));
    CZ_TRY(cz_state_dict_add_dict(child, "0", &child));
    CZ_TRY(cz_state_dict_set_real(child, "lr", -0.0));
    CZ_TRY(cz_state_dict_add_dict(root, "state", &child));
    CZ_TRY(cz_state_dict_add_dict(child, "w1", &child));
    return cz_state_dict_set_tensor(child, "exp_avg", &tensor);
}

static inline cz_state_dict *new_dict(void)
{
    cz_state_dict *dict = NULL;
    assert_ok(cz_state_dict_create(&dict));
    return dict;
}

static inline cz_state_dict *new_sample(void)
{
    cz_state_dict *dict = new_dict();
    assert_ok(fill_sample(dict));
    return dict;
}

/* A nested dictionary, to be changed: dictionaries of the tests are not constant. */
static inline cz_state_dict *inside(cz_state_dict *dict, const char *key)
{
    const cz_state_dict *child = NULL;
    assert_ok(cz_state_dict_get_dict(dict, key, &child));
    return (cz_state_dict *)child;
}

#endif
