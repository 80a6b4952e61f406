/* SPDX-License-Identifier: MIT */
/* Post-local SGD: steps on a rank's own gradients, and averaging. @see Lin et al., arXiv:1808.07217. */
#include "averaging/averager.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "optim/optim.h"

struct cz_post_local_optim {
    cz_optim *optim;       /* borrowed */
    cz_averager *averager; /* borrowed */
};

cz_status cz_post_local_optim_create(cz_post_local_optim **out, cz_optim *optim,
                                     cz_averager *averager)
{
    if (out)
        *out = NULL;
    if (!out || !optim || !averager)
        return cz__fail(CZ_ERR_ARGUMENT, "post-local SGD: %s is NULL",
                        !out    ? "out"
                        : optim ? "averager"
                                : "optim");
    if (cz__optim_model(optim) != averager->model)
        return cz__fail(
            CZ_ERR_ARGUMENT,
            "post-local SGD: the optimizer is over one model, the averager over another");
    if (cz__optim_is_part(optim))
        return cz__fail(CZ_ERR_STATE, "post-local SGD: the optimizer is part of a sharded one");
    *out = cz__calloc(1, sizeof **out);
    if (!*out)
        return cz__fail(CZ_ERR_MEMORY, "post-local SGD: no memory for a handle");
    **out = (cz_post_local_optim){optim, averager};
    return CZ_OK;
}

void cz_post_local_optim_destroy(cz_post_local_optim **post)
{
    if (!post)
        return;
    cz__free(*post);
    *post = NULL;
}

cz_status cz_post_local_optim_step(cz_post_local_optim *post, const cz_step_options *options,
                                   cz_step_result *result)
{
    CZ__UNCANCELLED;
    if (!post)
        return cz__fail(CZ_ERR_ARGUMENT, "post-local SGD step: post is NULL");
    return cz__averager_average(post->averager, cz_optim_step(post->optim, options, result), NULL);
}

cz_status cz_post_local_optim_state_dict(const cz_post_local_optim *post, cz_state_dict **out)
{
    if (out)
        *out = NULL;
    if (!post || !out)
        return cz__fail(CZ_ERR_ARGUMENT, "post-local SGD state_dict: %s is NULL",
                        post ? "out" : "post");
    CZ_TRY(cz_optim_state_dict(post->optim, out));
    const cz_status status = cz_state_dict_set_integer(*out, "step", post->averager->step);
    if (status != CZ_OK)
        cz_state_dict_destroy(out);
    return status;
}

cz_status cz_post_local_optim_load_state_dict(cz_post_local_optim *post, const cz_state_dict *dict,
                                              bool begin)
{
    int64_t step = 0;
    if (!post)
        return cz__fail(CZ_ERR_ARGUMENT, "post-local SGD load_state_dict: post is NULL");
    if (!begin || cz_state_dict_kind(dict, "step") != CZ_STATE_NONE)
        CZ_TRY(cz__averager_read_step(dict, &step));
    CZ_TRY(cz_optim_load_state_dict(post->optim, dict));
    post->averager->step = step;
    return CZ_OK;
}
