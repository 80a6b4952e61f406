/* SPDX-License-Identifier: MIT */
/* PowerSGD on one bucket: what was left out is added, P is summed, Q is averaged, M = P Q^T. But
 * for random numbers, nothing that is remembered changes before all of that has succeeded; until
 * then the bucket has what errors are measured against. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "czero/random.h"
#include "hooks/hooks.h"
#include "hooks/powersgd.h"
#include "tensor/model.h"

/* ---- memory that stays ---- */

cz_status cz__powersgd_remember(cz__powersgd_memory *memory, cz_memory_kind kind, cz_dtype dtype,
                                int64_t count)
{
    const size_t bytes = (size_t)count * cz_dtype_size(dtype);
    if (memory->data && memory->count == count && memory->dtype == dtype)
        return CZ_OK;
    cz__free(memory->data);
    *memory = (cz__powersgd_memory){cz__allocate(kind, bytes), count, dtype, false};
    return memory->data
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "powersgd: no memory for %zu bytes to remember", bytes);
}

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

static void add_item(cz__powersgd_iteration *it, cz__powersgd_item *item)
{
    cz__low_rank *m = &item->matrix;
    m->rank = rank_of(it->s, m->rows, m->cols);
    item->keeps = item->keeps && !it->s->options.cold_start;
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
    const cz_tensor *value = cz__model_value(s->model, place->param);
    const int64_t rows = value->dimensions > 0 && place->count > 0 ? value->shape[0] : 1;
    const int64_t cols = place->count / rows;
    it->before += place->count;
    place->compressed = place->count > 0 && is_worth_it(s, rows, cols);
    if (place->compressed) {
        add_item(it, &(cz__powersgd_item){.offset = place->offset,
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
    const int index = cz__bucket_index(it->bucket);
    for (int64_t k = 0; k < it->place_count; k++) {
        cz__powersgd_place *place = &it->places[k];
        const bool used = cz__bucket_is_used(it->bucket, k);
        if (it->s->options.batched)
            place->compressed = place->count > 0;
        else
            choose(it, place, used);
        place->returns = place->compressed && used && !it->s->options.drop_errors;
    }
    const int64_t count = cz__bucket_count(it->bucket), side = side_of(count);
    if (!it->s->options.batched || count == 0)
        return;
    it->before = count;
    add_item(it, &(cz__powersgd_item){.start = &it->s->starts[index],
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
        const int64_t param = cz__bucket_param(bucket, k), begin = cz__bucket_offset(bucket, k);
        const int64_t end = last ? cz__bucket_count(bucket) : cz__bucket_offset(bucket, k + 1);
        const cz_tensor *value = cz__model_value(it->s->model, param);
        if (!value || cz_tensor_count(value) != end - begin)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "powersgd: parameter %" PRId64
                            " of the ddp is not that of the model that the state was made for",
                            param);
        it->places[k] = (cz__powersgd_place){.param = param, .offset = begin, .count = end - begin};
    }
    return CZ_OK;
}

/* A buffer of one's own where gradients are narrower than what is computed with, or a square is
 * wanted. */
static cz_status take_buffer(cz__powersgd_iteration *it)
{
    cz_bucket *bucket = it->bucket;
    const bool batched = it->s->options.batched;
    const int64_t count = cz__bucket_count(bucket), side = side_of(count);
    const int64_t all = batched ? side * side : count;
    const size_t size = cz_dtype_size(it->dtype);
    const cz_device *cpu = cz_device_cpu();
    void *memory;
    if (!batched && it->dtype == it->wire_dtype)
        return CZ_OK;
    CZ_TRY(cz_bucket_memory(bucket, cpu, (size_t)all * size, &memory));
    CZ_TRY(cpu->convert(NULL, it->dtype, memory, it->wire_dtype, cz__bucket_buffer(bucket), count));
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
    char *p = it->p.data, *q = it->q.data, *buffer = cz__bucket_buffer(it->bucket);
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

static cz_status plan_iteration(cz__powersgd_iteration **out, cz_powersgd *s, cz_bucket *bucket)
{
    const cz_dtype dtype = cz__bucket_dtype(bucket);
    const size_t places = (size_t)cz__bucket_param_count(bucket);
    void *memory;
    if (cz__bucket_device(bucket) != cz_device_cpu())
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "powersgd: gradients are on device '%.40s', wanted are those of the CPU",
                        cz__bucket_device(bucket)->name);
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

/* ---- Q at the start: random, or that of the iteration before; equal on all ranks ---- */

static double epsilon_for(const cz__powersgd_iteration *it, int rank)
{
    return rank <= 2 && !it->s->options.batched ? it->s->options.epsilon : 0;
}

static int orthogonalise(const cz__powersgd_iteration *it, const cz__low_rank *m)
{
    return cz__orthogonalise(it->dtype, m->cols, m->rank, m->q, epsilon_for(it, m->rank));
}

static void set_number(cz_dtype dtype, void *numbers, int64_t i, float value)
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
           same_shape(&it->items[*end].matrix, m))
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
            set_number(dtype, m->q, k * m->cols + j, numbers[j * m->rank + k]);
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

/* Columns that a gradient of zeros, or of a lower rank, has made zero would stay so: they begin
 * anew. */
static void refill(const cz__powersgd_iteration *it, const cz__powersgd_item *item)
{
    const cz__low_rank *m = &item->matrix;
    for (int k = 0; k < m->rank; k++) {
        char *column = (char *)m->q + (size_t)(k * m->cols) * cz_dtype_size(it->dtype);
        const uint64_t first = (uint64_t)(it->s->iter * m->rank + k) << 32;
        if (!is_lost(it->dtype, column, m->cols))
            continue;
        for (int64_t j = 0; j < m->cols; j++)
            set_number(it->dtype, column, j,
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
    return !it->s->options.cold_start && start->known && start->dtype == it->dtype &&
           start->count == item->matrix.rank * item->matrix.cols;
}

static cz_status fill_q(const cz__powersgd_iteration *it)
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

/* ---- one bucket ---- */

static void *at(const cz__powersgd_iteration *it, const cz__powersgd_place *place)
{
    return (char *)cz__bucket_buffer(it->bucket) + (size_t)place->offset * cz_dtype_size(it->dtype);
}

/* ---- errors ---- */

static void add_error(const cz__powersgd_iteration *it, const cz__powersgd_place *place)
{
    const void *error = it->s->errors[place->param].data;
    void *gradient = at(it, place);
    if (it->dtype == CZ_F64)
        for (int64_t i = 0; i < place->count; i++)
            ((double *)gradient)[i] += ((const double *)error)[i];
    if (it->dtype == CZ_F32)
        for (int64_t i = 0; i < place->count; i++)
            ((float *)gradient)[i] += ((const float *)error)[i];
}

/* What was wished for, less what it became. A gradient that overflowed is not kept for ever. */
static void keep_error(const cz__powersgd_iteration *it, const cz__powersgd_place *place)
{
    void *error = it->s->errors[place->param].data;
    const void *gradient = at(it, place);
    if (it->dtype == CZ_F64) {
        for (int64_t i = 0; i < place->count; i++) {
            const double rest = ((double *)error)[i] - ((const double *)gradient)[i];
            ((double *)error)[i] = isfinite(rest) ? rest : 0;
        }
    }
    if (it->dtype == CZ_F32) {
        for (int64_t i = 0; i < place->count; i++) {
            const float rest = ((float *)error)[i] - ((const float *)gradient)[i];
            ((float *)error)[i] = isfinite(rest) ? rest : 0;
        }
    }
}

static void keep_wish(const cz__powersgd_iteration *it, const cz__powersgd_place *place)
{
    it->s->errors[place->param].known = true;
    memcpy(it->s->errors[place->param].data, at(it, place),
           (size_t)place->count * cz_dtype_size(it->dtype));
}

static void each_that_returns(const cz__powersgd_iteration *it,
                              void (*what)(const cz__powersgd_iteration *,
                                           const cz__powersgd_place *))
{
    for (int64_t k = 0; k < it->place_count; k++)
        if (it->places[k].returns)
            what(it, &it->places[k]);
}

static void keep_starts(const cz__powersgd_iteration *it)
{
    for (int64_t k = 0; k < it->item_count; k++) {
        const cz__powersgd_item *item = &it->items[k];
        if (!item->keeps)
            continue;
        memcpy(item->start->data, item->matrix.q,
               (size_t)item->start->count * cz_dtype_size(it->dtype));
        item->start->known = true;
    }
}

/* ---- on the way ---- */

static cz_status send(const cz__powersgd_iteration *it, const cz__powersgd_load *load,
                      cz_reduction reduction, cz_work **work)
{
    CZ_TRY(cz_device_cpu()->convert(NULL, it->wire_dtype, load->wire, it->dtype, load->data,
                                    load->wire == load->data ? 0 : load->count));
    return cz_all_reduce(cz__bucket_group(it->bucket), load->wire, load->count, it->wire_dtype,
                         reduction, CZ_START("low rank", work));
}

static cz_status receive(const cz__powersgd_iteration *it, const cz__powersgd_load *load)
{
    return cz_device_cpu()->convert(NULL, it->dtype, load->data, it->wire_dtype, load->wire,
                                    load->wire == load->data ? 0 : load->count);
}

/* Gradients that are averaged as they are: to where they travel, and back. */
static void copy_raw(const cz__powersgd_iteration *it, bool back)
{
    char *travels = it->raw.data;
    for (int64_t k = 0; k < it->place_count; k++) {
        const cz__powersgd_place *place = &it->places[k];
        const size_t bytes = (size_t)place->count * cz_dtype_size(it->dtype);
        if (bytes == 0 || place->compressed)
            continue;
        memcpy(back ? at(it, place) : travels, back ? travels : at(it, place), bytes);
        travels += bytes;
    }
}

/* What is summed over ranks next need not have the same bits on all of them: a BLAS may make it. */
static void project(const cz__powersgd_iteration *it, const cz__low_rank *m)
{
    const cz_powersgd_options *o = &it->s->options;
    if (o->gemm && it->dtype == CZ_F32)
        o->gemm(o->gemm_context, false, m->rows, m->cols, m->rank, m->matrix, m->q, m->p);
    else
        cz__low_rank_project(it->dtype, m);
}

static void project_back(const cz__powersgd_iteration *it, const cz__low_rank *m)
{
    const cz_powersgd_options *o = &it->s->options;
    if (o->gemm && it->dtype == CZ_F32)
        o->gemm(o->gemm_context, true, m->rows, m->cols, m->rank, m->matrix, m->p, m->q);
    else
        cz__low_rank_back(it->dtype, m);
}

/* P is there. */
static cz_status go_back(cz_status status, void *context)
{
    cz__powersgd_iteration *it = context;
    cz_work *work = NULL;
    if (status != CZ_OK)
        return status;
    CZ_TRY(receive(it, &it->p));
    for (int64_t k = 0; k < it->item_count; k++) {
        const cz__low_rank *m = &it->items[k].matrix;
        (void)cz__orthogonalise(it->dtype, m->rows, m->rank, m->p, epsilon_for(it, m->rank));
        project_back(it, m);
    }
    status = send(it, &it->q, CZ_AVERAGE, &work);
    cz_work_destroy(&work);
    return status;
}

static void count_iteration(const cz__powersgd_iteration *it)
{
    cz_powersgd *s = it->s;
    s->before += it->before;
    s->after += it->after;
    if (!cz__bucket_is_last(it->bucket))
        return;
    s->iter++;
    if (s->iter % s->options.log_every == 0)
        cz__log(CZ_LOG_INFO,
                "powersgd: after %" PRId64 " iterations %" PRId64 " elements travelled for %" PRId64
                ", a rate of %.1f",
                s->iter, s->after, s->before,
                s->after > 0 ? (double)s->before / (double)s->after : 0.0);
}

/* All has arrived. */
static cz_status finish(cz_status status, void *context)
{
    cz__powersgd_iteration *it = context;
    if (status != CZ_OK)
        return status;
    CZ_TRY(receive(it, &it->raw));
    CZ_TRY(receive(it, &it->q));
    keep_starts(it);
    each_that_returns(it, keep_wish);
    copy_raw(it, true);
    for (int64_t k = 0; k < it->item_count; k++)
        cz__low_rank_expand(it->dtype, &it->items[k].matrix);
    each_that_returns(it, keep_error);
    count_iteration(it);
    return CZ_OK;
}

static cz_status start_raw(const cz__powersgd_iteration *it)
{
    cz_work *work = NULL;
    if (it->raw.count == 0)
        return CZ_OK;
    copy_raw(it, false);
    const cz_status status = send(it, &it->raw, CZ_AVERAGE, &work);
    cz_work_destroy(&work);
    return status;
}

static cz_status compress(cz_powersgd *s, cz_bucket *bucket)
{
    cz__powersgd_iteration *it = NULL;
    cz_work *work = NULL;
    CZ_TRY(plan_iteration(&it, s, bucket));
    CZ_TRY(cz_bucket_then(bucket, finish, it));
    CZ_TRY(fill_q(it));
    each_that_returns(it, add_error);
    CZ_TRY(start_raw(it));
    if (it->item_count == 0)
        return CZ_OK;
    for (int64_t k = 0; k < it->item_count; k++)
        project(it, &it->items[k].matrix);
    CZ_TRY(send(it, &it->p, CZ_SUM, &work));
    const cz_status status = cz_work_then(work, go_back, it);
    cz_work_destroy(&work);
    return status;
}

/* The ddp counts passes alike on all ranks, also after failures; so iterations are counted by
 * it. */
cz_status cz__powersgd_run(void *state, cz_bucket *bucket)
{
    cz_powersgd *s = state;
    const int64_t pass = cz__bucket_pass(bucket);
    if (!s->placed)
        s->first_pass = pass - s->iter;
    s->placed = true;
    s->iter = pass - s->first_pass;
    if (s->iter >= s->options.start_iter)
        return compress(s, bucket);
    CZ_TRY(cz__hook_all_reduce(NULL, bucket));
    s->iter += cz__bucket_is_last(bucket);
    return CZ_OK;
}
