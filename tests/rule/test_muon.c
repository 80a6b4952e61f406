/* SPDX-License-Identifier: MIT */
/* Muon beside its equations in double: every shape, every option; what it does with zeros, NaN and
 * matrices that lack rank; what it refuses. */
#include "czero/optim.h"
#include "device/levels.h"
#include "rule/rule.h"
#include "support/cz_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3 };

typedef struct options {
    double lr, decay, momentum, nesterov, a, b, c, eps;
    int steps, adjust;
    double sign;
} options;

static const options defaults = {0.02, 0.1, 0.95, 1, 3.4445, -4.7750, 2.0315, 1e-7, 5, 0, 1};

/* ---- the equations, in double ---- */

/* c = a b, or a b^T */
static void multiply(int64_t rows, int64_t columns, int64_t inner, const double *a, const double *b,
                     bool transposed, double *c)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0;
            for (int64_t k = 0; k < inner; k++)
                sum += a[i * inner + k] * (transposed ? b[j * inner + k] : b[k * columns + j]);
            c[i * columns + j] = sum;
        }
}

static void orthogonalize(const options *o, int64_t rows, int64_t columns, double *x)
{
    const size_t size = sizeof *x, square = (size_t)(rows * rows);
    double *y = malloc((size_t)(rows * columns) * size), *gram = malloc(2 * square * size);
    double norm = 0;
    for (int64_t i = 0; i < rows * columns; i++)
        norm += x[i] * x[i];
    norm = fmax(sqrt(norm), o->eps);
    for (int64_t i = 0; i < rows * columns; i++)
        x[i] /= norm;
    for (int step = 0; step < o->steps; step++) {
        double *polynomial = gram + square;
        multiply(rows, rows, columns, x, x, true, gram);
        multiply(rows, rows, rows, gram, gram, false, polynomial);
        for (size_t i = 0; i < square; i++)
            polynomial[i] = o->b * gram[i] + o->c * polynomial[i];
        multiply(rows, columns, rows, polynomial, x, false, y);
        for (int64_t i = 0; i < rows * columns; i++)
            x[i] = o->a * x[i] + y[i];
    }
    free(y);
    free(gram);
}

static double ratio(const options *o, double rows, double columns)
{
    if (o->adjust == 1)
        return 0.2 * sqrt(fmax(rows, columns));
    return o->adjust == 2 ? sqrt(rows / columns) : sqrt(fmax(1, rows / columns));
}

static void step_plainly(const options *o, int64_t rows, int64_t columns, double *p,
                         const double *g, double *buffer)
{
    double *x = malloc((size_t)(rows * columns) * sizeof *x);
    for (int64_t i = 0; i < rows * columns; i++) {
        buffer[i] = o->momentum * buffer[i] + (1 - o->momentum) * o->sign * g[i];
        x[i] = o->nesterov != 0 ? o->momentum * buffer[i] + (1 - o->momentum) * o->sign * g[i]
                                : buffer[i];
    }
    orthogonalize(o, rows, columns, x);
    for (int64_t i = 0; i < rows * columns; i++)
        p[i] =
            p[i] * (1 - o->lr * o->decay) - o->lr * ratio(o, (double)rows, (double)columns) * x[i];
    free(x);
}

/* ---- a matrix of either type ---- */

typedef struct subject {
    cz_dtype dtype;
    int64_t rows, columns;
    void *value, *gradient;
    cz_model *model;
    cz_optim *optim;
} subject;

static int64_t elements(const subject *s)
{
    return s->rows * s->columns;
}

static double get(const subject *s, const void *from, int64_t i)
{
    return s->dtype == CZ_F32 ? ((const float *)from)[i] : ((const double *)from)[i];
}

static void set(const subject *s, void *to, int64_t i, double value)
{
    if (s->dtype == CZ_F32)
        ((float *)to)[i] = (float)value;
    else
        ((double *)to)[i] = value;
}

static void fill(const subject *s, void *to, uint64_t seed)
{
    double *stream = malloc(((size_t)elements(s) + 1) * sizeof *stream);
    cz_test_stream_f64(seed, elements(s), stream);
    for (int64_t i = 0; i < elements(s); i++)
        set(s, to, i, stream[i]);
    free(stream);
}

