/* SPDX-License-Identifier: MIT */
/* What an optimizer has here, section by section, and its fingerprint. */
#include <string.h>

#include "base/float_mode.h"
#include "base/status.h"
#include "device/print.h"
#include "optim/object.h"
#include "optim/print.h"

enum { LONGEST = 1 << 20 };

static cz_status visit_run(const cz__section *run, size_t element, cz__section_visitor visit,
                           void *context)
{
    for (int64_t begin = run->begin; begin < run->end; begin += LONGEST) {
        cz__section section = *run;
        section.begin = begin;
        section.end = run->end - begin < LONGEST ? run->end : begin + LONGEST;
        section.data = (const char *)run->data + (size_t)(begin - run->begin) * element;
        CZ_TRY(visit(context, &section));
    }
    return CZ_OK;
}

static cz_status visit_value(const cz_optim *optim, int64_t p, int64_t begin, int64_t end,
                             cz__section_visitor visit, void *context)
{
    const cz_tensor *value = cz__model_value(optim->model, p);
    const size_t element = cz_dtype_size(value->dtype);
    const cz__section run = {.param = p,
                             .begin = begin,
                             .end = end,
                             .dtype = value->dtype,
                             .device = cz__device_of(value),
                             .data = (const char *)value->data + (size_t)begin * element,
                             .key = cz__print_key(cz__model_name(optim->model, p), "")};
    return visit_run(&run, element, visit, context);
}

/* What is in 8 bits, as the f32 that it stands for. */
static cz_status visit_packed(const cz_optim *optim, int64_t place, int slot,
                              const cz__section *run, cz__section_visitor visit, void *context)
{
    enum { SOME = 16 * CZ__BLOCK };
    float values[SOME];
    for (int64_t begin = run->begin; begin < run->end; begin += SOME) {
        cz__section section = *run;
        section.begin = begin;
        section.end = run->end - begin < SOME ? run->end : begin + SOME;
        section.data = values;
        cz__optim_read_packed(optim, place, slot, begin - run->begin, section.end - begin, values);
        CZ_TRY(visit(context, &section));
    }
    return CZ_OK;
}

static cz_status visit_span(const cz_optim *optim, int64_t s, cz__section_visitor visit,
                            void *context)
{
    const cz__local_span *span = &optim->shard.spans[s];
    CZ_TRY(visit_value(optim, span->param, span->begin, span->end, visit, context));
    for (int e = 0; e < optim->slot_count; e++) {
        const char *slot = cz__optim_element_slot(optim, span->param, e).name;
        if (!slot)
            continue;
        const cz__section run = {
            .param = span->param,
            .slot = slot,
            .begin = span->begin,
            .end = span->end,
            .dtype = cz__optim_slot_dtype(optim, span->param, e),
            .device = span->device,
            .data = optim->shard.slots[s * optim->slot_count + e],
            .key = cz__print_key(cz__model_name(optim->model, span->param), slot)};
        if (!(optim->used[span->param] >> e & span->slots >> e & 1u))
            continue;
        if (cz__optim_is_packed(optim, span->param, e))
            CZ_TRY(visit_packed(optim, s, e, &run, visit, context));
        else
            CZ_TRY(visit_run(&run, cz_dtype_size(run.dtype), visit, context));
    }
    return CZ_OK;
}

cz_status cz__optim_visit_sections(const cz_optim *optim, bool rest, cz__section_visitor visit,
                                   void *context)
{
    for (int64_t s = 0; s < optim->shard.span_count; s++)
        CZ_TRY(visit_span(optim, s, visit, context));
    if (!rest)
        return CZ_OK;
    for (int64_t p = 0; p < optim->param_count; p++)
        if (optim->group_of[p] < 0)
            CZ_TRY(visit_value(optim, p, 0, cz_tensor_count(cz__model_value(optim->model, p)),
                               visit, context));
    return CZ_OK;
}

void cz__optim_print_scalars(const cz_optim *optim, int64_t p, uint64_t print[2])
{
    const char *name = cz__model_name(optim->model, p);
    if (optim->group_of[p] < 0 || (optim->steps[p] == 0 && !optim->used[p]))
        return;
    cz__print_add_bits(cz__print_key(name, "step"), (uint64_t)optim->steps[p], print);
    for (int k = 0; k < optim->scalar_count; k++) {
        const char *slot = cz__optim_scalar_slot(optim, p, k).name;
        uint64_t bits;
        memcpy(&bits, &optim->scalars[p * optim->scalar_count + k], sizeof bits);
        if (slot)
            cz__print_add_bits(cz__print_key(name, slot), bits, print);
    }
}

cz_status cz__section_print(const cz__section *section, uint64_t print[2])
{
    return cz__print_add(section->device, section->key, section->dtype, section->begin,
                         section->end - section->begin, section->data, print);
}

static cz_status add_section(void *context, const cz__section *section)
{
    return cz__section_print(section, context);
}

cz_status cz_optim_fingerprint(const cz_optim *optim, uint64_t fingerprint[2])
{
    CZ__OWN_FLOATS;
    uint64_t print[2] = {0, 0};
    if (!optim || !fingerprint)
        return cz__fail(CZ_ERR_ARGUMENT, "optim fingerprint: %s is NULL",
                        optim ? "fingerprint" : "optim");
    if (!optim->own_map)
        return cz__fail(
            CZ_ERR_STATE,
            "optim fingerprint: it is part of a sharded optimizer; see cz_zero_fingerprint()");
    CZ_TRY(cz__optim_check_trained(optim, "optim fingerprint"));
    CZ_TRY(cz__optim_visit_sections(optim, true, add_section, print));
    for (int64_t p = 0; p < optim->param_count; p++)
        cz__optim_print_scalars(optim, p, print);
    memcpy(fingerprint, print, sizeof print);
    return CZ_OK;
}
