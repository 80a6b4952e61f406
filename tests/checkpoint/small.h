/* SPDX-License-Identifier: MIT */
/* A small training whose checkpoints tests break: three parameters, a buffer, Adam, dictionaries
 * with tensors. All that a load could change can be compared with what it was. */
#ifndef CZ_TEST_SMALL_H
#define CZ_TEST_SMALL_H

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/folder.h"
#include "czero/checkpoint.h"

enum { SMALL_PARAMS = 3, SMALL_LARGEST = 20, SMALL_BUFFER = 5, SMALL_PATH = FOLDER_BYTES + 128 };

typedef struct small_values {
    float params[SMALL_PARAMS][SMALL_LARGEST];
    double buffer[SMALL_BUFFER];
} small_values;

typedef struct small {
    cz_group *group;
    cz_model *model;
    cz_zero *zero;
    cz_checkpoint *checkpoint;
    small_values values, before;
    float grads[SMALL_PARAMS][SMALL_LARGEST];
    cz_state_dict *dict; /* of the optimizer, when `before` was taken */
} small;

static const int64_t small_shapes[SMALL_PARAMS][2] = {{20, 0}, {3, 4}, {1, 0}};
static const int small_counts[SMALL_PARAMS] = {20, 12, 1};
static const int small_dimensions[SMALL_PARAMS] = {1, 2, 1};

static inline void small_close(small *s)
{
    cz_state_dict_destroy(&s->dict);
    cz_checkpoint_destroy(&s->checkpoint);
    cz_zero_destroy(&s->zero);
    cz_model_destroy(&s->model);
}

/* Values that depend on `seed`: what is loaded is not what was there. */
static inline cz_status small_open(small *s, cz_group *group, const char *folder, int seed,
                                   int keep)
{
    static const int64_t buffer_shape[] = {SMALL_BUFFER};
    char name[24];
    *s = (small){.group = group};
    CZ_TRY(cz_model_create(&s->model));
    for (int p = 0; p < SMALL_PARAMS; p++) {
        for (int i = 0; i < small_counts[p]; i++)
            s->values.params[p][i] = (float)(i - p + seed) / 64;
        snprintf(name, sizeof name, "layer%d.weight", p);
        CZ_TRY(cz_model_add(s->model, name, s->values.params[p], s->grads[p], CZ_F32,
                            small_dimensions[p], small_shapes[p]));
    }
    for (int i = 0; i < SMALL_BUFFER; i++)
        s->values.buffer[i] = i + seed + 0.5;
    CZ_TRY(
        cz_model_add_buffer(s->model, "running_mean", s->values.buffer, CZ_F64, 1, buffer_shape));
    CZ_TRY(
        cz_zero_create(&s->zero, group, s->model, cz_rule_adam(), CZ_HYPERS({"lr", 0.125}), NULL));
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    options.zero = s->zero;
    options.keep = keep;
    return cz_checkpoint_create(&s->checkpoint, group, folder, &options);
}

static inline cz_status small_step(small *s)
{
    for (int p = 0; p < SMALL_PARAMS; p++)
        for (int i = 0; i < SMALL_LARGEST; i++)
            s->grads[p][i] = (float)(i % 7 + p) / 32;
    return cz_zero_step(s->zero, NULL, NULL);
}

/* A dictionary of its own for each rank and step: texts, numbers, a tensor, one in the other. */
static inline cz_status small_dict(cz_state_dict **dict, int number)
{
    const int64_t data[] = {number, -number, 7};
    const cz_tensor tensor = {.data = (void *)data, .dtype = CZ_I64, .dimensions = 1, .shape = {3}};
    cz_state_dict *inner;
    CZ_TRY(cz_state_dict_create(dict));
    CZ_TRY(cz_state_dict_set_integer(*dict, "number", number));
    CZ_TRY(cz_state_dict_set_text(*dict, "text", "of the program"));
    CZ_TRY(cz_state_dict_set_tensor(*dict, "tensor", &tensor));
    CZ_TRY(cz_state_dict_add_dict(*dict, "inner", &inner));
    CZ_TRY(cz_state_dict_set_real(inner, "real", number / 3.0));
    return cz_state_dict_set_tensor(inner, "tensor", &tensor);
}

static inline bool small_dict_is(const cz_state_dict *dict, int number)
{
    cz_state_dict *wanted = NULL;
    const bool same = small_dict(&wanted, number) == CZ_OK && cz_state_dict_equal(wanted, dict);
    cz_state_dict_destroy(&wanted);
    return same;
}

/* The common dictionary is of number `step`, a rank's own of 1000 (step + 1) + rank. */
static inline int small_own(int64_t step, int rank)
{
    return (int)(1000 * (step + 1)) + rank;
}