static subject make(cz_dtype dtype, int64_t rows, int64_t columns, const cz_device *device,
                    const options *o)
{
    subject s = {.dtype = dtype, .rows = rows, .columns = columns};
    const size_t bytes = (size_t)elements(&s) * cz_dtype_size(dtype);
    s.value = malloc(bytes + 1);
    s.gradient = malloc(bytes + 1);
    fill(&s, s.value, 1);
    fill(&s, s.gradient, 2);
    cz_tensor value = {s.value, dtype, CZ_DENSE, 2, {rows, columns}, device}, gradient = value;
    gradient.data = s.gradient;
    const cz_hyper hypers[] = {{"lr", o->lr},
                               {"weight_decay", o->decay},
                               {"momentum", o->momentum},
                               {"nesterov", o->nesterov},
                               {"ns_a", o->a},
                               {"ns_b", o->b},
                               {"ns_c", o->c},
                               {"eps", o->eps},
                               {"ns_steps", o->steps},
                               {"adjust_lr_fn", o->adjust},
                               {"maximize", o->sign < 0},
                               {NULL, 0}};
    assert_ok(cz_model_create(&s.model));
    assert_ok(cz_model_add_tensor(s.model, "w", &value, &gradient));
    assert_ok(cz_optim_create(&s.optim, s.model, cz_rule_muon(), hypers, NULL));
    return s;
}

static void clear(subject *s)
{
    cz_optim_destroy(&s->optim);
    cz_model_destroy(&s->model);
    free(s->value);
    free(s->gradient);
}

/* Rounding is amplified where a singular value is small: by a^5 at most, as it is itself. */
static void compare(cz_dtype dtype, int64_t rows, int64_t columns, const options *o)
{
    subject s = make(dtype, rows, columns, NULL, o);
    const size_t count = (size_t)elements(&s);
    double *p = malloc(count * sizeof *p), *g = malloc(count * sizeof *g);
    double *buffer = calloc(count, sizeof *buffer), most = 0;
    for (size_t i = 0; i < count; i++)
        p[i] = get(&s, s.value, (int64_t)i);
    for (int step = 0; step < STEPS; step++) {
        fill(&s, s.gradient, (uint64_t)step + 2);
        for (size_t i = 0; i < count; i++)
            g[i] = get(&s, s.gradient, (int64_t)i);
        step_plainly(o, rows, columns, p, g, buffer);
        assert_ok(cz_optim_step(s.optim, NULL, NULL));
    }
    for (size_t i = 0; i < count; i++)
        most = fmax(most, fabs(p[i] - get(&s, s.value, (int64_t)i)));
    const double wanted = (dtype == CZ_F32 ? 0x1p-24 : 0x1p-53) * (2 + o->lr * 5000);
    if (!(most <= wanted))
        fail_msg("%s %d x %d: off by %g, wanted %g", cz_dtype_name(dtype), (int)rows, (int)columns,
                 most, wanted);
    free(p);
    free(g);
    free(buffer);
    clear(&s);
}

