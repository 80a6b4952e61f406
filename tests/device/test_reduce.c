/* SPDX-License-Identifier: MIT */
/* reduce() against the definition of its order, written as it is read, at every level. */
#include "base/memory.h"
#include "device/cpu/cpu.h"
#include "support/cz_test.h"
#include "base/half.h"

#include <math.h>
#include <string.h>

typedef union number {
    float f32;
    double f64;
    uint16_t half;
    int32_t i32;
    int64_t i64;
    uint8_t u8;
} number;

static number get(cz_dtype dtype, const void *from, int64_t i)
{
    number n = {0};
    memcpy(&n, (const char *)from + (size_t)i * cz_dtype_size(dtype), cz_dtype_size(dtype));
    return n;
}

static float wide(cz_dtype dtype, number n)
{
    return dtype == CZ_F16    ? cz__f32_from_f16(n.half)
           : dtype == CZ_BF16 ? cz__f32_from_bf16(n.half)
                              : n.f32;
}

/* Sums of 16-bit floats are floats until the end. */
static number add(cz_dtype dtype, number a, number b)
{
    switch (dtype) {
    case CZ_F64:
        return (number){.f64 = a.f64 + b.f64};
    case CZ_I32:
        return (number){.i32 = (int32_t)((uint32_t)a.i32 + (uint32_t)b.i32)};
    case CZ_I64:
        return (number){.i64 = (int64_t)((uint64_t)a.i64 + (uint64_t)b.i64)};
    case CZ_U8:
        return (number){.u8 = (uint8_t)(a.u8 + b.u8)};
    default:
        return (number){.f32 = a.f32 + b.f32};
    }
}

static number multiply(cz_dtype dtype, number a, number b)
{
    switch (dtype) {
    case CZ_F64:
        return (number){.f64 = a.f64 * b.f64};
    case CZ_I32:
        return (number){.i32 = (int32_t)((uint32_t)a.i32 * (uint32_t)b.i32)};
    case CZ_I64:
        return (number){.i64 = (int64_t)((uint64_t)a.i64 * (uint64_t)b.i64)};
    case CZ_U8:
        return (number){.u8 = (uint8_t)(a.u8 * b.u8)};
    default:
        return (number){.f32 = a.f32 * b.f32};
    }
}

static double as_double(cz_dtype dtype, number n)
{
    return dtype == CZ_F64 ? n.f64 : dtype == CZ_I32 ? n.i32 : dtype == CZ_U8 ? n.u8 : n.f32;
}

static number pick(cz_dtype dtype, cz_reduction reduction, number a, number b)
{
    if (dtype == CZ_I64)
        return (reduction == CZ_MAX) == (a.i64 > b.i64) ? a : b;
    const double x = as_double(dtype, a), y = as_double(dtype, b);
    if (isnan(x) || isnan(y))
        return isnan(x) ? a : b;
    return x == y ? b : (reduction == CZ_MAX) == (x > y) ? a : b;
}

static number combine(cz_dtype dtype, cz_reduction reduction, number a, number b)
{
    if (reduction == CZ_AND) /* of an integer's bytes, the others being 0 */
        return (number){.i64 = a.i64 & b.i64};
    if (reduction == CZ_OR)
        return (number){.i64 = a.i64 | b.i64};
    if (reduction == CZ_PRODUCT)
        return multiply(dtype, a, b);
    return reduction == CZ_MAX || reduction == CZ_MIN ? pick(dtype, reduction, a, b)
                                                      : add(dtype, a, b);
}

static number tree(cz_dtype dtype, cz_reduction reduction, const void *const *sources, int first,
                   int count, int64_t i)
{
    if (count == 1) {
        number n = get(dtype, sources[first], i);
        if (dtype == CZ_F16 || dtype == CZ_BF16)
            n.f32 = wide(dtype, n);
        return n;
    }
    int left = 1;
    while (2 * left < count)
        left *= 2;
    const number a = tree(dtype, reduction, sources, first, left, i);
    return combine(dtype, reduction, a,
                   tree(dtype, reduction, sources, first + left, count - left, i));
}

