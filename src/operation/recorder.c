/* SPDX-License-Identifier: MIT */
/* Recording operations, and writing the record down: when a group breaks, and when the process gets
 * SIGUSR2. */
#include "operation/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/open.h"
#include "base/plain_text.h"
#include "base/options.h"
#include "base/process.h"
#include "base/thread.h"
#include "operation/operation.h"

CZ__PROCESS_LOCK(list_lock)
static cz_group *listed; /* linked by next_recorded */
static uint64_t numbers;

void cz__recorder_begin(cz_work *work)
{
    cz__recorder *recorder = &work->group->recorder;
    const cz__header *header = &work->operation.header;
    work->record = ++recorder->last;
    cz__record *record = &recorder->records[work->record % CZ__RECORDS];
    *record = (cz__record){.number = work->record,
                           .sequence = work->sequence,
                           .child = work->family.child,
                           .lane = work->lane,
                           .kind = header->kind,
                           .dtype = header->dtype,
                           .reduction = header->reduction,
                           .root = header->root,
                           .count = header->count,
                           .begun = work->patience.since};
    memcpy(record->label, header->label, sizeof record->label);
}

void cz__recorder_end(const cz_work *work)
{
    cz__record *record = &work->group->recorder.records[work->record % CZ__RECORDS];
    if (record->number != work->record) /* newer ones have taken its place */
        return;
    record->ended = cz__seconds();
    record->status = work->status;
}

/* ---- writing ---- */

static void write_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(file, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(file, "\\u%04x", *c);
        else
            fputc(*c, file);
    }
    fputc('"', file);
}

static void write_record(FILE *file, const cz__record *r, double now, bool first)
{
    fprintf(file,
            "%s\n    {\"sequence\": %" PRIu64 ", \"lane\": %d, \"child\": %" PRIu32
            ", \"operation\": \"%s\", \"label\": ",
            first ? "" : ",", r->sequence, r->lane, r->child,
            cz__operation_name((cz__operation_kind)r->kind));
    write_text(file, r->label);
    fprintf(file,
            ", \"dtype\": \"%s\", \"count\": %" PRId64 ", \"root\": %d, \"seconds_ago\": %.6f, ",
            cz_dtype_name((cz_dtype)r->dtype), r->count, r->root, now - r->begun);
    if (r->ended > 0)
        fprintf(file, "\"seconds\": %.6f, \"status\": \"%s\"}", r->ended - r->begun,
                cz_status_name(r->status));
    else
        fprintf(file, "\"seconds\": null, \"status\": \"in flight\"}");
}

/* Since 1970, so that ranks' recordings can be compared as far as their clocks can. */
static double wall_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void write_group(FILE *file, const cz_group *group, const char *reason)
{
    const cz__recorder *recorder = &group->recorder;
    const double now = cz__seconds();
    bool first = true;
    fprintf(file,
            "{\n  \"name\": \"%s\", \"backend\": \"%s\", \"rank\": %d, \"size\": %d, "
            "\"global_rank\": %d,\n"
            "  \"process\": %ld, \"group\": %" PRIu64 ", \"written\": %.3f,\n  \"members\": [",
            group->name, group->backend->name, group->rank, group->size,
            cz_group_global_rank(group, group->rank), (long)getpid(), group->number,
            wall_seconds());
    for (int r = 0; r < group->size; r++)
        fprintf(file, "%s%d", r ? ", " : "", cz_group_global_rank(group, r));
    fprintf(file, "],\n  \"begun\": %" PRIu64 ", \"reason\": ", recorder->last);
    write_text(file, reason);
    fprintf(file, ",\n  \"operations\": [");
    for (uint64_t i = 1; i <= CZ__RECORDS; i++) {
        const cz__record *record = &recorder->records[(recorder->last + i) % CZ__RECORDS];
        if (record->number > 0) {
            write_record(file, record, now, first);
            first = false;
        }
    }
    fprintf(file, "\n  ]\n}\n");
}

/* The records as text, to be freed; NULL: no memory. The lock is held no longer than for that. */
static char *describe(cz_group *group, const char *reason, size_t *length)
{
    CZ__PLAIN_TEXT;
    char *text = NULL;
    FILE *memory = open_memstream(&text, length);
    if (!memory)
        return NULL;
    cz__executor_lock(group->executor);
    write_group(memory, group, reason);
    cz__executor_unlock(group->executor);
    if (fclose(memory) == 0)
        return text;
    free(text);
    return NULL;
}

/* The folder that the environment names, as it was meant when it was named first: a program may go
 * elsewhere later. False: none. */
static bool find_folder(char *folder, size_t bytes)
{
    static char named[PATH_MAX], absolute[2 * PATH_MAX]; /* under the lock */
    const char *name = cz__environment_text("CZERO_FLIGHT_RECORDER");
    char here[PATH_MAX];
    if (!name || !*name)
        return false;
    cz__process_lock_take(&list_lock);
    if (strcmp(name, named) != 0) {
        const bool is_relative = name[0] != '/' && getcwd(here, sizeof here);
        snprintf(named, sizeof named, "%s", name);
        snprintf(absolute, sizeof absolute, "%s%s%s", is_relative ? here : "",
                 is_relative ? "/" : "", name);
    }
    snprintf(folder, bytes, "%s", absolute);
    cz__process_lock_release(&list_lock);
    return true;
}

