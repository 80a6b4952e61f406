/* SPDX-License-Identifier: MIT */
/* The rules of an optimizer. Each group has one; tables with a row for each parameter or span are
 * as wide as the widest rule needs, and are made anew when a wider one comes with a group. */
#include <string.h>

#include "base/kernel_threads.h"
#include "base/memory.h"
#include "base/status.h"
#include "optim/object.h"

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* ---- one rule ---- */

static cz__rule_use use_of(const cz_rule *rule)
{
    cz__rule_use use = {.rule = rule};
    for (int i = 0; i < rule->slot_count; i++) {
        const cz_slot_spec slot = cz__rule_slot(rule, i);
        if (cz__slot_is_step(slot))
            use.counts_steps = true;
        else
            *(slot.kind == CZ_SLOT_ELEMENT ? &use.slot_count : &use.scalar_count) += 1;
    }
    return use;
}

/* ---- widths ---- */

static cz__widths present_widths(const cz_optim *optim)
{
    return (cz__widths){.slots = cz__optim_rule_slots(optim),
                        .scalars = optim->scalar_count,
                        .sums = optim->sum_count,
                        .hypers = optim->hyper_room,
                        .has_masters = optim->master_slot >= 0};
}

/* Functions of the program's run on threads of ours only where it says so. */
static void settle_threads(cz_optim *optim)
{
    optim->alone = false;
    for (int k = 0; k < optim->rule_count; k++) {
        const cz_rule *rule = optim->rules[k].rule;
        if ((rule->find_kernel || rule->update_tensor) && !optim->threads_asked)
            optim->alone = true;
    }
}

/* Values of 16 bits have masters where kernels update them. */
static void include_rule(const cz_optim *optim, const cz__rule_use *use, cz__widths *widths)
{
    widths->slots = larger(widths->slots, use->slot_count);
    widths->scalars = larger(widths->scalars, use->scalar_count);
    widths->sums = larger(widths->sums, use->rule->sum_count);
    widths->hypers = larger(widths->hypers, use->rule->hyper_count);
    widths->has_masters =
        widths->has_masters || (optim->is_narrow && !cz__rule_takes_16_bits(use->rule));
}

static bool are_equal(const cz__widths *a, const cz__widths *b)
{
    return a->slots == b->slots && a->scalars == b->scalars && a->sums == b->sums &&
           a->hypers == b->hypers && a->has_masters == b->has_masters;
}

static int all_slots(const cz__widths *widths)
{
    return widths->slots + widths->has_masters;
}

static cz_status check_masters(const cz_rule *rule, const cz__widths *widths)
{
    if (!widths->has_masters)
        return CZ_OK;
    for (int i = 0; i < rule->slot_count && !cz__rule_takes_16_bits(rule); i++)
        if (strcmp(cz__rule_slot(rule, i).name, CZ__MASTER) == 0)
            return cz__fail(CZ_ERR_UNSUPPORTED,
                            "optim: rule %s has a slot '%s', which is the name of that of masters "
                            "of 16-bit values",
                            rule->name, CZ__MASTER);
    if (all_slots(widths) > CZ__RULE_SLOTS)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "optim: rule %s has %d slots, and none is left for masters of 16-bit "
                        "values",
                        rule->name, widths->slots);
    return CZ_OK;
}

/* ---- tables ---- */

/* What has rows of some width. */
typedef struct tables {
    double *scalars, *sum_values, *values;
    void **slots;
    cz_sum *sums, *part_sums;
    cz__prepared *prepared;
} tables;

static void free_tables(tables *t)
{
    cz__free(t->scalars);
    cz__free(t->sum_values);
    cz__free(t->values);
    cz__free(t->slots);
    cz__free(t->sums);
    cz__free(t->part_sums);
    cz__free(t->prepared);
}

