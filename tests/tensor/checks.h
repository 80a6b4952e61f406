/* SPDX-License-Identifier: MIT */
/* What the tests of models share. */
#ifndef CZ_TEST_TENSOR_CHECKS_H
#define CZ_TEST_TENSOR_CHECKS_H

#include "support/cz_test.h"

#include "tensor/model.h"

static inline cz_model *new_model(void)
{
    cz_model *model;
    assert_ok(cz_model_create(&model));
    return model;
}

/* As many parameters, buffers and elements as that, and no more. */
static inline void check_counts(const cz_model *model, int64_t params, int64_t buffers,
                                int64_t elements)
{
    assert_int_equal(cz__model_param_count(model), params);
    assert_int_equal(cz__model_buffer_count(model), buffers);
    assert_int_equal(cz__model_element_count(model), elements);
    assert_null(cz__model_name(model, params));
    assert_null(cz__model_buffer_name(model, buffers));
    for (int64_t p = 0; p < params; p++) {
        assert_int_equal(cz_model_find(model, cz__model_name(model, p)), p);
    }
    for (int64_t b = 0; b < buffers; b++) {
        assert_int_equal(cz_model_find(model, cz__model_buffer_name(model, b)), -1);
    }
}

#endif
