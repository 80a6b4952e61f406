/* SPDX-License-Identifier: MIT */
/* Process groups: making and leaving them. */
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/float_mode.h"
#include "base/kernel_threads.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/process.h"
#include "base/status.h"
#include "base/thread.h"
#include "group/internal.h"
#include "engine/rendezvous.h"
#include "group/work.h"

enum { LARGEST_SEGMENT_BYTES = 1 << 30 };

#define LEAVE_SECONDS 0.2

/* Is a word in the comma-separated list CZERO_DEBUG? */
static bool debug_asks(const char *word)
{
    const char *list = cz__environment_text("CZERO_DEBUG");
    const size_t length = strlen(word);
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, word, length) == 0 && (at[length] == '\0' || at[length] == ','))
            return true;
    return false;
}

const cz__option_table cz__group_options = CZ__OPTION_TABLE(
    cz_group_options,
    CZ__OPTION(cz_group_options, timeout_seconds, CZ__LOCAL, CZ__FROM(0), .range.infinite = true),
    CZ__OPTION(cz_group_options, warn_seconds, CZ__LOCAL, CZ__FROM(0), .range.infinite = true),
    CZ__OPTION(cz_group_options, segment_bytes, CZ__COMPARED_APART,
               CZ__BETWEEN(0, LARGEST_SEGMENT_BYTES), .range.multiple = 64),
    CZ__OPTION(cz_group_options, checked, CZ__COMPARED_APART, CZ__FLAG),
    CZ__OPTION(cz_group_options, reserved, CZ__LOCAL, CZ__RESERVED));

static cz_status read_options(cz_group_options *read, const cz_group_options *options)
{
    CZ_TRY(cz__options_read(read, &cz__group_options, options, "group"));
    if (!read->checked)
        read->checked = debug_asks("collectives");
    if (read->timeout_seconds == 0)
        read->timeout_seconds = cz__environment_number("CZERO_TIMEOUT", 1e-3, 1e9, 600);
    if (read->warn_seconds == 0)
        read->warn_seconds = cz__environment_number("CZERO_WARN", 1e-3, 1e9, 30);
    return CZ_OK;
}

static void nobody_to_notify(void *context, int rank)
{
}

static cz_status nobody_left(void *context, int rank)
{
    return CZ_OK;
}

/* What the ranks of a process meet by; one that is alone has its own. */
static cz_status set_rendezvous(cz_group *group, cz__rendezvous_set *rendezvous)
{
    static const cz__ranks alone = {NULL, nobody_to_notify, nobody_left};
    group->rendezvous = rendezvous;
    group->owns_rendezvous = group->table.post_send == cz__backend_self.post_send;
    if (group->owns_rendezvous)
        CZ_TRY(cz__rendezvous_set_create(&group->rendezvous, 1, &alone));
    return group->rendezvous ? cz__group_make_tiles(group) : CZ_OK;
}

static const cz__executor_calls operations = {.advance = cz__operation_advance,
                                              .retire = cz__work_retire,
                                              .watch = cz__operation_watch,
                                              .is_close = cz__operation_is_close,
                                              .spin = cz__operation_spin};

/* On an endpoint, which is left on failure too. `executor` NULL: one of its own. */
cz_status cz__group_create(cz_group **out, int rank, int size, const cz_backend *backend,
                           void *endpoint, cz__rendezvous_set *rendezvous, cz__executor *executor,
                           const cz_group_options *options)
{
    cz_status status = CZ_ERR_MEMORY;
    cz_group *group = cz__calloc(1, sizeof *group);
    if (!group) {
        (void)cz__fail(status, "group: no memory for rank %d of %d", rank, size);
        goto fail;
    }
    group->process = cz__process();
    group->table = *backend;
    group->backend = &group->table;
    group->rank = rank;
    group->size = size;
    group->device = cz_device_cpu();
    status = set_rendezvous(group, rendezvous);
    cz__engines_start(group);
    if (status)
        goto fail;
    status = cz__group_make_spare(group);
    if (status)
        goto fail;
    group->executor = executor;
    if (executor)
        cz__executor_share(executor);
    else
        status = cz__executor_create(&group->executor, &operations, backend->poll_seconds,
                                     backend->inline_only);
    if (status)
        goto fail;
    group->references = 1;
    group->endpoint = endpoint;
    group->timeout_seconds = options->timeout_seconds;
    group->warn_seconds = options->warn_seconds;
    group->segment_bytes =
        options->segment_bytes ? options->segment_bytes : cz__default_segment_bytes(size);
    group->checked = options->checked;
    group->nonce = cz__group_nonce(group);
    cz__recorder_add(group);
    cz__executor_lock(group->executor);
    cz__executor_enlist(group->executor, group);
    cz__executor_unlock(group->executor);
    group->backend->start(endpoint, cz__executor_notify, group->executor);
    *out = group;
    return CZ_OK;
fail:
    backend->leave(endpoint, "it could not be created");
    if (group)
        cz__group_free_memory(group);
    cz__free(group);
    return status;
}

