/* SPDX-License-Identifier: MIT */
/* How much of the communication does the backward pass hide? Under mpirun, a rank on each of two
 * hosts (see overlap.sh). A round times the computation alone (B), the communication alone (C: the
 * same pass with all marks at once) and both together (step); the hidden share is (B + C - step) /
 * min(B, C). Times are those of the slowest rank, medians over the rounds. The computation touches
 * no memory. In one case it only waits, as a program whose model is on an accelerator does: what is
 * hidden there is not bounded by the processor time that the network takes from the computation,
 * which it is where two hosts have two processors between them. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "median.h"

#include "czero/czero.h"
#include "czero/mpi.h"

enum { MAX_ROUNDS = 99, PARAMS_IN_BUCKET = 4 };
static const double NOMINAL_RATE = 1e9; /* bits in a second that the link is shaped to, each way */

typedef struct job {
    const char *name;
    bool sharded; /* ddp with an optimizer that steps inside the pass; or else ddp alone */
    int buckets;
    size_t bucket_bytes;
    double compute_seconds; /* of a pass; 0: as long as the communication */
    bool waits; /* the computation leaves the processor alone, as an accelerator's does */
} job;

typedef struct bench {
    const job *job;
    cz_group *group;
    cz_model *model;
    cz_ddp *ddp;
    cz_zero *zero;
    float *values, *gradients;
    int params;
} bench;

typedef struct result {
    double backward, communication, step, hidden, link_limit;
    double others; /* the part of this machine that other programs took meanwhile */
} result;

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double now(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

/* Seconds that the processors of this machine were at work since it started, and have been there
 * for. */
static void machine_seconds(double *busy, double *all)
{
    double times[8] = {0}; /* user, nice, system, idle, iowait, irq, softirq, steal */
    FILE *file = fopen("/proc/stat", "r");
    if (file && fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &times[0], &times[1], &times[2],
                       &times[3], &times[4], &times[5], &times[6], &times[7]) < 8)
        memset(times, 0, sizeof times);
    if (file)
        fclose(file);
    *all = 0;
    for (int i = 0; i < 8; i++)
        *all += times[i] / (double)sysconf(_SC_CLK_TCK);
    *busy = *all - (times[3] + times[4]) / (double)sysconf(_SC_CLK_TCK);
}

/* Turns of work; or nanoseconds of waiting. */
static void compute(int64_t turns, bool waits)
{
    const struct timespec pause = {turns / 1000000000, turns % 1000000000};
    double x = 0.5;
    if (waits) {
        nanosleep(&pause, NULL);
        return;
    }
    for (int64_t i = 0; i < turns; i++)
        x = x * 0.999999 + 1e-6;
    if (x > 1) /* which it never is */
        abort();
}

/* ---- a pass ---- */

static cz_status run(bench *b, int64_t turns, bool communicate)
{
    if (communicate)
        CZ_TRY(cz_ddp_begin(b->ddp, true));
    for (int p = b->params - 1; p >= 0; p--) {
        compute(turns / b->params, b->job->waits);
        if (communicate)
            CZ_TRY(cz_ddp_mark_ready(b->ddp, p));
    }
    if (communicate)
        CZ_TRY(cz_ddp_finish(b->ddp));
    return communicate && b->zero ? cz_zero_step(b->zero, NULL, NULL) : CZ_OK;
}

/* Seconds on the slowest rank. */
static cz_status measure(bench *b, int64_t turns, bool communicate, double *seconds)
{
    CZ_TRY(cz_barrier(b->group, NULL));
    const double begun = now();
    CZ_TRY(run(b, turns, communicate));
    *seconds = now() - begun;
    return cz_all_reduce(b->group, seconds, 1, CZ_F64, CZ_MAX, CZ_LABEL("slowest"));
}

/* Turns of the computation that take that long, alike on all ranks. */
static cz_status tune(bench *b, double wanted, int64_t *turns)
{
    double seconds[5];
    *turns = 10000000;
    for (int i = 0; i < 5; i++)
        CZ_TRY(measure(b, *turns, false, &seconds[i]));
    *turns = (int64_t)((double)*turns * wanted / median(seconds, 5));
    return CZ_OK;
}

