/* SPDX-License-Identifier: MIT */
/* Making a data-parallel model: each rank builds its own part, all agree, the ranks' values become
 * equal. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "ddp/object.h"
#include "tensor/model.h"
#include "collective/model.h"
#include "shard/shard.h"

const cz__option_table cz__ddp_options =
    CZ__OPTION_TABLE(cz_ddp_options,
                     CZ__OPTION(cz_ddp_options, bucket_bytes, CZ__COMPARED, CZ__FROM(0),
                                CZ__ZERO_IS(CZ__BUCKET_BYTES)),
                     CZ__OPTION(cz_ddp_options, first_bucket_bytes, CZ__COMPARED, CZ__FROM(0),
                                CZ__ZERO_IS(CZ__FIRST_BUCKET_BYTES)),
                     CZ__OPTION(cz_ddp_options, find_unused, CZ__COMPARED, CZ__FLAG),
                     CZ__OPTION(cz_ddp_options, keep_buckets, CZ__COMPARED, CZ__FLAG),
                     CZ__OPTION(cz_ddp_options, keep_values, CZ__COMPARED, CZ__FLAG),
                     CZ__OPTION(cz_ddp_options, keep_buffers, CZ__COMPARED, CZ__FLAG),
                     CZ__OPTION(cz_ddp_options, all_reduce, CZ__COMPARED, CZ__FLAG),
                     CZ__OPTION(cz_ddp_options, static_graph, CZ__COMPARED, CZ__FLAG),
                     CZ__OPTION(cz_ddp_options, parts, CZ__COMPARED_APART, CZ__ANY));

static cz_status check_model(const cz_group *group, const cz_model *model)
{
    bool any = false;
    CZ_TRY(cz__group_check_model(group, model, "ddp"));
    CZ_TRY(cz__model_check_gradients(model, "ddp"));
    for (int64_t p = 0; p < cz__model_param_count(model); p++) {
        if (!cz__model_requires_grad(model, p))
            continue;
        any = true;
        if (!cz__converts(cz__model_value(model, p)->dtype))
            return cz__fail(CZ_ERR_UNSUPPORTED, "ddp: trainable parameter '%.60s' is %s",
                            cz__model_name(model, p),
                            cz_dtype_name(cz__model_value(model, p)->dtype));
    }
    return any ? CZ_OK : cz__fail(CZ_ERR_ARGUMENT, "ddp: the model has no trainable parameter");
}

static cz_status allocate(cz_ddp *ddp)
{
    const size_t params = (size_t)ddp->param_count;
    ddp->params = cz__calloc(params, sizeof *ddp->params);
    ddp->trained = cz__calloc(params, sizeof *ddp->trained);
    ddp->gradients = cz__calloc(params, sizeof *ddp->gradients);
    ddp->results = cz__calloc(params, sizeof *ddp->results);
    ddp->arrivals = cz__calloc(params, sizeof *ddp->arrivals);
    ddp->taking = cz__calloc(params, sizeof *ddp->taking);
    ddp->offsets = cz__calloc(params, sizeof *ddp->offsets);
    ddp->buffered = cz__calloc(params, sizeof *ddp->buffered);
    if (!ddp->params || !ddp->trained || !ddp->gradients || !ddp->results || !ddp->arrivals ||
        !ddp->taking || !ddp->offsets || !ddp->buffered)
        return cz__fail(CZ_ERR_MEMORY, "ddp: no memory for tables of %zu parameters", params);
    for (size_t p = 0; p < params; p++)
        ddp->params[p].uses = 1;
    return CZ_OK;
}

/* All that this rank can do alone, but for the buckets. */
static cz_status build_ddp(cz_ddp *ddp, const cz_group *group, cz_model *model,
                           const cz_ddp_options *options)
{
    if (!model)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp: model is NULL");
    CZ_TRY(cz__options_read(&ddp->options, &cz__ddp_options, options, "ddp"));
    CZ_TRY(check_model(group, model));
    if (ddp->options.parts) {
        CZ_TRY(cz__parts_match(ddp->options.parts, model, group, "ddp"));
        CZ_TRY(cz__parts_check_free(ddp->options.parts, "ddp"));
    }
    ddp->model = model;
    ddp->device = cz__group_device(group);
    ddp->weight = -1;
    ddp->param_count = cz__model_param_count(model);
    CZ_TRY(cz__ddp_check_overlaps_at_first(ddp));
    return allocate(ddp);
}

static void describe_ddp(cz__description *d, const void *context)
{
    const cz_ddp *ddp = context;
    cz__describe_params(d, ddp->model);
    cz__describe_trainable(d, ddp->model);
    cz__describe_options(d, &cz__ddp_options, &ddp->options, NULL);
    cz__describe_parts(d, ddp->options.parts);
    cz__describe_buffers(d, ddp->model);
}

/* In the fixed layout, which all ranks have alike. */
static cz_status first_buckets(cz_ddp *ddp)
{
    cz__model_lay_out(ddp->model, ddp->arrivals);
    return cz__ddp_make_buckets(ddp, ddp->arrivals);
}

