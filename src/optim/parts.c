/* SPDX-License-Identifier: MIT */
/* The work of a step over all spans, by one thread or in parts, one for each kernel thread. Parts
 * are cut by bytes, at multiples of a cache line of state: with the same gradients a thread has the
 * same elements in every step. What a rule prepares is prepared by the calling thread, for some
 * parameters at a time; kernels run on all of them together. */
#include "base/kernel_threads.h"
#include "base/sum.h"
#include "optim/object.h"

#include <string.h>

typedef struct cut {
    int64_t place; /* of the span, and the element in it */
    int64_t element;
    int64_t row; /* the parameter's, among those of the batch */
} cut;

/* Spans [begin, end) that take part. */
typedef struct batch {
    const cz_optim *optim;
    void *const *gradients;
    int64_t begin, end;
    int64_t elements;
    uint64_t bytes;
    double factor; /* of the gradients, if they are to be scaled */
    void (*visit)(const struct batch *batch, const cz__piece *piece, int64_t row);
    cut cuts[CZ__KERNEL_THREADS_MAX + 1];
} batch;

/* ---- cuts ---- */

static const char *gradient_of(const cz_optim *optim, int64_t param, void *const *gradients)
{
    return gradients[param] && optim->tables.trainable[param] ? gradients[param] : NULL;
}

static int64_t elements_of(const cz_optim *optim, int64_t place)
{
    return optim->shard.spans[place].end - optim->shard.spans[place].begin;
}

/* Where each part begins. Rules that need whole tensors get them: a part begins with a span. */
static void cut_up(batch *b, int parts)
{
    const cz_optim *optim = b->optim;
    const int64_t line = (int64_t)(CZ__LINE / cz__optim_smallest_size(optim));
    int64_t before = 0, row = -1, last = -1;
    int part = 0;
    for (int64_t s = b->begin; s < b->end; s++) {
        const int64_t param = optim->shard.spans[s].param, count = elements_of(optim, s);
        if (!gradient_of(optim, param, b->gradients))
            continue;
        row += param != last;
        last = param;
        for (; part < parts; part++) {
            const int64_t wanted = b->elements / parts * part / line * line;
            if (wanted >= before + count)
                break;
            const int64_t granule = cz__optim_block(optim, param);
            const int64_t element = wanted > before ? wanted - before : 0;
            b->cuts[part] = (cut){s, element / granule * granule, row};
            if (optim->groups[optim->shard.spans[s].group].rule->update_tensor && wanted > before)
                break; /* with the next span */
        }
        before += count;
    }
    for (; part <= parts; part++)
        b->cuts[part] = (cut){b->end, 0, row};
}

static void do_part(void *context, int part)
{
    const batch *b = context;
    const cz_optim *optim = b->optim;
    const cut begin = b->cuts[part], end = b->cuts[part + 1];
    int64_t row = begin.row, last = -1;
    for (int64_t s = begin.place; s < b->end && s <= end.place; s++) {
        const int64_t param = optim->shard.spans[s].param;
        const char *gradient = gradient_of(optim, param, b->gradients);
        if (!gradient)
            continue;
        row += last >= 0 && param != last;
        last = param;
        const int64_t first = s == begin.place ? begin.element : 0;
        const int64_t stop = s == end.place ? end.element : elements_of(optim, s);
        cz__piece piece = cz__optim_piece(optim, s, gradient);
        piece.first = first;
        piece.count = stop - first;
        piece.part = part;
        if (piece.count > 0)
            b->visit(b, &piece, row);
    }
}

/* On the calling thread where there is little to do: in the same parts. */
static void run(batch *b)
{
    const cz_optim *optim = b->optim;
    const int parts = cz__optim_parts(optim);
    cut_up(b, parts);
    if (b->bytes >= 2 * optim->part_bytes)
        cz__kernel_threads_run(optim->kernel_threads, do_part, b);
    else
        for (int part = 0; part < parts; part++)
            do_part(b, part);
}

/* ---- the update ---- */

static void update_piece(const batch *b, const cz__piece *piece, int64_t row)
{
    cz__optim_update_piece(b->optim, piece, &b->optim->part_prepared[row]);
}