/* 0, or an errno. */
static int write_all(int file, const char *text, size_t length)
{
    while (length > 0) {
        const ssize_t now = write(file, text, length);
        if (now < 0 && errno == EINTR)
            continue;
        if (now < 0)
            return errno;
        text += now;
        length -= (size_t)now;
    }
    return 0;
}

/* Write a file of a random name, then let it take the place of the last recording: so a reader has
 * a whole one, and a link that somebody has put there is replaced, not followed. 0, or an errno. */
static int write_file(const char *folder, const char *name, const char *text, size_t length)
{
    char fresh[64];
    uint64_t bits = 0;
    const int at = cz__open(folder, O_RDONLY | O_DIRECTORY);
    if (at < 0)
        return errno;
    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) < 0)
        bits = (uint64_t)getpid();
    snprintf(fresh, sizeof fresh, ".czero-%016" PRIx64, bits);
    const int file =
        cz__open_with_rights(at, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    int error = file < 0 ? errno : write_all(file, text, length);
    if (file >= 0 && close(file) != 0 && !error)
        error = errno;
    if (!error && renameat(at, fresh, at, name) != 0)
        error = errno;
    if (error && file >= 0)
        (void)unlinkat(at, fresh, 0);
    close(at);
    return error;
}

typedef struct recording {
    struct recording *next;
    char name[96]; /* of the file */
    char *text;    /* owned; NULL: no memory */
    size_t length;
} recording;

static void take_recording(recording *r, cz_group *group, const char *reason)
{
    snprintf(r->name, sizeof r->name, "czero-%ld-group%" PRIu64 "-rank%d.json", (long)getpid(),
             group->number, group->rank);
    r->text = describe(group, reason, &r->length);
}

/* Write the file, and free the text. */
static void write_recording(recording *r)
{
    char folder[2 * PATH_MAX];
    if (find_folder(folder, sizeof folder)) {
        const int error = r->text ? write_file(folder, r->name, r->text, r->length) : ENOMEM;
        cz__log(CZ_LOG_WARN, "flight recorder: %s%s/%s%s%s", error ? "" : "wrote ", folder, r->name,
                error ? ": " : "", error ? strerror(error) : "");
    }
    free(r->text);
}

void cz__recorder_write(cz_group *group, const char *reason)
{
    char folder[2 * PATH_MAX];
    recording one;
    if (group->process != cz__process() || !find_folder(folder, sizeof folder))
        return;
    take_recording(&one, group, reason);
    write_recording(&one);
}

/* ---- SIGUSR2: the handler only counts, and a thread of ours does the work. ---- */

static sem_t asked;

/* It never waits, and a child of fork() asks itself. */
static void on_signal(int number)
{
    const int saved = errno;
    (void)sem_post(&asked);
    errno = saved;
}

/* Files are written when no lock is held any more: a folder may be slow, or gone. */
static void write_listed(void)
{
    recording *all = NULL;
    cz__process_lock_take(&list_lock);
    for (cz_group *group = listed; group; group = group->next_recorded) {
        recording *r = group->process == cz__process() ? calloc(1, sizeof *r) : NULL;
        if (!r)
            continue;
        take_recording(r, group, "SIGUSR2");
        r->next = all;
        all = r;
    }
    cz__process_lock_release(&list_lock);
    for (recording *next; all; all = next) {
        next = all->next;
        write_recording(all);
        free(all);
    }
}

/* Signals that come faster than this are answered by one recording. */
static void *write_on_request(void *context)
{
    const struct timespec shortest = {.tv_nsec = 100000000};
    for (;;) {
        while (sem_wait(&asked) != 0)
            ;
        while (sem_trywait(&asked) == 0)
            ;
        write_listed();
        nanosleep(&shortest, NULL);
    }
    return NULL;
}

/* Only where the program has not taken the signal for itself. Once per process. With the list's
 * lock. */
static void listen_for_signal(void)
{
    static pid_t done_by;
    struct sigaction present, ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    pthread_t thread;
    if (done_by == cz__process() || !cz__thread_allowed())
        return;
    done_by = cz__process();
    if (sigaction(SIGUSR2, NULL, &present) ||
        (present.sa_handler != SIG_DFL && present.sa_handler != on_signal))
        return;
    (void)sem_init(&asked, 0, 0); /* cannot fail: not shared, not too large */
    if (cz__thread_create(&thread, NULL, write_on_request, NULL) != 0)
        return;
    pthread_detach(thread);
    (void)sigaction(SIGUSR2, &ours, NULL);
}

void cz__recorder_add(cz_group *group)
{
    char folder[2 * PATH_MAX];
    const bool records = find_folder(folder, sizeof folder);
    cz__process_lock_take(&list_lock);
    if (records)
        listen_for_signal();
    group->number = numbers++;
    group->next_recorded = listed;
    listed = group;
    cz__process_lock_release(&list_lock);
}

void cz__recorder_remove(cz_group *group)
{
    cz__process_lock_take(&list_lock);
    cz_group **link = &listed;
    while (*link && *link != group)
        link = &(*link)->next_recorded;
    if (*link)
        *link = group->next_recorded;
    cz__process_lock_release(&list_lock);
}
