/* SPDX-License-Identifier: MIT */
#include "engine/small_data.h"

#include "base/status.h"

static bool gathers(const cz_work *work)
{
    return !work->operation.reduces && work->operation.same_to_all;
}

/* A vector that all add up whole: nobody looks where the streams of owners begin in it. */
static bool is_one_piece(const cz_work *work)
{
    const cz__operation *operation = &work->operation;
    return operation->reduces && operation->exchanges && !operation->update &&
           operation->source.kind == CZ__REGION_EVEN && operation->source.base &&
           operation->target.base && !operation->source.own && !operation->target.own;
}

static size_t bytes_of_piece(const cz_work *work)
{
    return (size_t)work->operation.source.count * work->operation.source.element_size;
}

/* A rank's part of its own stream nobody else reads, and it does where it is: the streams of source
 * and target are of the same pieces. So it is not given. (A result of another type is not where its
 * source may be: there all is given.) */
static bool owns_alone(const cz_work *work)
{
    const cz__operation *operation = &work->operation;
    return operation->reduces && (operation->update || !operation->exchanges) &&
           operation->source.kind == CZ__REGION_MAPPED &&
           !cz__region_has_terms(&operation->source) &&
           operation->result == (cz_dtype)operation->header.dtype;
}

/* ---- streams ---- */

size_t cz__small_put_stream(const cz_work *work, const cz__region *region, int stream, char *to)
{
    const cz_device *device = work->group->device;
    cz__cursor cursor;
    cz__run run;
    size_t at = 0;
    cz__cursor_begin(region, stream, &cursor);
    while (cz__run_next(region, &cursor, SIZE_MAX, &run)) {
        const char *from = cz__run_address(region, stream, &run);
        const size_t bytes = cz__bytes_here(region, run.bytes);
        if (from)
            (void)device->copy(NULL, to + at, from, bytes);
        else
            (void)device->zero(NULL, to + at, bytes);
        at += bytes;
    }
    return at;
}

void cz__small_take_stream(const cz_work *work, const cz__region *region, int stream,
                           const char *from)
{
    cz__cursor cursor;
    cz__run run;
    cz__cursor_begin(region, stream, &cursor);
    while (cz__run_next(region, &cursor, SIZE_MAX, &run)) {
        char *to = cz__run_address(region, stream, &run);
        const size_t bytes = cz__bytes_here(region, run.bytes);
        if (to)
            (void)work->group->device->copy(NULL, to, from, bytes);
        from += bytes;
    }
}

static size_t stream_bytes(const cz__region *region, int stream)
{
    cz__cursor cursor;
    cz__run run;
    size_t bytes = 0;
    cz__cursor_begin(region, stream, &cursor);
    while (cz__run_next(region, &cursor, SIZE_MAX, &run))
        bytes += run.bytes;
    return bytes;
}

/* ---- what a rank gives: its part of every stream, or its own stream ---- */

bool cz__small_fits(const cz_work *work, size_t room)
{
    const cz__operation *operation = &work->operation;
    if (operation->longest == 0 || (!operation->reduces && !gathers(work)))
        return false;
    if (is_one_piece(work))
        return bytes_of_piece(work) <= room;
    if (gathers(work))
        return operation->longest <= room;
    const size_t size = (size_t)work->group->size;
    const size_t gaps = 64 * size * (size_t)cz__region_most_terms(&operation->source);
    const size_t streams = operation->source.kind == CZ__REGION_MAPPED ? 1 : size;
    return room > gaps && operation->longest <= (room - gaps) / streams;
}

static void count_reduced(const cz_work *work, int stream, size_t bytes)
{
    if (stream != work->group->rank && bytes > 0)
        cz__traffic_sent(work->group, CZ__STEP_REDUCE, bytes);
}

