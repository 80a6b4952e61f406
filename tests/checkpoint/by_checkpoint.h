/* SPDX-License-Identifier: MIT */
/* Trainings in stages that go on from the checkpoint of the stage before. */
#ifndef CZ_TEST_BY_CHECKPOINT_H
#define CZ_TEST_BY_CHECKPOINT_H

#include "checkpoint/folder.h"
#include "czero/checkpoint.h"
#include "support/stages.h"

/* The context of the handover. */
typedef struct saving {
    const char *folder;
    bool later; /* saves are asynchronous, and training goes on before they end */
} saving;

static inline cz_status open_checkpoint(cz_group *group, cz_zero *zero, const char *path,
                                        cz_checkpoint **checkpoint)
{
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    options.zero = zero;
    return cz_checkpoint_create(checkpoint, group, path, &options);
}

static inline cz_status load_stage(const stages *s, cz_group *group, cz_zero *zero)
{
    const saving *how = s->by->context;
    cz_checkpoint *checkpoint = NULL;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    CZ_TRY(open_checkpoint(group, zero, how->folder, &checkpoint));
    cz_status status = cz_checkpoint_load(checkpoint, NULL, &result);
    if (status == CZ_OK && result.step != s->begin)
        status =
            cz_fail(CZ_ERR_STATE, "step %d was saved, %d is loaded", s->begin, (int)result.step);
    cz_state_dict_destroy(&result.common);
    cz_state_dict_destroy(&result.own);
    cz_checkpoint_destroy(&checkpoint);
    return status;
}

static inline cz_status save_stage(const stages *s, cz_group *group, cz_zero *zero)
{
    const saving *how = s->by->context;
    cz_checkpoint *checkpoint = NULL;
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    options.step = s->end;
    CZ_TRY(open_checkpoint(group, zero, how->folder, &checkpoint));
    cz_status status = how->later ? cz_checkpoint_save_async(checkpoint, &options)
                                  : cz_checkpoint_save(checkpoint, &options);
    if (status == CZ_OK && how->later)
        status = cz_zero_step(zero, NULL, NULL); /* which the file must not have */
    THEN(cz_checkpoint_wait(checkpoint));
    cz_checkpoint_destroy(&checkpoint);
    return status;
}

#endif
