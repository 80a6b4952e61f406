/* SPDX-License-Identifier: MIT */
/* Saving and loading a training beside what the medium does with as many bytes: AdamW over
 * parameters like GPT-2 124M's, parameters and state, on thread ranks. Raw: each rank writes a file
 * of its share past the page cache, in blocks of 8 MiB, with fsync; or reads its part of the
 * checkpoint; the page cache is empty of what is read. The asynchronous call beside a memcpy of a
 * rank's share. All in each round; medians, and medians of the ratios within a round. Then the most
 * memory that a call takes beside the training's: what the library counts, and what the process has
 * (pages of files are not in it), of all ranks together, by rank.
 *
 *     bench_checkpoint [FOLDER [RANKS [ROUNDS]]]       the present folder, 2 ranks, 5 rounds */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "median.h"
#include "shared/result.h"

#include "czero/czero.h"

enum { PARAMS = 148, BLOCK = 8 << 20, MOST_ROUNDS = 99 };

typedef enum measure { RAW_WRITE, SAVE, RAW_READ, LOAD, MEMCPY, ASYNC, MEASURES } measure;

static const struct {
    const char *name;
    measure against; /* itself: none */
} measures[MEASURES] = {
    {"raw write, fsync", RAW_WRITE},
    {"save", RAW_WRITE},
    {"raw read", RAW_READ},
    {"load", RAW_READ},
    {"memcpy of a rank's share", MEMCPY},
    {"save_async, the call", MEMCPY},
};

enum { CALLS = 4 };
static const char *const calls[CALLS] = {"save", "load", "export", "import"};

typedef struct bench {
    const char *folder;
    int rounds, ranks;
    double seconds[MEASURES][MOST_ROUNDS];  /* of the slowest rank; written by rank 0 */
    size_t bytes;                           /* all ranks together */
    size_t staging;                         /* the most that a save and a load took */
    double counted[CALLS], resident[CALLS]; /* MiB that a call took, for each rank */
} bench;

typedef struct rank {
    bench *bench;
    cz_group *group;
    cz_checkpoint *checkpoint;
    size_t share;
    char *block;     /* BLOCK bytes */
    char *from, *to; /* `share` bytes */
    char path[4096];
    int64_t step;
} rank;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static cz_status failed(const rank *r)
{
    return cz_fail(CZ_ERR_IO, "bench_checkpoint: %s cannot be written or read", r->path);
}

static cz_status raw_write(rank *r)
{
    unlink(r->path);
    int file = open(r->path, O_WRONLY | O_CREAT | O_EXCL | O_DIRECT, 0666);
    if (file < 0)
        file = open(r->path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    bool fine = file >= 0;
    for (size_t done = 0; fine && done < r->share; done += BLOCK)
        fine = write(file, r->block, BLOCK) == BLOCK;
    fine = fine && fsync(file) == 0;
    if (file >= 0)
        close(file);
    return fine ? CZ_OK : failed(r);
}

/* The rank's own part of what was saved last; generations are numbered as steps are here. */
static void part_path(const rank *r, char *path, size_t room)
{
    snprintf(path, room, "%s/%08lld-step-%lld/rank-%05d-of-%05d.safetensors", r->bench->folder,
             (long long)r->step, (long long)r->step, cz_group_rank(r->group),
             cz_group_size(r->group));
}

static cz_status raw_read(rank *r)
{
    char path[4200];
    part_path(r, path, sizeof path);
    const int file = open(path, O_RDONLY);
    ssize_t count = file >= 0 ? 1 : -1;
    while (count > 0)
        count = read(file, r->block, BLOCK);
    if (file >= 0)
        close(file);
    return count == 0 ? CZ_OK : failed(r);
}

static cz_status save(rank *r, bool later)
{
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    options.step = ++r->step;
    return later ? cz_checkpoint_save_async(r->checkpoint, &options)
                 : cz_checkpoint_save(r->checkpoint, &options);
}

static cz_status run(rank *r, measure what)
{
    switch (what) {
    case RAW_WRITE:
        return raw_write(r);
    case SAVE:
        return save(r, false);
    case RAW_READ:
        return raw_read(r);
    case LOAD:
        return cz_checkpoint_load(r->checkpoint, NULL, NULL);
    case MEMCPY:
        memcpy(r->to, r->from, r->share);
        return CZ_OK;
    default:
        return save(r, true);
    }
}

static cz_status time_it(rank *r, measure what, int round)
{
    CZ_TRY(cz_barrier(r->group, NULL));
    cz_memory_reset_peak();
    const size_t before = cz_memory_bytes(CZ_MEMORY_STAGING);
    double seconds = now();
    CZ_TRY(run(r, what));
    seconds = now() - seconds;
    CZ_TRY(cz_all_reduce(r->group, &seconds, 1, CZ_F64, CZ_MAX, CZ_LABEL("slowest")));
    const size_t staging = cz_memory_peak_bytes(CZ_MEMORY_STAGING) - before;
    if (cz_group_rank(r->group) != 0)
        return CZ_OK;
    r->bench->seconds[what][round] = seconds;
    if ((what == SAVE || what == LOAD) && staging > r->bench->staging)
        r->bench->staging = staging;
    return CZ_OK;
}

/* What is read comes from the medium. */
static cz_status drop_cache(const rank *r)
{
    char path[4200];
    part_path(r, path, sizeof path);
    const int file = open(path, O_RDONLY);
    if (file >= 0) {
        (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        close(file);
    }
    return cz_barrier(r->group, NULL);
}

static cz_status run_rounds(rank *r)
{
    for (int round = -1; round < r->bench->rounds;
         round++) { /* the first has new memory: it does not count */
        for (int place = 0; place < MEASURES; place++) {
            measure what = (measure)place;
            if (round % 2 != 0 &&
                (what == RAW_READ || what == LOAD)) /* the second finds more in caches below */
                what = what == LOAD ? RAW_READ : LOAD;
            if (what == RAW_READ || what == LOAD)
                CZ_TRY(drop_cache(r));
            CZ_TRY(time_it(r, what, round < 0 ? 0 : round));
            if (what == ASYNC)
                CZ_TRY(cz_checkpoint_wait(r->checkpoint));
        }
    }
    return CZ_OK;
}

/* ---- memory ---- */

/* "VmRSS" or "VmHWM" of this process in KiB; 0: the system does not say. */
static long resident(const char *what)
{
    char line[128];
    long found = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, what, strlen(what)) == 0)
            found = atol(line + strlen(what) + 1);
    if (status)
        fclose(status);
    return found;
}

