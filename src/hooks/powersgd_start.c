/* SPDX-License-Identifier: MIT */
/* Q at the start of an iteration: random, or that of the one before. Equal on all ranks. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "czero/random.h"
#include "hooks/powersgd.h"

double cz__powersgd_epsilon(const cz__powersgd_iteration *it, int rank)
{
    return rank <= 2 && !it->s->options.batched ? it->s->options.epsilon : 0;
}

static int orthogonalise(const cz__powersgd_iteration *it, const cz__low_rank *m)
{
    return cz__orthogonalise(it->dtype, m->cols, m->rank, m->q, cz__powersgd_epsilon(it, m->rank));
}

static void set(cz_dtype dtype, void *numbers, int64_t i, float value)
{
    if (dtype == CZ_F64)
        ((double *)numbers)[i] = (double)value;
    else
        ((float *)numbers)[i] = value;
}

/* ---- random ---- */

/* Items that are drawn in one request with the first one: [first, *end), and how many numbers. */
static int64_t request(const cz__powersgd_iteration *it, int64_t first, int64_t *end)
{
    const cz__low_rank *m = &it->items[first].matrix;
    *end = first + 1;
    while (it->s->options.draw_by_shape && *end < it->item_count &&
           it->items[*end].matrix.rows == m->rows && it->items[*end].matrix.cols == m->cols)
        (*end)++;
    return (*end - first) * m->rank * m->cols;
}

static cz_status take_numbers(const cz__powersgd_iteration *it, void **numbers)
{
    int64_t most = 0, end;
    for (int64_t k = 0; k < it->item_count; k = end) {
        const int64_t count = request(it, k, &end);
        most = count > most ? count : most;
    }
    return cz_bucket_memory(it->bucket, cz_device_cpu(), (size_t)most * sizeof(float), numbers);
}

/* PyTorch has columns side by side. */
static void to_columns(cz_dtype dtype, const float *numbers, const cz__low_rank *m)
{
    for (int64_t j = 0; j < m->cols; j++)
        for (int k = 0; k < m->rank; k++)
            set(dtype, m->q, k * m->cols + j, numbers[j * m->rank + k]);
}

/* All from one seed, in order. */
static void draw(const cz__powersgd_iteration *it, float *numbers)
{
    cz__mersenne normals;
    int64_t end;
    cz__mersenne_seed(&normals, cz__mersenne_below_1e9(&it->s->seeds));
    it->s->draws++;
    for (int64_t k = 0; k < it->item_count; k = end) {
        cz__mersenne_normals(&normals, request(it, k, &end), numbers);
        for (int64_t n = k; n < end; n++) {
            const cz__low_rank *m = &it->items[n].matrix;
            to_columns(it->dtype, numbers + (n - k) * m->rank * m->cols, m);
            (void)orthogonalise(it, m);
        }
    }
}

/* ---- warm ---- */

/* Has it a direction? Lost columns are zero, or not finite. */
static bool is_lost(cz_dtype dtype, const void *column, int64_t count)
{
    bool any = false;
    for (int64_t j = 0; j < count; j++) {
        const double x =
            dtype == CZ_F64 ? ((const double *)column)[j] : (double)((const float *)column)[j];
        if (!isfinite(x))
            return true;
        any = any || x != 0;
    }
    return !any;
}

/* Columns that a gradient of zeros, or of a lower rank, has made zero would stay so: they begin anew. */
static void refill(const cz__powersgd_iteration *it, const cz__powersgd_item *item)
{
    const cz__low_rank *m = &item->matrix;
    for (int k = 0; k < m->rank; k++) {
        char *column = (char *)m->q + (size_t)(k * m->cols) * cz_dtype_size(it->dtype);
        const uint64_t first = (uint64_t)(it->s->iter * m->rank + k) << 32;
        if (!is_lost(it->dtype, column, m->cols))
            continue;
        for (int64_t j = 0; j < m->cols; j++)
            set(it->dtype, column, j,
                cz_random_normal(it->s->options.seed, item->stream, first | (uint64_t)j));
    }
    (void)orthogonalise(it, m);
}

static void take_start(const cz__powersgd_iteration *it, const cz__powersgd_item *item)
{
    const cz__low_rank *m = &item->matrix;
    memcpy(m->q, item->start->data, (size_t)item->start->count * cz_dtype_size(it->dtype));
    if (orthogonalise(it, m) > 0)
        refill(it, item);
}

/* Of another type or size: it was loaded, and is not what it was any more. */
static bool has_start(const cz__powersgd_iteration *it, const cz__powersgd_item *item)
{
    const cz__powersgd_memory *start = item->start;
    return !it->s->options.no_warm_start && start->known && start->dtype == it->dtype &&
           start->count == item->matrix.rank * item->matrix.cols;
}

cz_status cz__powersgd_fill_q(const cz__powersgd_iteration *it)
{
    bool warm = true;
    void *numbers;
    for (int64_t k = 0; k < it->item_count; k++)
        warm = warm && has_start(it, &it->items[k]);
    if (!warm) {
        CZ_TRY(take_numbers(it, &numbers));
        draw(it, numbers);
    }
    for (int64_t k = 0; k < it->item_count; k++)
        if (has_start(it, &it->items[k]))
            take_start(it, &it->items[k]);
    return CZ_OK;
}
