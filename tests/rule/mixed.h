/* SPDX-License-Identifier: MIT */
/* A model of 16-bit values beside its twin in f32, which is what masters are to be. */
#ifndef CZ_TEST_MIXED_H
#define CZ_TEST_MIXED_H

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "optim/optim.h"
#include "support/cz_test.h"

enum { MIXED_PARAMS = 3, MIXED_MOST = 2600 };
static const int64_t mixed_counts[MIXED_PARAMS] = {2600, 37, 1};
static const int64_t mixed_shapes[MIXED_PARAMS][2] = {{50, 52}, {1, 37}, {1, 1}};

typedef struct mixed {
    cz_dtype dtypes[MIXED_PARAMS]; /* of values */
    cz_dtype gradient_dtype;
    cz_model *model, *twin;
    uint16_t halves[MIXED_PARAMS][MIXED_MOST];
    float wide[MIXED_PARAMS][MIXED_MOST]; /* values that are f32 */
    union {
        uint16_t half[MIXED_MOST];
        float wide[MIXED_MOST];
    } gradients[MIXED_PARAMS];
    float twins[MIXED_PARAMS][MIXED_MOST], twin_gradients[MIXED_PARAMS][MIXED_MOST];
} mixed;

static inline uint16_t narrow_one(cz_dtype dtype, float value)
{
    return dtype == CZ_F16 ? cz__f16_from_f32(value) : cz__bf16_from_f32(value);
}

static inline float widen_one(cz_dtype dtype, uint16_t half)
{
    return dtype == CZ_F16 ? cz__f32_from_f16(half) : cz__f32_from_bf16(half);
}

/* Some number of ordinary size, another one for each. */
static inline float number(int64_t a, int64_t b, int64_t c)
{
    return (float)sin((double)(a * 31 + b) * 0.7 + (double)c * 1.3) *
           (float)ldexp(1, (int)(b % 7) - 3);
}

static inline void *mixed_value(mixed *m, int p)
{
    return m->dtypes[p] == CZ_F32 ? (void *)m->wide[p] : m->halves[p];
}

static inline void mixed_set(mixed *m, int p, int64_t i, float value)
{
    if (m->dtypes[p] == CZ_F32) {
        m->twins[p][i] = m->wide[p][i] = value;
    } else {
        m->halves[p][i] = narrow_one(m->dtypes[p], value);
        m->twins[p][i] = widen_one(m->dtypes[p], m->halves[p][i]);
    }
}

static inline void mixed_set_gradients(mixed *m, int64_t step)
{
    for (int p = 0; p < MIXED_PARAMS; p++)
        for (int64_t i = 0; i < mixed_counts[p]; i++) {
            const float value = number(p, i, step + 17);
            m->twin_gradients[p][i] = value;
            if (m->gradient_dtype == CZ_F32) {
                m->gradients[p].wide[i] = value;
            } else {
                m->gradients[p].half[i] = narrow_one(m->gradient_dtype, value);
                m->twin_gradients[p][i] = widen_one(m->gradient_dtype, m->gradients[p].half[i]);
            }
        }
}

static inline void mixed_create(mixed *m, cz_dtype first, cz_dtype second, cz_dtype gradient)
{
    memset(m, 0, sizeof *m);
    m->dtypes[0] = m->dtypes[2] = first;
    m->dtypes[1] = second;
    m->gradient_dtype = gradient;
    assert_ok(cz_model_create(&m->model));
    assert_ok(cz_model_create(&m->twin));
    for (int p = 0; p < MIXED_PARAMS; p++) {
        const char *name = (const char *[]){"a", "b", "c"}[p];
        const cz_tensor value = {mixed_value(m, p),
                                 m->dtypes[p],
                                 CZ_DENSE,
                                 2,
                                 {mixed_shapes[p][0], mixed_shapes[p][1]},
                                 NULL};
        cz_tensor grad = value;
        grad.data = &m->gradients[p];
        grad.dtype = gradient;
        for (int64_t i = 0; i < mixed_counts[p]; i++)
            mixed_set(m, p, i, number(p, i, 0));
        assert_ok(cz_model_add_tensor(m->model, name, &value, &grad));
        assert_ok(cz_model_add(m->twin, name, m->twins[p], m->twin_gradients[p], CZ_F32, 2,
                               mixed_shapes[p]));
    }
    mixed_set_gradients(m, 0);
}

static inline void mixed_destroy(mixed *m)
{
    cz_model_destroy(&m->model);
    cz_model_destroy(&m->twin);
}

/* Is a value the twin's, rounded to nearest even? */
static inline void mixed_expect_value(const mixed *m, int p, int64_t i)
{
    const float wanted = m->twins[p][i];
    const bool same = m->dtypes[p] == CZ_F32 ? memcmp(&m->wide[p][i], &wanted, sizeof wanted) == 0
                                             : m->halves[p][i] == narrow_one(m->dtypes[p], wanted);
    if (!same)
        fail_msg("element %d of %d: %a is not %a rounded", (int)i, p,
                 m->dtypes[p] == CZ_F32 ? (double)m->wide[p][i]
                                        : (double)widen_one(m->dtypes[p], m->halves[p][i]),
                 (double)wanted);
}

/* Elements [begin, end) of a slot that is here against numbers in f32, bit by bit. */
static inline void mixed_expect_slot(const cz_optim *optim, int p, const char *slot, int64_t begin,
                                     int64_t end, const float *wanted)
{
    while (begin < end) {
        const void *data;
        int64_t count;
        assert_ok(cz_optim_state(optim, p, slot, begin, &data, &count));
        assert_non_null(data);
        count = count < end - begin ? count : end - begin;
        assert_memory_equal(data, wanted + begin, (size_t)count * sizeof *wanted);
        begin += count;
    }
}

#endif
