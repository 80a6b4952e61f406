/* SPDX-License-Identifier: MIT */
/* A model with so much state that what is sent, written and held beside it can be seen. */
#ifndef CZ_TEST_ZERO_LARGE_H
#define CZ_TEST_ZERO_LARGE_H

#include "zero/cases.h"

enum { PARAMS = 5 };
static int64_t scale; /* 8 of these are the elements, uneven parameters together */
static int64_t sizes[PARAMS];
static float *gradient; /* zeros, of all parameters and ranks: reduced already, so only read */

static inline void set_scale(int64_t unit)
{
    scale = unit;
    memcpy(sizes, (int64_t[]){3 * unit, 1, 2 * unit + 17, 0, 3 * unit - 18}, sizeof sizes);
}

/* *values is the caller's to free. */
static inline cz_status large_model(cz_model **model, float **values)
{
    float *value = *values = calloc((size_t)(8 * scale), sizeof *value);
    if (!value)
        return cz_fail(CZ_ERR_MEMORY, "test: %d elements", (int)(8 * scale));
    CZ_TRY(cz_model_create(model));
    for (int p = 0; p < PARAMS; value += sizes[p++]) {
        char name[24];
        snprintf(name, sizeof name, "p%d", p);
        CZ_TRY(cz_model_add(*model, name, value, gradient, CZ_F32, 1, &sizes[p]));
    }
    return CZ_OK;
}

#endif
