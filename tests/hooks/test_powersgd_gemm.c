/* SPDX-License-Identifier: MIT */
/* PowerSGD with products of the program's own: they are asked for, and ranks whose products have
 * other bits, as on another processor, still have the same result. */
#include <math.h>

#include "hooks/gemm_test.h"
#include "hooks/hook_test.h"

enum { PASSES = 4, ELEMENTS = 20 * 9 + 11 + 30 * 40 };

static const layout shapes = {.count = 3, .shapes = {{20, 9}, {11}, {30, 40}}, .dtype = CZ_F32};

typedef struct trial {
    cz_dtype dtype;
    int batched;
    bool mixed; /* odd ranks add in another order */
    float out[PASSES][ELEMENTS];
} trial;

static cz_status run(subject *s, trial *t)
{
    float in[ELEMENTS], got[ELEMENTS];
    for (int pass = 0; pass < PASSES; pass++) {
        cz_test_stream_f32((uint64_t)(10 * pass + cz_group_rank(s->group)), ELEMENTS, in);
        CZ_TRY(subject_pass(s, in, NULL));
        subject_result(s, got);
        CZ_TRY(equal_everywhere(s->group, got, sizeof got));
        if (cz_group_rank(s->group) == 0)
            memcpy(t->out[pass], got, sizeof got);
    }
    return CZ_OK;
}

static cz_status body(cz_group *group, void *arg, cz_powersgd_gemm gemm)
{
    trial *t = arg;
    layout l = shapes;
    l.dtype = t->dtype;
    cz_powersgd_options options = CZ_POWERSGD_OPTIONS_INIT;
    options.rank = 3;
    options.start_iter = -1;
    options.min_compression_rate = 1;
    options.batched = t->batched;
    options.gemm = gemm;
    options.gemm_context = t->mixed && cz_group_rank(group) % 2 ? t : NULL;
    subject s;
    cz_powersgd *p = NULL;
    cz_status status = subject_create(&s, group, &l);
    THEN(cz_powersgd_create(&p, s.model, &options));
    THEN(cz_ddp_register_hook_by_name(s.ddp, "powersgd", p));
    THEN(run(&s, t));
    subject_clear(&s);
    cz_powersgd_destroy(&p);
    return status;
}

static cz_status with_loops(cz_group *group, void *arg)
{
    return body(group, arg, NULL);
}

static cz_status with_gemm(cz_group *group, void *arg)
{
    return body(group, arg, plain_gemm);
}

static cz_status with_blas(cz_group *group, void *arg)
{
    return body(group, arg, blas_gemm);
}

static void near_each_other(const trial *a, const trial *b, double unit)
{
    for (int pass = 0; pass < PASSES; pass++)
        for (int i = 0; i < ELEMENTS; i++)
            if (!(fabs((double)(a->out[pass][i] - b->out[pass][i])) <= unit))
                fail_msg("pass %d: element %d is %g, by the library's loops %g", pass, i,
                         (double)b->out[pass][i], (double)a->out[pass][i]);
}

TEST(other_products)
{
    static const cz_dtype dtypes[] = {CZ_F32, CZ_BF16};
    static trial loops, gemm;
    for (int w = 0; w < WORLDS; w++)
        for (int k = 0; k < 12; k++) {
            loops = (trial){.dtype = dtypes[k % 2], .batched = k / 2 % 2};
            gemm = loops;
            gemm.mixed = k / 4 == 1;
            atomic_store(&products[0], 0);
            atomic_store(&products[1], 0);
            assert_ranks_ok(worlds[w], with_loops, &loops);
            assert_int_equal(atomic_load(&products[0]), 0);
            assert_ranks_ok(worlds[w], k / 4 == 2 ? with_blas : with_gemm, &gemm);
            assert_int_equal(atomic_load(&products[0]),
                             worlds[w] * PASSES * (gemm.batched ? 1 : 2));
            assert_int_equal(atomic_load(&products[1]), atomic_load(&products[0]));
            near_each_other(&loops, &gemm, gemm.dtype == CZ_BF16 ? 0.1 : 2e-4);
        }
}

/* Matrices in f64 are not its business. */
TEST(not_in_f64)
{
    static trial loops, gemm;
    loops = gemm = (trial){.dtype = CZ_F64};
    atomic_store(&products[0], 0);
    assert_ranks_ok(2, with_loops, &loops);
    assert_ranks_ok(2, with_gemm, &gemm);
    assert_int_equal(atomic_load(&products[0]), 0);
    assert_memory_equal(loops.out, gemm.out, sizeof gemm.out);
}

int main(void)
{
    blas_setup();
    return cz_test_run(NULL, NULL);
}