static number wanted(cz_dtype dtype, cz_reduction reduction, const void *const *sources, int count,
                     int64_t i)
{
    number n = tree(dtype, reduction, sources, 0, count, i);
    if (reduction == CZ_AVERAGE && dtype == CZ_F64)
        n.f64 /= count;
    else if (reduction == CZ_AVERAGE)
        n.f32 /= (float)count;
    if (dtype == CZ_F16 || dtype == CZ_BF16)
        n.half = dtype == CZ_F16 ? cz__f16_from_f32(n.f32) : cz__bf16_from_f32(n.f32);
    return n;
}

/* Values of very different sizes, so that every other order of additions shows. */
static void fill(cz_dtype dtype, uint64_t seed, int64_t count, void *out)
{
    double *stream = cz__calloc((size_t)count, sizeof *stream);
    assert_non_null(stream);
    cz_test_stream_f64(seed, count, stream);
    for (int64_t i = 0; i < count; i++) {
        const double scaled = ldexp(stream[i], (int)((seed + (uint64_t)i) * 7 % 13) - 8);
        number n = {.i64 = (int64_t)(stream[i] * 9e18)};
        if (dtype == CZ_F64)
            n.f64 = scaled / 3;
        else if (dtype == CZ_F16 || dtype == CZ_BF16)
            n.half = dtype == CZ_F16 ? cz__f16_from_f32((float)scaled)
                                     : cz__bf16_from_f32((float)scaled);
        else if (dtype == CZ_F32)
            n.f32 = (float)(scaled / 3);
        else if (dtype == CZ_I32)
            n.i32 = (int32_t)(stream[i] * 2147483647.);
        else if (dtype == CZ_U8)
            n.u8 = (uint8_t)(128 + stream[i] * 127);
        memcpy((char *)out + (size_t)i * cz_dtype_size(dtype), &n, cz_dtype_size(dtype));
    }
    cz__free(stream);
}

typedef struct inputs {
    char *memory;
    const void **sources;
    char *out;
} inputs;

/* Each source begins somewhere else in its cache line. */
static inputs make_inputs(cz_dtype dtype, int source_count, int64_t count)
{
    const size_t size = cz_dtype_size(dtype), stride = ((size_t)count + 64) * size;
    inputs in = {.memory = cz__calloc((size_t)source_count + 1, stride),
                 .sources = cz__calloc((size_t)source_count, sizeof(void *))};
    assert_true(in.memory && in.sources);
    for (int k = 0; k < source_count; k++) {
        char *begin = in.memory + (size_t)k * stride + (size_t)(k * 3 % 16) * size;
        fill(dtype, 100 + (uint64_t)k, count, begin);
        in.sources[k] = begin;
    }
    in.out = in.memory + (size_t)source_count * stride + 5 * size;
    return in;
}

static void free_inputs(inputs *in)
{
    cz__free(in->sources);
    cz__free(in->memory);
}

/* What the definition gives, element after element. */
static void fill_wanted(cz_dtype dtype, cz_reduction reduction, const inputs *in, int source_count,
                        int64_t count, void *out)
{
    const size_t size = cz_dtype_size(dtype);
    for (int64_t i = 0; i < count; i++) {
        const number n = wanted(dtype, reduction, in->sources, source_count, i);
        memcpy((char *)out + (size_t)i * size, &n, size);
    }
}

static void compare(cz_dtype dtype, cz_reduction reduction, int source_count, int64_t count,
                    const void *got, const void *right, const char *level)
{
    const size_t size = cz_dtype_size(dtype);
    if (memcmp(got, right, (size_t)count * size) == 0)
        return;
    for (int64_t i = 0; i < count; i++) {
        const number g = get(dtype, got, i), w = get(dtype, right, i);
        if (memcmp(&g, &w, size) != 0)
            fail_msg("%s: %s reduction %d of %d sources: element %d of %d: bits %llx, wanted %llx",
                     level, cz_dtype_name(dtype), (int)reduction, source_count, (int)i, (int)count,
                     (unsigned long long)g.i64, (unsigned long long)w.i64);
    }
}