static cz_status allocate_tables(const cz_optim *optim, const cz__widths *widths, tables *t)
{
    const size_t params = (size_t)optim->param_count, spans = (size_t)optim->shard.span_count;
    const size_t sums = (size_t)widths->sums;
    const size_t parts =
        optim->kernel_threads ? (size_t)cz__kernel_threads_parts(optim->kernel_threads) : 0;
    *t = (tables){.scalars = cz__calloc(params * (size_t)widths->scalars, sizeof *t->scalars),
                  .sum_values = cz__calloc(params * sums, sizeof *t->sum_values),
                  .values = cz__calloc((size_t)widths->hypers, sizeof *t->values),
                  .slots = cz__calloc(spans * (size_t)all_slots(widths), sizeof *t->slots),
                  .sums = cz__calloc(spans * sums, sizeof *t->sums),
                  .part_sums =
                      cz__calloc(parts * (size_t)larger(widths->sums, 1), sizeof *t->part_sums),
                  .prepared = cz__calloc(sums > 0 ? spans : 0, sizeof *t->prepared)};
    if (t->scalars && t->sum_values && t->values && t->slots && t->sums && t->part_sums &&
        t->prepared)
        return CZ_OK;
    free_tables(t);
    return cz__fail(CZ_ERR_MEMORY, "optim: no memory for tables of %zu parameters", params);
}

/* Rows of another width, also where they are. */
static void move_scalars(double *to, int to_width, const double *from, int from_width, int64_t rows)
{
    const int common = to_width < from_width ? to_width : from_width;
    for (int64_t r = 0; r < rows && common > 0; r++)
        memmove(to + r * to_width, from + r * from_width, (size_t)common * sizeof *to);
}

/* The same; the slot of masters is the last one. */
static void move_slots(void **to, const cz__widths *after, void **from, const cz__widths *before,
                       int64_t rows)
{
    const int to_width = all_slots(after), from_width = all_slots(before);
    const int common = after->slots < before->slots ? after->slots : before->slots;
    for (int64_t r = 0; r < rows; r++) {
        if (common > 0)
            memmove(to + r * to_width, from + r * from_width, (size_t)common * sizeof *to);
        if (after->has_masters && before->has_masters)
            to[r * to_width + after->slots] = from[r * from_width + before->slots];
    }
}

static void move_bit(unsigned *bits, int from, int to)
{
    const unsigned bit = *bits >> from & 1u;
    *bits = (*bits & ~(1u << from)) | bit << to;
}

static void move_master_bits(cz_optim *optim, int from, int to)
{
    for (int64_t p = 0; p < optim->param_count; p++)
        move_bit(&optim->used[p], from, to);
    for (int64_t s = 0; s < optim->shard.span_count; s++)
        move_bit(&optim->shard.spans[s].slots, from, to);
    for (int64_t g = 0; g < optim->group_count; g++) {
        move_bit(&optim->groups[g].slots_used, from, to);
        move_bit(&optim->groups[g].slots_wanted, from, to);
    }
}

static void adopt_widths(cz_optim *optim, const cz__widths *after)
{
    const cz__widths before = present_widths(optim);
    if (before.has_masters && after->has_masters && before.slots != after->slots)
        move_master_bits(optim, before.slots, after->slots);
    optim->slot_count = all_slots(after);
    optim->master_slot = after->has_masters ? after->slots : -1;
    optim->scalar_count = after->scalars;
    optim->sum_count = after->sums;
    optim->hyper_room = after->hypers;
}

static cz_status widen(cz_optim *optim, const cz__widths *after)
{
    const cz__widths before = present_widths(optim);
    tables t;
    CZ_TRY(allocate_tables(optim, after, &t));
    move_scalars(t.scalars, after->scalars, optim->scalars, before.scalars, optim->param_count);
    move_slots(t.slots, after, optim->shard.slots, &before, optim->shard.span_count);
    tables old = {.scalars = optim->scalars,
                  .sum_values = optim->sum_values,
                  .values = optim->values,
                  .slots = optim->shard.slots,
                  .sums = optim->shard.sums,
                  .part_sums = optim->part_sums,
                  .prepared = optim->shard.prepared};
    free_tables(&old);
    optim->scalars = t.scalars;
    optim->sum_values = t.sum_values;
    optim->values = t.values;
    optim->shard.slots = t.slots;
    optim->shard.sums = t.sums;
    optim->part_sums = t.part_sums;
    optim->shard.prepared = t.prepared;
    adopt_widths(optim, after);
    return CZ_OK;
}

