/* SPDX-License-Identifier: MIT */
/* Many terms of an exact sum: a kernel adds up a block in a few doubles without loss; what it
 * cannot take is added term by term. */
#include "base/dtype.h"
#include "base/float_mode.h"
#include "base/status.h"
#include "device/cpu/cpu.h"
#include "base/sum.h"

static double term(cz__sum_kind kind, const void *values, int64_t i)
{
    const double x = kind == CZ__SUM_SQUARES_F32 ? (double)((const float *)values)[i]
                                                 : ((const double *)values)[i];
    return kind == CZ__SUM_VALUES ? x : x * x;
}

static void add_each(cz__sum_kind kind, int64_t count, const void *values, cz_sum *sum)
{
    for (int64_t i = 0; i < count; i++)
        cz__sum_add(sum, term(kind, values, i));
}

/* What the two parts of each term leave. */
static void add_rests(cz__sum_kind kind, int64_t count, const void *values,
                      const cz__sum_block *block, cz_sum *sum)
{
    const double s = block->split[0], t = block->split[1];
    for (int64_t i = 0; i < count; i++) {
        const double q = term(kind, values, i), left = q - ((q + s) - s);
        const double rest = left - ((left + t) - t);
        if (rest != 0)
            cz__sum_add(sum, rest);
    }
}

static void add_block(cz__sum_kernel kernel, cz__sum_kind kind, int64_t count, const void *values,
                      cz_sum *sum)
{
    cz__sum_block block;
    if (count <= 2 * CZ__SUM_LANES || !kernel(count, values, &block)) { /* no more additions */
        add_each(kind, count, values, sum);
        return;
    }
    for (int part = 0; part < 2; part++)
        for (int j = 0; j < CZ__SUM_LANES; j++)
            if (block.sums[part][j] != 0)
                cz__sum_add(sum, block.sums[part][j]);
    if (block.rest)
        add_rests(kind, count, values, &block, sum);
}

void cz__cpu_add_terms(const cz__cpu_kernels *kernels, cz__sum_kind kind, int64_t count,
                       const void *values, cz_sum *sum)
{
    const int64_t size = kind == CZ__SUM_SQUARES_F32 ? sizeof(float) : sizeof(double);
    for (int64_t begin = 0; begin < count; begin += CZ__SUM_TERMS) {
        const int64_t left = count - begin;
        add_block(kernels->sum[kind], kind, left < CZ__SUM_TERMS ? left : CZ__SUM_TERMS,
                  (const char *)values + begin * size, sum);
    }
}

void cz_sum_add(cz_sum *sum, int64_t count, const double *terms)
{
    CZ__OWN_FLOATS;
    if (!sum || !terms || count < 1 || (uint64_t)count > PTRDIFF_MAX / sizeof *terms)
        return;
    cz__cpu_add_terms(cz__cpu_kernels_chosen(), CZ__SUM_VALUES, count, terms, sum);
}

/* 16-bit values become f32, a block at a time. */
static void add_narrow(cz_dtype dtype, int64_t count, const uint16_t *values, cz_sum *sum)
{
    const cz__cpu_kernels *kernels = cz__cpu_kernels_chosen();
    float wide[CZ__SUM_TERMS];
    for (int64_t begin = 0; begin < count; begin += CZ__SUM_TERMS) {
        const int64_t left = count - begin, k = left < CZ__SUM_TERMS ? left : CZ__SUM_TERMS;
        kernels->convert[dtype][CZ_F32](k, values + begin, wide);
        cz__cpu_add_terms(kernels, CZ__SUM_SQUARES_F32, k, wide, sum);
    }
}

cz_status cz__cpu_add_squares(void *queue, cz_dtype dtype, int64_t count, const void *values,
                              cz_sum *sum)
{
    const cz__cpu_kernels *kernels = cz__cpu_kernels_chosen();
    if (dtype == CZ_F32)
        cz__cpu_add_terms(kernels, CZ__SUM_SQUARES_F32, count, values, sum);
    else if (dtype == CZ_F64)
        cz__cpu_add_terms(kernels, CZ__SUM_SQUARES_F64, count, values, sum);
    else if (cz__has_16_bits(dtype))
        add_narrow(dtype, count, values, sum);
    else
        return cz__fail(CZ_ERR_UNSUPPORTED, "cpu: squares of %s values", cz_dtype_name(dtype));
    return CZ_OK;
}
