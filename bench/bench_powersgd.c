/* SPDX-License-Identifier: MIT */
/* PowerSGD's work on one matrix: milliseconds of M Q and M^T P, and of a whole pass on one rank,
 * with the library's loops and with a BLAS (one thread) as cz_powersgd_options.gemm. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "czero/czero.h"
#include "hooks/powersgd.h"

#ifdef CZ_BENCH_CBLAS
#include <cblas.h>
#endif

enum { ROUNDS = 9 };

static void gemm(void *context, bool transposed, int64_t rows, int64_t cols, int32_t r,
                 const float *matrix, const float *thin, float *product)
{
#ifdef CZ_BENCH_CBLAS
    const int m = (int)rows, n = (int)cols;
    if (transposed)
        cblas_sgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, n, r, m, 1, matrix, n, thin, m, 0,
                    product, n);
    else
        cblas_sgemm(CblasColMajor, CblasTrans, CblasNoTrans, m, r, n, 1, matrix, n, thin, n, 0,
                    product, m);
#else
    (void)matrix, (void)thin, (void)product;
#endif
}

static void products(const cz__low_rank *l, bool blas)
{
    if (!blas) {
        cz__low_rank_project(CZ_F32, l);
        cz__low_rank_back(CZ_F32, l);
        return;
    }
    gemm(NULL, false, l->rows, l->cols, l->rank, l->matrix, l->q, l->p);
    gemm(NULL, true, l->rows, l->cols, l->rank, l->matrix, l->p, l->q);
}

/* The best of some rounds; Q is put back, or it would grow. */
static double time_products(const cz__low_rank *l, const float *q, bool blas)
{
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        for (int64_t i = 0; i < l->cols * l->rank; i++)
            ((float *)l->q)[i] = q[i];
        const double begin = cz__seconds();
        products(l, blas);
        const double spent = cz__seconds() - begin;
        best = spent < best ? spent : best;
    }
    return 1e3 * best;
}

static float *numbers(int64_t count)
{
    float *memory = malloc((size_t)count * sizeof *memory);
    if (!memory)
        exit(1);
    for (int64_t i = 0; i < count; i++)
        memory[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    return memory;
}

static double time_pass(int64_t rows, int64_t cols, int rank, bool blas)
{
    const int64_t shape[] = {rows, cols}, count = rows * cols;
    float *value = numbers(count), *grad = numbers(count), *kept = numbers(count);
    cz_powersgd_options options = CZ_POWERSGD_OPTIONS_INIT;
    cz_group *group;
    cz_model *model;
    cz_ddp *ddp;
    cz_powersgd *powersgd;
    double best = 1e9;
    options.rank = rank;
    options.start_iter = -1;
    options.gemm = blas ? gemm : NULL;
    CZ_CHECK(cz_group_create_self(&group, NULL));
    CZ_CHECK(cz_model_create(&model));
    CZ_CHECK(cz_model_add(model, "m", value, grad, CZ_F32, 2, shape));
    CZ_CHECK(cz_ddp_create(&ddp, group, model, NULL));
    CZ_CHECK(cz_powersgd_create(&powersgd, model, &options));
    CZ_CHECK(cz_ddp_register_hook_by_name(ddp, "powersgd", powersgd));
    for (int round = 0; round < ROUNDS; round++) {
        for (int64_t i = 0; i < count; i++)
            grad[i] = kept[i];
        const double begin = cz__seconds();
        CZ_CHECK(cz_ddp_begin(ddp, true));
        CZ_CHECK(cz_ddp_mark_ready(ddp, 0));
        CZ_CHECK(cz_ddp_finish(ddp));
        const double spent = cz__seconds() - begin;
        best = spent < best ? spent : best;
    }
    cz_ddp_destroy(&ddp);
    cz_powersgd_destroy(&powersgd);
    cz_model_destroy(&model);
    cz_group_destroy(&group);
    free(value);
    free(grad);
    free(kept);
    return 1e3 * best;
}

static void measure(int64_t rows, int64_t cols, int rank, bool blas)
{
    float *matrix = numbers(rows * cols), *p = numbers(rows * rank);
    float *q = numbers(cols * rank), *kept = numbers(cols * rank);
    const cz__low_rank l = {rows, cols, rank, matrix, p, q};
    printf("%5d x %-5d %3d  ", (int)rows, (int)cols, rank);
    printf("%9.3f", time_products(&l, kept, false));
    if (blas)
        printf(" %9.3f", time_products(&l, kept, true));
    printf("   %9.3f", time_pass(rows, cols, rank, false));
    if (blas)
        printf(" %9.3f", time_pass(rows, cols, rank, true));
    printf("\n");
    free(matrix);
    free(p);
    free(q);
    free(kept);
}

int main(void)
{
    static const int64_t shapes[][2] = {{128, 512}, {1024, 1024}, {4096, 1024}};
    bool blas = false;
#ifdef CZ_BENCH_CBLAS
    openblas_set_num_threads(1);
    blas = true;
#endif
    printf("PowerSGD, ms, one thread%s\n   matrix  columns   products%s        pass\n",
           blas ? ": library's loops, BLAS" : ", no BLAS here", blas ? "          " : "");
    for (int s = 0; s < 3; s++)
        for (int rank = 1; rank <= 32; rank *= 2)
            measure(shapes[s][0], shapes[s][1], rank, blas);
    return 0;
}
