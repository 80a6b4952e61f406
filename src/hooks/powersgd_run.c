/* SPDX-License-Identifier: MIT */
/* PowerSGD on one bucket: what was left out is added, P is summed, Q is averaged, M = P Q^T. But for random numbers,
 * nothing that is remembered changes before all of that has succeeded; until then the bucket has what errors are
 * measured against. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "hooks/hooks.h"
#include "hooks/powersgd.h"

static void *at(const cz__powersgd_iteration *it, const cz__powersgd_place *place)
{
    return (char *)cz_bucket_buffer(it->bucket) + (size_t)place->offset * cz_dtype_size(it->dtype);
}

/* ---- errors ---- */

static void add_error(const cz__powersgd_iteration *it, const cz__powersgd_place *place)
{
    const void *error = it->s->errors[place->param].data;
    void *gradient = at(it, place);
    for (int64_t i = 0; i < place->count && it->dtype == CZ_F64; i++)
        ((double *)gradient)[i] += ((const double *)error)[i];
    for (int64_t i = 0; i < place->count && it->dtype == CZ_F32; i++)
        ((float *)gradient)[i] += ((const float *)error)[i];
}

/* What was wished for, less what it became. A gradient that overflowed is not kept for ever. */
static void keep_error(const cz__powersgd_iteration *it, const cz__powersgd_place *place)
{
    void *error = it->s->errors[place->param].data;
    const void *gradient = at(it, place);
    for (int64_t i = 0; i < place->count && it->dtype == CZ_F64; i++) {
        const double rest = ((double *)error)[i] - ((const double *)gradient)[i];
        ((double *)error)[i] = isfinite(rest) ? rest : 0;
    }
    for (int64_t i = 0; i < place->count && it->dtype == CZ_F32; i++) {
        const float rest = ((float *)error)[i] - ((const float *)gradient)[i];
        ((float *)error)[i] = isfinite(rest) ? rest : 0;
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
    return cz_all_reduce(cz_bucket_group(it->bucket), load->wire, load->count, it->wire_dtype,
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
        (void)cz__orthogonalise(it->dtype, m->rows, m->rank, m->p,
                                cz__powersgd_epsilon(it, m->rank));
        project_back(it, m);
    }
    status = send(it, &it->q, CZ_AVERAGE, &work);
    cz_work_destroy(&work);
    return status;
}

static void count_iteration(const cz__powersgd_iteration *it)
{
    cz_powersgd *s = it->s;
    cz_powersgd_stats stats;
    s->before += it->before;
    s->after += it->after;
    if (!cz_bucket_is_last(it->bucket))
        return;
    s->iter++;
    if (s->iter % s->options.log_every == 0 && cz_powersgd_get_stats(s, &stats) == CZ_OK)
        cz_log(CZ_LOG_INFO,
               "powersgd: after %" PRId64 " iterations %" PRId64 " elements travelled for %" PRId64
               ", a rate of %.1f",
               stats.iter, stats.after, stats.before, stats.rate);
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
    cz__powersgd_iteration *it;
    cz_work *work = NULL;
    CZ_TRY(cz__powersgd_plan(&it, s, bucket));
    CZ_TRY(cz_bucket_then(bucket, finish, it));
    CZ_TRY(cz__powersgd_fill_q(it));
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

/* The ddp counts passes alike on all ranks, also after failures; so iterations are counted by it. */
cz_status cz__powersgd_run(void *state, cz_bucket *bucket)
{
    cz_powersgd *s = state;
    const int64_t pass = cz_bucket_pass(bucket);
    if (!s->placed)
        s->first_pass = pass - s->iter;
    s->placed = true;
    s->iter = pass - s->first_pass;
    if (s->iter >= s->options.start_iter)
        return compress(s, bucket);
    CZ_TRY(cz__hook_all_reduce(NULL, bucket));
    s->iter += cz_bucket_is_last(bucket);
    return CZ_OK;
}