static cz_status measure_rounds(bench *b, int rounds, int64_t turns, result *r)
{
    double backward[MAX_ROUNDS], communication[MAX_ROUNDS], step[MAX_ROUNDS];
    for (int i = 0; i < rounds; i++) {
        CZ_TRY(measure(b, turns, false, &backward[i]));
        CZ_TRY(measure(b, 0, true, &communication[i]));
        CZ_TRY(measure(b, turns, true, &step[i]));
    }
    r->backward = median(backward, rounds);
    r->communication = median(communication, rounds);
    r->step = median(step, rounds);
    r->hidden = (r->backward + r->communication - r->step) / fmin(r->backward, r->communication);
    return CZ_OK;
}

static cz_status measure_all(bench *b, int rounds, result *r)
{
    double first[5], busy[2], all[2], wanted = b->job->compute_seconds;
    int64_t turns;
    for (int i = 0; i < 5; i++) /* the first passes also learn the order of the buckets */
        CZ_TRY(measure(b, 0, true, &first[i]));
    CZ_TRY(tune(b, wanted > 0 ? wanted : median(first, 5), &turns));
    machine_seconds(&busy[0], &all[0]);
    double ours = -seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    CZ_TRY(measure_rounds(b, rounds, turns, r));
    ours += seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    CZ_TRY(cz_all_reduce(b->group, &ours, 1, CZ_F64, CZ_SUM, CZ_LABEL("processor time")));
    machine_seconds(&busy[1], &all[1]);
    r->others = fmax(0, busy[1] - busy[0] - ours) / (all[1] - all[0]);
    return CZ_OK;
}

/* ---- the model ---- */

static cz_status create(bench *b)
{
    const size_t bytes = (size_t)b->job->buckets * b->job->bucket_bytes;
    b->params = b->job->buckets * PARAMS_IN_BUCKET;
    const int64_t each = (int64_t)(b->job->bucket_bytes / PARAMS_IN_BUCKET / sizeof(float));
    int64_t *sizes = calloc((size_t)b->params, sizeof *sizes);
    b->values = aligned_alloc(64, bytes);
    b->gradients = aligned_alloc(64, bytes);
    if (!sizes || !b->values || !b->gradients) {
        free(sizes);
        return cz_fail(CZ_ERR_MEMORY, "no memory for %zu bytes of parameters", bytes);
    }
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        b->values[i] = 1;
        b->gradients[i] = 1e-3f;
    }
    for (int p = 0; p < b->params; p++)
        sizes[p] = each;
    cz_status status = cz_model_create(&b->model);
    if (status == CZ_OK)
        status =
            cz_model_add_flat(b->model, b->values, b->gradients, CZ_F32, b->params, NULL, sizes);
    free(sizes);
    CZ_TRY(status);
    cz_ddp_options options = CZ_DDP_OPTIONS_INIT;
    options.bucket_bytes = options.first_bucket_bytes = b->job->bucket_bytes;
    CZ_TRY(cz_ddp_create(&b->ddp, b->group, b->model, &options));
    if (!b->job->sharded)
        return CZ_OK;
    cz_zero_options sharded = CZ_ZERO_OPTIONS_INIT;
    sharded.ddp = b->ddp;
    sharded.overlap = CZ_OVERLAP_INTERLEAVED;
    return cz_zero_create(&b->zero, b->group, b->model, cz_rule_adamw(), NULL, &sharded);
}

static void destroy(bench *b)
{
    cz_zero_destroy(&b->zero);
    cz_ddp_destroy(&b->ddp);
    cz_model_destroy(&b->model);
    free(b->values);
    free(b->gradients);
}

/* ---- the link ---- */

/* Bits in a second that reach the other host, by MPI alone; the slower way of the two. */
static double link_rate(int rank)
{
    enum { BYTES = 1 << 20, MESSAGES = 16, TRIES = 5 };
    MPI_Request requests[MESSAGES];
    char *memory = calloc(MESSAGES, BYTES);
    double slower = INFINITY;
    for (int from = 0; memory && from < 2; from++) {
        double best = 0;
        for (int i = 0; i < TRIES; i++) {
            MPI_Barrier(MPI_COMM_WORLD);
            const double begun = now();
            for (int k = 0; k < MESSAGES; k++) {
                char *message = memory + (ptrdiff_t)k * BYTES;
                if (rank == from)
                    MPI_Isend(message, BYTES, MPI_BYTE, 1 - rank, k, MPI_COMM_WORLD, &requests[k]);
                else
                    MPI_Irecv(message, BYTES, MPI_BYTE, from, k, MPI_COMM_WORLD, &requests[k]);
            }
            MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
            best = fmax(best, 8.0 * BYTES * MESSAGES / (now() - begun));
        }
        MPI_Bcast(&best, 1, MPI_DOUBLE, 1 - from, MPI_COMM_WORLD); /* of who received */
        slower = fmin(slower, best);
    }
    free(memory);
    return slower;
}

