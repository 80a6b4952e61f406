/* SPDX-License-Identifier: MIT */
/* A plan as an object: options checked as the training would check them, made, asked. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/float_mode.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "ddp/ddp.h"
#include "operation/size.h"
#include "parts/parts.h"
#include "plan/object.h"
#include "rule/rule.h"
#include "zero/deal.h"

enum { MOST_RANKS = 1 << 20 };

/* ---- options ---- */

const cz__option_table cz__plan_options = CZ__OPTION_TABLE(
    cz_plan_options,
    CZ__OPTION(cz_plan_options, world_size, CZ__LOCAL, CZ__BETWEEN(0, MOST_RANKS), CZ__ZERO_IS(1)),
    CZ__OPTION(cz_plan_options, unsharded, CZ__LOCAL, CZ__FLAG),
    CZ__OPTION(cz_plan_options, partition, CZ__LOCAL, CZ__BETWEEN(0, CZ_PARTITION_BUCKET_PIECES)),
    CZ__OPTION(cz_plan_options, ddp, CZ__LOCAL, CZ__FLAG),
    CZ__OPTION(cz_plan_options, overlap, CZ__LOCAL, CZ__BETWEEN(0, CZ_OVERLAP_STEP)),
    CZ__OPTION(cz_plan_options, all_reduce, CZ__LOCAL, CZ__FLAG),
    CZ__OPTION(cz_plan_options, views, CZ__LOCAL, CZ__FLAG),
    CZ__OPTION(cz_plan_options, wire, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_plan_options, bucket_bytes, CZ__LOCAL, CZ__FROM(0),
               CZ__ZERO_IS(CZ__BUCKET_BYTES)),
    CZ__OPTION(cz_plan_options, first_bucket_bytes, CZ__LOCAL, CZ__FROM(0),
               CZ__ZERO_IS(CZ__FIRST_BUCKET_BYTES)),
    CZ__OPTION(cz_plan_options, segment_bytes, CZ__LOCAL, CZ__FROM(0), .range.multiple = 64),
    CZ__OPTION(cz_plan_options, rule, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_plan_options, hypers, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_plan_options, in_process, CZ__LOCAL, CZ__FLAG),
    CZ__OPTION(cz_plan_options, parts, CZ__LOCAL, CZ__BETWEEN(0, CZ__MOST_LEAVES)),
    CZ__OPTION(cz_plan_options, average, CZ__LOCAL, CZ__FLAG),
    CZ__OPTION(cz_plan_options, reserved, CZ__LOCAL, CZ__RESERVED),
    CZ__OPTION(cz_plan_options, groups, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_plan_options, group_count, CZ__LOCAL, CZ__FROM(0)),
    CZ__OPTION(cz_plan_options, granule, CZ__LOCAL, CZ__FROM(CZ_GRANULE_WHOLE)));

static cz_status check_parts(const cz_plan_options *o)
{
    if (o->parts > 0 && o->parts < o->world_size)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "plan: option parts is %d, wanted at least %d, one for each rank", o->parts,
                        o->world_size);
    if (o->parts > 0 && o->wire)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "plan: options parts and wire: the result of a hook depends on the ranks");
    return CZ_OK;
}

static cz_status check_combination(const cz_plan_options *o)
{
    if (o->partition == CZ_PARTITION_GIVEN)
        return cz__fail(CZ_ERR_ARGUMENT, "plan: option partition: owners cannot be given here");
    if (o->unsharded && (o->overlap || o->views || o->partition))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "plan: options overlap, views and partition are a sharded optimizer's");
    if (o->wire && o->wire != CZ_F16 && o->wire != CZ_BF16)
        return cz__fail(CZ_ERR_ARGUMENT, "plan: option wire is %s, wanted f16 or bf16",
                        cz_dtype_name(o->wire));
    if (o->wire && !o->unsharded && !o->all_reduce)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "plan: option wire: the hooks that compress reduce whole buckets, and a "
                        "sharded optimizer takes slices; see option all_reduce");
    return check_parts(o);
}

