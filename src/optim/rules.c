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
    return (cz__widths){.slots = optim->rule_slots,
                        .scalars = optim->rule_scalars,
                        .sums = optim->sum_count,
                        .hypers = optim->hyper_room,
                        .has_masters = optim->master_slot >= 0,
                        .has_averages = optim->average_slot >= 0};
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
    widths->has_averages = optim->has_averages;
    widths->has_masters =
        widths->has_masters || (optim->is_narrow && !cz__rule_takes_16_bits(use->rule));
}

static bool are_equal(const cz__widths *a, const cz__widths *b)
{
    return a->slots == b->slots && a->scalars == b->scalars && a->sums == b->sums &&
           a->hypers == b->hypers && a->has_masters == b->has_masters &&
           a->has_averages == b->has_averages;
}

/* Where in a row they are; -1: there is none. */
static int place_of_masters(const cz__widths *widths)
{
    return widths->has_masters ? widths->slots : -1;
}

static int place_of_averages(const cz__widths *widths)
{
    return widths->has_averages ? widths->slots + widths->has_masters : -1;
}

static int all_slots(const cz__widths *widths)
{
    return widths->slots + widths->has_masters + widths->has_averages;
}

static int all_scalars(const cz__widths *widths)
{
    return widths->scalars + widths->has_averages;
}

static cz_status check_name(const cz_rule *rule, const char *name, const char *what)
{
    for (int i = 0; i < rule->slot_count; i++)
        if (strcmp(cz__rule_slot(rule, i).name, name) == 0)
            return cz__fail(CZ_ERR_UNSUPPORTED,
                            "optim: rule %s has a slot '%s', which is the name of that of %s",
                            rule->name, name, what);
    return CZ_OK;
}

/* Is there room, and no other slot of these names? */
static cz_status check_added(const cz_rule *rule, const cz__widths *widths)
{
    const bool averages = widths->slots + widths->has_masters < CZ__RULE_SLOTS;
    if (widths->has_masters && !cz__rule_takes_16_bits(rule))
        CZ_TRY(check_name(rule, CZ__MASTER, "masters of 16-bit values"));
    if (widths->has_averages) {
        CZ_TRY(check_name(rule, CZ__AVERAGE, "averages"));
        CZ_TRY(check_name(rule, CZ__AVERAGED, "counts of averaged values"));
    }
    if (all_slots(widths) > CZ__RULE_SLOTS)
        return cz__fail(CZ_ERR_UNSUPPORTED, "optim: rule %s has %d slots, and none is left for %s",
                        rule->name, widths->slots,
                        averages ? "averages" : "masters of 16-bit values");
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
    *t = (tables){.scalars = cz__calloc(params * (size_t)all_scalars(widths), sizeof *t->scalars),
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

/* Columns of a row, and where in it what is not a rule's is; -1: nowhere. */
typedef struct row {
    int rule, all;
    int added[2];
} row;

static row row_of_slots(const cz__widths *widths)
{
    return (row){
        widths->slots, all_slots(widths), {place_of_masters(widths), place_of_averages(widths)}};
}

static row row_of_scalars(const cz__widths *widths)
{
    return (row){
        widths->scalars, all_scalars(widths), {-1, widths->has_averages ? widths->scalars : -1}};
}

enum { COLUMN = 8 }; /* bytes of a scalar, and of the address of a slot */
_Static_assert(sizeof(double) == COLUMN && sizeof(void *) == COLUMN, "rows are moved as one");

static void move_row(char *to, const row *after, const char *from, const row *before)
{
    char added[2][COLUMN] = {{0}};
    const int common = after->rule < before->rule ? after->rule : before->rule;
    for (int k = 0; k < 2; k++)
        if (before->added[k] >= 0)
            memcpy(added[k], from + before->added[k] * COLUMN, COLUMN);
    if (common > 0)
        memmove(to, from, (size_t)common * COLUMN);
    for (int k = 0; k < 2; k++)
        if (after->added[k] >= 0)
            memcpy(to + after->added[k] * COLUMN, added[k], COLUMN);
}

/* Rows of another width, also to narrower ones where they are. */
static void move_rows(void *to, const row *after, const void *from, const row *before, int64_t rows)
{
    for (int64_t r = 0; r < rows && after->all > 0; r++)
        move_row((char *)to + r * after->all * COLUMN, after,
                 (const char *)from + r * before->all * COLUMN, before);
}

/* Bits of slots are columns, too. */
static void move_bits(unsigned *bits, const row *after, const row *before)
{
    unsigned moved = *bits & ((1u << before->rule) - 1);
    for (int k = 0; k < 2; k++)
        if (before->added[k] >= 0 && after->added[k] >= 0)
            moved |= (*bits >> before->added[k] & 1u) << after->added[k];
    *bits = moved;
}

static void move_all_bits(cz_optim *optim, const row *after, const row *before)
{
    for (int64_t p = 0; p < optim->param_count; p++)
        move_bits(&optim->used[p], after, before);
    for (int64_t s = 0; s < optim->shard.span_count; s++)
        move_bits(&optim->shard.spans[s].slots, after, before);
    for (int64_t g = 0; g < optim->group_count; g++) {
        move_bits(&optim->groups[g].slots_used, after, before);
        move_bits(&optim->groups[g].slots_wanted, after, before);
    }
}

static void adopt_widths(cz_optim *optim, const cz__widths *after)
{
    const cz__widths widths = present_widths(optim);
    const row before = row_of_slots(&widths), slots = row_of_slots(after);
    move_all_bits(optim, &slots, &before);
    optim->rule_slots = after->slots;
    optim->slot_count = all_slots(after);
    optim->master_slot = place_of_masters(after);
    optim->average_slot = place_of_averages(after);
    optim->rule_scalars = after->scalars;
    optim->scalar_count = all_scalars(after);
    optim->sum_count = after->sums;
    optim->hyper_room = after->hypers;
}

static void move_tables(const cz_optim *optim, const cz__widths *after, double *scalars,
                        void **slots)
{
    const cz__widths widths = present_widths(optim);
    const row slots_before = row_of_slots(&widths), slots_after = row_of_slots(after);
    const row scalars_before = row_of_scalars(&widths), scalars_after = row_of_scalars(after);
    move_rows(scalars, &scalars_after, optim->scalars, &scalars_before, optim->param_count);
    move_rows(slots, &slots_after, optim->shard.slots, &slots_before, optim->shard.span_count);
}

static cz_status widen(cz_optim *optim, const cz__widths *after)
{
    tables t;
    CZ_TRY(allocate_tables(optim, after, &t));
    move_tables(optim, after, t.scalars, t.slots);
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
    move_tables(optim, after, optim->scalars, optim->shard.slots);
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
    CZ_TRY(check_added(rule, &after));
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