static cz_status join(cz_ddp *ddp, cz_group *group)
{
    CZ_TRY(cz_group_split(group, 0, 0, &ddp->group));
    CZ_TRY(cz_group_split(group, 0, 0, &ddp->control));
    CZ_TRY(cz__agree(ddp->control, first_buckets(ddp), 0, NULL, "ddp: buckets"));
    return ddp->options.keep_values ? CZ_OK
                                    : cz__broadcast_model(ddp->control, ddp->model, &ddp->object, 0,
                                                          "ddp: initial values");
}

cz_status cz_ddp_create(cz_ddp **out, cz_group *group, cz_model *model,
                        const cz_ddp_options *options)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (out)
        *out = NULL;
    if (!group)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp: group is NULL");
    cz_status status = CZ_OK;
    cz__description none = {0};
    cz_ddp *ddp = cz__calloc(1, sizeof *ddp);
    if (ddp)
        pthread_mutex_init(&ddp->lock, NULL);
    if (!out)
        status = cz__fail(CZ_ERR_ARGUMENT, "ddp: out is NULL");
    else if (!ddp)
        status = cz__fail(CZ_ERR_MEMORY, "ddp: no memory for a handle");
    else
        status = build_ddp(ddp, group, model, options);
    status = cz__agree_on(group, "ddp", describe_ddp, ddp, status, ddp ? &ddp->room : &none);
    if (!status)
        status = join(ddp, group);
    if (status != CZ_OK) {
        cz_ddp_destroy(&ddp);
        return status;
    }
    cz__object_make(&ddp->object, group, CZ__OBJECT_DDP);
    ddp->parts = ddp->options.parts;
    cz__parts_say_if_left_out(ddp->parts, model, group, ddp->object.name);
    if (ddp->parts)
        cz__parts_take(ddp->parts, CZ__PARTS_DDP);
    cz__group_serve(ddp->group, &ddp->object);
    cz__group_serve(ddp->control, &ddp->object);
    cz__model_freeze(model);
    ddp->froze = true;
    if (cz__model_count_ddp(model, 1) > 0 && cz_group_size(group) > 1 && cz_group_rank(group) == 0)
        cz__log(CZ_LOG_WARN, "ddp: a sharded optimizer over the same model averages gradients, "
                             "too: make it on this ddp (option ddp), or with CZ_GRADIENTS_REDUCED");
    *out = ddp;
    return CZ_OK;
}

/* The model may be gone for the program, and has its names as long as this froze it. */
static void warn_of_marks(const cz_ddp *ddp)
{
    char list[400] = "";
    int64_t count = 0;
    if (!ddp->froze || !ddp->params)
        return;
    for (int64_t p = 0; p < ddp->param_count; p++) {
        const size_t used = strlen(list);
        if (!atomic_load(&ddp->params[p].added_to))
            continue;
        if (count++ < 5)
            snprintf(list + used, sizeof list - used, "%s'%.60s'", used ? ", " : "",
                     cz__model_name(ddp->model, p));
    }
    if (count > 0)
        cz__log(CZ_LOG_WARN,
                "rank %d: %s is destroyed before the gradients of passes without synchronisation "
                "were reduced, those of %s%s (parameters: %" PRId64
                "): where the model goes on, mark them in a pass of the new ddp that does not "
                "synchronise",
                cz_group_global_rank(ddp->group, cz_group_rank(ddp->group)), ddp->object.name, list,
                count > 5 ? ", …" : "", count);
}

static void destroy(cz_ddp *ddp)
{
    cz__ddp_free_buckets(ddp->buckets, ddp->bucket_count);
    cz__pool_destroy(&ddp->reductions);
    cz__pool_destroy(&ddp->values);
    cz__shard_map_destroy(&ddp->map);
    cz__description_clear(&ddp->room);
    cz__overlap_memory_clear(&ddp->overlaps);
    cz__free(ddp->params);
    cz__free(ddp->order);
    cz__free(ddp->taking);
    cz__free(ddp->offsets);
    cz__free(ddp->buffered);
    cz__free(ddp->trained);
    cz__free(ddp->gradients);
    cz__free(ddp->results);
    cz__free(ddp->arrivals);
    cz__free(ddp->launch);
    cz__free(ddp->full);
    pthread_mutex_destroy(&ddp->lock);
    cz__free(ddp);
}

/* The handle itself ends with the optimizer that is made on it. */
void cz_ddp_destroy(cz_ddp **out)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!out || !*out)
        return;
    cz_ddp *ddp = *out;
    *out = NULL;
    warn_of_marks(ddp);
    cz_group_destroy(&ddp->group); /* nothing is on its way from here on */
    cz_group_destroy(&ddp->control);
    cz__ddp_release_hook(ddp);
    cz__ddp_leave_in_backward(ddp);
    if (ddp->parts)
        cz__parts_leave(ddp->parts);
    ddp->parts = NULL;
    if (ddp->froze) {
        (void)cz__model_count_ddp(ddp->model, -1);
        cz__model_thaw(ddp->model);
    }
    ddp->reduced = false;
    atomic_store(&ddp->state, CZ__PASS_NONE);
    ddp->ended = true;
    if (!ddp->bound)
        destroy(ddp);
}

void cz__ddp_let_go(cz_ddp *ddp)
{
    cz__ddp_bind(ddp, NULL, NULL);
    if (ddp->ended)
        destroy(ddp);
}
