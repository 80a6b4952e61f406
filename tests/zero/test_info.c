/* SPDX-License-Identifier: MIT */
/* What objects say of themselves in one struct: everything that is in it, and what is refused. */
#include "support/cz_test.h"
#include "support/training.h"

#include "czero/czero.h"

enum { SIZE = 6 };

static cz_status one_of_each(cz_group *group, void *context)
{
    static const int64_t sizes[] = {SIZE, 0};
    const cz_test_training layout = {.param_count = 2, .sizes = sizes, .dtype = CZ_F32};
    cz_model_info in_model = CZ_MODEL_INFO_INIT;
    cz_model_param param = CZ_MODEL_PARAM_INIT;
    cz_zero_info in_zero = CZ_ZERO_INFO_INIT;
    cz_optim_info in_optim = CZ_OPTIM_INFO_INIT;
    cz_ddp_info in_ddp = CZ_DDP_INFO_INIT;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_test_memory memory;
    cz_ddp *ddp;
    cz_zero *zero;
    int64_t members[2];
    (void)context;
    CZ_TRY(cz_test_memory_create(&memory, &layout));
    CZ_TRY(cz_model_set_requires_grad(memory.model, 1, false));
    CZ_TRY(cz_ddp_create(&ddp, group, memory.model, NULL));
    options.ddp = ddp;
    CZ_TRY(cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, &options));

    CZ_TRY(cz_model_get_info(memory.model, &in_model));
    CZ_TRY(cz_model_get_param(memory.model, 0, &param));
    if (in_model.param_count != 2 || in_model.buffer_count != 0 || in_model.element_count != SIZE ||
        !param.name || param.value->shape[0] != SIZE || !param.gradient || !param.requires_grad)
        return cz_fail(CZ_ERR_STATE, "the model says something else");
    CZ_TRY(cz_model_get_param(memory.model, 1, &param));
    if (param.requires_grad || cz_model_get_param(memory.model, 2, &param) != CZ_ERR_ARGUMENT)
        return cz_fail(CZ_ERR_STATE, "the second parameter, or a third");

    CZ_TRY(cz_zero_get_info(zero, &in_zero));
    CZ_TRY(cz_optim_get_info(cz_zero_local_optim(zero), &in_optim));
    if (in_zero.group != group || in_zero.model != memory.model || in_zero.ddp != ddp ||
        in_zero.partition != CZ_PARTITION_ELEMENTS || in_zero.overlap != CZ_OVERLAP_NONE ||
        in_zero.group_count != 1 || in_zero.skip_count != 0 ||
        in_zero.state_bytes != in_optim.state_bytes || in_optim.rule != cz_rule_adam())
        return cz_fail(CZ_ERR_STATE, "the optimizer says something else");
    if (cz_optim_group_params(cz_zero_local_optim(zero), 0, members, 2) != 2 || members[1] != 1 ||
        cz_optim_group_params(cz_zero_local_optim(zero), 1, NULL, 0) != -1)
        return cz_fail(CZ_ERR_STATE, "members of a parameter group");

    CZ_TRY(cz_ddp_get_info(ddp, &in_ddp));
    if (in_ddp.model != memory.model || *in_ddp.hook || in_ddp.passes != 0 ||
        in_ddp.bucket_count != 1 || in_ddp.rebuilt)
        return cz_fail(CZ_ERR_STATE, "the ddp says something else");
    if (cz_ddp_bucket_params(ddp, 0, members, 1) < 1 || cz_ddp_bucket_params(ddp, 1, NULL, 0) != -1)
        return cz_fail(CZ_ERR_STATE, "parameters of a bucket");

    in_zero.size = 0;
    if (cz_zero_get_info(zero, &in_zero) != CZ_ERR_ARGUMENT ||
        cz_zero_get_info(zero, NULL) != CZ_ERR_ARGUMENT)
        return cz_fail(CZ_ERR_STATE, "a size that was not set, or a NULL, is taken");
    cz_zero_destroy(&zero);
    cz_ddp_destroy(&ddp);
    cz_test_memory_destroy(&memory);
    return CZ_OK;
}

TEST(objects_say_what_they_are)
{
    for (int world = 1; world <= 3; world++)
        assert_ranks_ok(world, one_of_each, NULL);
}
