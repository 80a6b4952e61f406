/* SPDX-License-Identifier: MIT */
/* train FOLDER STEPS SEED [PACE [PARTS]]: trains from the newest checkpoint in FOLDER to STEPS
 * steps, saves on the way and at the end. The values after each step have the same bits on any
 * number of ranks: gradients are small multiples of 1/64, so that their sums are exact in every
 * order. What may differ between attempts, and must not show, is chosen by SEED and the number of
 * ranks: partition, buckets, overlap, how it saves. PACE: milliseconds that a step takes at least.
 * With PARTS a batch is dealt out in so many parts, and no sum is exact: gradients, weights and a
 * loss, which a buffer keeps, have the same bits on any number of ranks because parts are added in
 * one order. Ranks are threads, or processes under mpirun. failures.sh runs it, and makes it
 * fail. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <czero/czero.h>

enum { PARAMETERS = 8, SAMPLES = 32, MOST_PARTS = 64 };

static const int64_t sizes[PARAMETERS] = {4096, 1, 333, 0, 64, 30001, 17, 5000};

typedef struct training {
    const char *folder;
    int64_t steps;
    uint64_t seed;
    double pace;   /* seconds */
    int32_t parts; /* 0: each rank's samples are one batch */
} training;

typedef struct state {
    cz_group *world;
    cz_model *model;
    cz_parts *parts;   /* NULL: none */
    cz_ddp *ddp;       /* NULL: steps reduce */
    bool steps_inside; /* its passes step */
    cz_zero *zero;
    cz_sched *sched;
    cz_checkpoint *checkpoint;
    float *values, *gradients; /* all parameters, one after the other */
    float seen[4];             /* a buffer: how many samples so far */
    int64_t step;
} state;

static const cz_step_options step_options = {.size = sizeof step_options, .max_norm = 4};

static int64_t element_count(void)
{
    int64_t count = 0;
    for (int p = 0; p < PARAMETERS; p++)
        count += sizes[p];
    return count;
}

/* A number below `limit` that all ranks draw alike. */
static int draw(const training *t, const state *s, uint64_t what, int limit)
{
    const uint64_t stream = 16 * (uint64_t)cz_group_size(s->world) + what;
    return (int)(cz_random_uniform(t->seed, stream, (uint64_t)s->step) * (float)limit);
}

static cz_status create_model(state *s)
{
    int64_t begin = 0;
    s->values = calloc((size_t)element_count(), sizeof *s->values);
    s->gradients = calloc((size_t)element_count(), sizeof *s->gradients);
    if (!s->values || !s->gradients)
        return cz_fail(CZ_ERR_MEMORY, "no memory for %" PRId64 " parameters", element_count());
    CZ_TRY(cz_model_create(&s->model));
    for (int p = 0; p < PARAMETERS; begin += sizes[p++]) {
        char name[24];
        snprintf(name, sizeof name, "layer.%d", p);
        for (int64_t i = 0; i < sizes[p]; i++)
            s->values[begin + i] = (float)(i % 64) / 64;
        CZ_TRY(cz_model_add(s->model, name, s->values + begin, s->gradients + begin, CZ_F32, 1,
                            &sizes[p]));
    }
    return cz_model_add_buffer(s->model, "seen", s->seen, CZ_F32, 1, (int64_t[]){4});
}

static cz_status create_optimizer(const training *t, state *s)
{
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    const int kind = draw(t, s, 0, 4);
    if (t->parts > 0)
        CZ_TRY(cz_parts_create(&s->parts, s->world, s->model,
                               &(cz_parts_options){sizeof(cz_parts_options), t->parts, 0}));
    options.parts = s->parts;
    if (kind > 0) {
        cz_ddp_options buckets = CZ_DDP_OPTIONS_INIT;
        buckets.bucket_bytes = (size_t)1 << (12 + draw(t, s, 1, 8));
        buckets.first_bucket_bytes = buckets.bucket_bytes;
        buckets.parts = s->parts;
        CZ_TRY(cz_ddp_create(&s->ddp, s->world, s->model, &buckets));
        options.ddp = s->ddp;
        options.overlap = kind == 2 ? CZ_OVERLAP_STEP : CZ_OVERLAP_NONE;
    }
    options.partition = draw(t, s, 2, 2) ? CZ_PARTITION_GREEDY : CZ_PARTITION_ELEMENTS;
    CZ_TRY(cz_zero_create(&s->zero, s->world, s->model, cz_rule_adamw(), CZ_HYPERS({"lr", 0.01}),
                          &options));
    s->steps_inside = options.overlap == CZ_OVERLAP_STEP;
    if (s->steps_inside)
        CZ_TRY(cz_zero_set_overlap(s->zero, CZ_OVERLAP_STEP, &step_options));
    return cz_sched_create_cosine(&s->sched, cz_zero_local_optim(s->zero), t->steps, 0, NULL);
}

