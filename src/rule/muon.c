/* SPDX-License-Identifier: MIT */
/* Muon: the momentum of a matrix, divided by its norm, becomes nearly orthogonal by a few steps of
 * Newton and Schulz: x = a x + (b x x^T + c (x x^T)^2) x. As torch.optim.Muon has it, with f32 in
 * the place of its bf16. Jordan et al., "Muon" (2024), https://kellerjordan.github.io/posts/muon/;
 * Liu et al., arXiv:2502.16982. What is done to elements is in src/device/cpu/kernels/muon.c. */
#include "base/dtype.h"
#include "base/status.h"
#include "device/coefficients.h"
#include "device/squares.h"
#include "rule/rule.h"
#include "tensor/model.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

enum {
    LR,
    WEIGHT_DECAY,
    MOMENTUM,
    NESTEROV,
    NS_A,
    NS_B,
    NS_C,
    EPS,
    NS_STEPS,
    ADJUST_LR_FN,
    MAXIMIZE,
    HYPER_COUNT
};

enum { ORIGINAL, MATCH_RMS_ADAMW, SPECTRAL_UNCLAMPED, ADJUST_COUNT };
enum { MOST_STEPS = 99 }; /* as in torch */

static const cz_hyper_spec hypers[HYPER_COUNT] = {
    [LR] = CZ__HYPER_POSITIVE("lr", 1e-3),
    [WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", 0.1),
    [MOMENTUM] = CZ__HYPER_POSITIVE("momentum", 0.95),
    [NESTEROV] = CZ__HYPER_SET_FLAG("nesterov"),
    [NS_A] = CZ__HYPER_ANY("ns_a", 3.4445),
    [NS_B] = CZ__HYPER_ANY("ns_b", -4.7750),
    [NS_C] = CZ__HYPER_ANY("ns_c", 2.0315),
    [EPS] = CZ__HYPER_POSITIVE("eps", 1e-7),
    [NS_STEPS] = {"ns_steps", 5, 0, MOST_STEPS, false, false},
    [ADJUST_LR_FN] = {"adjust_lr_fn", ORIGINAL, 0, ADJUST_COUNT - 1, false, false},
    [MAXIMIZE] = CZ__HYPER_FLAG("maximize"),
};

static const cz_slot_spec slots[] = {{"momentum_buffer", CZ_SLOT_ELEMENT, 0, NULL}};

static unsigned slots_used(const double *h)
{
    return 1;
}

static cz_status check(const double *h)
{
    static const int whole[] = {NS_STEPS, ADJUST_LR_FN};
    for (int i = 0; i < 2; i++)
        if (h[whole[i]] != floor(h[whole[i]]))
            return cz__fail(CZ_ERR_ARGUMENT, "muon: %s is %g, allowed is a whole number",
                            hypers[whole[i]].name, h[whole[i]]);
    return CZ_OK;
}

static cz_status check_param(const cz_tensor *param, void *context)
{
    const cz_device *device = cz__device_of(param);
    const cz_dtype type = cz__has_16_bits(param->dtype) ? CZ_F32 : param->dtype;
    char shape[CZ_MAX_DIMENSIONS * 24] = "";
    for (int i = 0; i < param->dimensions; i++)
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%" PRId64, i ? ", " : "",
                 param->shape[i]);
    if (param->dimensions != 2)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "muon takes matrices, and its shape is [%s]: give it another rule", shape);
    if (device->size < offsetof(cz_device, matmul) + sizeof device->matmul || !device->matmul ||
        !device->find_update("muon_moves", type, type, type) ||
        !device->find_update("muon", type, type, type))
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "device %s has no matrix products, or no kernels of muon for %s",
                        device->name, cz_dtype_name(type));
    return CZ_OK;
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers;
    coefficients[CZ__MUON_RATE] = -h[LR];
    coefficients[CZ__MUON_SIGN] = h[MAXIMIZE] != 0 ? -1 : 1;
    coefficients[CZ__MUON_TAKE] = 1 - h[MOMENTUM];
    coefficients[CZ__MUON_MOMENTUM] = h[MOMENTUM];
    coefficients[CZ__MUON_DECAY] = 1 - h[LR] * h[WEIGHT_DECAY];
    coefficients[CZ__MUON_EPS] = h[EPS];
    coefficients[CZ__MUON_STEPS] = h[NS_STEPS];
    coefficients[CZ__MUON_A] = h[NS_A];
    coefficients[CZ__MUON_B] = h[NS_B];
    coefficients[CZ__MUON_C] = h[NS_C];
    coefficients[CZ__MUON_ADJUST] = h[ADJUST_LR_FN];
    *flags = h[NESTEROV] != 0 ? CZ__MUON_NESTEROV : 0;
}

