/* SPDX-License-Identifier: MIT */
/* Files of checkpoints beside what the medium can do: the writer, without and with checksums, to
 * plain pwrite() of large blocks; the reader's checksum to plain pread(), of files that the page
 * cache has and has not. One and two files at once, each on a thread. Every round does each once,
 * so that a medium whose speed changes changes it for all; medians, and medians of the ratios to
 * the first of a kind in the same round; and processor time per GB, which depends less on what else
 * the machine does. Goal: 80 %.
 *
 *     bench_checkpoint_io [FOLDER [MIB [ROUNDS [WHAT]]]]
 *
 * Without arguments: the present folder, 512 MiB, 5 rounds, all. WHAT: those whose name begins with
 * it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "median.h"
#include "shared/result.h"

#include "base/clock.h"
#include "io/stream.h"

enum { BLOCK = 8 << 20, MAX_ROUNDS = 99, MAX_FILES = 2 };

static const char *folder = ".";
static size_t bytes = (size_t)512 << 20;
static const char *what = "";
static char *memory; /* what is written, and where to it is read: bytes for each file */

typedef struct job {
    void (*run)(const char *path, char *memory);
    char path[4096];
    char *memory;
} job;

static void check(bool fine, const char *place)
{
    if (fine)
        return;
    fprintf(stderr, "bench_checkpoint_io: %s: %s\n", place, strerror(errno));
    exit(1);
}

/* ---- what is measured ---- */

static int make(const char *path, int flags)
{
    unlink(path);
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    check(file >= 0, path);
    if (flags) /* where the file system refuses, it is the same as without */
        (void)fcntl(file, F_SETFL, flags);
    return file;
}

static void write_plainly(const char *path, char *from, int flags, bool reserve)
{
    const int file = make(path, flags);
    if (reserve)
        (void)fallocate(file, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes);
    for (size_t done = 0; done < bytes; done += BLOCK)
        check(pwrite(file, from + done, BLOCK, (off_t)done) == BLOCK, path);
    check(fsync(file) == 0 && close(file) == 0, path);
}

static void write_direct(const char *path, char *from)
{
    write_plainly(path, from, O_DIRECT, false);
}

static void write_reserved(const char *path, char *from)
{
    write_plainly(path, from, O_DIRECT, true);
}

static void write_buffered(const char *path, char *from)
{
    write_plainly(path, from, 0, false);
}

static void write_ours(const char *path, char *from)
{
    cz__writer *writer;
    unlink(path);
    CZ_CHECK(cz__writer_create(&writer, path, bytes));
    CZ_CHECK(cz__writer_append(writer, from, bytes));
    (void)cz__writer_checksum(writer);
    CZ_CHECK(cz__writer_finish(&writer));
}

static void read_plainly(const char *path, char *to, int flags)
{
    const int file = open(path, O_RDONLY);
    check(file >= 0, path);
    if (flags)
        (void)fcntl(file, F_SETFL, flags);
    for (size_t done = 0; done < bytes; done += BLOCK)
        check(pread(file, to, BLOCK, (off_t)done) == BLOCK, path);
    close(file);
}

static void read_direct(const char *path, char *to)
{
    read_plainly(path, to, O_DIRECT);
}

static void read_buffered(const char *path, char *to)
{
    read_plainly(path, to, 0);
}

static void read_ours(const char *path, char *to)
{
    cz__reader *reader;
    CZ_CHECK(cz__reader_open(&reader, path));
    CZ_CHECK(cz__reader_read(reader, 0, to, bytes));
    cz__reader_close(&reader);
}

static void read_checksum(const char *path, char *to)
{
    cz__checksum sum;
    cz__reader *reader;
    CZ_CHECK(cz__reader_open(&reader, path));
    CZ_CHECK(cz__reader_checksum(reader, 0, bytes, &sum));
    cz__reader_close(&reader);
}

typedef enum cache { ANY, COLD, WARM } cache;

static const struct {
    const char *name;
    void (*run)(const char *path, char *memory);
    cache cache;
    bool first, checksums; /* first: what the next ones are compared to */
} cases[] = {
    {"write: pwrite, direct, fsync", write_direct, ANY, true, false},
    {"write: pwrite, reserved, direct, fsync", write_reserved, ANY, false, false},
    {"write: pwrite, page cache, fsync", write_buffered, ANY, false, false},
    {"write: ours, no checksum", write_ours, ANY, false, false},
    {"write: ours", write_ours, ANY, false, true},
    {"read, cold: pread", read_buffered, COLD, true, false},
    {"read, cold: pread, direct", read_direct, COLD, false, false},
    {"read, cold: ours", read_ours, COLD, false, false},
    {"read, cold: ours, checksum", read_checksum, COLD, false, true},
    {"read, warm: pread", read_buffered, WARM, true, false},
    {"read, warm: ours", read_ours, WARM, false, false},
    {"read, warm: ours, checksum", read_checksum, WARM, false, true},
};
enum { CASES = sizeof cases / sizeof *cases };