static cz_status read_options(cz_plan *plan, const cz_plan_options *theirs)
{
    cz_plan_options *o = &plan->options;
    CZ_TRY(cz__options_read(o, &cz__plan_options, theirs, "plan"));
    CZ_TRY(check_combination(o));
    o->ddp = o->ddp || o->unsharded || o->overlap || o->all_reduce || o->wire ||
             o->partition >= CZ_PARTITION_BUCKETS;
    o->segment_bytes =
        o->segment_bytes ? o->segment_bytes : cz__default_segment_bytes(o->world_size);
    o->rule = o->rule ? o->rule : cz_rule_adamw();
    return CZ_OK;
}

/* ---- rules ---- */

/* How many slots are in use with these values? None depends on what has no default. */
static cz_status count_slots(const cz_plan *plan, const cz_rule *rule, const cz_hyper *hypers,
                             uint8_t *slots)
{
    CZ_TRY(cz__rule_check_table(rule));
    if (rule->sum_count > 0 && plan->options.overlap == CZ_OVERLAP_INTERLEAVED)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "plan: option overlap: rule %s has partial sums, which need all of a "
                        "parameter's gradient before its update; CZ_OVERLAP_STEP can do that",
                        rule->name);
    double *values = cz__calloc((size_t)rule->hyper_count, sizeof *values);
    if (!values)
        return cz__fail(CZ_ERR_MEMORY, "plan: no memory for %d hyper-parameters",
                        rule->hyper_count);
    cz__rule_defaults(rule, values);
    cz_status status = cz__rule_set_list(rule, values, hypers);
    for (int h = 0; h < rule->hyper_count; h++)
        if (isnan(values[h]))
            values[h] = cz__rule_hyper(rule, h).minimum > 0 ? cz__rule_hyper(rule, h).minimum : 0;
    if (!status)
        status = cz__rule_check(rule, values);
    *slots = 0;
    for (unsigned used = status ? 0 : cz__rule_element_slots(rule, values); used; used >>= 1)
        *slots += used & 1u;
    cz__free(values);
    return status;
}

/* The groups as they were given, and one of the other parameters. */
static void list_members(cz__plan_draft *d, int64_t g, const int64_t *params, int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        d->members[d->listed++] = params[k];
    d->group_sizes[g] = count;
}

static void list_others(cz__plan_draft *d)
{
    int64_t *size = &d->group_sizes[d->plan->options.group_count];
    for (int64_t p = 0; p < d->plan->param_count; p++)
        if (!d->group_of[p]) {
            d->members[d->listed++] = p;
            ++*size;
        }
}

static cz_status take_group(cz__plan_draft *d, int64_t g, const cz_param_group *group)
{
    cz_plan *plan = d->plan;
    const cz_rule *rule = group->rule ? group->rule : plan->options.rule;
    uint8_t slots;
    if (group->param_count < 0 || (group->param_count > 0 && !group->params))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "plan: parameter group %" PRId64 " has %" PRId64 " parameters%s", g,
                        group->param_count, group->params ? "" : " at NULL");
    CZ_TRY(count_slots(plan, rule, group->hypers, &slots));
    if (cz__has_16_bits(plan->dtype) &&
        cz__rule_takes_16_bits(rule) != cz__rule_takes_16_bits(plan->options.rule))
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "plan: parameter group %" PRId64 ": rule %s beside %s: rules that update "
                        "whole tensors have 16-bit values in an optimizer of their own",
                        g, rule->name, plan->options.rule->name);
    for (int64_t k = 0; k < group->param_count; k++) {
        const int64_t p = group->params[k];
        if (p < 0 || p >= plan->param_count || d->group_of[p])
            return cz__fail(CZ_ERR_ARGUMENT,
                            "plan: parameter group %" PRId64 " lists parameter %" PRId64 ", %s", g,
                            p,
                            p < 0 || p >= plan->param_count ? "which is not there"
                                                            : "which is in a group already");
        d->group_of[p] = g + 1;
        d->slots[p] = slots;
    }
    plan->rules[g] = (cz__plan_rule){rule, group->granule};
    list_members(d, g, group->params, group->param_count);
    return CZ_OK;
}

