/* SPDX-License-Identifier: MIT */
/* job run FOLDER LOG SEED RANKS MODE KEEP: trains and saves until it is killed, and says in LOG how
 * far it has come. MODE: sync, async or both. job check FOLDER LEAST MOST KEEP RANKS…: loads with
 * each number of ranks. The newest step is from LEAST (-1: there may be nothing) to MOST, and all
 * values are those of one step. Prints it. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state.h"

typedef struct job {
    const char *folder;
    int log;
    uint64_t seed;
    bool sync, async;
    int keep;
    int64_t least, most, newest; /* of a check */
} job;

/* One write: it is there whole, whatever happens to the process after it. */
static void say(const job *j, const char *what, int64_t number)
{
    char line[64];
    const int length = snprintf(line, sizeof line, "%s %" PRId64 "\n", what, number);
    if (write(j->log, line, (size_t)length) != length)
        abort();
}

/* Alike on all ranks. */
static bool chance(const job *j, int64_t step, unsigned which, float share)
{
    return cz_random_uniform(j->seed, (uint64_t)step, which) < share;
}

/* A save is begun, and others are over: that before it, and itself if it is waited for. */
static cz_status save(const job *j, kill_state *s, int64_t *pending)
{
    const bool first = cz_group_rank(s->world) == 0;
    const bool later = j->async && (!j->sync || chance(j, s->step, 0, 0.5f));
    if (first)
        say(j, "begin", s->step);
    CZ_TRY(kill_state_save(s, later));
    if (first && *pending >= 0)
        say(j, "done", *pending);
    *pending = s->step;
    if (later && chance(j, s->step, 1, 0.3f))
        CZ_TRY(cz_checkpoint_wait(s->checkpoint));
    else if (later)
        return CZ_OK;
    if (first)
        say(j, "done", s->step);
    *pending = -1;
    return CZ_OK;
}

static cz_status work(const job *j, kill_state *s)
{
    int64_t found, pending = -1;
    CZ_TRY(kill_state_load(s, CZ_NEWEST, &found));
    if (cz_group_rank(s->world) == 0)
        say(j, "done", found);
    for (;;) {
        do
            CZ_TRY(kill_state_advance(s));
        while (chance(j, s->step, 2, 0.4f));
        CZ_TRY(save(j, s, &pending));
    }
}

/* A cz_rank_main. */
static cz_status run(cz_group *world, void *context)
{
    const job *j = context;
    kill_state s;
    const cz_partition partition = j->seed % 2 ? CZ_PARTITION_ELEMENTS : CZ_PARTITION_GREEDY;
    say(j, "process", (int64_t)getpid());
    cz_status status = kill_state_create(&s, world, j->folder, partition, j->keep);
    if (status == CZ_OK)
        status = work(j, &s);
    kill_state_clear(&s);
    return status;
}

/* The step that was called complete is there, or as many after it as are kept: a save may complete
 * two, that which was under way and its own, before it returns. */
static cz_status check_kept(const job *j, kill_state *s)
{
    int kept = 0;
    int64_t found = -1;
    for (int64_t step = j->most; step >= j->least && kept < j->keep; step--) {
        CZ_TRY(kill_state_load(s, step, &found));
        kept += found == step;
    }
    return kept == j->keep || found == j->least
               ? CZ_OK
               : cz_fail(CZ_ERR_FORMAT, "step %" PRId64 " is gone", j->least);
}

static cz_status check_all(job *j, kill_state *s)
{
    int64_t found;
    CZ_TRY(kill_state_load(s, CZ_NEWEST, &found));
    if (found < j->least || found > j->most)
        return cz_fail(CZ_ERR_FORMAT,
                       "the newest step is %" PRId64 ", it must be from %" PRId64 " to %" PRId64,
                       found, j->least, j->most);
    if (cz_group_rank(s->world) == 0)
        j->newest = found;
    return j->least < 0 ? CZ_OK : check_kept(j, s);
}

/* A cz_rank_main. */
static cz_status check(cz_group *world, void *context)
{
    job *j = context;
    kill_state s;
    const cz_partition partition =
        cz_group_size(world) % 2 ? CZ_PARTITION_ELEMENTS : CZ_PARTITION_GREEDY;
    cz_status status = kill_state_create(&s, world, j->folder, partition, 0);
    if (status == CZ_OK)
        status = check_all(j, &s);
    kill_state_clear(&s);
    return status;
}

static int launch(cz_rank_main what, job *j, const char *ranks)
{
    cz_launch_options options = CZ_LAUNCH_OPTIONS_INIT;
    options.ranks = atoi(ranks);
    options.timeout_seconds = 40;
    const cz_status status = cz_launch(what, j, &options);
    if (status != CZ_OK)
        printf("%s ranks: %s: %s\n", ranks, cz_status_name(status), cz_last_error());
    return status == CZ_OK ? 0 : 1;
}

static int main_run(char **arguments)
{
    const char *mode = arguments[4];
    job j = {.folder = arguments[0], .seed = strtoull(arguments[2], NULL, 10)};
    j.log = open(arguments[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    j.sync = strcmp(mode, "async") != 0;
    j.async = strcmp(mode, "sync") != 0;
    j.keep = atoi(arguments[5]);
    alarm(60); /* a killer that is gone kills nobody */
    return j.log < 0 ? 2 : launch(run, &j, arguments[3]);
}

static int main_check(int count, char **arguments)
{
    job j = {.folder = arguments[0], .newest = -1};
    j.least = strtoll(arguments[1], NULL, 10);
    j.most = strtoll(arguments[2], NULL, 10);
    j.keep = atoi(arguments[3]);
    for (int i = 4; i < count; i++)
        if (launch(check, &j, arguments[i]) != 0)
            return 1;
    printf("%" PRId64 "\n", j.newest);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 8 && strcmp(argv[1], "run") == 0)
        return main_run(argv + 2);
    if (argc > 6 && strcmp(argv[1], "check") == 0)
        return main_check(argc - 2, argv + 2);
    fprintf(stderr,
            "job: run FOLDER LOG SEED RANKS MODE KEEP, or check FOLDER LEAST MOST KEEP RANKS\n");
    return 2;
}