/* All streams are one after the other. */
static size_t put_piece(const cz_work *work, char *to, bool counts)
{
    const cz__region *source = &work->operation.source;
    const size_t bytes = bytes_of_piece(work);
    (void)work->group->device->copy(NULL, to, source->base, bytes);
    for (int r = 0; r < work->group->size && counts; r++)
        count_reduced(work, r, cz__region_bytes(source, r));
    return bytes;
}

/* One term of every stream, each at a line of the cache. */
static size_t put_term(const cz_work *work, int t, char *to, bool counts)
{
    const cz__region term = cz__region_of_term(&work->operation.source, t);
    size_t all = 0;
    const bool alone = owns_alone(work);
    for (int r = 0; r < work->group->size; r++) {
        if (alone && r == work->group->rank)
            continue;
        const size_t bytes = cz__small_put_stream(work, &term, r, to + all);
        all += cz__line_aligned(bytes);
        if (counts)
            count_reduced(work, r, bytes);
    }
    return all;
}

/* From one term to the next; all are as long as the longest can be. */
static size_t term_stride(const cz_work *work)
{
    const cz__operation *operation = &work->operation;
    return operation->longest / (size_t)cz__region_most_terms(&operation->source) +
           64 * (size_t)work->group->size;
}

size_t cz__small_put(const cz_work *work, char *to, bool counts)
{
    const cz__operation *operation = &work->operation;
    const int size = work->group->size, me = work->group->rank;
    size_t all = 0;
    if (is_one_piece(work))
        return put_piece(work, to, counts);
    if (operation->reduces) {
        const int terms = cz__region_terms(&operation->source, me);
        for (int t = 0; t < terms; t++) {
            const size_t at = t > 0 ? (size_t)t * term_stride(work) : 0;
            all = at + put_term(work, t, to + at, counts);
        }
    } else if (!operation->update) {
        all = cz__small_put_stream(work, &operation->source, me, to);
        for (int r = 1; r < size && counts && all > 0; r++)
            cz__traffic_sent(work->group, CZ__STEP_EXCHANGE, all);
    }
    return all;
}

/* ---- what becomes of it ---- */

/* Add up some bytes of a stream that begins at `offset` of what every rank has given. */
static cz_status add_up(const cz_work *work, const cz__small_data *data, size_t offset,
                        size_t bytes, void *out)
{
    const cz__operation *operation = &work->operation;
    const cz__region *source = &operation->source;
    const void **sources = cz__region_sources(source, data->sources);
    for (int r = 0; r < work->group->size; r++) {
        const int terms = cz__region_terms(source, r);
        for (int t = 0; t < terms; t++)
            sources[cz__region_source_of(source, r, t)] =
                data->given[r] + offset + (t > 0 ? (size_t)t * term_stride(work) : 0);
    }
    return work->group->device->reduce(
        NULL, (cz_dtype)operation->header.dtype, (cz_reduction)operation->header.reduction,
        cz__region_source_count(source), sources, (int64_t)(bytes / operation->source.element_size),
        operation->result, out);
}

static void update_run(const cz__operation *operation, const cz__run *run, const char *gradient)
{
    const size_t element = operation->target.element_size;
    operation->update(operation->update_context, run->param, (int64_t)(run->offset / element),
                      (int64_t)(run->bytes / element), gradient);
}

/* The sum of a stream goes where it is wanted, and to the update. In what every rank has given it
 * begins at `offset`. */
static cz_status reduce_stream(cz_work *work, const cz__small_data *data, int stream, size_t offset,
                               size_t *bytes)
{
    const cz__operation *operation = &work->operation;
    cz__cursor cursor;
    cz__run run;
    size_t at = 0;
    cz__cursor_begin(&operation->target, stream, &cursor);
    for (; cz__run_next(&operation->target, &cursor, SIZE_MAX, &run); at += run.bytes) {
        char *wanted = cz__run_address(&operation->target, stream, &run),
             *out = wanted ? wanted : data->spare + cz__bytes_here(&operation->target, at);
        CZ_TRY(add_up(work, data, offset + at, run.bytes, out));
        if (operation->update)
            update_run(operation, &run, out);
    }
    *bytes = at;
    return CZ_OK;
}

