/* SPDX-License-Identifier: MIT */
/* Matrix products: every form, at every level, beside a plain loop in the one order of sums. With a
 * BLAS the device's own are another order's: near. */
#include "device/cpu/cpu.h"
#include "support/cz_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 256, BESIDE = 64 };

typedef struct sizes {
    int64_t rows, columns, inner;
} sizes;

/* Tiles that are full and not, blocks that end and go on: of a 256 rows (f32) or 128, of b 768
 * columns or 384, 256 products deep. */
static const sizes all_sizes[] = {{1, 1, 1},    {1, 7, 1},    {7, 1, 3},    {1, 1, 300},
                                  {5, 0, 3},    {3, 5, 0},    {8, 32, 256}, {9, 33, 257},
                                  {17, 31, 13}, {16, 64, 2},  {21, 97, 7},  {259, 5, 11},
                                  {3, 1543, 5}, {9, 771, 513}};
/* Of x, of which x x^T is made. */
static const sizes square_sizes[] = {{1, 1, 1},    {2, 2, 1},   {7, 7, 300},   {31, 31, 5},
                                     {64, 64, 64}, {97, 97, 3}, {263, 263, 9}, {771, 771, 2}};

typedef struct operands {
    cz_dtype dtype;
    cz_matmul m;
    void *a, *b, *addend, *c, *before, *wanted, *scratch;
} operands;

static double get(cz_dtype dtype, const void *from, int64_t i)
{
    return dtype == CZ_F32 ? ((const float *)from)[i] : ((const double *)from)[i];
}

static void set(cz_dtype dtype, void *to, int64_t i, double value)
{
    if (dtype == CZ_F32)
        ((float *)to)[i] = (float)value;
    else
        ((double *)to)[i] = value;
}

static void *filled(cz_dtype dtype, uint64_t seed, int64_t count)
{
    double *stream = malloc(((size_t)count + 1) * sizeof *stream);
    double *values = malloc(((size_t)count + BESIDE) * sizeof *values);
    assert_true(stream && values);
    cz_test_stream_f64(seed, count, stream);
    for (int64_t i = 0; i < count; i++) /* products and sums that are rounded in either type */
        set(dtype, values, i, stream[i] * 1.1 + stream[i] * stream[i] / 3);
    free(stream);
    return values;
}

static void make(operands *o, cz_dtype dtype, const sizes *s, int form)
{
    const int64_t elements = s->rows * s->columns;
    *o = (operands){.dtype = dtype};
    o->a = filled(dtype, 1, s->rows * s->inner);
    o->b = filled(dtype, 2, s->columns * s->inner);
    o->addend = filled(dtype, 3, elements);
    o->c = filled(dtype, 4, elements);
    o->before = filled(dtype, 4, elements);
    o->wanted = filled(dtype, 4, elements);
    o->scratch = aligned_alloc(64, CZ_MATMUL_SCRATCH);
    assert_non_null(o->scratch);
    o->m = (cz_matmul){.size = sizeof o->m,
                       .rows = s->rows,
                       .columns = s->columns,
                       .inner = s->inner,
                       .transposed_a = form & 1,
                       .transposed_b = form >> 1 & 1,
                       .alpha = form & 4 ? -4.775 : 1,
                       .beta = form & 8 ? 3.4445 : 1,
                       .a = o->a,
                       .b = o->b,
                       .addend = form & 16   ? o->addend
                                 : form & 32 ? o->c
                                             : NULL,
                       .c = o->c,
                       .scratch = o->scratch};
}

static void clear(operands *o)
{
    free(o->a);
    free(o->b);
    free(o->addend);
    free(o->c);
    free(o->before);
    free(o->wanted);
    free(o->scratch);
}

/* One operation, rounded to the type. */
static double rounded(cz_dtype dtype, double value)
{
    return dtype == CZ_F32 ? (double)(float)value : value;
}

static double sum_of(const operands *o, int64_t i, int64_t j, int64_t begin, int64_t end)
{
    const cz_matmul *m = &o->m;
    double sum = 0;
    for (int64_t k = begin; k < end; k++) {
        const double a = get(o->dtype, m->a, m->transposed_a ? k * m->rows + i : i * m->inner + k);
        const double b =
            get(o->dtype, m->b, m->transposed_b ? j * m->inner + k : k * m->columns + j);
        sum = rounded(o->dtype, sum + rounded(o->dtype, a * b));
    }
    return sum;
}

/* In double, where f32 is rounded after each operation: the bits of f32, since a double has more
 * than twice its digits. */
static void multiply_plainly(operands *o)
{
    const cz_matmul *m = &o->m;
    const double alpha = rounded(o->dtype, m->alpha), beta = rounded(o->dtype, m->beta);
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->columns; j++) {
            const int64_t at = i * m->columns + j;
            double c = 0;
            for (int64_t k = 0; k == 0 || k < m->inner; k += DEPTH) {
                const int64_t end = k + DEPTH < m->inner ? k + DEPTH : m->inner;
                const double some = rounded(o->dtype, alpha * sum_of(o, i, j, k, end));
                if (k > 0)
                    c = rounded(o->dtype, c + some);
                else if (m->addend)
                    c = rounded(o->dtype,
                                rounded(o->dtype, beta * get(o->dtype, m->addend, at)) + some);
                else
                    c = some;
            }
            set(o->dtype, o->wanted, at, c);
        }
}