/* VmHWM begins anew. */
static void reset_resident(void)
{
    FILE *refs = fopen("/proc/self/clear_refs", "w");
    if (refs)
        fprintf(refs, "5");
    if (refs)
        fclose(refs);
}

static size_t counted(size_t (*bytes)(cz_memory_kind kind))
{
    size_t all = 0;
    for (int kind = CZ_MEMORY_GENERAL; kind <= CZ_MEMORY_STATE_DICT; kind++)
        all += bytes((cz_memory_kind)kind);
    return all;
}

static cz_status make_call(rank *r, int call)
{
    char path[4200];
    cz_load_options options = CZ_LOAD_OPTIONS_INIT;
    snprintf(path, sizeof path, "%s/model.safetensors", r->bench->folder);
    switch (call) {
    case 0:
        return save(r, false);
    case 1:
        return cz_checkpoint_load(r->checkpoint, &options, NULL);
    case 2:
        return cz_checkpoint_export(r->checkpoint, path, NULL);
    default:
        return cz_checkpoint_import(r->checkpoint, path, &options, NULL);
    }
}

static cz_status measure_call(rank *r, int call)
{
    const bool leads = cz_group_rank(r->group) == 0;
    size_t before = 0;
    long pages = 0;
    CZ_TRY(cz_barrier(r->group, NULL));
    if (leads) {
        cz_memory_reset_peak();
        reset_resident();
        before = counted(cz_memory_bytes);
        pages = resident("VmRSS:");
    }
    CZ_TRY(cz_barrier(r->group, NULL));
    CZ_TRY(make_call(r, call));
    CZ_TRY(cz_barrier(r->group, NULL));
    if (leads) {
        const double ranks = cz_group_size(r->group);
        r->bench->counted[call] =
            (double)(counted(cz_memory_peak_bytes) - before) / (1 << 20) / ranks;
        r->bench->resident[call] = (double)(resident("VmHWM:") - pages) / 1024 / ranks;
    }
    return CZ_OK;
}

/* Twice: the first time something may be made that stays. */
static cz_status measure_memory(rank *r)
{
    for (int round = 0; round < 2; round++)
        for (int call = 0; call < CALLS; call++)
            CZ_TRY(measure_call(r, call));
    return CZ_OK;
}

/* ---- the training ---- */

static int64_t size_of(int p)
{
    static const int64_t in_layer[12] = {768, 768, 2304, 1769472, 768, 589824,
                                         768, 768, 3072, 2359296, 768, 2359296};
    if (p < 2)
        return p == 0 ? 38597376 : 786432;
    return p < 146 ? in_layer[(p - 2) % 12] : 768;
}

static cz_status train_and_save(rank *r, cz_zero *zero)
{
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    options.zero = zero;
    options.keep = 1;
    CZ_TRY(cz_zero_step(zero, NULL, NULL));
    CZ_TRY(cz_checkpoint_create(&r->checkpoint, r->group, r->bench->folder, &options));
    CZ_TRY(run_rounds(r));
    cz_checkpoint_destroy(&r->checkpoint); /* and its copy for asynchronous saves */
    CZ_TRY(cz_checkpoint_create(&r->checkpoint, r->group, r->bench->folder, &options));
    return measure_memory(r);
}