static cz_status create(const training *t, state *s)
{
    cz_checkpoint_options what = CZ_CHECKPOINT_OPTIONS_INIT;
    CZ_TRY(create_model(s));
    CZ_TRY(create_optimizer(t, s));
    what.zero = s->zero;
    what.keep = 2;
    return cz_checkpoint_create(&s->checkpoint, s->world, t->folder, &what);
}

static void destroy(state *s)
{
    cz_checkpoint_destroy(&s->checkpoint);
    cz_sched_destroy(&s->sched);
    cz_zero_destroy(&s->zero);
    cz_ddp_destroy(&s->ddp);
    cz_parts_destroy(&s->parts);
    cz_model_destroy(&s->model);
    free(s->values);
    free(s->gradients);
}

static cz_status resume(state *s)
{
    cz_load_options options = CZ_LOAD_OPTIONS_INIT;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    const cz_state_dict *sched;
    options.missing_ok = 1;
    CZ_TRY(cz_checkpoint_load(s->checkpoint, &options, &result));
    cz_status status = CZ_OK;
    if (result.step >= 0) {
        s->step = result.step;
        status = cz_state_dict_get_dict(result.common, "sched", &sched);
        if (status == CZ_OK)
            status = cz_sched_load_state_dict(s->sched, sched);
    }
    cz_state_dict_destroy(&result.common);
    cz_state_dict_destroy(&result.own);
    return status;
}

/* Without parts. This rank's samples are dealt out unevenly; the mean over ranks is the sum over
 * all samples / SAMPLES. */
static void compute_gradients(const training *t, state *s)
{
    const int rank = cz_group_rank(s->world), size = cz_group_size(s->world);
    int64_t place = 0;
    for (int p = 0; p < PARAMETERS; p++)
        for (int64_t i = 0; i < sizes[p]; i++, place++) {
            int sum = 0;
            for (int sample = rank; sample < SAMPLES; sample += size) {
                uint64_t x = t->seed + (uint64_t)s->step * 1000003 + (uint64_t)place * 131 +
                             (uint64_t)sample * 7919;
                x = (x ^ x >> 15) * 0x9e3779b97f4a7c15u;
                sum += (int)(x >> 60) - 7;
                sum += s->values[place] > 0.25f ? 3 : -3;
            }
            s->gradients[place] = (float)(sum * size) / (64 * SAMPLES);
        }
}

/* How many samples a part has in a step: perhaps none. */
static int samples_of(const state *s, int part)
{
    return (part * 5 + (int)(s->step % 7)) % 4;
}

/* What the samples of one part say, rounded after each of them. Returns its loss. */
static double compute_part(const training *t, state *s, int part)
{
    const uint64_t stream = cz_parts_stream(s->step, part);
    double loss = 0;
    int64_t place = 0;
    for (int p = 0; p < PARAMETERS; p++)
        for (int64_t i = 0; i < sizes[p]; i++, place++) {
            float sum = 0;
            for (int sample = 0; sample < samples_of(s, part); sample++) {
                uint64_t x =
                    t->seed + stream * 1000003 + (uint64_t)place * 131 + (uint64_t)sample * 7919;
                x = (x ^ x >> 15) * 0x9e3779b97f4a7c15u;
                sum += (float)(x >> 40) * 0x1p-24f - 0.5f + 0.3f * s->values[place];
            }
            s->gradients[place] = sum / (float)(samples_of(s, part) + 1);
            loss += (double)sum * (double)sum;
        }
    return loss;
}