/* How many times lr the rate of a matrix is. */
static double ratio_of(int adjust, double rows, double columns)
{
    switch (adjust) {
    case MATCH_RMS_ADAMW:
        return 0.2 * sqrt(rows > columns ? rows : columns);
    case SPECTRAL_UNCLAMPED:
        return sqrt(rows / columns);
    default:
        return rows > columns ? sqrt(rows / columns) : 1;
    }
}

/* ---- scratch memory: two of the matrix's shape, some squares of its smaller side ---- */

enum { SQUARES = 4, AT_ONCE = 3 /* steps */ };

typedef struct places {
    size_t matrix, square; /* bytes of each, whole cache lines */
    size_t all;
} places;

static size_t whole_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static int64_t smaller_side(const cz_tensor *param)
{
    return param->shape[0] < param->shape[1] ? param->shape[0] : param->shape[1];
}

static places find_places(const cz_tensor *param)
{
    const size_t size = cz_dtype_size(param->dtype), side = (size_t)smaller_side(param);
    places p = {whole_lines((size_t)cz_tensor_count(param) * size), whole_lines(side * side * size),
                CZ_MATMUL_SCRATCH};
    p.all += 2 * p.matrix + SQUARES * p.square;
    return p;
}

/* Operations in the products of a step: of a symmetric one half of them. */
double cz__muon_cost(const cz_tensor *param, void *context)
{
    const double side = (double)smaller_side(param), count = (double)cz_tensor_count(param);
    const double squares = side * side * side, of_x = side * count;
    double cost = 0;
    for (int left = (int)hypers[NS_STEPS].initial, some; left > 0; left -= some) {
        some = left < AT_ONCE ? left : AT_ONCE;
        cost += 3 * of_x + (4 * some - 3) * squares;
    }
    return cost;
}

static size_t scratch_bytes(const cz_tensor *param, void *context)
{
    return find_places(param).all;
}

/* ---- a step ---- */

/* Matrices of one type, on one device. */
typedef struct matrices {
    const cz_device *device;
    cz_dtype dtype;
    int64_t rows, columns, side; /* of x; the smaller one, that of squares */
    void *scratch;
} matrices;

/* The reciprocal of a tiny divisor is no number of the type. */
static void divide(const matrices *m, double divisor, void *x)
{
    const double tiny = 0x1p-100;
    const int64_t count = m->rows * m->columns;
    if (divisor < tiny) {
        (void)m->device->scale(NULL, m->dtype, 1 / tiny, count, x);
        divisor /= tiny;
    }
    (void)m->device->scale(NULL, m->dtype, 1 / divisor, count, x);
}

/* to = alpha left right + beta addend, of squares, which are symmetric and commute: polynomials of
 * one. */
static void multiply_squares(const matrices *m, double alpha, const void *left, const void *right,
                             double beta, const void *addend, void *to)
{
    const cz_matmul product = {.size = sizeof product,
                               .rows = m->side,
                               .columns = m->side,
                               .inner = m->side,
                               .symmetric = true,
                               .alpha = alpha,
                               .beta = beta,
                               .a = left,
                               .b = right,
                               .addend = addend,
                               .c = to,
                               .scratch = m->scratch};
    (void)m->device->matmul(NULL, m->dtype, &product);
}

/* gram = x x^T; of a tall matrix x^T x. */
static void square(const matrices *m, const void *x, void *gram)
{
    const bool tall = m->rows > m->columns;
    const cz_matmul product = {.size = sizeof product,
                               .rows = m->side,
                               .columns = m->side,
                               .inner = tall ? m->rows : m->columns,
                               .transposed_a = tall,
                               .transposed_b = !tall,
                               .symmetric = true,
                               .alpha = 1,
                               .a = x,
                               .b = x,
                               .c = gram,
                               .scratch = m->scratch};
    (void)m->device->matmul(NULL, m->dtype, &product);
}

/* y = polynomial x + beta x; of a tall matrix x polynomial + beta x. */
static void apply(const matrices *m, const void *polynomial, double beta, const void *x, void *y)
{
    const bool tall = m->rows > m->columns;
    const cz_matmul product = {.size = sizeof product,
                               .rows = m->rows,
                               .columns = m->columns,
                               .inner = m->side,
                               .alpha = 1,
                               .beta = beta,
                               .a = tall ? x : polynomial,
                               .b = tall ? polynomial : x,
                               .addend = x,
                               .c = y,
                               .scratch = m->scratch};
    (void)m->device->matmul(NULL, m->dtype, &product);
}