/* Parameters from b->begin on, as many as there are rows: to b->end. */
static void begin_params(cz_optim *optim, batch *b)
{
    int64_t row = -1, last = -1;
    b->elements = 0;
    b->bytes = 0;
    for (b->end = b->begin; b->end < optim->shard.span_count; b->end++) {
        const cz__local_span *span = &optim->shard.spans[b->end];
        if (!gradient_of(optim, span->param, b->gradients))
            continue;
        if (span->param != last) {
            if (++row == CZ__PART_PARAMS)
                return;
            last = span->param;
            cz__optim_begin_param(optim, last, &optim->part_prepared[row]);
            optim->steps[last]++;
        }
        b->elements += span->end - span->begin;
        b->bytes +=
            (uint64_t)(span->end - span->begin) * cz__optim_element_traffic(optim, span->param);
    }
}

static uint64_t update_in_parts(cz_optim *optim, void *const *gradients)
{
    uint64_t bytes = 0;
    batch b = {.optim = optim, .gradients = gradients, .visit = update_piece};
    while (b.begin < optim->shard.span_count) {
        begin_params(optim, &b);
        run(&b);
        bytes += b.bytes;
        b.begin = b.end;
    }
    return bytes;
}

/* ---- passes over all spans ---- */

static batch all_spans(const cz_optim *optim, void *const *gradients)
{
    batch b = {.optim = optim, .gradients = gradients, .end = optim->shard.span_count};
    for (int64_t s = 0; s < b.end; s++)
        if (gradient_of(optim, optim->shard.spans[s].param, gradients))
            b.elements += elements_of(optim, s);
    b.bytes = (uint64_t)b.elements * cz__optim_smallest_size(optim);
    return b;
}

/* Sums are of whole numbers, digit by digit: the same in any order. */
static void merge(cz_sum *sum, cz_sum *other)
{
    cz__sum_settle(sum);
    cz__sum_settle(other);
    for (int i = 0; i < CZ_SUM_CHUNKS; i++)
        sum->chunks[i] += other->chunks[i];
    cz__sum_settle(sum);
}

/* The parameter in which a part begins, if it began before: others add to its sums as well. */
static int64_t shared_param(const batch *b, int part)
{
    const cut *begin = &b->cuts[part];
    return part > 0 && begin->place < b->end ? b->optim->shard.spans[begin->place].param : -1;
}

static void add_sums_of_piece(const batch *b, const cz__piece *piece, int64_t row)
{
    const cz_optim *optim = b->optim;
    const int64_t param = optim->shard.spans[piece->place].param;
    if (!cz__optim_has_sums(optim, param))
        return;
    cz_sum *sums = param == shared_param(b, piece->part)
                       ? optim->part_sums + piece->part * optim->sum_count
                       : cz__optim_sums(optim, param);
    cz__optim_add_sums_of_piece(optim, piece,
                                &optim->shard.prepared[optim->shard.first_span[param]], sums);
}

static void clear_part_sums(const cz_optim *optim, int sums)
{
    memset(optim->part_sums, 0,
           (size_t)cz__optim_parts(optim) * (size_t)sums * sizeof *optim->part_sums);
}

/* Those with sums. */
static void for_params(cz_optim *optim, void *const *gradients,
                       void (*call)(cz_optim *optim, int64_t param))
{
    for (int64_t s = 0; s < optim->shard.span_count; s++) {
        const int64_t param = optim->shard.spans[s].param;
        if (optim->shard.first_span[param] == s && gradient_of(optim, param, gradients) &&
            cz__optim_has_sums(optim, param))
            call(optim, param);
    }
}

static void update_sums_in_parts(cz_optim *optim, void *const *gradients)
{
    const int count = optim->sum_count;
    batch b = all_spans(optim, gradients);
    b.bytes *= 2 + (uint64_t)optim->slot_count;
    b.visit = add_sums_of_piece;
    for_params(optim, gradients, cz__optim_begin_sums);
    clear_part_sums(optim, count);
    run(&b);
    for (int part = 1; part < cz__optim_parts(optim); part++) {
        const int64_t param = shared_param(&b, part);
        if (param >= 0 && cz__optim_has_sums(optim, param))
            for (int k = 0; k < count; k++)
                merge(&cz__optim_sums(optim, param)[k], &optim->part_sums[part * count + k]);
    }
    for_params(optim, gradients, cz__optim_end_sums);
}

static void add_squares(const batch *b, const cz__piece *piece, int64_t row)
{
    const cz_optim *optim = b->optim;
    const int64_t offset = optim->shard.spans[piece->place].begin + piece->first;
    (void)optim->device->add_squares(NULL, piece->dtype, piece->count,
                                     piece->gradient + (size_t)offset * cz_dtype_size(piece->dtype),
                                     &optim->part_sums[piece->part]);
}