/* A pass over one part, or over all that this rank has. */
static cz_status run_pass(const training *t, state *s, int part, double *loss)
{
    if (s->ddp)
        CZ_TRY(cz_ddp_begin(s->ddp, part < 0 || cz_parts_is_last(s->parts)));
    if (part < 0)
        compute_gradients(t, s);
    else
        *loss = compute_part(t, s, part);
    if (!s->ddp)
        return part < 0 ? CZ_OK : cz_parts_add(s->parts);
    for (int p = PARAMETERS - 1; p >= 0; p--)
        CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
    return cz_ddp_finish(s->ddp);
}

static cz_status run_parts(const training *t, state *s)
{
    double weights[MOST_PARTS], losses[MOST_PARTS], mean;
    for (int i = 0, part; (part = cz_parts_own(s->parts, i)) >= 0; i++)
        weights[i] = samples_of(s, part);
    CZ_TRY(cz_parts_set_weights(s->parts, weights));
    for (int i = 0, part; (part = cz_parts_own(s->parts, i)) >= 0; i++)
        CZ_TRY(run_pass(t, s, part, &losses[i]));
    CZ_TRY(cz_parts_mean(s->parts, losses, 1, &mean));
    s->seen[s->step % 4] += (float)mean;
    return CZ_OK;
}

static cz_status train_one_step(const training *t, state *s)
{
    CZ_TRY(s->parts ? run_parts(t, s) : run_pass(t, s, -1, NULL));
    CZ_TRY(cz_zero_step(s->zero, s->steps_inside ? NULL : &step_options, NULL));
    CZ_TRY(cz_sched_step(s->sched));
    s->step++;
    s->seen[s->step % 4] += SAMPLES;
    return CZ_OK;
}

static cz_status save(const training *t, state *s)
{
    cz_state_dict *common = NULL, *sched = NULL;
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    cz_status status = cz_state_dict_create(&common);
    if (status == CZ_OK)
        status = cz_sched_state_dict(s->sched, &sched);
    if (status == CZ_OK)
        status = cz_state_dict_set_dict(common, "sched", sched);
    options.step = s->step;
    options.common = common;
    if (status == CZ_OK)
        status = draw(t, s, 3, 2) && s->step < t->steps
                     ? cz_checkpoint_save_async(s->checkpoint, &options)
                     : cz_checkpoint_save(s->checkpoint, &options);
    cz_state_dict_destroy(&sched);
    cz_state_dict_destroy(&common);
    return status;
}

static void keep_pace(const training *t, struct timespec *next)
{
    next->tv_nsec += (long)(1e9 * t->pace);
    next->tv_sec += next->tv_nsec / 1000000000;
    next->tv_nsec %= 1000000000;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, next, NULL);
}

/* A save that fails for want of room is tried again later: all ranks have the same status. */
static cz_status train(const training *t, state *s)
{
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    while (s->step < t->steps) {
        CZ_TRY(train_one_step(t, s));
        keep_pace(t, &next);
        if (s->step < t->steps && draw(t, s, 4, 5) != 0)
            continue;
        const cz_status status = save(t, s);
        if (status == CZ_ERR_IO && s->step < t->steps)
            fprintf(stderr, "rank %d, step %" PRId64 ": %s\n", cz_group_rank(s->world), s->step,
                    cz_last_error());
        else
            CZ_TRY(status);
    }
    return cz_checkpoint_wait(s->checkpoint);
}

/* A cz_rank_main. */
static cz_status run(cz_group *world, void *context)
{
    const training *t = context;
    state s = {.world = world};
    cz_status status = create(t, &s);
    if (status == CZ_OK)
        status = resume(&s);
    if (status == CZ_OK)
        status = train(t, &s);
    destroy(&s);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > 6) {
        fprintf(stderr, "train FOLDER STEPS SEED [PACE [PARTS]]\n");
        return 2;
    }
    training t = {.folder = argv[1],
                  .steps = strtoll(argv[2], NULL, 10),
                  .seed = strtoull(argv[3], NULL, 10),
                  .pace = argc > 4 ? strtod(argv[4], NULL) / 1000 : 0,
                  .parts = argc > 5 ? (int32_t)strtol(argv[5], NULL, 10) : 0};
    if (t.parts > MOST_PARTS) {
        fprintf(stderr, "train: at most %d parts\n", MOST_PARTS);
        return 2;
    }
    const cz_status status = cz_launch(run, &t, NULL);
    if (status != CZ_OK)
        fprintf(stderr, "train: %s: %s\n", cz_status_name(status), cz_last_error());
    return status == CZ_OK ? 0 : 1;
}