/* In the same memory. What else has rows is written anew by each step. */
static void narrow(cz_optim *optim, const cz__widths *after)
{
    const cz__widths before = present_widths(optim);
    move_scalars(optim->scalars, after->scalars, optim->scalars, before.scalars,
                 optim->param_count);
    move_slots(optim->shard.slots, after, optim->shard.slots, &before, optim->shard.span_count);
    adopt_widths(optim, after);
}

/* ---- taken, and left ---- */

static int find_use(const cz_optim *optim, const cz_rule *rule)
{
    for (int k = 0; k < optim->rule_count; k++)
        if (optim->rules[k].rule == rule)
            return k;
    return -1;
}

static cz_status add_use(cz_optim *optim, const cz_rule *rule)
{
    const cz__rule_use use = use_of(rule);
    const cz__widths before = present_widths(optim);
    cz__widths after = before;
    include_rule(optim, &use, &after);
    CZ_TRY(check_masters(rule, &after));
    const size_t count = (size_t)optim->rule_count;
    cz__rule_use *rules = cz__calloc(count + 1, sizeof *rules);
    if (!rules)
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory for rule %s", rule->name);
    const bool fits = optim->rule_count > 0 && are_equal(&before, &after);
    const cz_status status = fits ? CZ_OK : widen(optim, &after);
    if (status) {
        cz__free(rules);
        return status;
    }
    if (count > 0)
        memcpy(rules, optim->rules, count * sizeof *rules);
    rules[count] = use;
    cz__free(optim->rules);
    optim->rules = rules;
    optim->rule_count++;
    settle_threads(optim);
    return CZ_OK;
}

cz_status cz__optim_take_rule(cz_optim *optim, cz__optim_group *group)
{
    int use = find_use(optim, group->rule);
    if (use < 0) {
        CZ_TRY(add_use(optim, group->rule));
        use = optim->rule_count - 1;
    }
    group->use = use;
    optim->rules[use].group_count++;
    return CZ_OK;
}

/* A rule that only the last group has is the last one. */
void cz__optim_leave_rule(cz_optim *optim, cz__optim_group *group)
{
    cz__widths widths = {0};
    if (--optim->rules[group->use].group_count > 0)
        return;
    optim->rule_count--;
    for (int k = 0; k < optim->rule_count; k++)
        include_rule(optim, &optim->rules[k], &widths);
    narrow(optim, &widths);
    settle_threads(optim);
}

/* ---- kernels ---- */

cz_status cz__optim_find_kernels(cz_optim *optim, int64_t param)
{
    cz__rule_use *use = &optim->rules[optim->groups[optim->group_of[param]].use];
    const cz_rule *rule = use->rule;
    const cz_device *device = optim->device;
    const cz_dtype type = optim->dtype;
    if (rule->update_tensor || use->kernel)
        return CZ_OK;
    use->kernel = rule->find_kernel ? rule->find_kernel(device, type, type, type, rule->context)
                                    : device->find_update(rule->name, type, type, type);
    if (rule->sum_count > 0)
        use->sums_kernel = rule->find_sums(device, type, type, type, rule->context);
    if (!use->kernel || (rule->sum_count > 0 && !use->sums_kernel))
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "optim: parameter '%s': device %s has no kernel of rule %s for %s%s",
                        cz__model_name(optim->model, param), device->name, rule->name,
                        cz_dtype_name(type), use->kernel ? "'s partial sums" : "");
    return CZ_OK;
}
