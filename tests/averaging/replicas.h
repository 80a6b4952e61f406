/* SPDX-License-Identifier: MIT */
/* The models of all ranks in one process, and their mean by the library's one rule. */
#ifndef CZ_TEST_REPLICAS_H
#define CZ_TEST_REPLICAS_H

#include <stdio.h>
#include <string.h>

#include "czero/averaging.h"
#include "support/cz_test.h"
#include "tensor/model.h"

enum { PARAMS = 7, RANKS = 9, ROOM = 300 };
static const int64_t sizes[PARAMS] = {40, 0, 3, 131, 7, ROOM, 1};
static const cz_dtype types[PARAMS] = {CZ_F32, CZ_F32, CZ_F64, CZ_F32, CZ_BF16, CZ_F32, CZ_F16};

#define LEVEL(every, over)                                                                         \
    {                                                                                              \
        .size = sizeof(cz_averager_level), .period = (every), .ranks = (over)                      \
    }

/* One rank's values. */
typedef struct replica {
    _Alignas(8) char values[PARAMS][8 * ROOM];
} replica;

static inline double load(const replica *r, int p, int64_t i)
{
    double value;
    cz__convert(CZ_F64, &value, types[p], r->values[p] + (size_t)i * cz_dtype_size(types[p]), 1);
    return value;
}

static inline void store(replica *r, int p, int64_t i, double value)
{
    cz__convert(types[p], r->values[p] + (size_t)i * cz_dtype_size(types[p]), CZ_F64, &value, 1);
}

/* All start alike. */
static inline void fill(replica *r)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            store(r, p, i, (double)(i % 13) / 7 - p);
}

/* A rank's own step: sums of these depend on their order. */
static inline void drift(replica *r, int rank, int step)
{
    double noise[ROOM];
    for (int p = 0; p < PARAMS; p++) {
        cz_test_stream_f64((uint64_t)(1000 * rank + 10 * step + p + 1), sizes[p], noise);
        for (int64_t i = 0; i < sizes[p]; i++)
            store(r, p, i, load(r, p, i) + noise[i]);
    }
}

static inline double add(cz_dtype type, double a, double b)
{
    return type == CZ_F64 ? a + b : (double)((float)a + (float)b);
}

/* The sum of ranks first … first + count - 1: the left part is the largest power of two below the
 * count. */
static inline double tree_sum(const replica *all, int first, int count, int p, int64_t i)
{
    int left = 1;
    if (count == 1)
        return load(&all[first], p, i);
    while (2 * left < count)
        left *= 2;
    return add(types[p], tree_sum(all, first, left, p, i),
               tree_sum(all, first + left, count - left, p, i));
}

static inline void average(replica *all, int first, int count, int p)
{
    for (int64_t i = 0; i < sizes[p]; i++) {
        const double sum = tree_sum(all, first, count, p, i);
        const double mean = types[p] == CZ_F64 ? sum / count : (double)((float)sum / (float)count);
        for (int r = first; r < first + count; r++)
            store(&all[r], p, i, mean);
    }
}

static inline cz_status compare(const replica *got, const replica *wanted, int step)
{
    for (int p = 0; p < PARAMS; p++)
        if (memcmp(got->values[p], wanted->values[p], (size_t)sizes[p] * cz_dtype_size(types[p])))
            return cz_fail(CZ_ERR_STATE, "step %d: parameter %d differs from the reference", step,
                           p);
    return CZ_OK;
}

/* A model over it; one memory serves as everybody's gradient. */
static inline cz_status make_model(cz_model **model, replica *r)
{
    static _Alignas(8) char gradient[8 * ROOM];
    CZ_TRY(cz_model_create(model));
    for (int p = 0; p < PARAMS; p++) {
        char name[24];
        snprintf(name, sizeof name, "p%d", p);
        CZ_TRY(cz_model_add(*model, name, r->values[p], gradient, types[p], 1, &sizes[p]));
    }
    return CZ_OK;
}

#endif
