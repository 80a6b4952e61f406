/* SPDX-License-Identifier: MIT */
/* kill JOB N JSON [MPIRUN…]: N times, a job that saves all the time is ended by SIGKILL at a random
 * moment: all of it where ranks are threads; one rank of it where MPIRUN starts them as processes
 * (every fourth). Then there must be a checkpoint, with all values of one step, and no older than
 * the last one that the job had called complete. Most jobs go on from the checkpoint of the job
 * before them, so that what a kill leaves behind is also lived with. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MOST = 4, ARGUMENTS = 48 };

typedef struct progress {
    pid_t processes[RANKS_MOST];
    int process_count;
    int64_t begun, done; /* -1: none */
    int64_t resumed;     /* what it began with */
    bool loaded;         /* the job has said that */
} progress;

typedef struct killer {
    const char *program;
    char **mpirun; /* NULL-terminated, may be empty */
    char folder[200], log[200], output[200];
    char place[100];
    uint64_t seed;
    int chain; /* folders made so far */
    /* what came of it */
    int kills, kills_mpi, kills_saving, unreported, interrupted, first, failed;
} killer;

/* ---- small things ---- */

static uint64_t next_random(killer *k)
{
    uint64_t z = k->seed += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int below(killer *k, int limit)
{
    return (int)(next_random(k) % (uint64_t)limit);
}

static void pause_for(double seconds)
{
    const struct timespec time = {(time_t)seconds,
                                  (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&time, NULL);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the job's log ---- */

static void read_log(const char *path, progress *p)
{
    char line[80];
    long long number;
    FILE *file = fopen(path, "r");
    *p = (progress){.begun = -1, .done = -1};
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "process %lld", &number) == 1 && p->process_count < RANKS_MOST)
            p->processes[p->process_count++] = (pid_t)number;
        else if (sscanf(line, "begin %lld", &number) == 1)
            p->begun = number;
        else if (sscanf(line, "done %lld", &number) == 1) {
            p->done = number;
            p->resumed = p->loaded ? p->resumed : number;
            p->loaded = true;
        }
    }
    if (file)
        fclose(file);
    if (p->begun < p->done)
        p->begun = p->done;
}

/* Until it saves, or with `first` makes its first save of all; false: it ended, or did not come so
 * far. */
static bool wait_for_saves(const killer *k, pid_t child, bool first, progress *p)
{
    const double end = now() + 40;
    for (;;) {
        read_log(k->log, p);
        const bool saved = p->loaded && p->done >= 0 && p->begun > p->done;
        if (saved || (first && p->begun >= 0))
            return true;
        if (now() > end || waitpid(child, NULL, WNOHANG) != 0)
            return false;
        pause_for(0.0005);
    }
}

/* ---- processes ---- */

/* With its output in a file. */
static pid_t start(const killer *k, char *const *arguments)
{
    const pid_t child = fork();
    if (child != 0)
        return child;
    if (!freopen(k->output, "w", stdout) || dup2(STDOUT_FILENO, STDERR_FILENO) < 0)
        _exit(126);
    execvp(arguments[0], arguments);
    _exit(127);
}

static pid_t start_job(killer *k, bool mpi, int ranks, int keep)
{
    static char modes[3][8] = {"sync", "async", "both"};
    static char run[] = "run";
    char *arguments[ARGUMENTS], seed[24], ranks_text[24], keep_text[24];
    int count = 0;
    snprintf(seed, sizeof seed, "%d", below(k, 1 << 30));
    snprintf(ranks_text, sizeof ranks_text, "%d", ranks);
    snprintf(keep_text, sizeof keep_text, "%d", keep);
    for (int i = 0; mpi && k->mpirun[i]; i++)
        arguments[count++] = k->mpirun[i];
    if (mpi) {
        static char option[] = "-n";
        arguments[count++] = option;
        arguments[count++] = ranks_text;
    }
    char *const job[] = {(char *)k->program, run,       k->folder, k->log, seed, ranks_text,
                         modes[below(k, 3)], keep_text, NULL};
    memcpy(arguments + count, job, sizeof job);
    unlink(k->log);
    return start(k, arguments);
}

/* Nobody may write any more when the folder is looked at. */
static bool gone(const progress *p)
{
    for (int i = 0; i < p->process_count; i++)
        for (const double end = now() + 20; kill(p->processes[i], 0) == 0; pause_for(0.001))
            if (now() > end)
                return false;
    return true;
}

static void show_output(const killer *k)
{
    char line[400];
    FILE *file = fopen(k->output, "r");
    while (file && fgets(line, sizeof line, file))
        fputs(line, stdout);
    if (file)
        fclose(file);
}

/* ---- the folder ---- */

static int count_generations(const killer *k)
{
    int count = 0;
    struct dirent *entry;
    DIR *folder = opendir(k->folder);
    while (folder && (entry = readdir(folder)))
        count += strstr(entry->d_name, "-step-") != NULL;
    if (folder)
        closedir(folder);
    return count;
}

