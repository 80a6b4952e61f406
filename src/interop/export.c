/* SPDX-License-Identifier: MIT */
/* Exporting: ranks agree on what is written, rank 0 makes the files, each writes its own, rank 0
 * publishes. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/open.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "group/collective.h"
#include "collective/description.h"
#include "interop/exporting.h"
#include "interop/dcp_write.h"
#include "io/stream.h"
#include "zero/zero.h"

const cz__option_table cz__export_options = CZ__OPTION_TABLE(
    cz_export_options, CZ__OPTION(cz_export_options, step, CZ__COMPARED, CZ__FROM(0)),
    CZ__OPTION(cz_export_options, common, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_export_options, max_file_bytes, CZ__COMPARED, CZ__ANY),
    CZ__OPTION(cz_export_options, parameters_only, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_export_options, reserved, CZ__LOCAL, CZ__RESERVED));

static void describe_export(cz__description *description, const void *context)
{
    const cz__exporting *e = context;
    cz__describe_call(description, &e->checkpoint->object);
    cz__describe_options(description, &cz__export_options, &e->options, NULL);
    cz__describe_number(description, &(cz__subject){NULL, "a file for torch", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, e->elements != NULL);
    cz__describe_number(description, &(cz__subject){NULL, "a folder for torch", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, e->distributed);
    cz__describe_common(description, e->options.common);
}

static cz_status take_path(cz__exporting *e, const char *path)
{
    if (!path || !path[0])
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint export: the path is %s", path ? "''" : "NULL");
    e->path = cz__path_absolute(path);
    if (e->path)
        return CZ_OK;
    return errno == ENOMEM
               ? cz__fail(CZ_ERR_MEMORY, "checkpoint export: no memory for a path")
               : cz__fail(CZ_ERR_IO,
                          "checkpoint export: %s: the working directory is not known: %s", path,
                          strerror(errno));
}

/* The form follows from the name. */
static cz_status choose_form(cz__exporting *e)
{
    const bool distributed = cz__dcp_is_name(e->path);
    if (!distributed && !cz__torch_is_name(e->path))
        return CZ_OK;
    if (e->options.max_file_bytes > 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "checkpoint export: %s would be one %s for torch, and max_file_bytes is "
                        "for folders of safetensors",
                        e->path, distributed ? "folder" : "file");
    return cz__exporting_for_torch(e, distributed);
}

static cz_status read_request(cz__exporting *e, const char *path, const cz_export_options *options)
{
    CZ_TRY(cz__options_read(&e->options, &cz__export_options, options, "checkpoint export"));
    CZ_TRY(take_path(e, path));
    CZ_TRY(choose_form(e));
    if (e->options.parameters_only && e->options.common)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "checkpoint export: parameters_only, and a common dictionary");
    if (e->checkpoint->optim && !e->options.parameters_only)
        CZ_TRY(cz__optim_check_trained(e->checkpoint->optim, "checkpoint export"));
    if (e->checkpoint->zero)
        CZ_TRY(cz__zero_come_to_rest(e->checkpoint->zero));
    return cz__common_check(e->options.common);
}

/* All ranks: what is written, that it is alike, and that together it is all of it. */
static cz_status prepare_export(cz__exporting *e)
{
    cz_group *group = e->checkpoint->group;
    CZ_TRY(
        cz__contents(e->checkpoint, "checkpoint export", !e->options.parameters_only, &e->index));
    CZ_TRY(cz__agree(group, cz__exporting_prepare(e), 0, NULL, "checkpoint: export"));
    int64_t bytes = cz__exporting_share(e);
    CZ_TRY(cz_all_reduce(group, &bytes, 1, CZ_I64, CZ_SUM, CZ_LABEL("checkpoint: export")));
    if (bytes != cz__exporting_total(e))
        return cz__fail(CZ_ERR_INTERNAL,
                        "checkpoint export: ranks would write %" PRId64
                        " bytes together, the files have %" PRId64,
                        bytes, cz__exporting_total(e));
    return CZ_OK;
}

/* Rank 0's files, which all ranks find. */
static cz_status make_files(cz__exporting *e)
{
    cz_group *group = e->checkpoint->group;
    const cz_status made = cz_group_rank(group) == 0 ? cz__exporting_make(e) : CZ_OK;
    CZ_TRY(cz__agree(group, made, 0, NULL, "checkpoint: files"));
    CZ_TRY(cz_broadcast(group, e->token, sizeof e->token, CZ_U8, 0, CZ_LABEL("checkpoint: files")));
    CZ_TRY(cz_broadcast(group, e->inodes, (int64_t)e->layout.count + 1, CZ_I64, 0,
                        CZ_LABEL("checkpoint: files")));
    return cz__agree(group, cz__exporting_see(e), 0, NULL, "checkpoint: shared folder");
}

static cz_status write(cz__exporting *e)
{
    cz_group *group = e->checkpoint->group;
    CZ_TRY(make_files(e));
    CZ_TRY(cz__agree(group, cz__exporting_write(e), 0, NULL, "checkpoint: write"));
    cz_status published = cz_group_rank(group) == 0 ? cz__exporting_confirm(e) : CZ_OK;
    if (published == CZ_OK && cz_group_rank(group) == 0)
        published = cz__exporting_publish(e);
    return cz__agree(group, published, 0, NULL, "checkpoint: publish");
}

static cz_status export(cz__exporting *e)
{
    CZ_TRY(prepare_export(e));
    const cz_status status = write(e);
    if (!status)
        return CZ_OK;
    const cz__sentence held = cz__sentence_hold();
    cz__exporting_discard(e); /* of rank 0: what it has made */
    cz__sentence_resume(held);
    return status;
}

cz_status cz_checkpoint_export(cz_checkpoint *checkpoint, const char *path,
                               const cz_export_options *options)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    cz__description room = {0};
    if (!checkpoint)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint export: checkpoint is NULL");
    cz__exporting e = {.checkpoint = checkpoint};
    cz_status status = read_request(&e, path, options);
    status =
        cz__agree_on(checkpoint->group, "checkpoint export", describe_export, &e, status, &room);
    cz__description_clear(&room);
    if (!status) {
        cz__text_cut(&checkpoint->notes, 0);
        status = export(&e);
    }
    if (checkpoint->optim)
        cz__optim_drop_unpacked(checkpoint->optim);
    cz__exporting_clear(&e);
    return status;
}
