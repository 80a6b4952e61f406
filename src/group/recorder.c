/* SPDX-License-Identifier: MIT */
/* Recording operations, and writing the record down: when a group breaks, and when the process gets
 * SIGUSR2. The handler only writes to a pipe; a thread at its other end does the work. */
#include "group/recorder.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/open.h"
#include "base/plain_text.h"
#include "group/internal.h"

void cz__recorder_begin(cz_work *work)
{
    cz__recorder *recorder = &work->group->recorder;
    const cz__header *header = &work->operation.header;
    work->record = ++recorder->last;
    cz__record *record = &recorder->records[work->record % CZ__RECORDS];
    *record = (cz__record){.number = work->record,
                           .sequence = work->sequence,
                           .child = work->child,
                           .lane = work->lane,
                           .kind = header->kind,
                           .dtype = header->dtype,
                           .reduction = header->reduction,
                           .root = header->root,
                           .count = header->count,
                           .begun = work->since};
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

static const char *folder(void)
{
    const char *name = getenv("CZERO_FLIGHT_RECORDER");
    return name && *name ? name : NULL;
}

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

static void write_group(FILE *file, const cz_group *group, const char *reason)
{
    const cz__recorder *recorder = &group->recorder;
    const double now = cz__seconds();
    bool first = true;
    fprintf(file,
            "{\n  \"backend\": \"%s\", \"rank\": %d, \"size\": %d, \"global_rank\": %d,\n"
            "  \"begun\": %" PRIu64 ", \"reason\": ",
            group->backend->name, group->rank, group->size,
            cz_group_global_rank(group, group->rank), recorder->last);
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

static bool write_file(const char *path, const char *text, size_t length)
{
    FILE *file = cz__open_stream(path, "w");
    if (!file)
        return false;
    const bool whole = fwrite(text, 1, length, file) == length;
    return fclose(file) == 0 && whole;
}

void cz__recorder_write(cz_group *group, const char *reason)
{
    char path[4096];
    size_t length;
    if (!folder())
        return;
    snprintf(path, sizeof path, "%s/czero-%ld-group%" PRIu64 "-rank%d.json", folder(),
             (long)getpid(), group->number, group->rank);
    char *text = describe(group, reason, &length);
    errno = text ? 0 : ENOMEM;
    if (text && write_file(path, text, length))
        cz__log(CZ_LOG_WARN, "flight recorder: wrote %s", path);
    else
        cz__log(CZ_LOG_WARN, "flight recorder: %s: %s", path, strerror(errno));
    free(text);
}

/* ---- SIGUSR2 ---- */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static cz_group *listed; /* linked by next_recorded */
static uint64_t numbers;
static int wake_pipe[2] = {-1, -1};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void on_signal(int number)
{
    const int saved = errno;
    if (write(wake_pipe[1], "", 1) < 0) {
        /* the pipe is full: the thread is about to look anyway */
    }
    errno = saved;
}

static void *write_on_request(void *context)
{
    char byte;
    for (;;) {
        const ssize_t got = read(wake_pipe[0], &byte, 1);
        if (got == 0 || (got < 0 && errno != EINTR))
            return NULL;
        pthread_mutex_lock(&list_lock);
        for (cz_group *group = got > 0 ? listed : NULL; group; group = group->next_recorded)
            cz__recorder_write(group, "SIGUSR2");
        pthread_mutex_unlock(&list_lock);
    }
}

/* Only where the program has not taken the signal for itself. */
static void listen_for_signal(void)
{
    struct sigaction present, ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    pthread_t thread;
    if (sigaction(SIGUSR2, NULL, &present) || present.sa_handler != SIG_DFL ||
        cz__open_pipe(wake_pipe, 0))
        return;
    if (pthread_create(&thread, NULL, write_on_request, NULL))
        return;
    pthread_detach(thread);
    sigaction(SIGUSR2, &ours, NULL);
}

void cz__recorder_add(cz_group *group)
{
    if (folder())
        pthread_once(&once, listen_for_signal);
    pthread_mutex_lock(&list_lock);
    group->number = numbers++;
    group->next_recorded = listed;
    listed = group;
    pthread_mutex_unlock(&list_lock);
}

void cz__recorder_remove(cz_group *group)
{
    pthread_mutex_lock(&list_lock);
    cz_group **link = &listed;
    while (*link && *link != group)
        link = &(*link)->next_recorded;
    if (*link)
        *link = group->next_recorded;
    pthread_mutex_unlock(&list_lock);
}
