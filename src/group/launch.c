/* SPDX-License-Identifier: MIT */
/* The same main function on N ranks: threads of this process, each with its handle on one group. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/float_mode.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/process.h"
#include "base/status.h"
#include "base/thread.h"
#include "group/internal.h"
#include "group/plugin.h"
#include "group/starter.h"

typedef struct rank_run rank_run;

typedef struct rank_thread {
    rank_run *run;
    cz_group *group;
    pthread_t thread;
    bool started;
    bool returned;
} rank_thread;

/* Shared by the launcher and the ranks. If ranks hang in the program's own code it is left to
 * them. */
struct rank_run {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pid_t process;
    cz_rank_main main_function;
    void *context;
    int ranks;
    int running;
    int first_failed; /* the rank that failed first, -1: none */
    bool only_heard;  /* it only heard of another's failure (CZ_ERR_PEER) */
    cz_status status;
    double failed_at;
    char sentence[CZ__SENTENCE_BYTES];
    rank_thread threads[];
};

/* What all ranks have agreed on says itself which rank it is about. */
static bool names_its_rank(const char *why)
{
    static const char word[] = "rank ";
    if (strncmp(why, word, sizeof word - 1) != 0)
        return false;
    const char *after = why + sizeof word - 1;
    const size_t digits = strspn(after, "0123456789");
    return digits > 0 && strncmp(after + digits, ": ", 2) == 0;
}

static void say_whose(char *sentence, size_t bytes, int rank, int ranks, const char *why)
{
    if (names_its_rank(why))
        snprintf(sentence, bytes, "%s", why);
    else
        snprintf(sentence, bytes, "rank %d of %d: %s", rank, ranks, why);
}

static void record_failure(rank_run *run, int rank, cz_status status, const char *why)
{
    CZ__OWN_FLOATS;
    if (run->first_failed < 0)
        run->failed_at = cz__seconds();
    if (run->first_failed >= 0 && !(run->only_heard && status != CZ_ERR_PEER))
        return;
    run->first_failed = rank;
    run->only_heard = status == CZ_ERR_PEER;
    run->status = status;
    say_whose(run->sentence, sizeof run->sentence, rank, run->ranks, why);
}

/* The rank is through, and in a failure says so to the others. */
static void end_rank(rank_thread *self, cz_status status, const char *why)
{
    rank_run *run = self->run;
    pthread_mutex_lock(&run->lock);
    if (status != CZ_OK)
        record_failure(run, cz_group_rank(self->group), status, why);
    pthread_mutex_unlock(&run->lock);
    cz__group_leave(self->group, status == CZ_OK ? NULL : why);
    pthread_mutex_lock(&run->lock);
    self->returned = true;
    run->running--;
    pthread_cond_signal(&run->changed);
    pthread_mutex_unlock(&run->lock);
}

static void end_cancelled(void *context)
{
    rank_thread *self = context;
    if (self->run->process == cz__process())
        end_rank(self, CZ_ERR_STATE, "its thread was cancelled, or called pthread_exit()");
}

static void *rank_main(void *context)
{
    rank_thread *self = context;
    char why[CZ__SENTENCE_BYTES]; /* a copy: continuations that run in the end may fail as well */
    cz_status status;
    pthread_cleanup_push(end_cancelled, self);
    status = CZ__CALL_PROGRAM(self->run->main_function(self->group, self->run->context));
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cleanup_pop(0);
    snprintf(why, sizeof why, "%s", cz_last_error());
    if (self->run->process == cz__process()) /* not in a child that came out of it */
        end_rank(self, status, why);
    return NULL;
}

static int ranks_from_environment(void)
{
    const double ranks = cz__environment_number("CZERO_RANKS", 1, CZ__MAX_WORLD, 1);
    if (ranks == floor(ranks))
        return (int)ranks;
    cz__log(CZ_LOG_WARN, "CZERO_RANKS is %g, expected a whole number: using 1", ranks);
    return 1;
}

