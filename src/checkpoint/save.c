/* SPDX-License-Identifier: MIT */
/* Saving: ranks agree on what is saved, each prepares and writes its own, and they agree that all
 * could. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "checkpoint/generation.h"
#include "checkpoint/loading.h"
#include "checkpoint/object.h"
#include "checkpoint/package.h"
#include "collective/description.h"
#include "zero/zero.h"

/* ---- what ranks have in common ---- */

typedef struct request {
    cz_checkpoint *checkpoint;
    cz_save_options options;
    bool later; /* asynchronous */
} request;

const cz__option_table cz__save_options =
    CZ__OPTION_TABLE(cz_save_options, CZ__OPTION(cz_save_options, step, CZ__COMPARED, CZ__FROM(0)),
                     CZ__OPTION(cz_save_options, common, CZ__COMPARED_APART, CZ__ANY),
                     CZ__OPTION(cz_save_options, own, CZ__LOCAL, CZ__ANY));

static void describe_save(cz__description *description, const void *context)
{
    const request *r = context;
    cz__describe_call(description, &r->checkpoint->object);
    cz__describe_options(description, &cz__save_options, &r->options, NULL);
    cz__describe_number(description,
                        &(cz__subject){NULL, "the number of generations to keep", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, r->checkpoint->keep);
    cz__describe_number(description, &(cz__subject){NULL, "asynchronous saving", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, r->later);
    cz__describe_common(description, r->options.common);
}

static cz_status check_request(request *r, const cz_save_options *options)
{
    CZ_TRY(cz__options_read(&r->options, &cz__save_options, options, "checkpoint save"));
    if (r->checkpoint->optim)
        CZ_TRY(cz__optim_check_trained(r->checkpoint->optim, "checkpoint save"));
    if (r->checkpoint->zero)
        CZ_TRY(cz__zero_check_idle(r->checkpoint->zero));
    return cz__common_check(r->options.common);
}

/* ---- number and name ---- */

/* One more than any that a rank sees, and random bits. */
static cz_status choose_number(cz_checkpoint *c, cz__index *index)
{
    cz__survey *survey;
    int64_t newest = 0;
    uint8_t bits[16] = {0};
    CZ_TRY(cz__survey_begin(&survey, c->group, c->folder));
    cz_status status = cz__survey_newest(survey, &newest);
    cz__survey_end(&survey);
    CZ_TRY(status);
    index->generation = newest + 1;
    if (index->generation > CZ__LAST_GENERATION)
        status = cz__fail(CZ_ERR_IO, "checkpoint save: %s has a generation %" PRId64 ", the last",
                          c->folder, index->generation - 1);
    else if (cz_group_rank(c->group) == 0 &&
             getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        status = cz__fail(CZ_ERR_IO, "checkpoint: no random numbers from the system");
    CZ_TRY(cz__agree(c->group, status, 0, NULL, "checkpoint: id"));
    CZ_TRY(cz_broadcast(c->group, bits, sizeof bits, CZ_U8, 0, CZ_LABEL("checkpoint: id")));
    for (size_t i = 0; i < sizeof bits; i++)
        snprintf(index->id + 2 * i, 3, "%02x", bits[i]);
    return CZ_OK;
}

/* ---- after writing ---- */

/* Of a page of generations, newest first: what is not among the newest `keep` complete ones
 * goes. */
static void prune_page(const cz_checkpoint *c, const cz__package *package,
                       const cz__generation *list, int count, int *kept)
{
    for (int i = 0; i < count; i++) {
        if (cz__generation_complete(&list[i]) && (*kept)++ < c->keep)
            continue;
        if (!cz__package_leads(package) || *kept == 0)
            continue;
        if (cz__generation_remove(c->folder, list[i].number, list[i].step) != CZ_OK)
            cz_log(CZ_LOG_WARN, "checkpoint: an old generation stays: %s", cz_last_error());
    }
}

/* Older generations: the newest `keep` complete ones stay, this one among them. That it cannot be
 * done is no failure of the save, which is published; the next one tries again. */
static cz_status prune(cz_checkpoint *c, const cz__package *package)
{
    cz__survey *survey;
    const cz__generation *list;
    int count = CZ__GENERATIONS, kept = 0;
    cz_status status = cz__survey_begin(&survey, c->group, c->folder);
    if (status)
        goto done;
    while (count == CZ__GENERATIONS) {
        status = cz__survey_next(survey, &list, &count);
        prune_page(c, package, list, count, &kept);
        if (status)
            break;
    }
done:
    cz__survey_end(&survey);
    if (status == CZ_OK || cz__group_is_broken(c->group))
        return status;
    cz_log(CZ_LOG_WARN, "checkpoint: old generations stay: %s", cz_last_error());
    return CZ_OK;
}

/* All ranks: nothing of it stays. */
static void withdraw(cz_checkpoint *c, cz__package *package)
{
    const cz__sentence held = cz__sentence_hold();
    cz__package_discard(package);
    if (cz__agree(c->group, CZ_OK, 0, NULL, "checkpoint: withdraw") == CZ_OK &&
        cz__package_leads(package))
        (void)cz__package_remove(package);
    cz__sentence_resume(held);
}

/* All ranks: is the generation one that a load would take? */
static cz_status confirm(cz_checkpoint *c, const cz__package *package)
{
    cz__loading l = {.checkpoint = c, .call = "checkpoint save"};
    const cz__generation g = cz__package_generation(package);
    const cz_status status = cz__loading_confirm(&l, &g);
    const cz__sentence held = cz__sentence_hold();
    cz__loading_clear(&l);
    cz__sentence_resume(held);
    return status;
}

/* This rank's result becomes that of all; then the package is gone. Nothing is taken away for the
 * new generation before that was found whole. */
static cz_status finish(cz_checkpoint *c, cz__package **package, cz_status mine)
{
    char *path = mine == CZ_OK ? cz__strdup(cz__package_path(*package)) : NULL;
    if (mine == CZ_OK && !path)
        mine = cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a name");
    cz_status status = cz__agree(c->group, mine, 0, NULL, "checkpoint: save");
    if (!status)
        status = confirm(c, *package);
    if (!status) {
        cz__checkpoint_remember(c, path, cz_group_size(c->group), cz__package_id(*package));
        path = NULL;
        /* nobody goes on before they are gone */
        status = cz__agree(c->group, prune(c, *package), 0, NULL, "checkpoint: old generations");
    } else if (!cz__group_is_broken(c->group)) {
        withdraw(c, *package);
    }
    cz__package_destroy(package);
    cz__free(path);
    return status;
}

cz_status cz__checkpoint_settle(cz_checkpoint *checkpoint)
{
    if (!checkpoint->package)
        return CZ_OK;
    return finish(checkpoint, &checkpoint->package, cz__package_end(checkpoint->package));
}

/* ---- saving ---- */

static cz_status take_snapshot(cz_checkpoint *c, cz__package *package)
{
    const size_t bytes = cz__package_bytes(package);
    if (bytes > c->snapshot_bytes) {
        cz__free(c->snapshot);
        c->snapshot = cz__allocate(CZ_MEMORY_STAGING, bytes);
        c->snapshot_bytes = c->snapshot ? bytes : 0;
    }
    if (bytes > 0 && !c->snapshot)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a copy of %zu bytes", bytes);
    return cz__package_copy(package, c->snapshot);
}

/* All ranks get the same; *package stays only if they could. */
static cz_status prepare_save(request *r, const cz__index *index, cz__package **package)
{
    cz_checkpoint *c = r->checkpoint;
    int64_t leaders;
    const cz__package_order order = {.folder = c->folder,
                                     .rank = cz_group_rank(c->group),
                                     .index = index,
                                     .source = {.checkpoint = c},
                                     .common = r->options.common,
                                     .own = r->options.own};
    cz_status status = cz__package_create(package, &order);
    if (!status && r->later)
        status = take_snapshot(c, *package);
    status = cz__agree(c->group, status, 0, NULL, "checkpoint: prepare");
    leaders = cz__package_leads(*package);
    if (status)
        goto done;
    status = cz_all_reduce(c->group, &leaders, 1, CZ_I64, CZ_MAX, CZ_LABEL("checkpoint: lead"));
    if (status)
        goto done;
    if (leaders == 0)
        status = cz__say_alike(
            c->group,
            cz__fail(CZ_ERR_IO,
                     "checkpoint save: %s is there already: does another job write to this folder?",
                     cz__package_path(*package)));
    if (status)
        goto done;
    return CZ_OK;
done:
    if (!cz__group_is_broken(c->group))
        withdraw(c, *package);
    cz__package_destroy(package);
    return status;
}

static cz_status write_now_or_later(const request *r, cz__package *package)
{
    cz_checkpoint *c = r->checkpoint;
    if (!r->later)
        return finish(c, &package, cz__package_write(package));
    const cz_status status =
        cz__agree(c->group, cz__package_start(package), 0, NULL, "checkpoint: thread");
    if (status != CZ_OK) /* nobody has written anything */
        return finish(c, &package, status);
    cz__package_go(package);
    c->package = package;
    return CZ_OK;
}

static cz_status save_agreed(request *r)
{
    cz_checkpoint *c = r->checkpoint;
    cz__package *package = NULL;
    cz__index index;
    cz_status status = cz__contents(c, "checkpoint save", true, &index);
    index.step = r->options.step;
    if (status)
        goto done;
    status = choose_number(c, &index);
    if (status)
        goto done;
    status = prepare_save(r, &index, &package);
    if (status)
        goto done;
    status = write_now_or_later(r, package);
done:
    if (c->optim)
        cz__optim_drop_unpacked(c->optim);
    cz__index_clear(&index);
    return status;
}

static cz_status save(cz_checkpoint *checkpoint, const cz_save_options *options, bool later)
{
    request r = {.checkpoint = checkpoint, .later = later};
    cz__description room = {0};
    if (!checkpoint)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint save: checkpoint is NULL");
    const cz_status mine = check_request(&r, options);
    cz_status status =
        cz__agree_on(checkpoint->group, "checkpoint save", describe_save, &r, mine, &room);
    cz__description_clear(&room);
    if (!status)
        status = cz__checkpoint_settle(checkpoint);
    return status == CZ_OK ? save_agreed(&r) : status;
}

cz_status cz_checkpoint_save(cz_checkpoint *checkpoint, const cz_save_options *options)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    return save(checkpoint, options, false);
}

cz_status cz_checkpoint_save_async(cz_checkpoint *checkpoint, const cz_save_options *options)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    return save(checkpoint, options, true);
}

cz_status cz_checkpoint_wait(cz_checkpoint *checkpoint)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!checkpoint)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint wait: checkpoint is NULL");
    bool same;
    CZ_TRY(
        cz__agree_for(checkpoint->group, &checkpoint->object, CZ_OK, 0, &same, "checkpoint: wait"));
    return cz__checkpoint_settle(checkpoint);
}
