/* SPDX-License-Identifier: MIT */
/* The passes of a step that ranks have agreed on: reduce the gradients to their owners, judge their
 * norm, update the local spans, bring them to every rank. Where ranks reach each other's memory a
 * pass goes over tiles that stay in cache, and does as much with each as can be done before other
 * elements are known: all of it, or with a norm, or with partial sums of the rule, the reduction
 * and the sums in one pass, and the update with what follows in another. */
#include <inttypes.h>
#include <math.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/sum.h"
#include "collective/weights.h"
#include "group/collective.h"
#include "join/join.h"
#include "zero/zero.h"
#include "shard/shard.h"

/* ---- partial sums ---- */
/* Partial sums of a rule. Each parameter has a rank that adds up what all ranks hold, exactly,
 * rounds once, and tells everybody; these are dealt out in turn, whoever owns the elements. */

struct cz__zero_sums {
    cz_shard_map *sums;   /* owned, as all: the chunks of each parameter's sums, i64 */
    cz_shard_map *values; /* and the rounded sums, f64 */
    void **sources;       /* of this rank's elements; NULL: it has none */
    void **totals;        /* where this rank adds up */
    void **rounded;       /* where the update reads */
    uint8_t *include;     /* parameters that are present and whose rule has sums */
    cz_sum *memory;       /* of the totals */
};

static int adder_of(const cz_zero *zero, int64_t param)
{
    return (int)(param % cz_group_size(zero->group));
}

static cz_status make_map_of_sums(const cz_zero *zero, int64_t count, cz_shard_map **out)
{
    const size_t params = (size_t)zero->param_count;
    int64_t *counts = cz__calloc(params, sizeof *counts);
    int *adders = cz__calloc(params, sizeof *adders);
    cz_status status = CZ_ERR_MEMORY;
    if (counts && adders) {
        for (int64_t p = 0; p < zero->param_count; p++) {
            counts[p] = count;
            adders[p] = adder_of(zero, p);
        }
        status = cz__shard_map_create_owners(out, cz_group_size(zero->group), zero->param_count,
                                             counts, adders, NULL);
    } else {
        cz__fail(status, "zero: no memory for tables of %zu parameters", params);
    }
    cz__free(counts);
    cz__free(adders);
    return status;
}

static cz_status build_sums(cz__zero_sums *sums, const cz_zero *zero)
{
    const int count = cz__optim_sum_count(zero->optim);
    const size_t params = (size_t)zero->param_count;
    const int64_t ranks = cz_group_size(zero->group);
    const int64_t own = (zero->param_count + ranks - 1) / ranks; /* at most */
    CZ_TRY(make_map_of_sums(zero, (int64_t)count * CZ_SUM_CHUNKS, &sums->sums));
    CZ_TRY(make_map_of_sums(zero, count, &sums->values));
    sums->sources = cz__calloc(params, sizeof *sums->sources);
    sums->totals = cz__calloc(params, sizeof *sums->totals);
    sums->rounded = cz__calloc(params, sizeof *sums->rounded);
    sums->memory = cz__calloc((size_t)(own * count), sizeof *sums->memory);
    sums->include = cz__calloc(params, sizeof *sums->include);
    if (!sums->sources || !sums->totals || !sums->rounded || !sums->memory || !sums->include)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for %d partial sums of %zu parameters",
                        count, params);
    for (int64_t p = 0; p < zero->param_count; p++) {
        if (adder_of(zero, p) == cz_group_rank(zero->group))
            sums->totals[p] = sums->memory + p / ranks * count;
    }
    return CZ_OK;
}

cz_status cz__zero_sums_create(cz__zero_sums **out, const cz_zero *zero)
{
    *out = NULL;
    if (cz__optim_sum_count(zero->optim) == 0)
        return CZ_OK;
    cz__zero_sums *sums = cz__calloc(1, sizeof *sums);
    if (!sums)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for partial sums");
    const cz_status status = build_sums(sums, zero);
    if (status != CZ_OK)
        cz__zero_sums_destroy(&sums);
    *out = sums;
    return status;
}

void cz__zero_sums_destroy(cz__zero_sums **sums)
{
    if (!sums || !*sums)
        return;
    cz__shard_map_destroy(&(*sums)->sums);
    cz__shard_map_destroy(&(*sums)->values);
    cz__free((*sums)->sources);
    cz__free((*sums)->totals);
    cz__free((*sums)->rounded);
    cz__free((*sums)->memory);
    cz__free((*sums)->include);
    cz__free(*sums);
    *sums = NULL;
}