cz_status cz__group_create_self(cz_group **out, const cz_group_options *options)
{
    static char nothing; /* an endpoint without content */
    static atomic_ullong made;
    cz_group_options read;
    CZ_TRY(read_options(&read, options));
    CZ_TRY(cz__group_create(out, 0, 1, &cz__backend_self, &nothing, NULL, NULL, &read));
    cz__group_give_name(*out, "self", atomic_fetch_add(&made, 1));
    return CZ_OK;
}

static bool have_a_core_each(int ranks)
{
    const cz__cores cores = cz__cores_look();
    const double processes = cores.processes > 1 ? cores.processes : 1;
    return ranks * processes <= fmin(cores.allowed, cores.quota);
}

cz_status cz_group_create_threads(cz_group **out, int world_size, const cz_group_options *options)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    static atomic_ullong made;
    cz_group_options read;
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "group_create_threads: out is NULL");
    if (world_size < 1 || world_size > CZ__MAX_WORLD)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "group_create_threads: world_size is %d, allowed is 1 to %d", world_size,
                        CZ__MAX_WORLD);
    memset(out, 0, (size_t)world_size * sizeof *out);
    CZ_TRY(read_options(&read, options));
    void **endpoints = cz__calloc((size_t)world_size, sizeof *endpoints);
    if (!endpoints)
        return cz__fail(CZ_ERR_MEMORY, "group: no memory for %d ranks", world_size);
    cz_status status = cz__threads_create(endpoints, world_size);
    /* An endpoint is left if its group fails. */
    for (int r = 0; r < world_size && endpoints[r]; r++) {
        if (status == CZ_OK)
            status = cz__group_create(&out[r], r, world_size, &cz__backend_threads, endpoints[r],
                                      cz__threads_rendezvous(endpoints[r]), NULL, &read);
        else
            cz__backend_threads.leave(endpoints[r], "the group could not be created");
    }
    cz__free(endpoints);
    const uint64_t number = atomic_fetch_add(&made, 1);
    if (status) {
        for (int r = 0; r < world_size; r++)
            cz_group_destroy(&out[r]);
        return status;
    }
    const bool spin = world_size > 1 && have_a_core_each(world_size);
    for (int r = 0; r < world_size; r++) {
        cz__group_give_name(out[r], "threads", number);
        if (spin)
            cz__executor_spin(out[r]->executor);
    }
    return CZ_OK;
}

cz_status cz_group_create_custom(cz_group **out, int rank, int size, const cz_backend *backend,
                                 void *endpoint, const cz_group_options *options)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    static atomic_ullong made;
    cz_group_options read;
    cz_backend table;
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "group_create_custom: out is NULL");
    if (!backend || !endpoint)
        return cz__fail(CZ_ERR_ARGUMENT, "group_create_custom: %s is NULL",
                        backend ? "endpoint" : "backend");
    *out = NULL;
    CZ_TRY(cz__backend_read(&table, backend)); /* there is no `leave` to rely on yet */
    if (table.one_thread)
        cz__thread_forbid();
    cz_status status = read_options(&read, options);
    if (status == CZ_OK && (size < 1 || size > CZ__MAX_WORLD || rank < 0 || rank >= size))
        status = cz__fail(CZ_ERR_ARGUMENT, "group_create_custom: rank %d of %d", rank, size);
    if (status != CZ_OK) {
        table.leave(endpoint, "it could not be created");
        return status;
    }
    CZ_TRY(cz__group_create(out, rank, size, &table, endpoint, NULL, NULL, &read));
    cz__group_give_name(*out, table.name, atomic_fetch_add(&made, 1));
    if (table.attend && have_a_core_each(1))
        cz__executor_spin((*out)->executor);
    return CZ_OK;
}

