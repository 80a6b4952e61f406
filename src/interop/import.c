/* SPDX-License-Identifier: MIT */
/* Importing consolidated files: all ranks open them, and agree that they are the same and good; the rest is a load. */
#include "base/float_mode.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "checkpoint/loading.h"
#include "group/collective.h"
#include "interop/bundle.h"

/* What chooses among generations has no meaning here. */
static cz_status check_options(const char *path, const cz_load_options *theirs)
{
    cz_load_options options;
    const char *wrong = NULL;
    CZ_TRY(cz__options_read(&options, sizeof options, theirs, "cz_load_options"));
    if (!path || !path[0])
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint import: the path is %s", path ? "''" : "NULL");
    if (!theirs)
        return CZ_OK;
    if (options.step != CZ_NEWEST)
        wrong = "step";
    else if (options.missing_ok)
        wrong = "missing_ok";
    else if (options.fall_back)
        wrong = "fall_back";
    return wrong ? cz__fail(CZ_ERR_ARGUMENT,
                            "checkpoint import: option %s is for generations, there are none here",
                            wrong)
                 : CZ_OK;
}

static cz_status open_files(cz__loading *l, const char *path)
{
    CZ_TRY(cz__input_open_bundle(&l->input, path, &l->here));
    l->input.index.generation = -1;
    return cz__input_common(&l->input, &l->common);
}

static cz_status import(cz__loading *l, const char *path, cz_load_result *result)
{
    bool same;
    cz__text_cut(&l->checkpoint->notes, 0);
    CZ_TRY(cz__contents(l->checkpoint, l->call, false, &l->here));
    const cz_status status = open_files(l, path);
    CZ_TRY(cz__agree(l->checkpoint->group, status,
                     status == CZ_OK ? cz__input_bundle(&l->input)->fingerprint : 0, &same,
                     "checkpoint: import"));
    if (!same)
        return cz__say_alike(l->checkpoint->group,
                             cz__fail(CZ_ERR_FORMAT, "%s: ranks see different files there", path));
    const cz_group *group = l->checkpoint->group;
    CZ_TRY(cz__agree(
        l->checkpoint->group,
        cz__bundle_verify(cz__input_bundle(&l->input), cz_group_rank(group), cz_group_size(group)),
        0, NULL, "checkpoint: verify"));
    if (cz__bundle_notes(cz__input_bundle(&l->input)))
        cz__text_print(&l->checkpoint->notes, "%s\n",
                       cz__bundle_notes(cz__input_bundle(&l->input)));
    CZ_TRY(cz__loading_compare(l));
    return cz__loading_finish(l, result);
}

cz_status cz_checkpoint_import(cz_checkpoint *checkpoint, const char *path,
                               const cz_load_options *options, cz_load_result *result)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!checkpoint)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint import: checkpoint is NULL");
    cz__loading l = {.checkpoint = checkpoint};
    cz_status status =
        cz__loading_begin(&l, "checkpoint import", check_options(path, options), options, result);
    if (status == CZ_OK)
        status = import(&l, path, result);
    cz__loading_clear(&l);
    return status;
}