const cz__option_table cz__launch_options = CZ__OPTION_TABLE(
    cz_launch_options,
    CZ__OPTION(cz_launch_options, ranks, CZ__LOCAL, CZ__BETWEEN(0, CZ__MAX_WORLD)),
    CZ__OPTION(cz_launch_options, reserved, CZ__LOCAL, CZ__RESERVED),
    CZ__OPTION(cz_launch_options, timeout_seconds, CZ__LOCAL, CZ__FROM(0), .range.infinite = true),
    CZ__OPTION(cz_launch_options, keep_job, CZ__LOCAL, CZ__FLAG),
    CZ__OPTION(cz_launch_options, reserved_2, CZ__LOCAL, CZ__RESERVED));

static cz_status read_options(cz_launch_options *read, const cz_launch_options *options)
{
    CZ__OWN_FLOATS;
    CZ_TRY(cz__options_read(read, &cz__launch_options, options, "launch"));
    if (read->ranks == 0)
        read->ranks = ranks_from_environment();
    if (read->timeout_seconds == 0)
        read->timeout_seconds = cz__environment_number("CZERO_TIMEOUT", 1e-3, 1e9, 600);
    return CZ_OK;
}

static cz_status create_groups(rank_run *run, double timeout_seconds)
{
    const cz_group_options options = {.size = sizeof options, .timeout_seconds = timeout_seconds};
    if (run->ranks == 1)
        return cz__group_create_self(&run->threads[0].group, &options);
    cz_group **groups = cz__calloc((size_t)run->ranks, sizeof(cz_group *));
    if (!groups)
        return cz__fail(CZ_ERR_MEMORY, "launch: no memory for %d ranks", run->ranks);
    const cz_status status = cz_group_create_threads(groups, run->ranks, &options);
    for (int r = 0; r < run->ranks; r++)
        run->threads[r].group = groups[r]; /* NULL without any */
    cz__free(groups);
    return status;
}

/* Rank mains may keep small tensors on their stack: give them what a main thread usually has. */
enum { STACK_BYTES = 8 << 20 };

static void start_thread(rank_run *run, int rank)
{
    rank_thread *self = &run->threads[rank];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    self->run = run;
    const int error = pthread_create(&self->thread, &attributes, rank_main, self);
    pthread_attr_destroy(&attributes);
    self->started = error == 0;
    if (self->started)
        return;
    cz__fail(CZ_ERR_MEMORY, "no thread for it (too little memory, or too many threads): %s",
             strerror(error));
    pthread_mutex_lock(&run->lock);
    record_failure(run, rank, CZ_ERR_MEMORY, cz_last_error());
    run->running--;
    pthread_mutex_unlock(&run->lock);
    cz__group_leave(self->group, "its thread could not be started");
}

/* Until all have returned, or until `patience` seconds after the first failure. Lock held. */
static void wait_for_ranks(rank_run *run, double patience)
{
    CZ__OWN_FLOATS;
    while (run->running > 0) {
        const double now = cz__seconds();
        const double last = run->first_failed >= 0 ? run->failed_at + patience : INFINITY;
        const double until = fmin(last, now + 3600); /* what every time_t holds */
        if (now >= last)
            return;
        struct timespec moment = {.tv_sec = (time_t)until};
        moment.tv_nsec = (long)((until - floor(until)) * 1e9);
        pthread_cond_timedwait(&run->changed, &run->lock, &moment);
    }
}

static void destroy(rank_run *run)
{
    pthread_cond_destroy(&run->changed);
    pthread_mutex_destroy(&run->lock);
    cz__free(run);
}

/* Some rank is still in the program's code: name it; its thread and all that it may touch are
 * left. */