static bool exists(cz_dtype dtype, cz_reduction reduction)
{
    const bool integer = dtype >= CZ_I32;
    return reduction == CZ_AVERAGE                     ? !integer
           : reduction == CZ_AND || reduction == CZ_OR ? integer
                                                       : true;
}

/* At every level, from the sources into `out`, which may be one of them. */
static void try_levels(cz_dtype dtype, const inputs *in, int source_count, int64_t count, char *out)
{
    static char right[65536 * 8], before[65536 * 8], got[65536 * 8];
    const size_t bytes = (size_t)count * cz_dtype_size(dtype);
    memcpy(before, out, bytes);
    for (int r = CZ_SUM; r <= CZ_OR; r++) {
        const cz_reduction reduction = (cz_reduction)r;
        if (!exists(dtype, reduction))
            continue;
        fill_wanted(dtype, reduction, in, source_count, count, right);
        for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++) {
            const cz__cpu_kernels *kernels = cz__cpu_kernels_at((cz__cpu_level)level);
            if (!kernels)
                continue;
            const char after = out[bytes];
            kernels->reduce[dtype][reduction](source_count, in->sources, count, out);
            memcpy(got, out, bytes);
            memcpy(out, before, bytes);
            compare(dtype, reduction, source_count, count, got, right, kernels->level);
            assert_int_equal(out[bytes], after);
        }
    }
}

/* The sum or average of 16-bit floats as f32 is that of what they are as f32. */
static void try_wide(cz_dtype dtype, const inputs *in, int source_count, int64_t count)
{
    static float right[65536], got[65537];
    float *memory = cz__calloc((size_t)source_count * (size_t)count + 1, sizeof *memory);
    const void **sources = cz__calloc((size_t)source_count, sizeof *sources);
    assert_true(memory && sources);
    for (int k = 0; k < source_count; k++) {
        sources[k] = memory + (int64_t)k * count;
        for (int64_t i = 0; i < count; i++)
            memory[(int64_t)k * count + i] = wide(dtype, get(dtype, in->sources[k], i));
    }
    for (int r = CZ_SUM; r <= CZ_AVERAGE; r++) {
        const inputs as_f32 = {.sources = sources};
        fill_wanted(CZ_F32, (cz_reduction)r, &as_f32, source_count, count, right);
        for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++) {
            const cz__cpu_kernels *kernels = cz__cpu_kernels_at((cz__cpu_level)level);
            if (!kernels)
                continue;
            got[count] = -7;
            kernels->reduce_wide[dtype][r](source_count, in->sources, count, got);
            compare(CZ_F32, (cz_reduction)r, source_count, count, got, right, kernels->level);
            assert_true(got[count] == -7);
        }
    }
    cz__free(sources);
    cz__free(memory);
}

static void one_size(cz_dtype dtype, int source_count, int64_t count)
{
    inputs in = make_inputs(dtype, source_count, count);
    try_levels(dtype, &in, source_count, count, in.out);
    if (dtype == CZ_F16 || dtype == CZ_BF16)
        try_wide(dtype, &in, source_count, count);
    free_inputs(&in);
}