TEST(every_shape)
{
    static const int64_t shapes[][2] = {{1, 1},   {1, 2},   {1, 97},  {97, 1},  {2, 3},   {7, 5},
                                        {31, 31}, {13, 61}, {61, 13}, {5, 331}, {331, 5}, {64, 48}};
    for (int dtype = CZ_F32; dtype <= CZ_F64; dtype++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
            compare((cz_dtype)dtype, shapes[k][0], shapes[k][1], &defaults);
}

TEST(every_option)
{
    for (int bits = 0; bits < 32; bits++) {
        options o = defaults;
        o.nesterov = bits & 1;
        o.sign = bits & 2 ? -1 : 1;
        o.adjust = bits % 3;
        o.momentum = bits & 4 ? 0.3 : 0.95;
        o.decay = bits & 8 ? 0 : 0.2;
        if (bits & 16) { /* the polynomial that converges, and no division by a small norm */
            o.a = 1.5;
            o.b = -0.5;
            o.c = 0;
            o.steps = bits % 5;
            o.eps = 100;
        }
        compare(bits % 2 ? CZ_F64 : CZ_F32, 11, 19, &o);
        compare(bits % 2 ? CZ_F32 : CZ_F64, 19, 11, &o);
    }
}

/* By the products of one chunk of three steps and one of two, in cubes of the smaller side. */
TEST(what_a_matrix_costs)
{
    static const struct {
        int64_t rows, columns;
        double cubes;
    } cases[] = {{100, 100, 20}, {100, 400, 38}, {400, 100, 38}, {100, 300, 32}, {1, 100, 614}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const cz_tensor t = {NULL, CZ_F32, CZ_DENSE, 2, {cases[k].rows, cases[k].columns}, NULL};
        const double side = (double)(t.shape[0] < t.shape[1] ? t.shape[0] : t.shape[1]);
        assert_true(cz__muon_cost(&t, NULL) == cases[k].cubes * side * side * side);
    }
}

/* ---- special gradients ---- */

TEST(a_gradient_of_zeros_leaves_nothing_but_the_decay)
{
    for (int dtype = CZ_F32; dtype <= CZ_F64; dtype++) {
        subject s = make((cz_dtype)dtype, 5, 9, NULL, &defaults), before = s;
        before.value = malloc((size_t)elements(&s) * sizeof(double));
        fill(&before, before.value, 1);
        for (int64_t i = 0; i < elements(&s); i++)
            set(&s, s.gradient, i, 0);
        assert_ok(cz_optim_step(s.optim, NULL, NULL));
        for (int64_t i = 0; i < elements(&s); i++) {
            set(&before, before.value, i,
                dtype == CZ_F32
                    ? (double)((float)get(&before, before.value, i) * (float)(1 - 0.02 * 0.1))
                    : get(&before, before.value, i) * (1 - 0.02 * 0.1));
            assert_true(get(&s, s.value, i) == get(&before, before.value, i));
        }
        free(before.value);
        clear(&s);
    }
}

/* One NaN is in the norm, and so in all of the matrix: it shows, and stays with that matrix. */
TEST(a_nan_takes_its_matrix_and_no_other)
{
    float values[2][6] = {{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}}, gradients[2][6];
    cz_model *model;
    cz_optim *optim;
    for (int i = 0; i < 12; i++)
        gradients[i / 6][i % 6] = i == 4 ? NAN : (float)(i % 5) - 2;
    assert_ok(cz_model_create(&model));
    assert_ok(cz_model_add(model, "bad", values[0], gradients[0], CZ_F32, 2, (int64_t[]){2, 3}));
    assert_ok(cz_model_add(model, "good", values[1], gradients[1], CZ_F32, 2, (int64_t[]){3, 2}));
    assert_ok(cz_optim_create(&optim, model, cz_rule_muon(), NULL, NULL));
    assert_ok(cz_optim_step(optim, NULL, NULL));
    for (int i = 0; i < 6; i++) {
        assert_true(isnan(values[0][i]));
        assert_true(isfinite(values[1][i]));
    }
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

/* A sum of `rank` products of vectors: the move has as many singular values near 1, whose squares
 * are the sum of squares, and the rest is rounding. */
static void try_rank(cz_dtype dtype, int64_t rows, int64_t columns, int rank)
{
    options o = defaults;
    o.lr = 1;
    o.decay = o.nesterov = o.momentum = 0;
    subject s = make(dtype, rows, columns, NULL, &o);
    double *left = malloc((size_t)(rows * rank) * sizeof *left), squares = 0;
    double *right = malloc((size_t)(columns * rank) * sizeof *right);
    cz_test_stream_f64(5, rows * rank, left);
    cz_test_stream_f64(6, columns * rank, right);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0;
            for (int k = 0; k < rank; k++)
                sum += left[k * rows + i] * right[k * columns + j];
            set(&s, s.gradient, i * columns + j, sum);
            set(&s, s.value, i * columns + j, 0);
        }
    assert_ok(cz_optim_step(s.optim, NULL, NULL));
    const double scale = ratio(&o, (double)rows, (double)columns);
    for (int64_t i = 0; i < elements(&s); i++)
        squares += pow(get(&s, s.value, i) / scale, 2);
    if (!(squares > 0.4 * rank && squares < 1.6 * rank))
        fail_msg("%d x %d of rank %d: squares are %g", (int)rows, (int)columns, rank, squares);
    free(left);
    free(right);
    clear(&s);
}

TEST(a_matrix_that_lacks_rank)
{
    for (int dtype = CZ_F32; dtype <= CZ_F64; dtype++)
        for (int rank = 1; rank <= 4; rank += 3) {
            try_rank((cz_dtype)dtype, 23, 41, rank);
            try_rank((cz_dtype)dtype, 41, 23, rank);
        }
}

/* Elements whose squares are no numbers of their type. */
TEST(tiny_and_huge_gradients)
{
    static const double scales[] = {0x1p-140, 0x1p120, 0x1p-600, 0x1p600};
    options o = defaults;
    o.eps = 1e-300;
    for (int k = 0; k < 4; k++) {
        const cz_dtype dtype = k < 2 ? CZ_F32 : CZ_F64;
        subject plain = make(dtype, 6, 11, NULL, &o), scaled = make(dtype, 6, 11, NULL, &o);
        if (k == 0) /* a few bits are left of each */
            for (int64_t i = 0; i < 66; i++)
                set(&plain, plain.gradient, i, round(get(&plain, plain.gradient, i) * 256) / 256);
        for (int64_t i = 0; i < 66; i++)
            set(&scaled, scaled.gradient, i, get(&plain, plain.gradient, i) * scales[k]);
        assert_ok(cz_optim_step(plain.optim, NULL, NULL));
        assert_ok(cz_optim_step(scaled.optim, NULL, NULL));
        for (int64_t i = 0; i < 66; i++)
            assert_true(fabs(get(&plain, plain.value, i) - get(&scaled, scaled.value, i)) < 1e-3);
        clear(&plain);
        clear(&scaled);
    }
}

TEST(every_level_has_the_same_bits)
{
    for (int dtype = CZ_F32; dtype <= CZ_F64; dtype++) {
        subject first = make((cz_dtype)dtype, 101, 67, level_device(CZ__CPU_V1), &defaults);
        for (int step = 0; step < STEPS; step++)
            assert_ok(cz_optim_step(first.optim, NULL, NULL));
        for (int level = CZ__CPU_V3; level < CZ__CPU_LEVEL_COUNT; level++) {
            const cz_device *device = level_device((cz__cpu_level)level);
            if (!device)
                continue;
            subject s = make((cz_dtype)dtype, 101, 67, device, &defaults);
            for (int step = 0; step < STEPS; step++)
                assert_ok(cz_optim_step(s.optim, NULL, NULL));
            assert_memory_equal(s.value, first.value,
                                (size_t)elements(&s) * cz_dtype_size(s.dtype));
            clear(&s);
        }
        clear(&first);
    }
}

/* ---- what is refused ---- */

static void refuse(cz_dtype dtype, int dimensions, const int64_t *shape, const cz_device *device,
                   const cz_hyper *hypers, cz_status status, const char *sentence)
{
    static double memory[2][64];
    cz_model *model;
    cz_optim *optim;
    cz_tensor value = {memory[0], dtype, CZ_DENSE, dimensions, {0}, device};
    memcpy(value.shape, shape, (size_t)dimensions * sizeof *shape);
    cz_tensor gradient = value;
    gradient.data = memory[1];
    assert_ok(cz_model_create(&model));
    assert_ok(cz_model_add_tensor(model, "layer.weight", &value, &gradient));
    assert_int_equal(cz_optim_create(&optim, model, cz_rule_muon(), hypers, NULL), status);
    assert_string_equal(cz_last_error(), sentence);
    assert_null(optim);
    cz_model_destroy(&model);
}

TEST(what_it_cannot_do_is_refused)
{
    cz_device plain = *cz_device_cpu(), older = plain;
    plain.name = older.name = "plain";
    plain.matmul = NULL;
    older.size = offsetof(cz_device, matmul);
    refuse(CZ_F32, 1, (int64_t[]){5}, NULL, NULL, CZ_ERR_ARGUMENT,
           "optim: parameter 'layer.weight': muon takes matrices, and its shape is [5]: give it "
           "another rule");
    refuse(CZ_F32, 0, (int64_t[]){0}, NULL, NULL, CZ_ERR_ARGUMENT,
           "optim: parameter 'layer.weight': muon takes matrices, and its shape is []: give it "
           "another rule");
    refuse(CZ_F64, 4, (int64_t[]){2, 3, 1, 1}, NULL, NULL, CZ_ERR_ARGUMENT,
           "optim: parameter 'layer.weight': muon takes matrices, and its shape is [2, 3, 1, 1]: "
           "give it another rule");
    refuse(CZ_F32, 2, (int64_t[]){2, 3}, &plain, NULL, CZ_ERR_UNSUPPORTED,
           "optim: parameter 'layer.weight': device plain has no matrix products, or no kernels of "
           "muon for f32");
    refuse(CZ_F32, 2, (int64_t[]){2, 3}, &older, NULL, CZ_ERR_UNSUPPORTED,
           "optim: parameter 'layer.weight': device plain has no matrix products, or no kernels of "
           "muon for f32");
    refuse(CZ_F32, 2, (int64_t[]){2, 3}, NULL, CZ_HYPERS({"ns_steps", 2.5}), CZ_ERR_ARGUMENT,
           "muon: ns_steps is 2.5, allowed is a whole number");
    refuse(CZ_F32, 2, (int64_t[]){2, 3}, NULL, CZ_HYPERS({"adjust_lr_fn", 3}), CZ_ERR_ARGUMENT,
           "muon: adjust_lr_fn is 3, allowed is 0 <= adjust_lr_fn <= 2");
}