/* ---- the end ---- */

static cz_work *first_of(const cz_group *group)
{
    cz_work *work = cz__executor_first(group->executor);
    while (work && work->group != group)
        work = work->next;
    return work;
}

/* End what is in flight; the lock is held at call and return. */
static void end_operations(cz_group *group)
{
    cz__executor *executor = group->executor;
    cz_work *work;
    const cz__sentence own = cz__sentence_hold(); /* of a call that failed and cleans up */
    cz__executor_seize(executor);
    while ((work = first_of(group))) {
        cz__executor_unlock(executor);
        if (work->phase < CZ__PHASE_CONTINUE) {
            cz__operation_withdraw(work);
            work->status = CZ_ERR_STATE;
            snprintf(work->sentence, sizeof work->sentence, "%s", group->why);
            work->phase = CZ__PHASE_CONTINUE;
        } else if (work->phase == CZ__PHASE_CONTINUE) {
            cz__operation_withdraw(work);
        }
        (void)cz__operation_advance(work);
        cz__executor_lock(executor);
        cz__work_retire(work);
        if (first_of(group) ==
            work) /* waits for its children, or for its turn: those behind it first */
            cz__executor_rotate(executor, work);
    }
    cz__executor_release(executor);
    cz__sentence_resume(own);
}

/* What all ranks of a process have come to ends without this rank's help but for its part: it does
 * that, and gives the others a moment for theirs, so that they need not fail for a rank which had
 * nothing more to do. Lock held. */
static void let_end(cz_group *group)
{
    const double until = cz__seconds() + LEAVE_SECONDS;
    cz__executor *executor = group->executor;
    cz_work *work;
    const cz__sentence own = cz__sentence_hold();
    cz__executor_seize(executor);
    while (group->broken == CZ_OK && (work = first_of(group)) && cz__seconds() < until) {
        cz__executor_unlock(executor);
        const bool moves = cz__operation_advance(work);
        const bool all_have_come = work->phase >= CZ__PHASE_DATA;
        if (!moves)
            sched_yield();
        cz__executor_lock(executor);
        cz__work_retire(work);
        if (!moves && !all_have_come)
            break;
    }
    cz__executor_release(executor);
    cz__sentence_resume(own);
}

void cz__group_leave(cz_group *group, const char *why)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    cz__executor *executor = group->executor;
    if (group->process != cz__process()) {
        cz__process_forsake(group, &group->forsaken);
        return;
    }
    cz__executor_lock(executor);
    if (!why && group->rendezvous)
        let_end(group);
    if (group->broken == CZ_OK)
        snprintf(group->why, sizeof group->why,
                 "the group was destroyed with operations in flight");
    group->broken = CZ_ERR_STATE;
    group->left = true;
    cz__executor_delist(executor, group);
    end_operations(group);
    cz__executor_unlock(executor);
    if (group->endpoint)
        group->backend->leave(group->endpoint, why);
    cz__executor_stop(executor);
    cz__recorder_remove(group);
    cz__executor_lock(executor);
    group->endpoint = NULL;
    cz__group_unreference(group);
}

void cz_group_destroy(cz_group **group)
{
    CZ__OWN_FLOATS;
    if (!group || !*group)
        return;
    cz__group_leave(*group, NULL);
    *group = NULL;
}

cz_status cz_progress(cz_group *group)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!group)
        return cz__fail(CZ_ERR_ARGUMENT, "progress: group is NULL");
    CZ_TRY(cz__group_check_process(group, "progress"));
    if (cz__work_current())
        return cz__fail(CZ_ERR_STATE, "progress: inside a continuation");
    cz__executor_lock(group->executor);
    cz__executor_poll(group->executor, group);
    cz__executor_unlock(group->executor);
    return CZ_OK;
}
