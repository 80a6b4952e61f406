/* SPDX-License-Identifier: MIT */
/* What PowerSGD does with each gradient of a bucket, and the memory for it. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "hooks/powersgd.h"

/* ---- which gradients become matrices ---- */

static int rank_of(const cz_powersgd *s, int64_t rows, int64_t cols)
{
    const int64_t most = rows < cols ? rows : cols;
    return most < s->options.rank ? (int)most : s->options.rank;
}

static bool same_shape(const cz__low_rank *a, const cz__low_rank *b)
{
    return a->rows == b->rows && a->cols == b->cols;
}

/* Beside those of its shape; shapes are in the order of their first ones. */
static void insert(cz__powersgd_iteration *it, const cz__powersgd_item *item)
{
    int64_t at = it->item_count;
    while (at > 0 && !same_shape(&it->items[at - 1].matrix, &item->matrix))
        at--;
    if (at == 0)
        at = it->item_count;
    memmove(&it->items[at + 1], &it->items[at], (size_t)(it->item_count - at) * sizeof *it->items);
    it->items[at] = *item;
    it->item_count++;
}

static void compress(cz__powersgd_iteration *it, cz__powersgd_item *item)
{
    cz__low_rank *m = &item->matrix;
    m->rank = rank_of(it->s, m->rows, m->cols);
    item->keeps = item->keeps && !it->s->options.no_warm_start;
    it->p.count += m->rank * m->rows;
    it->q.count += m->rank * m->cols;
    it->after += (m->rows + m->cols) * m->rank;
    insert(it, item);
}

static bool is_worth_it(const cz_powersgd *s, int64_t rows, int64_t cols)
{
    const double left = (double)(rows + cols) * (double)rank_of(s, rows, cols);
    return left * s->options.min_compression_rate < (double)rows * (double)cols;
}

static void choose(cz__powersgd_iteration *it, cz__powersgd_place *place, bool used)
{
    cz_powersgd *s = it->s;
    const cz_tensor *value = cz_model_value(s->model, place->param);
    const int64_t rows = value->dimensions > 0 && place->count > 0 ? value->shape[0] : 1;
    const int64_t cols = place->count / rows;
    it->before += place->count;
    place->compressed = place->count > 0 && is_worth_it(s, rows, cols);
    if (place->compressed) {
        compress(it, &(cz__powersgd_item){.offset = place->offset,
                                          .start = &s->starts[place->param],
                                          .stream = (uint64_t)place->param,
                                          .keeps = used,
                                          .matrix = {.rows = rows, .cols = cols}});
    } else {
        it->raw.count += place->count;
        it->after += place->count;
    }
}

static int64_t side_of(int64_t count)
{
    int64_t side = (int64_t)sqrt((double)count);
    while (side * side < count)
        side++;
    return side;
}

static void choose_all(cz__powersgd_iteration *it)
{
    const int index = cz_bucket_index(it->bucket);
    for (int64_t k = 0; k < it->place_count; k++) {
        cz__powersgd_place *place = &it->places[k];
        const bool used = cz_bucket_is_used(it->bucket, k);
        if (it->s->options.batched)
            place->compressed = place->count > 0;
        else
            choose(it, place, used);
        place->returns = place->compressed && used && !it->s->options.no_feedback;
    }
    const int64_t count = cz_bucket_count(it->bucket), side = side_of(count);
    if (!it->s->options.batched || count == 0)
        return;
    it->before = count;
    compress(it, &(cz__powersgd_item){.start = &it->s->starts[index],
                                      .stream = (uint64_t)index,
                                      .keeps = true,
                                      .matrix = {.rows = side, .cols = side}});
}

/* ---- the bucket ---- */

static cz_status read_places(cz__powersgd_iteration *it)
{
    const cz_bucket *bucket = it->bucket;
    for (int64_t k = 0; k < it->place_count; k++) {
        const bool last = k + 1 == it->place_count;
        const int64_t param = cz_bucket_param(bucket, k), begin = cz_bucket_offset(bucket, k);
        const int64_t end = last ? cz_bucket_count(bucket) : cz_bucket_offset(bucket, k + 1);
        const cz_tensor *value = cz_model_value(it->s->model, param);
        if (!value || cz_tensor_count(value) != end - begin)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "powersgd: parameter %" PRId64
                            " of the ddp is not that of the model that the state was made for",
                            param);
        it->places[k] = (cz__powersgd_place){.param = param, .offset = begin, .count = end - begin};
    }
    return CZ_OK;
}