static cz_status give_up(rank_run *run, double patience)
{
    CZ__OWN_FLOATS;
    int late = 0;
    while (run->threads[late].returned || !run->threads[late].started)
        late++;
    for (int r = 0; r < run->ranks; r++)
        if (run->threads[r].started)
            pthread_detach(run->threads[r].thread);
    const cz_status status =
        cz__fail(CZ_ERR_TIMEOUT, "rank %d of %d did not return within %g s after the failure of %s",
                 late, run->ranks, patience, run->sentence);
    pthread_mutex_unlock(&run->lock);
    return status;
}

/* It is the program's last word on this rank, and perhaps nobody looks at what this returns before
 * the job has ended. */
static cz_status fail_in_job(cz_status status, const char *why, bool keeps_job)
{
    CZ__OWN_FLOATS;
    cz__log(CZ_LOG_ERROR, "launch: %s: %s", cz_status_name(status), why);
    if (keeps_job || status == CZ_ERR_TIMEOUT || status == CZ_ERR_PEER)
        cz__plugin_give_up(keeps_job);
    return cz__fail(status, "%s", why);
}

/* One rank of a job: this process, on this thread. */
static cz_status launch_in_job(cz_rank_main main_function, void *context,
                               const cz_launch_options *read)
{
    const cz_group_options options = {.size = sizeof options,
                                      .timeout_seconds = read->timeout_seconds};
    char why[CZ__SENTENCE_BYTES], whole[CZ__SENTENCE_BYTES + 64];
    cz_group *world;
    cz_status status = cz_group_create_world(&world, "mpi", true, &options);
    if (status == CZ_OK && (status = cz__starter_check_size(world->size)) != CZ_OK)
        cz_group_destroy(&world);
    if (status != CZ_OK) {
        snprintf(whole, sizeof whole, "%s", cz_last_error());
        return fail_in_job(status, whole, read->keep_job);
    }
    const int rank = world->rank, size = world->size;
    status = CZ__CALL_PROGRAM(main_function(world, context));
    snprintf(why, sizeof why, "%s", cz_last_error());
    cz__group_leave(world, status == CZ_OK ? NULL : why);
    if (status == CZ_OK)
        return CZ_OK;
    say_whose(whole, sizeof whole, rank, size, why);
    return fail_in_job(status, whole, read->keep_job);
}

static cz_status launch_threads(cz_rank_main main_function, void *context,
                                const cz_launch_options *read)
{
    CZ__UNCANCELLED;
    rank_run *run = cz__calloc(1, sizeof *run + (size_t)read->ranks * sizeof(rank_thread));
    if (!run)
        return cz__fail(CZ_ERR_MEMORY, "launch: no memory for %d ranks", read->ranks);
    run->process = cz__process();
    run->main_function = main_function;
    run->context = context;
    run->ranks = run->running = read->ranks;
    run->first_failed = -1;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&run->lock, NULL);
    pthread_cond_init(&run->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    cz_status status = create_groups(run, read->timeout_seconds);
    if (status != CZ_OK) {
        destroy(run);
        return status;
    }
    for (int r = 0; r < run->ranks; r++)
        start_thread(run, r);
    pthread_mutex_lock(&run->lock);
    wait_for_ranks(run, read->timeout_seconds);
    if (run->running > 0)
        return give_up(run, read->timeout_seconds);
    pthread_mutex_unlock(&run->lock);
    for (int r = 0; r < run->ranks; r++)
        if (run->threads[r].started)
            pthread_join(run->threads[r].thread, NULL);
    status = run->first_failed < 0 ? CZ_OK : cz__fail(run->status, "%s", run->sentence);
    destroy(run);
    return status;
}

cz_status cz_launch(cz_rank_main main_function, void *context, const cz_launch_options *options)
{
    cz_launch_options read;
    if (!main_function)
        return cz__fail(CZ_ERR_ARGUMENT, "launch: main_function is NULL");
    bool job;
    CZ_TRY(read_options(&read, options));
    CZ_TRY(cz__starter_choose(&job));
    return job ? launch_in_job(main_function, context, &read)
               : launch_threads(main_function, context, &read);
}