TEST(the_order_of_the_tree)
{
    static const int64_t counts[] = {0, 1, 2, 3, 15, 16, 17, 31, 33, 67};
    for (int dtype = CZ_F32; dtype <= CZ_U8; dtype++)
        for (int sources = 1; sources <= 37; sources++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                one_size((cz_dtype)dtype, sources, counts[c]);
}

TEST(blocks_and_many_sources)
{
    static const int64_t counts[] = {511, 512, 513, 1023, 1025, 4096, 4099};
    static const int many[] = {63, 64, 65, 1000, 4095, 4096};
    for (int dtype = CZ_F32; dtype <= CZ_U8; dtype++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (int sources = 2; sources <= 7; sources++)
                one_size((cz_dtype)dtype, sources, counts[c]);
        for (size_t m = 0; m < sizeof many / sizeof *many; m++)
            one_size((cz_dtype)dtype, many[m], 5);
    }
}

/* Factors near 1, and odd integers: products of many that are neither 0 nor infinite. */
static void set_factors(cz_dtype dtype, uint64_t seed, int64_t count, void *out)
{
    double stream[64];
    cz_test_stream_f64(seed, count, stream);
    for (int64_t i = 0; i < count; i++) {
        const double near_one = 1 + stream[i] / 64;
        number n = {.i64 = (int64_t)(stream[i] * 9e18) | 1};
        if (dtype == CZ_F64)
            n.f64 = near_one;
        else if (dtype == CZ_F32)
            n.f32 = (float)near_one;
        else if (dtype == CZ_F16)
            n.half = cz__f16_from_f32((float)near_one);
        else if (dtype == CZ_BF16)
            n.half = cz__bf16_from_f32((float)near_one);
        memcpy((char *)out + (size_t)i * cz_dtype_size(dtype), &n, cz_dtype_size(dtype));
    }
}

TEST(products_of_many)
{
    static const int many[] = {2, 3, 4, 5, 8, 13, 64, 100, 1000, 4096};
    for (int dtype = CZ_F32; dtype <= CZ_U8; dtype++)
        for (size_t m = 0; m < sizeof many / sizeof *many; m++) {
            inputs in = make_inputs((cz_dtype)dtype, many[m], 37);
            int ordinary = 0;
            for (int k = 0; k < many[m]; k++)
                set_factors((cz_dtype)dtype, 7 + (uint64_t)k, 37, (char *)(uintptr_t)in.sources[k]);
            for (int64_t i = 0; i < 37; i++) {
                const number n = wanted((cz_dtype)dtype, CZ_PRODUCT, in.sources, many[m], i);
                ordinary += dtype == CZ_F32 ? n.f32 != 0 && isfinite(n.f32) : n.i64 != 0;
            }
            assert_int_equal(ordinary, 37);
            try_levels((cz_dtype)dtype, &in, many[m], 37, in.out);
            free_inputs(&in);
        }
}

/* 400 * 200 is out of f16's range, 400 * 200 / 64 * 2 = 2500 is not: f32 carries it there. */
TEST(products_of_halves_are_rounded_once)
{
    const uint16_t a = cz__f16_from_f32(400), b = cz__f16_from_f32(200),
                   c = cz__f16_from_f32(1 / 64.f), d = cz__f16_from_f32(2);
    const void *const sources[] = {&a, &b, &c, &d};
    for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++) {
        const cz__cpu_kernels *kernels = cz__cpu_kernels_at((cz__cpu_level)level);
        uint16_t out = 0;
        if (!kernels)
            continue;
        kernels->reduce[CZ_F16][CZ_PRODUCT](4, sources, 1, &out);
        assert_true(cz__f32_from_f16(out) == 2500);
    }
}

TEST(out_may_be_a_source)
{
    static const int64_t counts[] = {5, 68, 1300};
    for (int dtype = CZ_F32; dtype <= CZ_U8; dtype++) {
        for (int sources = 1; sources <= 6; sources++) {
            for (int own = 0; own < sources; own++) {
                const int64_t count = counts[(dtype + sources + own) % 3];
                inputs in = make_inputs((cz_dtype)dtype, sources, count);
                try_levels((cz_dtype)dtype, &in, sources, count,
                           (char *)(uintptr_t)in.sources[own]);
                free_inputs(&in);
            }
        }
    }
}

/* Every 16-bit float goes through the vectors, beside ordinary, tiny and huge ones. No NaN meets
 * another: which of them survives an addition is not defined. */