/* A buffer of one's own where gradients are narrower than what is computed with, or a square is wanted. */
static cz_status take_buffer(cz__powersgd_iteration *it)
{
    cz_bucket *bucket = it->bucket;
    const bool batched = it->s->options.batched;
    const int64_t count = cz_bucket_count(bucket), side = side_of(count);
    const int64_t all = batched ? side * side : count;
    const size_t size = cz_dtype_size(it->dtype);
    const cz_device *cpu = cz_device_cpu();
    void *memory;
    if (!batched && it->dtype == it->wire_dtype)
        return CZ_OK;
    CZ_TRY(cz_bucket_memory(bucket, cpu, (size_t)all * size, &memory));
    CZ_TRY(cpu->convert(NULL, it->dtype, memory, it->wire_dtype, cz_bucket_buffer(bucket), count));
    CZ_TRY(cpu->zero(NULL, (char *)memory + (size_t)count * size, (size_t)(all - count) * size));
    return cz_bucket_replace_buffer(bucket, memory, it->dtype);
}

static cz_status take_loads(cz__powersgd_iteration *it)
{
    cz__powersgd_load *const loads[] = {&it->raw, &it->p, &it->q};
    const int64_t all = it->raw.count + it->p.count + it->q.count;
    const size_t size = cz_dtype_size(it->dtype), wire_size = cz_dtype_size(it->wire_dtype);
    void *data, *wire = NULL;
    CZ_TRY(cz_bucket_memory(it->bucket, cz_device_cpu(), (size_t)all * size, &data));
    if (it->dtype != it->wire_dtype)
        CZ_TRY(cz_bucket_memory(it->bucket, cz_device_cpu(), (size_t)all * wire_size, &wire));
    for (int k = 0; k < 3; k++) {
        loads[k]->data = data;
        loads[k]->wire = wire ? wire : data;
        data = (char *)data + (size_t)loads[k]->count * size;
        wire = wire ? (char *)wire + (size_t)loads[k]->count * wire_size : NULL;
    }
    return CZ_OK;
}

static cz_status take_memories(cz__powersgd_iteration *it)
{
    for (int64_t k = 0; k < it->place_count; k++) {
        const cz__powersgd_place *place = &it->places[k];
        if (place->returns)
            CZ_TRY(cz__powersgd_remember(&it->s->errors[place->param], CZ_MEMORY_GRADIENT,
                                         it->dtype, place->count));
    }
    for (int64_t k = 0; k < it->item_count; k++) {
        const cz__powersgd_item *item = &it->items[k];
        if (item->keeps)
            CZ_TRY(cz__powersgd_remember(item->start, CZ_MEMORY_GENERAL, it->dtype,
                                         item->matrix.rank * item->matrix.cols));
    }
    return CZ_OK;
}

static void point_items(cz__powersgd_iteration *it)
{
    char *p = it->p.data, *q = it->q.data, *buffer = cz_bucket_buffer(it->bucket);
    const size_t size = cz_dtype_size(it->dtype);
    for (int64_t k = 0; k < it->item_count; k++) {
        cz__low_rank *m = &it->items[k].matrix;
        m->matrix = buffer + (size_t)it->items[k].offset * size;
        m->p = p;
        m->q = q;
        p += (size_t)(m->rank * m->rows) * size;
        q += (size_t)(m->rank * m->cols) * size;
    }
}

cz_status cz__powersgd_plan(cz__powersgd_iteration **out, cz_powersgd *s, cz_bucket *bucket)
{
    const cz_dtype dtype = cz_bucket_dtype(bucket);
    const size_t places = (size_t)cz_bucket_param_count(bucket);
    void *memory;
    if (cz_bucket_device(bucket) != cz_device_cpu())
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "powersgd: gradients are on device '%.40s', wanted are those of the CPU",
                        cz_bucket_device(bucket)->name);
    CZ_TRY(cz_bucket_memory(bucket, cz_device_cpu(),
                            sizeof(cz__powersgd_iteration) + places * sizeof(cz__powersgd_place) +
                                places * sizeof(cz__powersgd_item),
                            &memory));
    cz__powersgd_iteration *it = *out = memory;
    *it = (cz__powersgd_iteration){.s = s, .bucket = bucket, .wire_dtype = dtype};
    it->dtype = dtype == CZ_F64 ? CZ_F64 : CZ_F32;
    it->place_count = (int64_t)places;
    it->places = (void *)(it + 1);
    it->items = (void *)(it->places + places);
    CZ_TRY(read_places(it));
    choose_all(it);
    CZ_TRY(take_buffer(it));
    CZ_TRY(take_loads(it));
    CZ_TRY(take_memories(it));
    point_items(it);
    return CZ_OK;
}