static bool wanted(int which)
{
    return strncmp(cases[which].name, what, strlen(what)) == 0;
}

/* ---- how ---- */

static void *run(void *context)
{
    job *j = context;
    j->run(j->path, j->memory);
    return NULL;
}

static void prepare(const job *j, cache state)
{
    if (state == WARM)
        read_buffered(j->path, j->memory);
    const int file = state == COLD ? open(j->path, O_RDONLY) : -1;
    if (file >= 0) {
        (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        close(file);
    }
}

static double processor_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* MB per second of all files together, and seconds of a processor per GB. */
static double measure(int which, int files, double *work)
{
    pthread_t threads[MAX_FILES];
    job jobs[MAX_FILES];
    cz__system_used.checksums = cases[which].checksums;
    for (int i = 0; i < files; i++) {
        jobs[i].run = cases[which].run;
        jobs[i].memory = memory + (size_t)i * bytes;
        snprintf(jobs[i].path, sizeof jobs[i].path, "%s/bench_checkpoint_io_%d.tmp", folder, i);
        prepare(&jobs[i], cases[which].cache);
    }
    const double begun = cz__seconds(), worked = processor_seconds();
    for (int i = 0; i < files; i++)
        check(pthread_create(&threads[i], NULL, run, &jobs[i]) == 0, "thread");
    for (int i = 0; i < files; i++)
        pthread_join(threads[i], NULL);
    const double total = (double)bytes * files, seconds = cz__seconds() - begun;
    *work = (processor_seconds() - worked) / (total / 1e9);
    return total / seconds / 1e6;
}

/* Seconds of a file beside those of the first of its kind. */
static void record(const char *name, const char *first, int files, int rounds, const double *speeds,
                   const double *first_speeds)
{
    bench_samples samples = {.rounds = rounds};
    char full[128];
    for (int i = 0; i < rounds; i++) {
        samples.ours[i] = (double)bytes * files / speeds[i] * 1e-6;
        samples.limit[i] = (double)bytes * files / first_speeds[i] * 1e-6;
    }
    snprintf(full, sizeof full, "io %s", name);
    bench_record(&(bench_row){.name = full, .bytes = bytes, .ranks = files, .against = first},
                 &samples);
}

static void measure_all(int files, int rounds)
{
    static double speeds[CASES][MAX_ROUNDS], ratios[CASES][MAX_ROUNDS], work[CASES][MAX_ROUNDS];
    for (int round = 0; round < rounds; round++)
        for (int i = 0, first = 0; i < CASES; i++) {
            if (!wanted(i))
                continue;
            first = cases[i].first ? i : first;
            speeds[i][round] = measure(i, files, &work[i][round]);
            ratios[i][round] = speeds[i][round] / speeds[first][round];
        }
    for (int i = 0, first = 0; i < CASES; i++) {
        first = cases[i].first ? i : first;
        if (wanted(i) && wanted(first) && strstr(cases[i].name, "ours"))
            record(cases[i].name, cases[first].name, files, rounds, speeds[i], speeds[first]);
    }
    for (int i = 0; i < CASES; i++)
        if (wanted(i))
            printf("%d file%s  %-40s %8.0f MB/s  %4.0f %%  %5.2f s/GB\n", files,
                   files > 1 ? "s" : " ", cases[i].name, median(speeds[i], rounds),
                   100 * median(ratios[i], rounds), median(work[i], rounds));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    folder = argc > 1 ? argv[1] : folder;
    bytes = argc > 2 ? (size_t)atol(argv[2]) << 20 : bytes;
    int rounds = argc > 3 ? atoi(argv[3]) : 5;
    what = argc > 4 ? argv[4] : what;
    rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
    bytes = bytes < BLOCK ? BLOCK : bytes / BLOCK * BLOCK;
    memory = aligned_alloc(2 << 20, MAX_FILES * bytes);
    check(memory != NULL, "memory");
    (void)madvise(memory, MAX_FILES * bytes, MADV_HUGEPAGE); /* as the writer's blocks are */
    for (size_t i = 0; i < MAX_FILES * bytes; i++)
        memory[i] = (char)(i * 2654435761u >> 24);
    printf("%zu MiB a file, in %s, blocks of %d MiB, %d rounds\n", bytes >> 20, folder, BLOCK >> 20,
           rounds);
    for (int files = 1; files <= MAX_FILES; files++)
        measure_all(files, rounds);
    for (int i = 0; i < MAX_FILES; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/bench_checkpoint_io_%d.tmp", folder, i);
        unlink(path);
    }
    free(memory);
    return 0;
}