/* The step that the checker has loaded; -2: it did not like what it found. */
static int64_t check(killer *k, const progress *p, int keep)
{
    static char worlds[4][2] = {"1", "2", "3", "5"};
    static char mode[] = "check";
    char least[24], most[24], keep_text[24], line[80] = "-2";
    snprintf(least, sizeof least, "%" PRId64, p->done);
    snprintf(most, sizeof most, "%" PRId64, p->begun);
    snprintf(keep_text, sizeof keep_text, "%d", keep);
    const int which = below(k, 4);
    char *const arguments[] = {(char *)k->program,
                               mode,
                               k->folder,
                               least,
                               most,
                               keep_text,
                               worlds[which],
                               worlds[(which + 1 + below(k, 3)) % 4],
                               NULL};
    const pid_t child = start(k, arguments);
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        return -2;
    FILE *file = fopen(k->output, "r");
    if (file && !fgets(line, sizeof line, file))
        line[0] = '\0';
    if (file)
        fclose(file);
    return *line ? strtoll(line, NULL, 10) : -2;
}

/* ---- one kill ---- */

static void next_folder(killer *k)
{
    snprintf(k->folder, sizeof k->folder, "%s/checkpoints-%d", k->place, ++k->chain);
}

static void failed(killer *k, const char *why)
{
    printf("kill %d: %s; the folder is left: %s\n", k->kills, why, k->folder);
    show_output(k);
    fflush(stdout);
    k->failed++;
    next_folder(k);
}

static void account(killer *k, const progress *p, int64_t newest, bool first)
{
    k->kills_saving += p->begun > p->done;
    k->unreported += newest > p->done;
    k->interrupted += p->begun > p->done && newest < p->begun;
    k->first += first;
}

static void kill_one(killer *k, bool mpi)
{
    progress p;
    const int ranks = 2 + below(k, 3), keep = 1 + below(k, 3);
    const bool first = below(k, 8) == 0; /* in the first save into a folder */
    if (first)
        next_folder(k);
    k->kills++;
    k->kills_mpi += mpi;
    const pid_t child = start_job(k, mpi, ranks, keep);
    if (child < 0 || !wait_for_saves(k, child, first, &p)) {
        failed(k, "the job ended before it was killed, or did not begin to save");
        if (child > 0 && kill(child, SIGKILL) == 0)
            waitpid(child, NULL, 0);
        return;
    }
    pause_for(1e-6 * below(k, first ? 15000 : 60000));
    read_log(k->log, &p);
    kill(mpi ? p.processes[below(k, p.process_count)] : child, SIGKILL);
    waitpid(child, NULL, 0);
    read_log(k->log, &p);
    if (!gone(&p)) {
        failed(k, "processes of the job are still there");
        return;
    }
    const int64_t newest = check(k, &p, keep);
    if (newest == -2)
        failed(k, "what is loaded is wrong");
    else if (p.done > p.resumed && count_generations(k) > keep + 1) /* and one on its way */
        failed(k, "old generations are not removed");
    else
        account(k, &p, newest, first);
}

/* ---- all ---- */

static int write_json(const killer *k, const char *path, uint64_t seed, double seconds)
{
    json_t *summary =
        json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:f}", "kills", k->kills,
                  "failures", k->failed, "whole_job", k->kills - k->kills_mpi, "one_mpi_rank",
                  k->kills_mpi, "during_a_save", k->kills_saving, "complete_but_not_reported",
                  k->unreported, "save_lost", k->interrupted, "during_the_first_save", k->first,
                  "folders", k->chain, "seed", (json_int_t)seed, "seconds", seconds);
    const int bad = json_dump_file(summary, path, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    json_decref(summary);
    return bad;
}

int main(int argc, char **argv)
{
    static char *none[] = {NULL};
    const char *given = getenv("KILL_SEED");
    if (argc < 4) {
        fprintf(stderr, "kill JOB N JSON [MPIRUN...]\n");
        return 2;
    }
    killer k = {.program = argv[1], .mpirun = argc > 4 ? argv + 4 : none};
    const int count = atoi(argv[2]);
    const double begun = now();
    const uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) % 1000000;
    k.seed = seed;
    if (argc - 4 > ARGUMENTS - 12)
        return 2;
    snprintf(k.place, sizeof k.place, "%s/kill-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(k.place)) {
        perror(k.place);
        return 2;
    }
    snprintf(k.log, sizeof k.log, "%s/log", k.place);
    snprintf(k.output, sizeof k.output, "%s/output", k.place);
    next_folder(&k);
    while (k.kills < count) {
        kill_one(&k, *k.mpirun && k.kills % 4 == 3);
        if (k.kills % 100 == 0 && k.kills < count)
            printf("%d kills, %d failures\n", k.kills, k.failed);
        fflush(stdout);
    }
    printf(
        "%d kills in %.0f s (seed %" PRIu64 "), %d of the whole job and %d of one MPI rank: %d "
        "during a save (%d of these the first), of which %d "
        "left the one before, %d a complete one that the job had not reported yet; %d failures\n",
        k.kills, now() - begun, seed, k.kills - k.kills_mpi, k.kills_mpi, k.kills_saving, k.first,
        k.interrupted, k.unreported, k.failed);
    if (write_json(&k, argv[3], seed, now() - begun) != 0)
        fprintf(stderr, "%s cannot be written\n", argv[3]);
    return k.failed != 0;
}
