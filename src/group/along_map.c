/* SPDX-License-Identifier: MIT */
/* The collective operations for the parts above: agreement, and reductions and gathers along a
 * map. */
#include "group/arguments.h"
#include "shard/shard.h"

cz_status cz__agree(cz_group *group, cz_status mine, uint64_t fingerprint, bool *same,
                    const char *label)
{
    const cz_operation_options options = {sizeof options, label, NULL};
    bool equal;
    cz__operation operation = cz__operation_describe(CZ__AGREE, 0, CZ_U8);
    operation.header.fingerprint = fingerprint;
    return cz__operation_run(group, &operation, mine, &options, same ? same : &equal);
}

cz_status cz__agree_start(cz_group *group, cz_status mine, const cz_operation_options *options)
{
    cz__operation operation = cz__operation_describe(CZ__AGREE, 0, CZ_U8);
    return cz__operation_run(group, &operation, mine, options, NULL);
}

/* Elements of a region are of another type than the stream's: in the header they make a different
 * operation. */
static void give_type(cz__operation *operation, cz__region *region, cz_dtype dtype)
{
    const size_t longest = (size_t)operation->header.count * cz_dtype_size(dtype);
    region->width = cz_dtype_size(dtype);
    operation->header.detail = cz__mix(operation->header.detail, (uint64_t)dtype);
    if (operation->longest < longest)
        operation->longest = longest;
}

/* The operations along a map describe themselves alike: by the elements that take part. */
static cz__operation along_map(const cz_group *group, const cz__mapped *memory,
                               cz__operation_kind kind)
{
    cz__operation operation = cz__operation_describe(kind, 0, memory->dtype);
    const int64_t params = cz__shard_map_param_count(memory->map);
    for (int64_t p = 0; p < params; p++) {
        if (!memory->include[p])
            continue;
        const int64_t count = cz__shard_map_count(memory->map, p);
        operation.header.count += count;
        operation.header.detail =
            cz__mix(cz__mix(operation.header.detail, (uint64_t)p), (uint64_t)count);
    }
    operation.target = cz__region_of(group, CZ__REGION_MAPPED, NULL, 0, memory->dtype);
    operation.target.mapped = *memory;
    operation.source = operation.target;
    operation.target.mapped.terms = NULL;
    operation.longest = (size_t)operation.header.count * operation.source.element_size;
    if (memory->result)
        operation.target.mapped.data = memory->result;
    if (memory->result_dtype) {
        operation.result = memory->result_dtype;
        give_type(&operation, &operation.target, memory->result_dtype);
    }
    if (kind == CZ__GATHER_MAP)
        operation.source.mapped.terms = NULL;
    if (operation.source.mapped.terms) {
        const cz__leaves *leaves = &memory->terms->leaves;
        operation.header.detail = cz__mix(operation.header.detail, (uint64_t)leaves->count);
        operation.longest = cz__terms_longest(leaves, operation.longest);
    }
    operation.reserve = memory->reserve;
    operation.pool = memory->pool;
    operation.detached = memory->detached;
    return operation;
}

static cz_status reduce(cz_group *group, const cz__mapped *memory, cz_reduction reduction,
                        bool to_all, const cz_operation_options *options)
{
    const cz_status mine =
        memory->mine != CZ_OK ? memory->mine
                              : cz__check_reduction("gradient reduction", reduction, memory->dtype);
    cz__operation operation =
        along_map(group, memory, to_all ? CZ__ALL_REDUCE_MAP : CZ__REDUCE_MAP);
    operation.header.reduction = (int32_t)reduction;
    operation.reduces = true;
    operation.exchanges = operation.same_to_all = to_all;
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz__reduce_along_map(cz_group *group, const cz__mapped *memory, cz_reduction reduction,
                               const cz_operation_options *options)
{
    return reduce(group, memory, reduction, false, options);
}

cz_status cz__all_reduce_along_map(cz_group *group, const cz__mapped *memory,
                                   cz_reduction reduction, const cz_operation_options *options)
{
    return reduce(group, memory, reduction, true, options);
}

bool cz__group_is_checked(const cz_group *group)
{
    return group->checked;
}

static cz__operation in_tiles(const cz_group *group, const cz__tiled_step *step)
{
    const cz__operation_kind kind = step->values ? CZ__STEP_MAP : CZ__REDUCE_MAP;
    cz__operation operation =
        along_map(group, &step->gradients, step->reduces ? kind : CZ__GATHER_MAP);
    operation.values = operation.source;
    operation.values.mapped.terms = NULL;
    operation.values.mapped.data = step->values;
    if (step->value_dtype)
        give_type(&operation, &operation.values, step->value_dtype);
    operation.shared_values = step->values && step->gradients.shared;
    operation.update = step->update;
    operation.update_context = step->context;
    operation.header.reduction = step->reduces ? (int32_t)step->reduction : 0;
    operation.reduces = step->reduces;
    operation.exchanges = operation.same_to_all = step->values != NULL;
    return operation;
}

cz_status cz__step_along_map(cz_group *group, const cz__tiled_step *step,
                             const cz_operation_options *options)
{
    cz__operation operation = in_tiles(group, step);
    return cz__operation_run(group, &operation, CZ_OK, options, NULL);
}

cz_status cz__agree_on_step(cz_group *group, const cz__tiled_step *step, uint64_t fingerprint,
                            bool *same, const char *label)
{
    const cz_operation_options options = {sizeof options, label, NULL};
    cz__operation operation = in_tiles(group, step);
    operation.header.fingerprint = cz__mix(fingerprint, operation.header.kind);
    operation.header.kind = CZ__AGREE;
    return cz__operation_run(group, &operation, CZ_OK, &options, same);
}

cz_status cz__gather_along_map(cz_group *group, const cz__mapped *memory,
                               const cz_operation_options *options)
{
    cz__operation operation = along_map(group, memory, CZ__GATHER_MAP);
    operation.exchanges = operation.same_to_all = !memory->shared;
    if (memory->shared)
        operation.pool = NULL; /* it needs no turn */
    return cz__operation_run(group, &operation, memory->mine, options, NULL);
}