static void swap(void **a, void **b)
{
    void *other = *a;
    *a = *b;
    *b = other;
}

/* Some steps at once: x is multiplied by a polynomial of its gram, made of squares alone. A step
 * multiplies x by q + a 1, with q = b gram + c gram^2, and so the gram by its square. After several
 * the factor of x is polynomial + share 1. For a few it is as exact as one by one: what rounding
 * does to a small eigenvalue of the gram grows as the square of what it does to one of x. */
static void make_steps(const matrices *m, int steps, const double *c, const void *x, void *y,
                       void *squares[SQUARES])
{
    const double a = c[CZ__MUON_A];
    void *gram = squares[0], *q = squares[1], *polynomial = squares[2], *room = squares[3];
    double share = 1;
    square(m, x, gram);
    for (int step = 0; step < steps; step++) {
        multiply_squares(m, c[CZ__MUON_C], gram, gram, c[CZ__MUON_B], gram, q);
        if (step > 0) { /* (q + a) (polynomial + share) */
            const double sum[CZ_RULE_COEFFICIENTS] = {
                [CZ__MUON_RATE] = share, [CZ__MUON_DECAY] = 1};
            multiply_squares(m, 1, q, polynomial, a, polynomial, room);
            m->device->find_update("muon", m->dtype, m->dtype, m->dtype)(
                NULL, m->side * m->side, room, q, (void *[]){NULL}, sum, 0);
            swap(&room, &polynomial);
        }
        if (step < steps - 1) { /* (q + a) gram (q + a) */
            multiply_squares(m, 1, q, gram, a, gram, room);
            multiply_squares(m, 1, room, q, a, room, gram);
        }
        if (step == 0)
            swap(&q, &polynomial);
        share *= a;
    }
    apply(m, polynomial, share, x, y);
}

/* x becomes nearly orthogonal; y is room for another one of its shape. On the smaller side. Returns
 * where the outcome is. */
static void *orthogonalize(const matrices *m, const double *c, void *x, void *y, char *rest,
                           size_t square_bytes)
{
    void *squares[SQUARES];
    double norm = 0;
    for (int k = 0; k < SQUARES; k++)
        squares[k] = rest + (size_t)k * square_bytes;
    (void)cz__root_of_squares(m->device, m->dtype, m->rows * m->columns, x, &norm);
    divide(m, norm < c[CZ__MUON_EPS] ? c[CZ__MUON_EPS] : norm, x); /* NaN stays */
    for (int left = (int)c[CZ__MUON_STEPS], some; left > 0; left -= some) {
        some = left < AT_ONCE ? left : AT_ONCE;
        make_steps(m, some, c, x, y, squares);
        swap(&x, &y);
    }
    return x;
}

static void update_tensor(const cz_tensor_update *update)
{
    const cz_tensor *param = update->param;
    const cz_dtype type = param->dtype;
    const int64_t rows = param->shape[0], columns = param->shape[1], count = rows * columns;
    const places p = find_places(param);
    char *x = update->scratch, *y = x + p.matrix, *rest = y + p.matrix;
    const matrices m = {.device = cz__device_of(param),
                        .dtype = type,
                        .rows = rows,
                        .columns = columns,
                        .side = smaller_side(param),
                        .scratch = rest + SQUARES * p.square};
    double c[CZ_RULE_COEFFICIENTS];
    memcpy(c, update->coefficients, sizeof c);
    c[CZ__MUON_RATE] *= ratio_of((int)c[CZ__MUON_ADJUST], (double)rows, (double)columns);
    m.device->find_update("muon_moves", type, type, type)(
        NULL, count, param->data, update->grad, (void *[]){update->slots[0], x}, c, update->flags);
    const void *move = orthogonalize(&m, c, x, y, rest, p.square);
    m.device->find_update("muon", type, type, type)(NULL, count, param->data, move,
                                                    (void *[]){NULL}, c, update->flags);
}

const cz_rule *cz__rule_muon(void)
{
    static const cz_rule rule = {
        CZ__RULE("muon", hypers, slots), .check = check,     .check_param = check_param,
        .slots_used = slots_used,        .prepare = prepare, .update_tensor = update_tensor,
        .scratch_bytes = scratch_bytes,  .in_f32 = true,     .cost = cz__muon_cost,
    };
    return &rule;
}