size_t cz__zero_sums_bytes(const cz_zero *zero)
{
    return (size_t)zero->param_count * (size_t)cz__optim_sum_count(zero->optim) * sizeof(cz_sum);
}

static cz_status add_up_sums(cz_zero *zero)
{
    cz__zero_sums *sums = zero->sums;
    const cz__mapped memory = {.map = sums->sums,
                               .data = sums->sources,
                               .include = sums->include,
                               .dtype = CZ_I64,
                               .result = sums->totals,
                               .reserve = zero->transfers};
    for (int64_t p = 0; p < zero->param_count; p++) {
        sums->include[p] = zero->present[p] && cz__optim_has_sums(zero->optim, p);
        sums->sources[p] = sums->include[p] ? cz__optim_sums(zero->optim, p) : NULL;
        sums->rounded[p] = cz__optim_sum_values(zero->optim, p);
    }
    return cz__reduce_along_map(zero->group, &memory, CZ_SUM, CZ_LABEL("partial sums"));
}

static cz_status tell_sums(cz_zero *zero)
{
    const cz__zero_sums *sums = zero->sums;
    const int count = cz__optim_sum_count(zero->optim);
    const cz__mapped memory = {.map = sums->values,
                               .data = sums->rounded,
                               .include = sums->include,
                               .dtype = CZ_F64,
                               .reserve = zero->transfers};
    for (int64_t p = 0; p < zero->param_count; p++)
        for (int k = 0; sums->include[p] && sums->totals[p] && k < count; k++)
            ((double *)sums->rounded[p])[k] = cz_sum_value((const cz_sum *)sums->totals[p] + k);
    return cz__gather_along_map(zero->group, &memory, CZ_LABEL("partial sums"));
}

static cz_status exchange_sums(cz_zero *zero)
{
    CZ_TRY(add_up_sums(zero));
    return tell_sums(zero);
}

/* ---- memory for what moves ---- */

/* The exact sum of the norm travels, too. */
size_t cz__zero_longest(size_t bytes)
{
    return sizeof(cz_sum) > bytes ? sizeof(cz_sum) : bytes;
}

/* Of what one operation moves, and where it goes to. */
static size_t widest_element(const cz_zero *zero)
{
    size_t widest = 0;
    for (int k = 0; k < zero->kind_count; k++) {
        const cz_dtype types[] = {zero->kinds[k].value, zero->kinds[k].gradient,
                                  cz__zero_widest_given(zero, k)};
        for (int t = 0; t < 3; t++)
            widest = cz_dtype_size(types[t]) > widest ? cz_dtype_size(types[t]) : widest;
    }
    return widest;
}

/* No step can be out of memory between its reduction and the synchronisation that must follow. */
cz_status cz__zero_reserve_transfers(cz__reserve **out, const cz_zero *zero)
{
    const size_t sums = cz__zero_sums_bytes(zero);
    size_t longest = (size_t)cz__model_element_count(zero->model) * widest_element(zero);
    longest = cz__zero_longest(sums > longest ? sums : longest);
    return cz__reserve_create(out, zero->group, cz__parts_longest(zero->parts, longest));
}

/* ---- values to every rank ---- */

cz_status cz__zero_bring_values(cz_zero *zero)
{
    const double begin = cz__seconds();
    for (int k = 0; k < zero->kind_count; k++) {
        const uint8_t *include = cz__zero_include(zero, k);
        const cz__mapped memory = {.map = zero->map,
                                   .data = zero->tables.values,
                                   .include = include,
                                   .dtype = zero->kinds[k].value,
                                   .reserve = zero->transfers,
                                   .shared = zero->shared_values};
        if (include)
            CZ_TRY(cz__gather_along_map(zero->group, &memory, CZ_LABEL("parameters")));
    }
    cz__trace_add(&zero->trace, CZ_TRACE_SYNC, begin,
                  zero->shared_values ? 0 : cz__zero_traffic(zero, true));
    return CZ_OK;
}

/* ---- passes ---- */

/* Where the update reads gradients. Kept memory holds a span alone; what is given on is where
 * element 0 would be. */