static void expect_wanted(const operands *o, const char *by, int form, bool same_bits)
{
    const int64_t elements = o->m.rows * o->m.columns;
    const size_t size = cz_dtype_size(o->dtype);
    double most = 0;
    for (int64_t i = 0; i < elements; i++)
        most = fmax(most, fabs(get(o->dtype, o->c, i) - get(o->dtype, o->wanted, i)));
    const bool bits = memcmp(o->c, o->wanted, (size_t)elements * size) == 0;
    /* A BLAS: so many roundings of sums that are 20 at most */
    const double unit = o->dtype == CZ_F32 ? 0x1p-24 : 0x1p-53;
    if (same_bits ? !bits : !(most < 600 * 20 * unit))
        fail_msg("%s %s, %d x %d x %d, form %d: off by %g", by, cz_dtype_name(o->dtype),
                 (int)o->m.rows, (int)o->m.columns, (int)o->m.inner, form, most);
}

/* At every level, and as the device does it. */
static void try_all(cz_dtype dtype, const sizes *s, int form, bool symmetric)
{
    const size_t bytes = (size_t)(s->rows * s->columns) * cz_dtype_size(dtype);
    operands o;
    make(&o, dtype, s, form);
    if (symmetric) {
        o.m.b = o.m.a;
        o.m.symmetric = true;
    }
    for (int64_t i = 0; symmetric && i < s->rows; i++)
        for (int64_t j = 0; j < i; j++) {
            set(dtype, o.addend, i * s->rows + j, get(dtype, o.addend, j * s->rows + i));
            set(dtype, o.c, i * s->rows + j, get(dtype, o.c, j * s->rows + i));
        }
    memcpy(o.before, o.c, bytes);
    multiply_plainly(&o);
    for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++) {
        const cz__cpu_kernels *kernels = cz__cpu_kernels_at((cz__cpu_level)level);
        if (!kernels)
            continue;
        memcpy(o.c, o.before, bytes);
        kernels->matmul[dtype](&o.m);
        expect_wanted(&o, kernels->level, form, true);
    }
    memcpy(o.c, o.before, bytes);
    assert_ok(cz_device_cpu()->matmul(NULL, dtype, &o.m));
    expect_wanted(&o, cz__cpu_matmul_by(), form, strcmp(cz__cpu_matmul_by(), "own loops") == 0);
    clear(&o);
}

TEST(every_form)
{
    for (int dtype = CZ_F32; dtype <= CZ_F64; dtype++)
        for (size_t s = 0; s < sizeof all_sizes / sizeof *all_sizes; s++)
            for (int form = 0; form < 48; form++)
                if (s < 7 || form % 7 == (int)s % 7) /* some of the large ones */
                    try_all((cz_dtype)dtype, &all_sizes[s], form, false);
}

TEST(a_matrix_and_its_transpose)
{
    for (int dtype = CZ_F32; dtype <= CZ_F64; dtype++)
        for (size_t s = 0; s < sizeof square_sizes / sizeof *square_sizes; s++)
            for (int form = 0; form < 48; form++)
                if ((form & 1) != (form >> 1 & 1) && (s < 4 || form % 5 == (int)s % 5))
                    try_all((cz_dtype)dtype, &square_sizes[s], form, true);
}

/* What is not in a matrix is not in its product, and what is, is. */
TEST(nan_and_infinity)
{
    static const sizes s = {9, 35, 20};
    for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++) {
        const cz__cpu_kernels *kernels = cz__cpu_kernels_at((cz__cpu_level)level);
        operands o;
        if (!kernels)
            continue;
        make(&o, CZ_F32, &s, 0);
        ((float *)o.a)[2 * 20 + 3] = NAN;
        ((float *)o.b)[4 * 35 + 34] = INFINITY;
        kernels->matmul[CZ_F32](&o.m);
        for (int64_t i = 0; i < s.rows; i++)
            for (int64_t j = 0; j < s.columns; j++) {
                const float c = ((float *)o.c)[i * s.columns + j];
                assert_int_equal(isnan(c) != 0, i == 2);
                assert_int_equal(isfinite(c) != 0, i != 2 && j != 34);
            }
        clear(&o);
    }
}

TEST(other_types_are_refused)
{
    operands o;
    make(&o, CZ_F32, &all_sizes[0], 0);
    assert_int_equal(cz_device_cpu()->matmul(NULL, CZ_BF16, &o.m), CZ_ERR_UNSUPPORTED);
    assert_string_equal(cz_last_error(), "cpu: products of bf16 matrices, wanted are f32 or f64");
    clear(&o);
}
