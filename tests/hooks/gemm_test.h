/* SPDX-License-Identifier: MIT */
/* Products for PowerSGD that are not the library's: a BLAS where there is one, and plain ones of
 * other bits. */
#ifndef CZ_GEMM_TEST_H
#define CZ_GEMM_TEST_H

#include <stdatomic.h>

#include "czero/powersgd.h"

#ifdef CZ_TEST_CBLAS
#include <cblas.h>
#endif

static atomic_int products[2]; /* asked for: M Q, M^T P */

/* In double, forwards or, with a context, backwards in f32: as on another processor. */
static inline void plain_gemm(void *context, bool transposed, int64_t rows, int64_t cols, int32_t r,
                              const float *matrix, const float *thin, float *product)
{
    const int64_t length = transposed ? cols : rows, inner = transposed ? rows : cols;
    atomic_fetch_add(&products[transposed], 1);
    for (int32_t k = 0; k < r; k++)
        for (int64_t i = 0; i < length; i++) {
            double sum = 0;
            for (int64_t n = 0; n < inner; n++) {
                const int64_t j = context ? inner - 1 - n : n;
                const int64_t at = transposed ? j * cols + i : i * cols + j;
                sum += (double)matrix[at] * (double)thin[k * inner + j];
                sum = context ? (double)(float)sum : sum;
            }
            product[k * length + i] = (float)sum;
        }
}

/* Before there are ranks. */
static inline void blas_setup(void)
{
#ifdef CZ_TEST_CBLAS
    openblas_set_num_threads(1);
#endif
}

static inline void blas_gemm(void *context, bool transposed, int64_t rows, int64_t cols, int32_t r,
                             const float *matrix, const float *thin, float *product)
{
#ifdef CZ_TEST_CBLAS
    const int m = (int)rows, n = (int)cols;
    atomic_fetch_add(&products[transposed], 1);
    if (transposed)
        cblas_sgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, n, r, m, 1, matrix, n, thin, m, 0,
                    product, n);
    else
        cblas_sgemm(CblasColMajor, CblasTrans, CblasNoTrans, m, r, n, 1, matrix, n, thin, n, 0,
                    product, m);
#else
    plain_gemm(context, transposed, rows, cols, r, matrix, thin, product);
#endif
}

#endif