static void place_results(cz_zero *zero)
{
    static char nowhere; /* a gradient that is there, but not read here */
    cz_span_iterator iterator;
    cz_span span;
    for (int64_t p = 0; p < zero->param_count; p++) {
        void *here = zero->sources[p] && !cz__zero_widens(zero, p) ? zero->sources[p] : &nowhere;
        zero->results[p] = zero->present[p] ? here : NULL;
    }
    for (int64_t p = 0; p < zero->param_count && !cz__zero_reduces(zero); p++)
        if (zero->present[p] && cz__zero_widens(zero, p) && zero->means.of[p])
            zero->results[p] = zero->means.of[p];
    if (!cz__zero_reduces(zero))
        return;
    cz_span_iterate(zero->map, cz_group_rank(zero->group), &iterator);
    while (cz_span_next(&iterator, &span))
        if (zero->present[span.param] &&
            (!zero->sources[span.param] || cz__zero_widens(zero, span.param))) {
            const cz_dtype dtype = cz__zero_given_dtype(zero, zero->kind_of[span.param]);
            zero->results[span.param] = (void *)((uintptr_t)zero->kept[span.param] -
                                                 (uintptr_t)span.begin * cz_dtype_size(dtype));
        }
}

/* ---- the ranks' shares of the mean ---- */

static bool divides_by_active(const cz_zero *zero)
{
    return zero->join && cz__join_division(zero->join) == CZ_JOIN_BY_ACTIVE;
}

bool cz__zero_has_weights(const cz_zero *zero)
{
    return zero->gradients == CZ_GRADIENTS_LOCAL &&
           (zero->join ? cz__join_division(zero->join) == CZ_JOIN_BY_WEIGHT : zero->weight >= 0);
}

/* What this rank's gradients are multiplied by, once all ranks have agreed. */
static cz_status take_share(cz_zero *zero)
{
    double weight = zero->weight < 0 ? NAN : zero->weight;
    zero->share = 1;
    zero->weightless = false;
    if (divides_by_active(zero))
        zero->share = (double)cz_group_size(zero->group) / cz__join_active_count(zero->join);
    if (!cz__zero_has_weights(zero))
        return CZ_OK;
    if (zero->shadows)
        weight = 0;
    return cz__share_of_weight(zero->group, weight, "zero step", "cz_zero_set_weight()",
                               &zero->share, &zero->weightless);
}

/* Where it counts for nothing a gradient is not read: it may be anything. */
static cz_status weigh_gradient(const cz_zero *zero, int64_t param)
{
    const int64_t count = cz_tensor_count(cz__model_value(zero->model, param));
    const cz_dtype dtype = zero->kinds[zero->kind_of[param]].gradient;
    if (zero->share == 0)
        return zero->device->zero(NULL, zero->sources[param], (size_t)count * cz_dtype_size(dtype));
    return zero->device->scale(NULL, dtype, zero->share, count, zero->sources[param]);
}

static cz_status weigh(cz_zero *zero)
{
    if (zero->share == 1)
        return CZ_OK;
    for (int64_t p = 0; p < zero->param_count; p++)
        if (zero->present[p] && zero->sources[p])
            CZ_TRY(weigh_gradient(zero, p));
    return CZ_OK;
}

/* ---- reductions ---- */

static cz_reduction reduction_of(const cz_zero *zero)
{
    return zero->gradients == CZ_GRADIENTS_SUM ? CZ_SUM : CZ_AVERAGE;
}

static cz__mapped gradients_of(const cz_zero *zero, int kind, const uint8_t *include)
{
    const cz__terms *terms = cz__parts_terms(zero->parts);
    const cz_dtype dtype = zero->kinds[kind].gradient, given = cz__zero_given_dtype(zero, kind);
    return (cz__mapped){.map = zero->map,
                        .data =
                            zero->parts && !terms ? cz__parts_single(zero->parts) : zero->sources,
                        .include = include,
                        .dtype = dtype,
                        .result = zero->results,
                        .result_dtype = given != dtype ? given : 0,
                        .terms = terms,
                        .reserve = zero->transfers,
                        .shared = zero->shared_values};
}

static cz_status reduce(cz_zero *zero)
{
    const double start = cz__seconds();
    CZ_TRY(weigh(zero));
    for (int k = 0; k < zero->kind_count; k++) {
        const uint8_t *include = cz__zero_include(zero, k);
        if (!include)
            continue;
        const cz__mapped memory = gradients_of(zero, k, include);
        CZ_TRY(
            cz__reduce_along_map(zero->group, &memory, reduction_of(zero), CZ_LABEL("gradients")));
    }
    cz__trace_add(&zero->trace, CZ_TRACE_REDUCE, start, cz__zero_traffic(zero, false));
    return CZ_OK;
}

