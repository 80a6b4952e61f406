/* SPDX-License-Identifier: MIT */
/* Matrix products: by the library's kernels, or by the BLAS that it was built with (CZERO_BLAS). */
#include "base/status.h"
#include "device/cpu/cpu.h"

#ifdef CZ_BLAS
#include <cblas.h>
#include <limits.h>
#include <string.h>

#ifdef OPENBLAS_VERSION /* a macro of its cblas.h */
#define BY "OpenBLAS"
#else
#define BY "a BLAS"
#endif

/* c is beta addend, or is not read. */
static double begin(const cz_matmul *m, size_t size)
{
    if (m->addend && m->addend != m->c)
        memcpy(m->c, m->addend, (size_t)(m->rows * m->columns) * size);
    return m->addend ? m->beta : 0;
}

#define PRODUCT(type, name, dtype, gemm, syrk)                                                     \
    static void by_blas_##name(const cz_matmul *m)                                                 \
    {                                                                                              \
        const int rows = (int)m->rows, columns = (int)m->columns, inner = (int)m->inner;           \
        const int row_a = m->transposed_a ? rows : inner;                                          \
        const int row_b = m->transposed_b ? inner : columns;                                       \
        const CBLAS_TRANSPOSE a = m->transposed_a ? CblasTrans : CblasNoTrans;                     \
        const CBLAS_TRANSPOSE b = m->transposed_b ? CblasTrans : CblasNoTrans;                     \
        const type alpha = (type)m->alpha, beta = (type)begin(m, sizeof(type));                    \
        if (m->symmetric && m->a == m->b && a != b)                                                \
            syrk(CblasRowMajor, CblasUpper, a, rows, inner, alpha, m->a, row_a, beta, m->c, rows); \
        else                                                                                       \
            gemm(CblasRowMajor, a, b, rows, columns, inner, alpha, m->a, row_a, m->b, row_b, beta, \
                 m->c, columns);                                                                   \
        if (m->symmetric)                                                                          \
            cz__cpu_kernels_chosen()->mirror[dtype](rows, m->c);                                   \
    }

PRODUCT(float, f32, CZ_F32, cblas_sgemm, cblas_ssyrk)
PRODUCT(double, f64, CZ_F64, cblas_dgemm, cblas_dsyrk)

/* Its counts are int; what is larger is for our own loops. */
static cz__matmul_kernel find_blas(cz_dtype dtype, const cz_matmul *m)
{
    if (m->rows > INT_MAX || m->columns > INT_MAX || m->inner > INT_MAX)
        return NULL;
    return dtype == CZ_F32 ? by_blas_f32 : dtype == CZ_F64 ? by_blas_f64 : NULL;
}
#else
#define BY "own loops"

static cz__matmul_kernel find_blas(cz_dtype dtype, const cz_matmul *m)
{
    return NULL;
}
#endif

const char *cz__cpu_matmul_by(void)
{
    return BY;
}

cz_status cz__cpu_matmul(void *queue, cz_dtype dtype, const cz_matmul *product)
{
    cz__matmul_kernel multiply = find_blas(dtype, product);
    if (!multiply && (unsigned)dtype < CZ__DTYPE_END)
        multiply = cz__cpu_kernels_chosen()->matmul[dtype];
    if (!multiply)
        return cz__fail(CZ_ERR_UNSUPPORTED, "cpu: products of %s matrices, wanted are f32 or f64",
                        cz_dtype_name(dtype));
    multiply(product);
    return CZ_OK;
}