static cz_status take_rules(cz__plan_draft *d)
{
    cz_plan *plan = d->plan;
    const cz_plan_options *o = &plan->options;
    uint8_t slots;
    if (o->group_count > 0 && !o->groups)
        return cz__fail(CZ_ERR_ARGUMENT, "plan: %" PRId64 " parameter groups at NULL",
                        o->group_count);
    CZ_TRY(count_slots(plan, o->rule, o->hypers, &slots));
    plan->rules = cz__calloc((size_t)o->group_count, sizeof *plan->rules);
    d->group_sizes = cz__calloc((size_t)o->group_count + 1, sizeof *d->group_sizes);
    if (!plan->rules || !d->group_sizes)
        return cz__fail(CZ_ERR_MEMORY, "plan: no memory for %" PRId64 " parameter groups",
                        o->group_count);
    for (int64_t p = 0; p < plan->param_count; p++)
        d->slots[p] = slots;
    for (int64_t g = 0; g < o->group_count; g++) {
        cz_param_group group;
        CZ_TRY(cz__options_read_element(&group, &cz__param_group_options, o->groups, g, "plan"));
        CZ_TRY(take_group(d, g, &group));
    }
    list_others(d);
    const bool has_masters = cz__has_16_bits(plan->dtype) && !cz__rule_takes_16_bits(o->rule);
    plan->slot_size = has_masters ? sizeof(float) : plan->element_size;
    plan->common_slots = has_masters;
    if (o->average) /* in f32 at least */
        plan->common_slots += plan->slot_size < sizeof(float) ? 2 : 1;
    for (int64_t p = 0; p < plan->param_count; p++)
        plan->slots = d->slots[p] > plan->slots ? d->slots[p] : plan->slots;
    plan->slots += plan->common_slots;
    return CZ_OK;
}

/* ---- shapes ---- */

static cz_status allocate(cz__plan_draft *d)
{
    const size_t params = (size_t)d->plan->param_count;
    d->counts = cz__calloc(params, sizeof *d->counts);
    d->dtypes = cz__calloc(params, sizeof *d->dtypes);
    d->parts = cz__calloc(params, sizeof *d->parts);
    d->trains = cz__calloc(params, sizeof *d->trains);
    d->layout = cz__calloc(params, sizeof *d->layout);
    d->members = cz__calloc(params, sizeof *d->members);
    d->slots = cz__calloc(params, sizeof *d->slots);
    d->group_of = cz__calloc(params, sizeof *d->group_of);
    d->granules = cz__calloc(params, sizeof *d->granules);
    d->costs = cz__calloc(params, sizeof *d->costs);
    if (!d->counts || !d->dtypes || !d->parts || !d->trains || !d->layout || !d->members ||
        !d->slots || !d->group_of || !d->granules || !d->costs)
        return cz__fail(CZ_ERR_MEMORY, "plan: no memory for tables of %zu parameters", params);
    return CZ_OK;
}

static cz_status check_type(const cz__plan_draft *d, int64_t tensor)
{
    const cz_dtype dtype = (cz_dtype)d->shapes->dtypes[tensor];
    if (dtype == d->plan->dtype)
        return CZ_OK;
    return cz__fail(
        CZ_ERR_ARGUMENT,
        "plan: parameter '%s' is %s, the first one %s: an optimizer takes parameters of one type",
        d->shapes->other.text, cz_dtype_name(dtype), cz_dtype_name(d->plan->dtype));
}

/* As a parameter of this shape has it: no name is kept of it. */
static cz_status find_granule(cz__plan_draft *d, int64_t param, const cz_tensor *tensor)
{
    const cz_plan_options *o = &d->plan->options;
    const int64_t group = d->group_of[param] - 1;
    const cz__plan_rule its = group < 0 ? (cz__plan_rule){o->rule, 0} : d->plan->rules[group];
    d->granules[param] =
        cz__granule_of_both(cz__granule_of_both(cz__rule_granule(its.rule, tensor),
                                                cz__granule(its.granule, tensor), tensor),
                            cz__granule(o->granule, tensor), tensor);
    return cz__rule_cost(its.rule, tensor, "?", &d->costs[param]);
}

