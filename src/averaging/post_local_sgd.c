/* SPDX-License-Identifier: MIT */
/* Post-local SGD: steps on a rank's own gradients, and averaging. @see Lin et al., arXiv:1808.07217. */
#include "averaging/averager.h"
#include "base/memory.h"
#include "base/status.h"
#include "optim/optim.h"

struct cz_post_local_sgd {
    cz_optim *optim;       /* borrowed */
    cz_averager *averager; /* borrowed */
};

cz_status cz_post_local_sgd_create(cz_post_local_sgd **out, cz_optim *optim, cz_averager *averager)
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
    **out = (cz_post_local_sgd){optim, averager};
    return CZ_OK;
}

void cz_post_local_sgd_destroy(cz_post_local_sgd **sgd)
{
    if (!sgd)
        return;
    cz__free(*sgd);
    *sgd = NULL;
}

cz_status cz_post_local_sgd_step(cz_post_local_sgd *sgd, const cz_step_options *options,
                                 cz_step_result *result)
{
    if (!sgd)
        return cz__fail(CZ_ERR_ARGUMENT, "post-local SGD step: sgd is NULL");
    return cz__averager_average(sgd->averager, cz_optim_step(sgd->optim, options, result), NULL);
}

cz_status cz_post_local_sgd_state_dict(const cz_post_local_sgd *sgd, cz_state_dict **out)
{
    if (!sgd || !out)
        return cz__fail(CZ_ERR_ARGUMENT, "post-local SGD state_dict: %s is NULL",
                        sgd ? "out" : "sgd");
    CZ_TRY(cz_optim_state_dict(sgd->optim, out));
    const cz_status status = cz_state_dict_set_integer(*out, "step", sgd->averager->step);
    if (status != CZ_OK)
        cz_state_dict_destroy(out);
    return status;
}

cz_status cz_post_local_sgd_load_state_dict(cz_post_local_sgd *sgd, const cz_state_dict *dict,
                                            bool begin)
{
    int64_t step = 0;
    if (!sgd)
        return cz__fail(CZ_ERR_ARGUMENT, "post-local SGD load_state_dict: sgd is NULL");
    if (!begin || cz_state_dict_kind(dict, "step") != CZ_STATE_NONE)
        CZ_TRY(cz__averager_read_step(dict, &step));
    CZ_TRY(cz_optim_load_state_dict(sgd->optim, dict));
    sgd->averager->step = step;
    return CZ_OK;
}