/* Of a piece of this rank's stream, which it reads where it is; nothing is zeros. */
static cz_status add_up_own(const cz_work *work, const void **sources, const cz__run *run,
                            char *out)
{
    const cz__operation *operation = &work->operation;
    const cz_device *device = work->group->device;
    const int me = work->group->rank;
    sources[me] = cz__run_address(&operation->source, me, run);
    if (!sources[me]) {
        (void)device->zero(NULL, out, run->bytes);
        sources[me] = out;
    }
    return device->reduce(NULL, (cz_dtype)operation->header.dtype,
                          (cz_reduction)operation->header.reduction, work->group->size, sources,
                          (int64_t)(run->bytes / operation->source.element_size), operation->result,
                          out);
}

/* This rank's stream, where it owns that alone. Each of the others has left out its own. */
static cz_status reduce_own(cz_work *work, const cz__small_data *data)
{
    const cz__operation *operation = &work->operation;
    const int me = work->group->rank;
    cz__cursor cursor;
    cz__run run;
    for (int r = 0; r < work->group->size; r++)
        data->sources[r] = data->given[r];
    for (int stream = 0; stream < me && work->group->size > 2; stream++) {
        const size_t bytes = cz__line_aligned(stream_bytes(&operation->source, stream));
        for (int r = 0; r < work->group->size; r++)
            data->sources[r] = (const char *)data->sources[r] + (r == stream ? 0 : bytes);
    }
    size_t at = 0;
    cz__cursor_begin(&operation->target, me, &cursor);
    while (cz__run_next(&operation->target, &cursor, SIZE_MAX, &run)) {
        char *wanted = cz__run_address(&operation->target, me, &run),
             *out = wanted ? wanted : data->spare + at;
        CZ_TRY(add_up_own(work, data->sources, &run, out));
        if (operation->update)
            update_run(operation, &run, out);
        at += run.bytes;
        for (int r = 0; r < work->group->size; r++)
            data->sources[r] = (const char *)data->sources[r] + run.bytes;
    }
    return CZ_OK;
}

/* What all want, or what this rank owns. */
static cz_status reduce(cz_work *work, const cz__small_data *data)
{
    const cz__operation *operation = &work->operation;
    const bool all = operation->exchanges && !operation->update;
    const int me = work->group->rank, last = all ? work->group->size - 1 : me;
    size_t offset = 0;
    if (is_one_piece(work))
        return add_up(work, data, 0, bytes_of_piece(work), operation->target.base);
    if (owns_alone(work))
        return reduce_own(work, data);
    for (int r = 0; r <= last; r++) {
        size_t bytes;
        if (all || r == me)
            CZ_TRY(reduce_stream(work, data, r, offset, &bytes));
        else
            bytes = stream_bytes(&operation->source, r);
        offset += cz__line_aligned(bytes);
    }
    return CZ_OK;
}

static void update_own(const cz_work *work)
{
    const cz__operation *operation = &work->operation;
    cz__cursor cursor;
    cz__run run;
    cz__cursor_begin(&operation->target, work->group->rank, &cursor);
    while (cz__run_next(&operation->target, &cursor, SIZE_MAX, &run))
        update_run(operation, &run, cz__run_address(&operation->target, work->group->rank, &run));
}

static void gather(cz_work *work, const cz__small_data *data)
{
    const cz__operation *operation = &work->operation;
    const bool same = cz__region_same_memory(&operation->source, &operation->target);
    for (int r = 0; r < work->group->size; r++)
        if (r != work->group->rank || !same)
            cz__small_take_stream(work, &operation->target, r, data->given[r]);
}

cz_status cz__small_move(cz_work *work, const cz__small_data *data)
{
    const cz__operation *operation = &work->operation;
    if (operation->reduces)
        return reduce(work, data);
    if (operation->update)
        update_own(work);
    else
        gather(work, data);
    return CZ_OK;
}