static cz_status fill_plan(cz__plan_draft *d)
{
    cz_plan *plan = d->plan;
    const int64_t *sizes = d->shapes->sizes;
    int64_t p = 0;
    CZ_TRY(allocate(d));
    plan->dtype = d->shapes->dtype;
    plan->element_size = cz_dtype_size(plan->dtype);
    CZ_TRY(take_rules(d));
    for (int64_t i = 0; i < d->shapes->count; i++) {
        const cz_shape_kind kind = (cz_shape_kind)d->shapes->kinds[i];
        cz_tensor tensor = {.dtype = (cz_dtype)d->shapes->dtypes[i],
                            .dimensions = d->shapes->dimensions[i]};
        for (int k = 0; k < tensor.dimensions; k++)
            tensor.shape[k] = *sizes++;
        if (kind == CZ_SHAPE_BUFFER)
            continue;
        CZ_TRY(find_granule(d, p, &tensor));
        CZ_TRY(check_type(d, i));
        d->counts[p] = d->shapes->elements[i];
        d->dtypes[p] = d->shapes->dtypes[i];
        d->trains[p] = kind == CZ_SHAPE_PARAM;
        d->parts[p] = kind == CZ_SHAPE_PARAM ? CZ__TRAINED : CZ__FROZEN;
        d->layout[p] = d->shapes->layout ? d->shapes->layout[p] : plan->param_count - 1 - p;
        p++;
    }
    if (plan->options.parts > 0 && plan->dtype != CZ_F32 && plan->dtype != CZ_F64)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "plan: option parts: parameters are %s, wanted f32 or f64",
                        cz_dtype_name(plan->dtype));
    return CZ_OK;
}

static void draft_clear(cz__plan_draft *d)
{
    cz__free(d->counts);
    cz__free(d->dtypes);
    cz__free(d->parts);
    cz__free(d->trains);
    cz__free(d->layout);
    cz__free(d->members);
    cz__free(d->slots);
    cz__free(d->group_of);
    cz__free(d->group_sizes);
    cz__free(d->granules);
    cz__free(d->costs);
    cz__free(d->begins);
    cz__free(d->params);
    cz__free(d->spans);
}

/* ---- made ---- */

static cz_status build_plan(cz__plan_draft *d, const cz_plan_options *options)
{
    cz_plan *plan = d->plan;
    if (!d->shapes)
        return cz__fail(CZ_ERR_ARGUMENT, "plan: shapes is NULL");
    CZ_TRY(read_options(plan, options));
    memcpy(plan->shapes, d->shapes->sums, sizeof plan->shapes);
    plan->param_count = plan->shapes[CZ_SHAPE_PARAM].count + plan->shapes[CZ_SHAPE_FROZEN].count;
    if (plan->shapes[CZ_SHAPE_PARAM].count == 0)
        return cz__fail(CZ_ERR_ARGUMENT, "plan: no trainable parameter among %" PRId64 " tensors",
                        d->shapes->count);
    for (int k = 0; k < CZ__SHAPE_KINDS; k++)
        plan->name_bytes += plan->shapes[k].name_bytes;
    CZ_TRY(fill_plan(d));
    if (plan->options.ddp)
        CZ_TRY(cz__plan_buckets(d));
    return cz__plan_cuts(d);
}

cz_status cz_plan_create(cz_plan **out, const cz_shapes *shapes, const cz_plan_options *options)
{
    CZ__OWN_FLOATS;
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "plan: out is NULL");
    *out = cz__calloc(1, sizeof **out);
    if (!*out)
        return cz__fail(CZ_ERR_MEMORY, "plan: no memory for a handle");
    cz__plan_draft draft = {.plan = *out, .shapes = shapes};
    const cz_status status = build_plan(&draft, options);
    draft_clear(&draft);
    if (status != CZ_OK)
        cz_plan_destroy(out);
    return status;
}

void cz_plan_destroy(cz_plan **plan)
{
    if (!plan || !*plan)
        return;
    cz__plan_ranks *ranks = &(*plan)->ranks;
    cz__free((*plan)->rules);
    cz__free(ranks->columns);
    cz__free(ranks->saved);
    cz__free(ranks->slotted);
    cz__free(ranks->spans);
    cz__free(ranks->reduced);
    cz__free(ranks->buffers);
    cz__free(*plan);
    *plan = NULL;
}

