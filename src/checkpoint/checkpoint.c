/* SPDX-License-Identifier: MIT */
/* A checkpoint as an object: made, asked, destroyed. */
#include <errno.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/open.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "checkpoint/object.h"
#include "checkpoint/package.h"
#include "collective/model.h"
#include "io/stream.h"
#include "optim/optim.h"
#include "tensor/model.h"
#include "zero/zero.h"

static cz_status check_optimizer(const cz_checkpoint *c, const cz_checkpoint_options *options)
{
    if (options->zero && options->optim)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint: both a zero and an optim");
    if (options->zero && cz__zero_group(options->zero) != c->group)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint: the group is not that of its zero");
    if (options->zero && cz__zero_model(options->zero) != c->model)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint: the model is not that of its zero");
    if (options->optim && cz__optim_model(options->optim) != c->model)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint: the model is not that of its optim");
    if (options->optim && cz__optim_is_part(options->optim))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "checkpoint: its optim is part of a sharded optimizer: give that");
    return CZ_OK;
}

static bool is_none(const void *context, int64_t param)
{
    return false;
}

/* A load writes values and buffers; two names of one value are saved twice and loaded twice. */
static cz_status check_memory(const cz_model *model)
{
    const cz__overlaps overlaps = {.part = "checkpoint",
                                   .model = model,
                                   .is_own = is_none,
                                   .reuses_gradients = true,
                                   .before_use = true};
    return cz__check_overlaps(&overlaps);
}

const cz__option_table cz__checkpoint_options = CZ__OPTION_TABLE(
    cz_checkpoint_options, CZ__OPTION(cz_checkpoint_options, model, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_checkpoint_options, zero, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_checkpoint_options, optim, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_checkpoint_options, keep, CZ__COMPARED_APART, CZ__FROM(0), CZ__ZERO_IS(2)),
    CZ__OPTION(cz_checkpoint_options, reserved, CZ__LOCAL, CZ__RESERVED),
    CZ__OPTION(cz_checkpoint_options, parts, CZ__COMPARED_APART, CZ__ANY));

/* An optimizer's own, if it has some. */
static cz_status take_parts(cz_checkpoint *c, const cz_parts *parts)
{
    const cz_parts *its = c->zero ? cz__zero_parts(c->zero) : NULL;
    if (parts && its && parts != its)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint: option parts is not what its zero has");
    if (parts)
        CZ_TRY(cz__parts_match(parts, c->model, c->group, "checkpoint"));
    c->part_count = cz__parts_count(parts ? parts : its);
    return CZ_OK;
}

static cz_status fill_object(cz_checkpoint *c, const char *folder,
                             const cz_checkpoint_options *theirs)
{
    cz_checkpoint_options options;
    CZ_TRY(cz__options_read(&options, &cz__checkpoint_options, theirs, "checkpoint"));
    if (!folder || !folder[0])
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint: the folder is %s", folder ? "''" : "NULL");
    c->model = options.model || !options.zero ? options.model : cz__zero_model(options.zero);
    if (!c->model)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint: neither a model nor a zero");
    CZ_TRY(check_optimizer(c, &options));
    CZ_TRY(cz__group_check_model(c->group, c->model, "checkpoint"));
    CZ_TRY(check_memory(c->model));
    c->zero = options.zero;
    c->optim = options.zero ? cz_zero_local_optim(options.zero) : options.optim;
    c->keep = options.keep;
    CZ_TRY(take_parts(c, options.parts));
    c->folder = cz__path_absolute(folder);
    if (c->folder)
        return CZ_OK;
    return errno == ENOMEM
               ? cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a name")
               : cz__fail(CZ_ERR_IO, "checkpoint: %s: the working directory is not known: %s",
                          folder, strerror(errno));
}

/* What the checkpoints of this rank are made of. */
typedef struct creation {
    const cz_checkpoint *checkpoint;
    cz__index index;
} creation;

static void describe_checkpoint(cz__description *d, const void *context)
{
    static const char *const kinds[] = {"none", "a sharded one", "an unsharded one", NULL};
    const creation *c = context;
    const int unsharded = c->checkpoint->optim != NULL && !c->checkpoint->zero;
    cz__describe_word(d, &(cz__subject){NULL, "the optimizer", -1, NULL, "is"}, kinds,
                      c->checkpoint->zero ? 1 : 2 * unsharded);
    cz__describe_object(d, &(cz__subject){NULL, "option zero", -1, NULL, "is"},
                        c->checkpoint->zero ? &c->checkpoint->zero->object : NULL);
    cz__describe_number(d, &(cz__subject){NULL, "option keep", -1, NULL, "is"}, CZ__FIELD_NUMBER,
                        c->checkpoint->keep);
    cz__describe_index(d, &c->index, true);
}

static cz_status prepare_creation(creation *c, cz_checkpoint *checkpoint, const char *folder,
                                  const cz_checkpoint_options *options)
{
    if (!checkpoint)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a handle");
    c->checkpoint = checkpoint;
    CZ_TRY(fill_object(checkpoint, folder, options));
    return cz__contents_at_first(checkpoint, &c->index);
}

cz_status cz_checkpoint_create(cz_checkpoint **out, cz_group *group, const char *folder,
                               const cz_checkpoint_options *options)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    creation made = {0};
    cz__description room = {0};
    if (out)
        *out = NULL;
    if (!group)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint: group is NULL");
    cz_checkpoint *c = cz__calloc(1, sizeof *c);
    if (c)
        c->group = group;
    cz_status status = prepare_creation(&made, c, folder, options);
    if (!status && !out)
        status = cz__fail(CZ_ERR_ARGUMENT, "checkpoint: out is NULL");
    status = cz__agree_on(group, "checkpoint", describe_checkpoint, &made, status, &room);
    cz__description_clear(&room);
    cz__index_clear(&made.index);
    if (status) {
        cz_checkpoint_destroy(&c);
        return status;
    }
    cz__object_make(&c->object, group, CZ__OBJECT_CHECKPOINT);
    *out = c;
    return CZ_OK;
}

void cz_checkpoint_destroy(cz_checkpoint **checkpoint)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!checkpoint || !*checkpoint)
        return;
    cz__package_destroy(&(*checkpoint)->package);
    cz__text_clear(&(*checkpoint)->notes);
    cz__free((*checkpoint)->snapshot);
    cz__free((*checkpoint)->folder);
    cz__free((*checkpoint)->last);
    cz__free(*checkpoint);
    *checkpoint = NULL;
}

const char *cz_checkpoint_notes(const cz_checkpoint *checkpoint)
{
    return checkpoint ? cz__text_get(&checkpoint->notes) : "";
}

cz_status cz__say_alike(cz_group *group, cz_status mine)
{
    return mine == CZ_OK ? CZ_OK : cz__agree(group, mine, 0, NULL, "checkpoint: sentence");
}

void cz__checkpoint_remember(cz_checkpoint *checkpoint, char *path, int world_size, const char *id)
{
    cz__free(checkpoint->last);
    checkpoint->last = path;
    checkpoint->last_world_size = world_size;
    memcpy(checkpoint->last_id, id, sizeof checkpoint->last_id);
}
