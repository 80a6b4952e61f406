/* SPDX-License-Identifier: MIT */
/* Matrix products: OpenBLAS, or plain loops when built with GPT_NO_BLAS. */
#include "model.h"

#ifndef GPT_NO_BLAS
#include <cblas.h>

#ifdef GPT_DOUBLE
#define GEMM cblas_dgemm
#else
#define GEMM cblas_sgemm
#endif

void gpt_setup(void)
{
    openblas_set_num_threads(1);
}

bool matmul_has_blas(void)
{
    return true;
}

void matmul_nt(int m, int n, int k, real alpha, const real *a, int lda, const real *b, int ldb,
               real beta, real *c, int ldc)
{
    GEMM(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void matmul_nn(int m, int n, int k, real alpha, const real *a, int lda, const real *b, int ldb,
               real beta, real *c, int ldc)
{
    GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void matmul_tn(int m, int n, int k, real alpha, const real *a, int lda, const real *b, int ldb,
               real beta, real *c, int ldc)
{
    GEMM(CblasRowMajor, CblasTrans, CblasNoTrans, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

#else

void gpt_setup(void)
{
}

bool matmul_has_blas(void)
{
    return false;
}

static void scale_row(real *c, int n, real beta)
{
    for (int j = 0; j < n; j++)
        c[j] = beta == 0 ? 0 : beta * c[j]; /* as in the BLAS, zero forgets even a NaN */
}

static void add_scaled(real *restrict c, const real *restrict b, int n, real scale)
{
    for (int j = 0; j < n; j++)
        c[j] += scale * b[j];
}

static real dot(const real *restrict a, const real *restrict b, int n)
{
    enum { LANES = 16 }; /* partial sums in a fixed order, which a compiler may vectorise */
    real lane[LANES] = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += a[i + j] * b[i + j];
    for (int j = 0; i + j < n; j++)
        lane[j] += a[i + j] * b[i + j];
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            lane[j] += lane[j + width];
    return lane[0];
}

void matmul_nt(int m, int n, int k, real alpha, const real *a, int lda, const real *b, int ldb,
               real beta, real *c, int ldc)
{
    for (int i = 0; i < m; i++) {
        scale_row(c + (int64_t)i * ldc, n, beta);
        for (int j = 0; j < n; j++)
            c[(int64_t)i * ldc + j] += alpha * dot(a + (int64_t)i * lda, b + (int64_t)j * ldb, k);
    }
}

void matmul_nn(int m, int n, int k, real alpha, const real *a, int lda, const real *b, int ldb,
               real beta, real *c, int ldc)
{
    for (int i = 0; i < m; i++) {
        scale_row(c + (int64_t)i * ldc, n, beta);
        for (int p = 0; p < k; p++)
            add_scaled(c + (int64_t)i * ldc, b + (int64_t)p * ldb, n,
                       alpha * a[(int64_t)i * lda + p]);
    }
}

void matmul_tn(int m, int n, int k, real alpha, const real *a, int lda, const real *b, int ldb,
               real beta, real *c, int ldc)
{
    for (int i = 0; i < m; i++) {
        scale_row(c + (int64_t)i * ldc, n, beta);
        for (int p = 0; p < k; p++)
            add_scaled(c + (int64_t)i * ldc, b + (int64_t)p * ldb, n,
                       alpha * a[(int64_t)p * lda + i]);
    }
}

#endif