TEST(conversions)
{
    static uint16_t all[65536], other[65536], out[65537];
    static const uint16_t partners[] = {0x0000, 0x8000, 0x0001, 0x03ff, 0x1234, 0x7bff, 0xfbff};
    const void *sources[] = {all, other};
    const inputs in = {.sources = sources};
    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (size_t k = 0; k < sizeof partners / sizeof *partners; k++) {
        for (int i = 0; i < 65536; i++)
            other[i] = (uint16_t)(partners[k] ^ (k % 2 ? 0 : (i * 7) & 0x3ff));
        for (int dtype = CZ_F16; dtype <= CZ_BF16; dtype++) {
            try_levels((cz_dtype)dtype, &in, 2, 65536, (char *)out);
            try_wide((cz_dtype)dtype, &in, 2, 65536);
        }
    }
}

TEST(nan_wins)
{
    float a[19], b[19], out[19];
    uint16_t ha[19], hb[19], hout[19];
    for (int place = 0; place < 19; place++) {
        for (int i = 0; i < 19; i++) {
            a[i] = i == place ? NAN : i - 9;
            b[i] = i == (place + 1) % 19 ? NAN : 9 - i;
            ha[i] = cz__bf16_from_f32(a[i]);
            hb[i] = cz__bf16_from_f32(b[i]);
        }
        for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++) {
            const cz__cpu_kernels *kernels = cz__cpu_kernels_at((cz__cpu_level)level);
            for (int r = CZ_SUM; kernels && r <= CZ_PRODUCT; r++) {
                kernels->reduce[CZ_F32][r](2, (const void *[]){a, b}, 19, out);
                kernels->reduce[CZ_BF16][r](2, (const void *[]){ha, hb}, 19, hout);
                for (int i = 0; i < 19; i++) {
                    const bool has = i == place || i == (place + 1) % 19;
                    assert_int_equal(isnan(out[i]) != 0, has);
                    assert_int_equal(isnan(cz__f32_from_bf16(hout[i])) != 0, has);
                }
            }
        }
    }
}

TEST(what_is_refused)
{
    const cz_device *cpu = cz_device_cpu();
    int32_t value[2] = {7, 9};
    const void *sources[] = {value, value};
    assert_int_equal(cpu->reduce(NULL, CZ_I32, CZ_AVERAGE, 2, sources, 2, CZ_I32, value),
                     CZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(cz_last_error(), "average of i32"));
    for (int dtype = CZ_F32; dtype <= CZ_BF16; dtype++) {
        assert_int_equal(
            cpu->reduce(NULL, (cz_dtype)dtype, CZ_AND, 2, sources, 0, (cz_dtype)dtype, value),
            CZ_ERR_UNSUPPORTED);
        assert_int_equal(
            cpu->reduce(NULL, (cz_dtype)dtype, CZ_OR, 2, sources, 0, (cz_dtype)dtype, value),
            CZ_ERR_UNSUPPORTED);
        assert_non_null(strstr(cz_last_error(), "or of "));
    }
    assert_int_equal(cpu->reduce(NULL, (cz_dtype)0, CZ_SUM, 2, sources, 2, (cz_dtype)0, value),
                     CZ_ERR_UNSUPPORTED);
    assert_int_equal(cpu->reduce(NULL, (cz_dtype)8, CZ_SUM, 2, sources, 2, (cz_dtype)8, value),
                     CZ_ERR_UNSUPPORTED);
    assert_int_equal(cpu->reduce(NULL, CZ_I32, (cz_reduction)0, 2, sources, 2, CZ_I32, value),
                     CZ_ERR_UNSUPPORTED);
    assert_int_equal(cpu->reduce(NULL, CZ_I32, (cz_reduction)-1, 2, sources, 2, CZ_I32, value),
                     CZ_ERR_UNSUPPORTED);
    assert_int_equal(cpu->reduce(NULL, CZ_I32, (cz_reduction)8, 2, sources, 2, CZ_I32, value),
                     CZ_ERR_UNSUPPORTED);
    assert_int_equal(cpu->reduce(NULL, CZ_I32, CZ_SUM, 0, sources, 2, CZ_I32, value),
                     CZ_ERR_ARGUMENT);
    assert_int_equal(cpu->reduce(NULL, CZ_I32, CZ_SUM, 4097, sources, 2, CZ_I32, value),
                     CZ_ERR_ARGUMENT);
    assert_int_equal(cpu->reduce(NULL, CZ_I32, CZ_SUM, 2, sources, 1, CZ_F32, value),
                     CZ_ERR_UNSUPPORTED);
    assert_int_equal(cpu->reduce(NULL, CZ_BF16, CZ_SUM, 2, sources, 2, CZ_F16, value),
                     CZ_ERR_UNSUPPORTED);
    assert_int_equal(cpu->reduce(NULL, CZ_F64, CZ_AVERAGE, 2, sources, 1, CZ_F32, value),
                     CZ_ERR_UNSUPPORTED);
    assert_int_equal(cpu->reduce(NULL, CZ_BF16, CZ_MAX, 2, sources, 2, CZ_F32, value),
                     CZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(cz_last_error(), "the max of bf16 values as f32"));
    assert_true(value[0] == 7 && value[1] == 9);
    assert_ok(cpu->reduce(NULL, CZ_I32, CZ_SUM, 2, sources, 0, CZ_I32, NULL));
    assert_ok(cpu->reduce(NULL, CZ_I32, CZ_SUM, 2, sources, 2, CZ_I32, value));
    assert_true(value[0] == 14 && value[1] == 18);
}