/* What was seen of the gradients before the update. */
typedef struct look {
    bool squared, summed; /* while they were reduced */
    cz_sum squares;       /* of what is here, settled */
    double factor;        /* what they are to be multiplied by before the update */
} look;

/* The first pass of a rule with partial sums. */
static cz_status update_sums(cz_zero *zero, const look *seen)
{
    const double start = cz__seconds();
    if (!seen->summed)
        cz__optim_update_sums(zero->optim, zero->results);
    const double middle = cz__seconds();
    cz__trace_add(&zero->trace, CZ_TRACE_UPDATE, start, 0);
    CZ_TRY(exchange_sums(zero));
    cz__trace_add(&zero->trace, CZ_TRACE_REDUCE, middle, 0);
    return CZ_OK;
}

static void update(cz_zero *zero)
{
    const double start = cz__seconds();
    const uint64_t bytes = cz__optim_update(zero->optim, zero->results);
    zero->step_count++;
    cz__trace_add(&zero->trace, CZ_TRACE_UPDATE, start, bytes);
}

/* Everybody's squares. An all-reduce, with memory that was had in advance: gradients have been
 * averaged. */
static cz_status add_norms(cz_zero *zero, cz_sum *sum)
{
    void *const data[] = {sum->chunks};
    const cz__mapped memory = {.map = zero->norm,
                               .data = data,
                               .include = (const uint8_t[]){1},
                               .dtype = CZ_I64,
                               .reserve = zero->transfers};
    return cz__all_reduce_along_map(zero->group, &memory, CZ_SUM, CZ_LABEL("zero: norm"));
}

/* The norm over all ranks, and what follows from it. Partial sums are of clipped gradients. */
static cz_status judge(cz_zero *zero, look *seen, cz__step_outcome *outcome)
{
    const double start = cz__seconds();
    if (!cz__norm_is_wanted(zero->optim))
        return CZ_OK;
    if (!seen->squared)
        cz__norm_add(zero->optim, zero->results, &seen->squares);
    CZ_TRY(add_norms(zero, &seen->squares));
    const int shift = cz__norm_shift(zero->optim, &seen->squares);
    if (shift != 0) {
        cz__norm_add_shifted(zero->optim, zero->results, shift, &seen->squares);
        CZ_TRY(add_norms(zero, &seen->squares));
    }
    seen->factor = cz__norm_judge(zero->optim, &seen->squares, shift, outcome);
    if (seen->factor != 1 && (zero->sums || !zero->in_tiles)) {
        cz__norm_scale(zero->optim, zero->results, seen->factor);
        seen->factor = 1;
    }
    cz__trace_add(&zero->trace, CZ_TRACE_REDUCE, start, sizeof seen->squares);
    return CZ_OK;
}

/* ---- in tiles: what is done with each ---- */

static void add_squares_of_tile(void *context, int64_t param, int64_t first, int64_t count,
                                const void *gradient)
{
    cz__norm_add_tile(context, count, gradient);
}

static void add_sums_of_tile(void *context, int64_t param, int64_t first, int64_t count,
                             const void *gradient)
{
    cz__optim_sum_tile(context, param, first, count, gradient);
}

static void update_tile(void *context, int64_t param, int64_t first, int64_t count,
                        const void *gradient)
{
    cz__optim_update_tile(context, param, first, count, gradient);
}

/* ---- in tiles: the passes ---- */

/* One operation for each kind: what is to be done with its tiles. */
typedef cz__tiled_step (*step_maker)(const cz_zero *zero, int kind, const uint8_t *include,
                                     cz__tiles *tiles);

static cz_status make_steps(cz_zero *zero, step_maker make, cz__tiles *tiles, const char *label)
{
    for (int k = 0; k < zero->kind_count; k++) {
        const uint8_t *include = cz__zero_include(zero, k);
        if (!include)
            continue;
        const cz__tiled_step step = make(zero, k, include, tiles);
        CZ_TRY(cz__step_along_map(zero->group, &step, CZ_LABEL(label)));
    }
    return CZ_OK;
}

/* With the squares of what is reduced, or else with the sums of the rule. */
static cz__tiled_step look_of(const cz_zero *zero, int kind, const uint8_t *include,
                              cz__tiles *tiles)
{
    tiles->dtype = cz__zero_given_dtype(zero, kind);
    return (cz__tiled_step){.gradients = gradients_of(zero, kind, include),
                            .reduces = true,
                            .reduction = reduction_of(zero),
                            .update = tiles->squares ? add_squares_of_tile : add_sums_of_tile,
                            .context = tiles};
}