/* ---- asked ---- */

/* The numbers of a result after its size, of which an older program knows the first ones. */
static cz_status give(cz_plan_memory *to, const cz_plan_memory *from)
{
    return cz__options_write(to, from, sizeof *from, "cz_plan_memory");
}

cz_status cz_plan_rank(const cz_plan *plan, int rank, cz_plan_memory *memory)
{
    CZ__OWN_FLOATS;
    cz_plan_memory own = CZ_PLAN_MEMORY_INIT;
    if (!plan || !memory)
        return cz__fail(CZ_ERR_ARGUMENT, "plan rank: %s is NULL", plan ? "memory" : "plan");
    if (rank == CZ_PLAN_ALONE) {
        cz__plan_alone(plan, &own);
        return give(memory, &own);
    }
    if (rank < 0 || rank >= plan->options.world_size)
        return cz__fail(CZ_ERR_ARGUMENT, "plan rank: rank %d of %d", rank,
                        (int)plan->options.world_size);
    cz__plan_memory(plan, rank, &own);
    return give(memory, &own);
}

enum { NUMBERS = (sizeof(cz_plan_memory) - sizeof(size_t)) / sizeof(uint64_t) };

typedef union numbers {
    cz_plan_memory memory;
    struct {
        size_t size;
        uint64_t of[NUMBERS];
    };
} numbers;

/* Over ranks. The mean is made of quotients and remainders: the sum may be more than a number
 * holds. */
typedef struct tally {
    numbers least, most, mean, sum;
    uint64_t remainders[NUMBERS]; /* of the mean, each below the number of ranks */
} tally;

static void count_in(tally *t, const numbers *one, uint64_t ranks)
{
    for (int k = 0; k < NUMBERS; k++) {
        const uint64_t n = one->of[k];
        t->least.of[k] = n < t->least.of[k] ? n : t->least.of[k];
        t->most.of[k] = n > t->most.of[k] ? n : t->most.of[k];
        t->sum.of[k] = cz__plan_plus(t->sum.of[k], n);
        t->remainders[k] += n % ranks;
        t->mean.of[k] += n / ranks + t->remainders[k] / ranks;
        t->remainders[k] %= ranks;
    }
}

cz_status cz_plan_ranks(const cz_plan *plan, cz_plan_memory *least, cz_plan_memory *most,
                        cz_plan_memory *mean, cz_plan_memory *sum)
{
    CZ__OWN_FLOATS;
    const numbers none = {.memory = CZ_PLAN_MEMORY_INIT};
    tally t = {none, none, none, none, {0}};
    numbers one = none;
    if (!plan)
        return cz__fail(CZ_ERR_ARGUMENT, "plan ranks: plan is NULL");
    for (int k = 0; k < NUMBERS; k++)
        t.least.of[k] = UINT64_MAX;
    for (int r = 0; r < plan->options.world_size; r++) {
        cz__plan_memory(plan, r, &one.memory);
        count_in(&t, &one, (uint64_t)plan->options.world_size);
    }
    if (least)
        CZ_TRY(give(least, &t.least.memory));
    if (most)
        CZ_TRY(give(most, &t.most.memory));
    if (sum)
        CZ_TRY(give(sum, &t.sum.memory));
    return mean ? give(mean, &t.mean.memory) : CZ_OK;
}

int cz__plan_bucket_count(const cz_plan *plan)
{
    return plan ? plan->bucket_count : 0;
}

cz_status cz_plan_get_info(const cz_plan *plan, cz_plan_info *info)
{
    if (!plan || !info)
        return cz__fail(CZ_ERR_ARGUMENT, "plan get_info: %s is NULL", plan ? "info" : "plan");
    cz_plan_info ours = {.world_size = plan->options.world_size,
                         .bucket_count = plan->bucket_count};
    for (int k = 0; k < CZ__SHAPE_KINDS; k++) {
        ours.tensors[k] = plan->shapes[k].count;
        ours.elements[k] = plan->shapes[k].elements;
    }
    return cz__options_write(info, &ours, sizeof ours, "cz_plan_info");
}