void cz__norm_add_in_parts(const cz_optim *optim, void *const *gradients, cz_sum *sum)
{
    batch b = all_spans(optim, gradients);
    b.visit = add_squares;
    clear_part_sums(optim, 1);
    run(&b);
    for (int part = 0; part < cz__optim_parts(optim); part++)
        merge(sum, &optim->part_sums[part]);
}

static void scale(const batch *b, const cz__piece *piece, int64_t row)
{
    const cz_optim *optim = b->optim;
    const int64_t param = optim->shard.spans[piece->place].param;
    const int64_t offset = optim->shard.spans[piece->place].begin + piece->first;
    const size_t size = cz_dtype_size(piece->dtype);
    if (piece->dtype == optim->dtype)
        (void)optim->device->scale(NULL, optim->dtype, b->factor, piece->count,
                                   (char *)b->gradients[param] + (size_t)offset * size);
}

void cz__norm_scale_in_parts(const cz_optim *optim, void *const *gradients, double factor)
{
    batch b = all_spans(optim, gradients);
    b.bytes *= 2;
    b.factor = factor;
    b.visit = scale;
    run(&b);
}

/* ---- all that is here, by one thread or by several ---- */

static cz__piece whole(const cz_optim *optim, int64_t place, const char *gradient)
{
    const cz__local_span *span = &optim->shard.spans[place];
    cz__piece piece = cz__optim_piece(optim, place, gradient);
    piece.count = span->end - span->begin;
    return piece;
}

/* And its step count. Returns the bytes that were read and written. */
static uint64_t update_param(cz_optim *optim, int64_t param, const char *gradient)
{
    cz__prepared prepared;
    uint64_t elements = 0;
    cz__optim_begin_param(optim, param, &prepared);
    for (int64_t s = optim->shard.first_span[param]; s >= 0; s = optim->shard.spans[s].next) {
        const cz__piece piece = whole(optim, s, gradient);
        if (piece.count > 0)
            cz__optim_update_piece(optim, &piece, &prepared);
        elements += (uint64_t)piece.count;
    }
    optim->steps[param]++;
    return elements * cz__optim_element_traffic(optim, param);
}

static void add_sums_of_param(cz_optim *optim, int64_t param, const char *gradient)
{
    const int64_t head = optim->shard.first_span[param];
    cz__optim_begin_sums(optim, param);
    for (int64_t s = head; s >= 0; s = optim->shard.spans[s].next) {
        const cz__piece piece = whole(optim, s, gradient);
        if (piece.count > 0)
            cz__optim_add_sums_of_piece(optim, &piece, &optim->shard.prepared[head],
                                        cz__optim_sums(optim, param));
    }
    cz__optim_end_sums(optim, param);
}

/* Does a span begin the list of a parameter that takes part in the step? */
static bool begins_param(const cz_optim *optim, int64_t place, void *const *gradients)
{
    const int64_t param = optim->shard.spans[place].param;
    return optim->shard.first_span[param] == place && gradients[param] &&
           optim->tables.trainable[param];
}

void cz__optim_update_sums(cz_optim *optim, void *const *gradients)
{
    if (cz__optim_works_in_parts(optim)) {
        update_sums_in_parts(optim, gradients);
        return;
    }
    for (int64_t s = 0; s < optim->shard.span_count; s++)
        if (begins_param(optim, s, gradients) &&
            cz__optim_has_sums(optim, optim->shard.spans[s].param))
            add_sums_of_param(optim, optim->shard.spans[s].param,
                              gradients[optim->shard.spans[s].param]);
}

/* Is something of it here, and does it take part in steps? */
static bool is_updated(const cz_optim *optim, int64_t param)
{
    return cz__optim_holds(optim, param) && optim->tables.trainable[param];
}

void cz__optim_update_sums_param(cz_optim *optim, int64_t param, const void *gradient)
{
    if (is_updated(optim, param))
        add_sums_of_param(optim, param, gradient);
}

uint64_t cz__optim_update(cz_optim *optim, void *const *gradients)
{
    uint64_t bytes = 0;
    optim->stepped = true;
    if (cz__optim_works_in_parts(optim))
        return update_in_parts(optim, gradients);
    for (int64_t s = 0; s < optim->shard.span_count; s++)
        if (begins_param(optim, s, gradients))
            bytes += update_param(optim, optim->shard.spans[s].param,
                                  gradients[optim->shard.spans[s].param]);
    return bytes;
}

uint64_t cz__optim_update_param(cz_optim *optim, int64_t param, const void *gradient)
{
    optim->stepped = true;
    return is_updated(optim, param) ? update_param(optim, param, gradient) : 0;
}