static cz_status reduce_in_tiles(cz_zero *zero, look *seen)
{
    cz__tiles tiles = cz__optim_tiles(zero->optim);
    const double start = cz__seconds();
    seen->squared = cz__norm_is_wanted(zero->optim);
    seen->summed = !seen->squared;
    tiles.squares = seen->squared ? &seen->squares : NULL;
    CZ_TRY(weigh(zero));
    if (seen->summed)
        cz__optim_begin_sum_tiles(&tiles, zero->present);
    CZ_TRY(make_steps(zero, look_of, &tiles, "gradients"));
    if (seen->summed)
        cz__optim_end_sum_tiles(&tiles, zero->present);
    cz__sum_settle(&seen->squares);
    cz__trace_add(&zero->trace, CZ_TRACE_REDUCE, start, cz__zero_traffic(zero, false));
    return CZ_OK;
}

static void count_update(cz_zero *zero, cz__tiles *tiles, double start)
{
    const uint64_t bytes = cz__optim_end_tiles(tiles, zero->present);
    zero->step_count++;
    cz__trace_add(&zero->trace, CZ_TRACE_FUSED, start, 0);
    cz__trace_count(&zero->trace, CZ_TRACE_UPDATE, bytes);
    cz__trace_count(&zero->trace, CZ_TRACE_SYNC,
                    zero->shared_values ? 0 : cz__zero_traffic(zero, true));
}

/* 0: none. */
static cz_dtype other_than(cz_dtype dtype, cz_dtype its)
{
    return its == dtype ? (cz_dtype)0 : its;
}

/* Gradients are where the update reads them. */
static cz__tiled_step update_of(const cz_zero *zero, int kind, const uint8_t *include,
                                cz__tiles *tiles)
{
    const cz_dtype given = cz__zero_given_dtype(zero, kind);
    cz__tiled_step step = {.gradients = gradients_of(zero, kind, include),
                           .values = zero->tables.values,
                           .value_dtype = other_than(given, zero->kinds[kind].value),
                           .update = update_tile,
                           .context = tiles};
    step.gradients.dtype = given;
    step.gradients.result_dtype = 0;
    tiles->dtype = given;
    tiles->gradients = zero->results;
    return step;
}

static cz_status update_in_tiles(cz_zero *zero, double factor)
{
    cz__tiles tiles = cz__optim_tiles(zero->optim);
    const double start = cz__seconds();
    tiles.factor = factor;
    CZ_TRY(make_steps(zero, update_of, &tiles, "step"));
    count_update(zero, &tiles, start);
    return CZ_OK;
}

/* The mean that the program has no memory for stays in cache. */
static cz__tiled_step whole_step_of(const cz_zero *zero, int kind, const uint8_t *include,
                                    cz__tiles *tiles)
{
    const cz__zero_kind *types = &zero->kinds[kind];
    cz__tiled_step step = {.gradients = gradients_of(zero, kind, include),
                           .reduces = true,
                           .reduction = reduction_of(zero),
                           .values = zero->tables.values,
                           .value_dtype = other_than(types->gradient, types->value),
                           .update = update_tile,
                           .context = tiles};
    tiles->dtype = cz__zero_given_dtype(zero, kind);
    step.gradients.result = zero->parts ? zero->sources : NULL;
    if (step.gradients.result_dtype)
        step.gradients.result = zero->nowhere;
    return step;
}

static void count_whole_step(cz_zero *zero, cz__tiles *tiles, double start)
{
    cz__trace_count(&zero->trace, CZ_TRACE_REDUCE, cz__zero_traffic(zero, false));
    count_update(zero, tiles, start);
}

static cz_status step_in_one_pass(cz_zero *zero)
{
    cz__tiles tiles = cz__optim_tiles(zero->optim);
    const double start = cz__seconds();
    CZ_TRY(weigh(zero));
    CZ_TRY(make_steps(zero, whole_step_of, &tiles, "step"));
    count_whole_step(zero, &tiles, start);
    return CZ_OK;
}

/* ---- with the agreement ---- */

/* Does an update need to know more than its own elements? */
static bool waits(const cz_zero *zero)
{
    return zero->sums || cz__norm_is_wanted(zero->optim);
}

/* Larger steps agree on their own, which costs them nothing and tells how long ranks wait for each
 * other. */
static const int64_t SMALL_STEP_BYTES = (int64_t)1 << 20;

