/* SPDX-License-Identifier: MIT */
/* Imports that have to fail, and the comparison of what they may not change. */
#ifndef CZ_TEST_IMPORTS_H
#define CZ_TEST_IMPORTS_H

#include "checkpoint/exports.h"

typedef struct job {
    char folder[FOLDER_BYTES], path[EXPORT_PATH];
    const char *word, *other; /* of the sentence that is wanted */
    unsigned allowed;
    cz_load_options load;
    const char *elsewhere; /* what rank 1 imports; NULL: the same */
    uint64_t max_file_bytes;
} job;

static const manner evenly = {.partition = CZ_PARTITION_ELEMENTS};

static inline void begin(job *j, const char *name)
{
    *j = (job){.load = CZ_LOAD_OPTIONS_INIT};
    make_folder(j->folder);
    snprintf(j->path, sizeof j->path, "%s/%s", j->folder, name);
}

/* ---- comparing trainees ---- */

static inline cz_status state_of(trainee *s, cz_state_dict **dict)
{
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, CZ_ALL_RANKS));
    return cz_zero_state_dict(s->zero, dict);
}

static inline cz_status same_values(const trainee *a, const trainee *b)
{
    for (int p = 0; p < EXPORT_PARAMS; p++)
        if (memcmp(a->values[p], b->values[p], (size_t)export_params[p].count * sizeof(float)))
            return cz_fail(CZ_ERR_STATE, "'%s' differs", export_params[p].name);
    return a->steps == b->steps && memcmp(a->mask, b->mask, sizeof a->mask) == 0 &&
                   memcmp(a->mean, b->mean, sizeof a->mean) == 0
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "a buffer differs");
}

static inline cz_status same_state(trainee *s, const cz_state_dict *before, bool wanted)
{
    cz_state_dict *now = NULL;
    CZ_TRY(state_of(s, &now));
    const bool same = cz_state_dict_equal(before, now);
    cz_state_dict_destroy(&now);
    return same == wanted ? CZ_OK
                          : cz_fail(CZ_ERR_STATE, same ? "state is the same" : "state differs");
}

/* What `travel` does with two: one cut evenly, and one with other values and whole parameters. */
typedef cz_status (*two_trainees)(trainee *a, trainee *b, const job *j);
static inline cz_status with_two(cz_group *group, const job *j, two_trainees travel)
{
    const manner whole = {.partition = CZ_PARTITION_GREEDY};
    trainee a, b = {.group = NULL};
    cz_status status = trainee_open(&a, group, &evenly, 0);
    THEN(trainee_open(&b, group, &whole, 3));
    THEN(travel(&a, &b, j));
    trainee_close(&b);
    trainee_close(&a);
    return status;
}

/* Some steps, and an export to the job's path. */
static inline cz_status write_as(cz_group *group, const job *j, const manner *how)
{
    trainee s;
    cz_status status = trainee_open(&s, group, how, 0);
    THEN(trainee_train(&s));
    THEN(trainee_export(&s, j->path, 0));
    trainee_close(&s);
    return status;
}

/* An import that has to fail, alike on all ranks, and change nothing. */
static inline cz_status refuse(trainee *s, const job *j)
{
    trainee *before = malloc(sizeof *before);
    cz_state_dict *dict = NULL;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    memcpy(before, s, sizeof *before);
    cz_status status = state_of(s, &dict);
    THEN(small_expect(
        cz_checkpoint_import(s->checkpoint,
                             j->elsewhere && cz_group_rank(s->group) == 1 ? j->elsewhere : j->path,
                             &j->load, &result),
        j->allowed, j->word, j->other));
    if (status == CZ_OK && (result.step != -1 || result.common))
        status = cz_fail(CZ_ERR_STATE, "there is a result");
    THEN(same_values(s, before));
    THEN(same_state(s, dict, true));
    cz_state_dict_destroy(&dict);
    free(before);
    return status;
}

static inline cz_status refuse_import(cz_group *group, void *context)
{
    trainee s;
    cz_status status = trainee_open(&s, group, &evenly, 7);
    THEN(trainee_step(&s, 0));
    THEN(refuse(&s, context));
    trainee_close(&s);
    return status;
}

static inline void expect_import(job *j, int world, cz_status status, const char *word,
                                 const char *other)
{
    j->allowed = ONE(status);
    j->word = word;
    j->other = other;
    assert_ranks_ok(world, refuse_import, j);
}

/* ---- there and back ---- */

static inline cz_status same_progress(trainee *a, trainee *b)
{
    cz_state_dict *wanted = NULL;
    cz_status status = state_of(a, &wanted);
    THEN(same_state(b, wanted, true));
    cz_state_dict_destroy(&wanted);
    return status;
}

static inline cz_status export_and_import(trainee *a, trainee *b, const job *j)
{
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    CZ_TRY(trainee_train(a));
    CZ_TRY(trainee_step(b, 5));
    CZ_TRY(trainee_export(a, j->path, 0));
    cz_status status = cz_checkpoint_import(b->checkpoint, j->path, NULL, &result);
    if (status == CZ_OK &&
        (result.step != EXPORT_STEPS || !small_dict_is(result.common, EXPORT_STEPS)))
        status = cz_fail(CZ_ERR_STATE, "another step or dictionary");
    THEN(same_values(a, b));
    THEN(same_progress(a, b));
    small_result_clear(&result);
    for (int k = 5; status == CZ_OK && k < 7; k++) {
        status = trainee_step(a, k);
        THEN(trainee_step(b, k));
    }
    THEN(same_values(a, b));
    return status == CZ_OK ? same_progress(a, b) : status;
}

static inline cz_status there_and_back(cz_group *group, void *context)
{
    return with_two(group, context, export_and_import);
}

#endif