static inline cz_status small_save(small *s, int64_t step, bool later)
{
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    cz_state_dict *common = NULL, *own = NULL;
    cz_status status = small_dict(&common, (int)step);
    THEN(small_dict(&own, small_own(step, cz_group_rank(s->group))));
    options.step = step;
    options.common = common;
    options.own = own;
    THEN(later ? cz_checkpoint_save_async(s->checkpoint, &options)
               : cz_checkpoint_save(s->checkpoint, &options));
    cz_state_dict_destroy(&common);
    cz_state_dict_destroy(&own);
    return status;
}

/* Four steps, each saved, in turn at once and later; *kept, of rank 0: the values after them. */
static inline cz_status small_save_four(cz_group *group, const char *folder, small_values *kept)
{
    small s;
    cz_status status = small_open(&s, group, folder, 1, 2);
    for (int step = 1; status == CZ_OK && step <= 4; step++) {
        status = small_step(&s);
        THEN(small_save(&s, step, step % 2));
    }
    THEN(cz_checkpoint_wait(s.checkpoint));
    if (cz_group_rank(group) == 0)
        *kept = s.values;
    small_close(&s);
    return status;
}

/* For logs of what is meant to happen. */
static inline void small_quiet(cz_log_level level, const char *line, void *context)
{
}

/* ---- what a load may not change ---- */

static inline cz_status small_remember(small *s)
{
    s->before = s->values;
    cz_state_dict_destroy(&s->dict);
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, CZ_ALL_RANKS));
    return cz_zero_state_dict(s->zero, &s->dict);
}

static inline cz_status small_unchanged(small *s)
{
    cz_state_dict *now = NULL;
    if (memcmp(&s->before, &s->values, sizeof s->before) != 0)
        return cz_fail(CZ_ERR_STATE, "rank %d: values have changed", cz_group_rank(s->group));
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, CZ_ALL_RANKS));
    CZ_TRY(cz_zero_state_dict(s->zero, &now));
    const bool same = cz_state_dict_equal(s->dict, now);
    cz_state_dict_destroy(&now);
    return same ? CZ_OK
                : cz_fail(CZ_ERR_STATE, "rank %d: the optimizer's state has changed",
                          cz_group_rank(s->group));
}

/* ---- what a load gives ---- */

/* As `saved` was when it was saved, with its dictionaries. */
static inline cz_status small_is(small *s, const small_values *saved, const cz_load_result *r,
                                 int64_t step)
{
    const int rank = cz_group_rank(s->group);
    if (r->step != step)
        return cz_fail(CZ_ERR_STATE, "step %d was loaded, wanted %d", (int)r->step, (int)step);
    if (memcmp(saved, &s->values, sizeof *saved) != 0)
        return cz_fail(CZ_ERR_STATE, "rank %d: other values are loaded", rank);
    if (!small_dict_is(r->common, (int)step))
        return cz_fail(CZ_ERR_STATE, "rank %d: another common dictionary", rank);
    if ((rank < r->world_size) != (r->own != NULL) ||
        (r->own && !small_dict_is(r->own, small_own(step, rank))))
        return cz_fail(CZ_ERR_STATE, "rank %d: another own dictionary", rank);
    return CZ_OK;
}

static inline void small_result_clear(cz_load_result *result)
{
    cz_state_dict_destroy(&result->common);
    cz_state_dict_destroy(&result->own);
}

/* A load that has to work. */
static inline cz_status small_load(small *s, const cz_load_options *options,
                                   const small_values *saved, int64_t step)
{
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    cz_status status = cz_checkpoint_load(s->checkpoint, options, &result);
    THEN(small_is(s, saved, &result, step));
    small_result_clear(&result);
    return status;
}

/* ---- errors ---- */

/* `status` has to be one of those in `allowed` (bits), and its sentence to have both parts. */
#define ONE(status) (1u << (status))
static inline cz_status small_expect(cz_status status, unsigned allowed, const char *part,
                                     const char *other)
{
    if (status == CZ_OK)
        return cz_fail(CZ_ERR_STATE, "CZ_OK, wanted an error with \"%s\"", part ? part : "");
    if (!(allowed & ONE(status)))
        return cz_fail(CZ_ERR_STATE, "status %s: %.180s", cz_status_name(status), cz_last_error());
    if ((part && !strstr(cz_last_error(), part)) || (other && !strstr(cz_last_error(), other)))
        return cz_fail(CZ_ERR_STATE, "\"%s\", \"%s\" not in: %.160s", part ? part : "",
                       other ? other : "", cz_last_error());
    return CZ_OK;
}

#endif