static bool is_small(const cz_zero *zero)
{
    const int64_t most = SMALL_STEP_BYTES / (int64_t)zero->element_size;
    int64_t elements = 0;
    for (int64_t p = 0; p < zero->param_count && elements <= most; p++)
        elements += zero->present[p] ? cz__shard_map_count(zero->map, p) : 0;
    return elements > 0 && elements <= most;
}

/* All weights are 0: of the ddp's pass, of the parts that were added here, or of ranks. */
static bool is_weightless(const cz_zero *zero)
{
    if (zero->ddp)
        return cz__ddp_weightless(zero->ddp);
    return zero->parts ? cz__parts_weightless(zero->parts) : zero->weightless;
}

bool cz__zero_keeps_means(const cz_zero *zero)
{
    return !zero->in_tiles || waits(zero);
}

bool cz__zero_can_step_at_once(const cz_zero *zero)
{
    return zero->in_tiles && !waits(zero) && cz__zero_only_kind(zero) >= 0 &&
           !cz__zero_has_weights(zero) && !is_weightless(zero) &&
           !cz__group_is_checked(zero->group) && !divides_by_active(zero) && is_small(zero);
}

cz_status cz__zero_step_at_once(cz_zero *zero, double start, const cz__ddp_opening *where,
                                uint64_t fingerprint, bool *same)
{
    const bool reduces = cz__zero_reduces(zero);
    cz__optim_take_means(zero->optim, cz__zero_has_means(zero));
    cz__tiles tiles = cz__optim_tiles(zero->optim);
    if (!reduces)
        place_results(zero);
    const int kind = cz__zero_only_kind(zero);
    cz__tiled_step step = (reduces ? whole_step_of : update_of)(zero, kind, zero->present, &tiles);
    if (where->group != zero->group)
        step.gradients.reserve = NULL; /* it is the other group's; nothing is done before this */
    CZ_TRY(cz__agree_on_step(where->group, &step, fingerprint, same, where->label));
    if (!*same)
        return CZ_OK;
    cz__trace_count(&zero->trace, CZ_TRACE_AGREE, 0);
    if (reduces)
        count_whole_step(zero, &tiles, start);
    else
        count_update(zero, &tiles, start);
    return CZ_OK;
}

/* ---- inside passes of a ddp ---- */

cz_status cz__overlap_check(const cz_zero *zero, cz_overlap overlap)
{
    if (overlap < CZ_OVERLAP_NONE || overlap > CZ_OVERLAP_STEP)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: option overlap is %d, wanted 0, 1 or 2",
                        (int)overlap);
    if (overlap && !zero->ddp)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: option overlap needs option ddp");
    if (zero->late && overlap != CZ_OVERLAP_INTERLEAVED)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "zero: option overlap_gather needs overlap CZ_OVERLAP_INTERLEAVED");
    const cz_rule *sums = cz__optim_any_rule(zero->optim, CZ__HAS_PARTIAL_SUMS);
    if (overlap == CZ_OVERLAP_INTERLEAVED && sums)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "zero: option overlap: rule %s has partial sums, which need all of a "
                        "parameter's gradient before its update; CZ_OVERLAP_STEP can do that",
                        sums->name);
    return CZ_OK;
}

/* ---- the step ---- */

static cz_status update_and_sync(cz_zero *zero, double factor)
{
    if (zero->in_tiles)
        return update_in_tiles(zero, factor);
    update(zero);
    return cz__zero_bring_values(zero);
}

static cz_status step_in_passes(cz_zero *zero, cz__step_outcome *outcome)
{
    look seen = {.factor = 1};
    place_results(zero);
    if (cz__zero_reduces(zero))
        CZ_TRY(zero->in_tiles && waits(zero) ? reduce_in_tiles(zero, &seen) : reduce(zero));
    CZ_TRY(judge(zero, &seen, outcome));
    outcome->skipped = outcome->skipped || is_weightless(zero);
    if (outcome->skipped)
        return CZ_OK;
    if (zero->sums)
        CZ_TRY(update_sums(zero, &seen));
    return update_and_sync(zero, seen.factor);
}

cz_status cz__zero_make_step(cz_zero *zero, cz__step_outcome *outcome)
{
    cz__optim_take_means(zero->optim, cz__zero_has_means(zero));
    CZ_TRY(take_share(zero));
    outcome->skipped = !zero->ddp && is_weightless(zero);
    if (outcome->skipped)
        return CZ_OK;
    return zero->in_tiles && cz__zero_reduces(zero) && !waits(zero) ? step_in_one_pass(zero)
                                                                    : step_in_passes(zero, outcome);
}
