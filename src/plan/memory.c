/* SPDX-License-Identifier: MIT */
/* What a rank allocates: the sizes that the parts of the library give, put together. */
#include <string.h>

#include "ddp/ddp.h"
#include "group/collective.h"
#include "operation/size.h"
#include "interop/shapes.h"
#include "optim/optim.h"
#include "parts/parts.h"
#include "plan/object.h"
#include "rule/rule.h"
#include "shard/shard.h"
#include "tensor/model.h"
#include "zero/zero.h"

/* For each parameter: what ranks compare, with room to grow; an entry of a state dictionary and its
 * names. */
enum { DESCRIBED_BYTES = 64, ENTRY_BYTES = 450, ENTRY_SLOT_BYTES = 130 };

static uint64_t param_bytes(const cz_plan *plan)
{
    return plan->shapes[CZ_SHAPE_PARAM].bytes + plan->shapes[CZ_SHAPE_FROZEN].bytes;
}

/* Elements with slot k that are a rank's; ALL: of all ranks. */
enum { ALL = -1 };
static uint64_t slot_elements(const cz_plan *plan, int k, int rank)
{
    const int64_t row = (int64_t)k * (plan->options.world_size + 1);
    return (uint64_t)(rank == ALL ? plan->elements[k] : plan->ranks.columns[row + rank]);
}

static uint64_t state_bytes(const cz_plan *plan, int rank)
{
    uint64_t bytes = 0;
    for (int k = 0; k < plan->slots; k++)
        bytes += cz__slot_bytes((size_t)slot_elements(plan, k, rank) * plan->slot_size);
    return bytes;
}

/* The same without gaps. */
static uint64_t slot_elements_bytes(const cz_plan *plan, int rank)
{
    uint64_t bytes = 0;
    for (int k = 0; k < plan->slots; k++)
        bytes += slot_elements(plan, k, rank) * plan->slot_size;
    return bytes;
}

/* ---- staging ---- */

static size_t staging_of(const cz_plan *plan, size_t longest)
{
    const cz_plan_options *o = &plan->options;
    return o->in_process ? 0 : cz__staging_of(o->world_size, o->segment_bytes, longest);
}

/* The block that the group keeps of it. */
static size_t kept_staging(const cz_plan *plan, size_t longest)
{
    return plan->options.in_process ? 0 : cz__staging_class(staging_of(plan, longest));
}

static size_t pool(const cz_plan *plan, size_t longest)
{
    return cz__pool_plan(plan->options.world_size, plan->options.segment_bytes, longest,
                         plan->bucket_count);
}

/* Of a reduction, with its terms. */
static size_t reduced(const cz_plan *plan, size_t longest)
{
    const cz__leaves leaves = cz__plan_leaves(plan);
    return cz__leaves_longest(&leaves, longest);
}

/* Of the passes of a data-parallel model. */
static uint64_t pass_staging(const cz_plan *plan)
{
    const cz_plan_options *o = &plan->options;
    const bool interleaved = o->overlap == CZ_OVERLAP_INTERLEAVED, hook = o->wire;
    if (o->in_process)
        return 0;
    uint64_t bytes = hook ? plan->hook_staging : pool(plan, reduced(plan, plan->longest));
    if (interleaved)
        bytes += hook || o->all_reduce ? plan->value_staging : pool(plan, plan->longest);
    return bytes;
}

static uint64_t staging(const cz_plan *plan)
{
    const size_t longest = cz__zero_longest((size_t)param_bytes(plan));
    uint64_t bytes = plan->options.ddp ? pass_staging(plan) : 0;
    if (!plan->options.unsharded)
        bytes += staging_of(plan, plan->options.ddp ? longest : reduced(plan, longest));
    return bytes;
}

/* ---- tables ---- */

static uint64_t ddp_tables(const cz_plan *plan)
{
    const cz_plan_options *o = &plan->options;
    const bool twice = o->wire != 0; /* a hook starts another operation */
    const int works = 1 + twice + (o->overlap == CZ_OVERLAP_INTERLEAVED);
    return cz__ddp_bytes(plan->param_count, plan->bucket_count) +
           cz__even_map_bytes(plan->param_count, plan->bucket_count) +
           2 * cz__group_bytes(o->world_size, false, o->in_process) +
           (uint64_t)works * (uint64_t)plan->bucket_count *
               cz__work_bytes(o->world_size, o->in_process) +
           (uint64_t)plan->param_count * DESCRIBED_BYTES;
}