static cz_status with_training(rank *r, float *values, float *gradients, const int64_t *sizes)
{
    cz_model *model = NULL;
    cz_zero *zero = NULL;
    cz_status status = cz_model_create(&model);
    if (status)
        goto done;
    status = cz_model_add_flat(model, values, gradients, CZ_F32, PARAMS, NULL, sizes);
    if (status)
        goto done;
    status = cz_zero_create(&zero, r->group, model, cz_rule_adamw(), NULL, NULL);
    if (status)
        goto done;
    status = train_and_save(r, zero);
done:
    cz_checkpoint_destroy(&r->checkpoint);
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    unlink(r->path);
    return status;
}

static void *memory_of(size_t bytes)
{
    const size_t whole = (bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20);
    void *memory = aligned_alloc(2 << 20, whole);
    if (memory)
        memset(memory, 1, whole);
    return memory;
}

static cz_status body(cz_group *group, void *context)
{
    rank r = {.bench = context, .group = group};
    int64_t sizes[PARAMS], count = 0;
    for (int p = 0; p < PARAMS; p++)
        count += sizes[p] = size_of(p);
    const size_t bytes = (size_t)count * sizeof(float);
    r.share = 3 * bytes / (size_t)cz_group_size(group) / BLOCK * BLOCK;
    r.bench->bytes = 3 * bytes;
    snprintf(r.path, sizeof r.path, "%s/raw-%d.tmp", r.bench->folder, cz_group_rank(group));
    float *values = memory_of(bytes), *gradients = memory_of(bytes);
    r.block = memory_of(BLOCK);
    r.from = memory_of(r.share);
    r.to = memory_of(r.share);
    const cz_status status = values && gradients && r.block && r.from && r.to
                                 ? with_training(&r, values, gradients, sizes)
                                 : cz_fail(CZ_ERR_MEMORY, "bench_checkpoint: no memory");
    free(values);
    free(gradients);
    free(r.block);
    free(r.from);
    free(r.to);
    return status;
}

/* ---- the table ---- */

static void record(const bench *b, measure what)
{
    bench_samples samples = {.rounds = b->rounds};
    char name[64];
    memcpy(samples.ours, b->seconds[what], (size_t)b->rounds * sizeof(double));
    memcpy(samples.limit, b->seconds[measures[what].against], (size_t)b->rounds * sizeof(double));
    snprintf(name, sizeof name, "checkpoint %s", measures[what].name);
    bench_record(&(bench_row){.name = name,
                              .bytes = (size_t)b->bytes,
                              .ranks = b->ranks,
                              .against = measures[measures[what].against].name},
                 &samples);
}

/* How `what` compares with what it is measured against: medians put values in order, so this comes
 * before them. */
static double ratio_of(const bench *b, measure what)
{
    double ratios[MOST_ROUNDS];
    const measure against = measures[what].against;
    for (int i = 0; i < b->rounds; i++)
        ratios[i] = what < MEMCPY ? b->seconds[against][i] / b->seconds[what][i]
                                  : b->seconds[what][i] / b->seconds[against][i];
    return median(ratios, b->rounds);
}

static void show(bench *b)
{
    double ratios[MEASURES];
    printf("%.0f MB of parameters and state, medians of %d rounds\n", (double)b->bytes * 1e-6,
           b->rounds);
    for (measure what = 0; what < MEASURES; what++) {
        ratios[what] = ratio_of(b, what);
        if (measures[what].against != what)
            record(b, what);
    }
    for (measure what = 0; what < MEASURES; what++) {
        const double seconds = median(b->seconds[what], b->rounds);
        printf("%-26s %8.3f s", measures[what].name, seconds);
        if (what < MEMCPY)
            printf(" %7.0f MB/s", (double)b->bytes * 1e-6 / seconds);
        if (measures[what].against != what)
            printf("   %.2f of %s", ratios[what], measures[measures[what].against].name);
        if (what == LOAD)
            printf(" (wanted: 0.80)");
        printf("\n");
    }
    printf("staging memory of a save or load, all ranks together: %.1f MiB\n",
           (double)b->staging / (1 << 20));
    for (int call = 0; call < CALLS; call++)
        printf("%-6s took at most %6.1f MiB counted, %6.1f MiB resident beside the training, by "
               "rank\n",
               calls[call], b->counted[call], b->resident[call]);
}

int main(int argc, char **argv)
{
    static bench b;
    cz_launch_options options = CZ_LAUNCH_OPTIONS_INIT;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/bench-checkpoint-XXXXXX", argc > 1 ? argv[1] : ".");
    options.ranks = argc > 2 ? atoi(argv[2]) : 2;
    b.rounds = argc > 3 ? atoi(argv[3]) : 5;
    if (b.rounds < 1 || b.rounds > MOST_ROUNDS || options.ranks < 1 || !mkdtemp(folder)) {
        fprintf(stderr, "usage: bench_checkpoint [FOLDER [RANKS [ROUNDS]]]\n");
        return 2;
    }
    b.folder = folder;
    b.ranks = options.ranks;
    const cz_status status = cz_launch(body, &b, &options);
    if (status == CZ_OK)
        show(&b);
    else
        fprintf(stderr, "bench_checkpoint: %s\n", cz_last_error());
    char command[4200];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) != 0 || status != CZ_OK;
}