/* ---- sources that are missing ---- */

enum { WITH_GAPS = 210, GAP_COUNT = 1500 };

/* The definition: of the two sides of a sum one may be missing, or both. False: nothing is
 * there. */
static bool fold_gaps(const cz__cpu_kernels *kernels, cz_dtype dtype, cz_reduction reduction,
                      const void *const *sources, int count, char *out)
{
    const size_t bytes = GAP_COUNT * cz_dtype_size(dtype);
    int left = 1;
    if (count == 1) {
        if (sources[0])
            memcpy(out, sources[0], bytes);
        return sources[0] != NULL;
    }
    while (2 * left < count)
        left *= 2;
    char *other = malloc(bytes);
    const bool a = fold_gaps(kernels, dtype, reduction, sources, left, out);
    const bool b = fold_gaps(kernels, dtype, reduction, sources + left, count - left, other);
    if (a && b)
        kernels->reduce[dtype][reduction](2, (const void *[]){out, other}, GAP_COUNT, out);
    else if (b)
        memcpy(out, other, bytes);
    free(other);
    return a || b;
}

static void divide(cz_dtype dtype, int count, void *values)
{
    for (int i = 0; i < GAP_COUNT; i++)
        if (dtype == CZ_F32)
            ((float *)values)[i] /= (float)count;
        else
            ((double *)values)[i] /= count;
}

static void try_gaps(const cz__cpu_kernels *kernels, cz_dtype dtype, int count, unsigned seed)
{
    static const cz_reduction reductions[] = {CZ_SUM, CZ_PRODUCT, CZ_MAX, CZ_MIN, CZ_AVERAGE};
    const size_t size = cz_dtype_size(dtype);
    const void *sources[WITH_GAPS] = {NULL};
    char *data = malloc((size_t)count * GAP_COUNT * size), *out = malloc(GAP_COUNT * size),
         *wanted = malloc(GAP_COUNT * size);
    for (int k = 0; k < count; k++) {
        char *its = data + (size_t)k * GAP_COUNT * size;
        for (int i = 0; i < GAP_COUNT; i++) {
            seed = seed * 1664525u + 1013904223u;
            if (dtype == CZ_F32)
                ((float *)(void *)its)[i] = (float)(int)seed * 0x1p-30f;
            else
                ((double *)(void *)its)[i] = (int)seed * 0x1p-30;
        }
        seed = seed * 1664525u + 1013904223u;
        sources[k] = (seed >> 20) % 4 < 2 || k == (int)(seed % (unsigned)count) ? its : NULL;
    }
    sources[count / 2] = data;
    for (int r = 0; r < 5; r++) {
        const bool average = reductions[r] == CZ_AVERAGE;
        fold_gaps(kernels, dtype, average ? CZ_SUM : reductions[r], sources, count, wanted);
        if (average)
            divide(dtype, count, wanted);
        kernels->reduce[dtype][reductions[r]](count, sources, GAP_COUNT, out);
        if (memcmp(out, wanted, GAP_COUNT * size) != 0)
            fail_msg("%s: reduction %d of %s with gaps, %d sources", kernels->level, reductions[r],
                     cz_dtype_name(dtype), count);
    }
    free(data);
    free(out);
    free(wanted);
}