/* Tables are as wide as the widest rule needs. */
static uint64_t optim_bytes(const cz_plan *plan, int64_t spans)
{
    const cz_plan_options *o = &plan->options;
    uint64_t most = cz__optim_bytes(o->rule, o->average, plan->param_count, spans);
    for (int64_t g = 0; g < o->group_count; g++) {
        const uint64_t bytes =
            cz__optim_bytes(plan->rules[g].rule, o->average, plan->param_count, spans);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static uint64_t zero_tables(const cz_plan *plan, int rank)
{
    const cz_plan_options *o = &plan->options;
    return cz__zero_bytes(plan->param_count) + plan->map_bytes +
           optim_bytes(plan, plan->ranks.spans[rank]) +
           cz__work_bytes(o->world_size, o->in_process) +
           (uint64_t)plan->param_count * DESCRIBED_BYTES;
}

static uint64_t optim_tables(const cz_plan *plan)
{
    return optim_bytes(plan, plan->param_count) + cz__owner_table_bytes(1, plan->param_count) +
           (uint64_t)plan->param_count * sizeof(void *);
}

static uint64_t model_tables(const cz_plan *plan)
{
    return cz__model_bytes(plan->param_count, plan->shapes[CZ_SHAPE_BUFFER].count,
                           plan->name_bytes);
}

static uint64_t tables(const cz_plan *plan, int rank)
{
    uint64_t bytes = model_tables(plan) +
                     cz__group_bytes(plan->options.world_size, true, plan->options.in_process);
    const cz__leaves leaves = cz__plan_leaves(plan);
    bytes += plan->options.ddp ? ddp_tables(plan) : 0;
    bytes += plan->options.parts > 0 ? cz__parts_bytes(&leaves, rank, plan->param_count) : 0;
    return bytes + (plan->options.unsharded ? optim_tables(plan) : zero_tables(plan, rank));
}

/* ---- beside training ---- */

static cz__save_shape save_shape(const cz_plan *plan, uint64_t elements_bytes, int64_t spans)
{
    return (cz__save_shape){.elements_bytes = elements_bytes,
                            .pieces = spans * (1 + plan->slots),
                            .tensors = plan->param_count + plan->shapes[CZ_SHAPE_BUFFER].count,
                            .slots = plan->slots,
                            .name_bytes = plan->name_bytes};
}

static uint64_t file_bytes(const cz_plan *plan, int rank)
{
    const uint64_t saved = (uint64_t)plan->ranks.saved[rank];
    return saved * plan->element_size + slot_elements_bytes(plan, rank) +
           (uint64_t)plan->ranks.buffers[rank];
}

static size_t count_scalars(const cz_rule *rule)
{
    size_t count = 0;
    for (int i = 0; i < rule->slot_count; i++) {
        const cz_slot_spec slot = cz__rule_slot(rule, i);
        count += slot.kind == CZ_SLOT_SCALAR && strcmp(slot.name, "step") != 0;
    }
    return count;
}

/* How far each parameter is, and the reduction that finds it out, whose staging memory is kept. */
static uint64_t progress(const cz_plan *plan)
{
    const size_t before = 2 + (plan->options.average != 0);
    size_t words = before + count_scalars(plan->options.rule);
    for (int64_t g = 0; g < plan->options.group_count; g++) {
        const size_t its = before + count_scalars(plan->rules[g].rule);
        words = its > words ? its : words;
    }
    const size_t bytes = (size_t)plan->param_count * words * sizeof(int64_t);
    return plan->options.unsharded
               ? 0
               : 2 * bytes +
                     kept_staging(plan, cz__all_reduce_longest(bytes, plan->options.world_size));
}

static void plan_files(const cz_plan *plan, int rank, cz_plan_memory *m)
{
    m->file_bytes = file_bytes(plan, rank);
    const cz__save_shape shape = save_shape(plan, m->file_bytes, plan->ranks.spans[rank]);
    m->save_bytes = cz__save_memory(&shape) + progress(plan);
    m->async_save_bytes = m->save_bytes + m->file_bytes;
    m->export_bytes = cz__export_memory(&shape) + progress(plan);
}

static uint64_t dict_bytes(const cz_plan *plan)
{
    const uint64_t entry = ENTRY_BYTES + (uint64_t)plan->slots * ENTRY_SLOT_BYTES;
    return slot_elements_bytes(plan, ALL) + (uint64_t)plan->param_count * entry + plan->name_bytes;
}

static void plan_consolidation(const cz_plan *plan, int rank, cz_plan_memory *m)
{
    const size_t bytes = (size_t)plan->shapes[CZ_SHAPE_PARAM].elements * plan->slot_size;
    const uint64_t lists = progress(plan) + (uint64_t)plan->param_count * 40;
    const uint64_t windows = plan->slots > 0 ? 2 * (uint64_t)cz__move_window(bytes) : 0;
    if (plan->options.unsharded)
        return;
    m->consolidate_bytes = windows + lists + (rank == 0 ? dict_bytes(plan) : 0);
    m->consolidate_all_bytes =
        dict_bytes(plan) + lists + (plan->slots > 0 ? kept_staging(plan, bytes) : 0);
}

/* ---- together ---- */

static void add_up(cz_plan_memory *m)
{
    m->training_bytes = m->param_bytes + m->buffer_bytes + m->gradient_bytes + m->state_bytes +
                        m->view_bytes + m->hook_bytes + m->part_bytes + m->staging_bytes +
                        m->table_bytes;
}

/* What a rank of so many keeps of gradients that it has added up. */
static uint64_t kept_bytes(const cz_plan *plan, int rank, int world_size)
{
    const cz__leaves leaves = {plan->options.parts, world_size};
    return plan->options.parts > 0
               ? (uint64_t)cz__leaves_kept(&leaves, rank) * plan->shapes[CZ_SHAPE_PARAM].bytes
               : 0;
}

/* Of the program, and what does not depend on the rank. */
static void plan_model(const cz_plan *plan, cz_plan_memory *m)
{
    m->param_bytes = param_bytes(plan);
    m->buffer_bytes = plan->shapes[CZ_SHAPE_BUFFER].bytes;
    m->gradient_bytes = plan->shapes[CZ_SHAPE_PARAM].bytes;
}

void cz__plan_memory(const cz_plan *plan, int rank, cz_plan_memory *m)
{
    const cz_plan_options *o = &plan->options;
    plan_model(plan, m);
    m->state_bytes = state_bytes(plan, o->unsharded ? ALL : rank);
    m->view_bytes = o->views ? m->param_bytes : 0;
    m->hook_bytes = o->wire ? plan->bucket_bytes : 0;
    if (o->wire && o->wire != plan->dtype)
        m->hook_bytes += (uint64_t)plan->shapes[CZ_SHAPE_PARAM].elements * cz_dtype_size(o->wire);
    m->part_bytes = kept_bytes(plan, rank, o->world_size);
    m->staging_bytes = staging(plan);
    m->table_bytes = tables(plan, rank);
    add_up(m);
    plan_files(plan, rank, m);
    plan_consolidation(plan, rank, m);
    m->sent_bytes = cz__plan_sent(plan, rank);
}

void cz__plan_alone(const cz_plan *plan, cz_plan_memory *m)
{
    plan_model(plan, m);
    m->state_bytes = state_bytes(plan, ALL);
    m->part_bytes = kept_bytes(plan, 0, 1);
    m->table_bytes = model_tables(plan) + optim_tables(plan);
    add_up(m);
    m->file_bytes = m->param_bytes + m->buffer_bytes + slot_elements_bytes(plan, ALL);
    const cz__save_shape shape = save_shape(plan, m->file_bytes, plan->param_count);
    m->save_bytes = cz__save_memory(&shape);
    m->async_save_bytes = m->save_bytes + m->file_bytes;
    m->export_bytes = cz__export_memory(&shape);
}