/* ---- the report ---- */

/* C against the link: what of the link's rate the communication alone reaches. */
static void show(const job *j, const result *r)
{
    printf("%-22s %2d x %zu MiB  B %.4f s  C %.4f s (%3.0f %% of the link)  step %.4f s  hidden "
           "share %.3f\n",
           j->name, j->buckets, j->bucket_bytes >> 20, r->backward, r->communication,
           100 * r->link_limit / r->communication, r->step, r->hidden);
    if (r->others > 0.05)
        printf("  other programs took %.0f %% of the processors: these are no figures\n",
               100 * r->others);
    fflush(stdout);
}

static json_t *fields(const job *j, const result *r)
{
    return json_pack("{s:s, s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "case", j->name, "buckets",
                     j->buckets, "bucket_bytes", (json_int_t)j->bucket_bytes, "backward_s",
                     r->backward, "communication_s", r->communication, "step_s", r->step,
                     "hidden_share", r->hidden, "link_limit_s", r->link_limit, "others_cpu",
                     r->others);
}

/* The first case's fields, the link's, and the other cases. */
static cz_status write_report(const char *path, json_t *cases, double rate)
{
    json_t *report = json_deep_copy(json_array_get(cases, 0));
    json_array_remove(cases, 0);
    if (!report || json_object_set_new(report, "link_bits_per_s", json_real(rate)) ||
        json_object_set(report, "others", cases) ||
        json_dump_file(report, path, JSON_INDENT(2) | JSON_REAL_PRECISION(6))) {
        json_decref(report);
        return cz_fail(CZ_ERR_IO, "%s cannot be written", path);
    }
    json_decref(report);
    return CZ_OK;
}

static cz_status run_case(cz_group *group, const job *j, int rounds, json_t *cases)
{
    bench b = {.job = j, .group = group};
    result r = {0};
    cz_status status = create(&b);
    if (status == CZ_OK)
        status = measure_all(&b, rounds, &r);
    destroy(&b);
    /* a rank sends the other's half of the gradients, and then its own half of the result */
    r.link_limit = 8 * (double)j->buckets * (double)j->bucket_bytes / NOMINAL_RATE;
    if (status == CZ_OK && cz_group_rank(group) == 0) {
        show(j, &r);
        json_array_append_new(cases, fields(j, &r));
    }
    return status;
}

static cz_status run_cases(int rank, const char *path, int rounds)
{
    static const job jobs[] = {
        {"ddp + zero, overlapped", true, 16, (size_t)2 << 20, 0, false},
        {"ddp alone, all-reduce", false, 16, (size_t)2 << 20, 0, false},
        {"5 ms a bucket", true, 8, (size_t)4 << 20, 8 * 5e-3, false},
        {"processors are free", true, 16, (size_t)2 << 20, 0, true},
    };
    const double rate = link_rate(rank);
    cz_group *group;
    if (rank == 0)
        printf("two hosts, one rank each, %d rounds; the link carries %.3f Gbit/s\n", rounds,
               rate * 1e-9);
    CZ_TRY(cz_group_create_mpi(&group, MPI_COMM_WORLD, NULL, NULL));
    json_t *cases = json_array();
    cz_status status = CZ_OK;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs && status == CZ_OK; i++)
        status = run_case(group, &jobs[i], rounds, cases);
    if (status == CZ_OK && rank == 0)
        status = write_report(path, cases, rate);
    json_decref(cases);
    cz_group_destroy(&group);
    return status;
}

int main(int argc, char **argv)
{
    int provided, rank, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int rounds = argc == 3 ? atoi(argv[2]) : 0;
    cz_status status = CZ_ERR_ARGUMENT;
    if (size != 2 || rounds < 1 || rounds > MAX_ROUNDS)
        fprintf(stderr, "usage, on two ranks: overlap REPORT.json ROUNDS\n");
    else if ((status = run_cases(rank, argv[1], rounds)) != CZ_OK)
        fprintf(stderr, "rank %d: %s\n", rank, cz_last_error());
    MPI_Finalize();
    return status != CZ_OK;
}