/* As f32 with the same places empty. */
static void try_wide_gaps(const cz__cpu_kernels *kernels, cz_dtype dtype, int count)
{
    uint16_t *data = cz__calloc((size_t)count * GAP_COUNT, sizeof *data);
    float *widened = cz__calloc((size_t)count * GAP_COUNT, sizeof *widened);
    const void *sources[WITH_GAPS] = {NULL}, *as_f32[WITH_GAPS] = {NULL};
    float out[GAP_COUNT], right[GAP_COUNT];
    assert_true(data && widened);
    for (int k = 0; k < count; k++) {
        fill(dtype, 7 + (uint64_t)k, GAP_COUNT, data + k * GAP_COUNT);
        for (int64_t i = 0; i < GAP_COUNT; i++)
            widened[k * GAP_COUNT + i] = wide(dtype, get(dtype, data + k * GAP_COUNT, i));
        if (k % 3 != 1 && k % 7 != 4) {
            sources[k] = data + k * GAP_COUNT;
            as_f32[k] = widened + k * GAP_COUNT;
        }
    }
    for (int r = CZ_SUM; r <= CZ_AVERAGE; r++) {
        kernels->reduce_wide[dtype][r](count, sources, GAP_COUNT, out);
        kernels->reduce[CZ_F32][r](count, as_f32, GAP_COUNT, right);
        assert_memory_equal(out, right, sizeof out);
    }
    cz__free(widened);
    cz__free(data);
}

TEST(places_of_the_tree_may_be_empty)
{
    for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++) {
        const cz__cpu_kernels *kernels = cz__cpu_kernels_at((cz__cpu_level)level);
        for (int count = 1; kernels && count <= WITH_GAPS; count += 1 + count / 10) {
            try_gaps(kernels, CZ_F32, count, (unsigned)count);
            try_gaps(kernels, CZ_F64, count, (unsigned)count + 99);
            try_wide_gaps(kernels, CZ_F16, count);
            try_wide_gaps(kernels, CZ_BF16, count);
        }
    }
}

/* One block of four places for each of two, three and five sources. */
TEST(blocks_of_one_size_are_a_tree_of_their_own)
{
    const cz__cpu_kernels *kernels = cz__cpu_kernels_at(CZ__CPU_V1);
    for (int blocks = 1; blocks <= 5; blocks++) {
        float data[5][GAP_COUNT], out[GAP_COUNT], wanted[GAP_COUNT];
        const void *sources[20] = {NULL}, *dense[5];
        for (int k = 0; k < blocks; k++) {
            for (int i = 0; i < GAP_COUNT; i++)
                data[k][i] = (float)((k * 7919 + i * 104729) % 10007) / 97;
            sources[4 * k] = dense[k] = data[k];
        }
        kernels->reduce[CZ_F32][CZ_SUM](blocks, dense, GAP_COUNT, wanted);
        divide(CZ_F32, 4 * blocks, wanted);
        kernels->reduce[CZ_F32][CZ_AVERAGE](4 * blocks, sources, GAP_COUNT, out);
        assert_memory_equal(out, wanted, sizeof out);
    }
}
