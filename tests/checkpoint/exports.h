/* SPDX-License-Identifier: MIT */
/* A training whose exports tests compare byte by byte: parameters of all shapes, an empty and a
 * frozen one, buffers of several types, Adam, on any number of ranks with any partition and
 * buckets, or unsharded. */
#ifndef CZ_TEST_EXPORTS_H
#define CZ_TEST_EXPORTS_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/folder.h"
#include "checkpoint/small.h"
#include "czero/checkpoint.h"
#include "czero/ddp.h"
#include "tensor/model.h"

enum { EXPORT_PARAMS = 6, EXPORT_LARGEST = 131, EXPORT_STEPS = 3, EXPORT_PATH = FOLDER_BYTES + 64 };

static const struct {
    const char *name;
    int64_t count;
    int dimensions;
    int64_t shape[2];
} export_params[EXPORT_PARAMS] = {
    {"layer.0.weight", 40, 2, {5, 8}}, {"empty", 0, 1, {0}},    {"scale", 1, 0, {0}},
    {"layer.1.weight", 131, 1, {131}}, {"frozen", 16, 1, {16}}, {"head/bias", 21, 2, {7, 3}}};

typedef struct trainee {
    cz_group *group;
    cz_model *model;
    cz_ddp *ddp;
    cz_zero *zero;
    cz_optim *optim;
    cz_checkpoint *checkpoint;
    float values[EXPORT_PARAMS][EXPORT_LARGEST], grads[EXPORT_PARAMS][EXPORT_LARGEST];
    int64_t steps;
    uint8_t mask[3];
    double mean[5];
} trainee;

/* How it is trained. */
typedef struct manner {
    bool unsharded;
    cz_partition partition;
    size_t cap; /* of buckets */
} manner;

static inline void trainee_close(trainee *s)
{
    cz_checkpoint_destroy(&s->checkpoint);
    cz_zero_destroy(&s->zero);
    cz_optim_destroy(&s->optim);
    cz_ddp_destroy(&s->ddp);
    cz_model_destroy(&s->model);
}

static inline cz_status add_all(trainee *s, int seed)
{
    const int64_t three = 3, five = 5;
    CZ_TRY(cz_model_create(&s->model));
    for (int p = 0; p < EXPORT_PARAMS; p++) {
        for (int i = 0; i < EXPORT_LARGEST; i++)
            s->values[p][i] = (float)(i % 17 - p + seed) / 16;
        CZ_TRY(cz_model_add(s->model, export_params[p].name, s->values[p], s->grads[p], CZ_F32,
                            export_params[p].dimensions, export_params[p].shape));
    }
    CZ_TRY(cz_model_set_requires_grad(s->model, 4, false));
    s->steps = 100 + seed;
    for (int i = 0; i < 5; i++)
        s->mean[i] = i + seed + 0.25;
    for (int i = 0; i < 3; i++)
        s->mask[i] = (uint8_t)(i + seed);
    CZ_TRY(cz_model_add_buffer(s->model, "mask", s->mask, CZ_U8, 1, &three));
    CZ_TRY(cz_model_add_buffer(s->model, "steps", &s->steps, CZ_I64, 0, NULL));
    return cz_model_add_buffer(s->model, "mean", s->mean, CZ_F64, 1, &five);
}

static inline cz_status add_optimizer(trainee *s, const manner *m)
{
    int owners[EXPORT_PARAMS];
    const cz_hyper *hypers = CZ_HYPERS({"lr", 0.125}, {"amsgrad", 1});
    cz_ddp_options buckets = CZ_DDP_OPTIONS_INIT;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    if (m->unsharded)
        return cz_optim_create(&s->optim, s->model, cz_rule_adam(), hypers, NULL);
    for (int p = 0; p < EXPORT_PARAMS; p++)
        owners[p] = (p * p + 1) % cz_group_size(s->group);
    buckets.bucket_bytes = m->cap;
    buckets.first_bucket_bytes = m->cap;
    CZ_TRY(cz_ddp_create(&s->ddp, s->group, s->model, &buckets));
    options.partition = m->partition;
    options.ddp = s->ddp;
    if (m->partition == CZ_PARTITION_GIVEN) {
        options.owners = owners;
        options.owner_count = EXPORT_PARAMS;
    }
    return cz_zero_create(&s->zero, s->group, s->model, cz_rule_adam(), hypers, &options);
}

static inline cz_status trainee_open(trainee *s, cz_group *group, const manner *m, int seed)
{
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    *s = (trainee){.group = group};
    CZ_TRY(add_all(s, seed));
    CZ_TRY(add_optimizer(s, m));
    options.model = s->model;
    options.zero = s->zero;
    options.optim = s->optim;
    return cz_checkpoint_create(&s->checkpoint, group, "not used", &options);
}

/* All ranks have the mean already; the scalar has no gradient in the first step. */
static inline cz_status trainee_step(trainee *s, int step)
{
    for (int p = 0; p < EXPORT_PARAMS; p++)
        for (int64_t i = 0; i < export_params[p].count; i++)
            s->grads[p][i] = (float)((i + p + step) % 9 - 4) / 32;
    if (s->optim)
        return cz_optim_step(s->optim, NULL, NULL);
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    for (int p = 0; p < EXPORT_PARAMS; p++)
        if (cz__model_requires_grad(s->model, p))
            CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
    CZ_TRY(cz_ddp_finish(s->ddp));
    return cz_zero_step(s->zero, NULL, NULL);
}

static inline cz_status trainee_train(trainee *s)
{
    for (int step = 0; step < EXPORT_STEPS; step++)
        CZ_TRY(trainee_step(s, step));
    return CZ_OK;
}

/* With the dictionary of small.h. */
static inline cz_status trainee_export(trainee *s, const char *path, uint64_t max_file_bytes)
{
    cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
    cz_state_dict *common = NULL;
    cz_status status = small_dict(&common, EXPORT_STEPS);
    options.step = EXPORT_STEPS;
    options.common = common;
    options.max_file_bytes = max_file_bytes;
    THEN(cz_checkpoint_export(s->checkpoint, path, &options));
    cz_state_dict_destroy(&common);
    return status;
}

/* ---- files ---- */

/* For free(); NULL: it cannot be read. */
static inline char *read_whole(const char *path, size_t *count)
{
    struct stat about;
    const int file = open(path, O_RDONLY);
    *count = 0;
    char *bytes = NULL;
    if (file >= 0 && fstat(file, &about) == 0) {
        *count = (size_t)about.st_size;
        bytes = malloc(*count + 1);
        if (read(file, bytes, *count) != (ssize_t)*count) {
            free(bytes);
            bytes = NULL;
        } else
            bytes[*count] = 0;
    }
    if (file >= 0)
        close(file);
    return bytes;
}

static inline void write_whole(const char *path, const void *bytes, size_t count)
{
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(file >= 0);
    assert_int_equal(write(file, bytes, count), count);
    close(file);
}

static inline bool same_file(const char *a, const char *b)
{
    size_t x = 0, y = 1;
    char *left = read_whole(a, &x), *right = read_whole(b, &y);
    const bool same = left && right && x == y && memcmp(left, right, x) == 0;
    free(left);
    free(right);
    return same;
}

/* Names in a folder. */
static inline int count_files(const char *folder)
{
    struct dirent *entry;
    int count = 0;
    DIR *directory = opendir(folder);
    while (directory && (entry = readdir(directory)))
        count += entry->d_name[0] != '.';
    if (directory)
        closedir(directory);
    return count;
}

#endif
