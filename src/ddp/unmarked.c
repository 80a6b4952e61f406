/* SPDX-License-Identifier: MIT */
/* What was not marked when a pass ends. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "base/status.h"
#include "ddp/object.h"

bool cz__ddp_learns_graph(const cz_ddp *ddp)
{
    return ddp->options.static_graph && ddp->passes == 0;
}

bool cz__ddp_looks_at_graph(const cz_ddp *ddp)
{
    return ddp->options.static_graph ? ddp->passes == 0 : ddp->options.find_unused;
}

/* What earlier micro-batches have added to is complete, though this one does not use it. */
static void complete_what_was_added_to(cz_ddp *ddp)
{
    for (int64_t p = 0; p < ddp->param_count; p++) {
        cz__ddp_param *param = &ddp->params[p];
        const bool added_to = atomic_exchange(&param->added_to, false);
        if (!added_to || !ddp->trained[p] || !ddp->results[p] || ddp->shadows)
            continue;
        if (atomic_load(&param->left) == param->uses)
            atomic_store(&param->left, 0);
    }
}

/* "'w'", or "'w' with 1 of 2 marks". */
static size_t name_missing(const cz_ddp *ddp, int64_t param, char *to, size_t room, bool comma)
{
    char marks[48] = "";
    const cz__ddp_param *p = &ddp->params[param];
    if (p->uses > 1)
        snprintf(marks, sizeof marks, " with %d of %d marks", p->uses - atomic_load(&p->left),
                 p->uses);
    const int length = snprintf(to, room, "%s'%.40s'%s", comma ? ", " : "",
                                cz_model_name(ddp->model, param), marks);
    return length > 0 ? (size_t)length : 0;
}

/* Not marked often enough: an error that names some of them. */
static cz_status check_marks(const cz_ddp *ddp)
{
    char names[200] = "";
    size_t length = 0;
    int64_t missing = 0, bucket = -1;
    bool partly = false;
    for (int64_t k = 0; k < ddp->param_count; k++) {
        const int64_t p = ddp->order[k];
        if (!ddp->trained[p] || atomic_load(&ddp->params[p].left) <= 0)
            continue;
        bucket = bucket < 0 ? ddp->params[p].bucket : bucket;
        if (missing++ < 4 && length < sizeof names)
            length += name_missing(ddp, p, names + length, sizeof names - length, missing > 1);
        partly = partly || ddp->params[p].uses > 1;
    }
    if (missing == 0)
        return CZ_OK;
    return cz__fail(CZ_ERR_STATE,
                    "ddp: %" PRId64
                    " parameters were not marked ready, the first in bucket %" PRId64 ": %s%s (%s)",
                    missing, bucket, names, missing > 4 ? ", …" : "",
                    ddp->options.static_graph ? "the first pass of the static graph marked them"
                    : partly                  ? "see cz_ddp_set_uses() and find_unused"
                                              : "see find_unused");
}

/* Was a parameter that takes part used here? */
static bool is_used(const cz_ddp *ddp, int64_t param)
{
    const int left = atomic_load(&ddp->params[param].left);
    if (ddp->shadows)
        return false;
    return cz__ddp_learns_graph(ddp) ? left < INT_MAX : left <= 0 && ddp->params[param].uses > 0;
}

/* What some rank marked is reduced, with zeros where it was not; what none did stays as it is. A bucket that
 * was full on some rank is full of what is used: that rank has started it with all of its parameters. */
static cz_status find_unused(cz_ddp *ddp)
{
    uint8_t *used = ddp->trained; /* from here on: trained, and used somewhere */
    for (int64_t p = 0; p < ddp->param_count; p++)
        if (used[p] && !is_used(ddp, p)) {
            used[p] = 0;
            if (ddp->gradients[p]) /* else its bucket may be on its way */
                ddp->gradients[p] = NULL;
        }
    const cz_status status = cz_all_reduce(ddp->control, used, ddp->param_count, CZ_U8, CZ_MAX,
                                           CZ_LABEL("ddp: used parameters"));
    if (status != CZ_OK) { /* all ranks start all buckets, with this failure */
        for (int64_t p = 0; p < ddp->param_count; p++)
            used[p] = cz_model_requires_grad(ddp->model, p);
        return status;
    }
    for (int64_t p = 0; p < ddp->param_count; p++)
        if (used[p] && !ddp->results[p])
            return cz__fail(CZ_ERR_STATE,
                            "ddp: parameter '%.60s' of bucket %d is used by other ranks and has no "
                            "gradient memory",
                            cz_model_name(ddp->model, p), ddp->params[p].bucket);
    return CZ_OK;
}

/* From now on: as often as in this pass; 0: by other ranks only; below 0: by none. A rank without inputs learns
 * from the others that a parameter is used, and believes in once. */
static void keep_graph(cz_ddp *ddp)
{
    for (int64_t p = 0; p < ddp->param_count; p++) {
        const int marks = ddp->shadows ? 1 : INT_MAX - atomic_load(&ddp->params[p].left);
        if (cz_model_requires_grad(ddp->model, p))
            ddp->params[p].uses = ddp->trained[p] ? marks : -1;
    }
}

cz_status cz__ddp_settle_unmarked(cz_ddp *ddp)
{
    if (!ddp->options.static_graph)
        complete_what_was_added_to(ddp);
    if (!cz__ddp_looks_at_graph(ddp))
        return check_marks(ddp);
    const cz_status status = find_unused(ddp);
    if (status == CZ_OK && cz__ddp_learns_graph(ddp))
        keep_graph(ddp);
    return status;
}
