/* SPDX-License-Identifier: MIT */
/* How far each parameter is: its owners know, all ranks are told. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "zero/progress.h"

void cz__zero_progress_clear(cz__zero_progress *progress)
{
    cz__free(progress->words);
    cz__free(progress->steps);
    cz__free(progress->used);
    cz__free(progress->scalars);
    *progress = (cz__zero_progress){0};
}

/* A parameter is a row of words: steps, used slots, the bits of each scalar. Who has nothing of it
 * leaves the lowest number, so that the largest is what its owners have. */
static void write_rows(const cz_zero *zero, const cz__progress *own, cz__zero_progress *progress)
{
    const int scalars = cz__optim_scalar_count(zero->optim);
    int64_t *word = progress->words;
    for (int64_t p = 0; p < zero->param_count; p++) {
        const bool held = cz__optim_holds(zero->optim, p);
        *word++ = held ? own->steps[p] : INT64_MIN;
        *word++ = held ? (int64_t)own->used[p] : INT64_MIN;
        for (int k = 0; k < scalars; k++, word++) {
            *word = INT64_MIN;
            if (held)
                memcpy(word, &own->scalars[p * scalars + k], sizeof *word);
        }
    }
}

static void read_rows(const cz_zero *zero, cz__zero_progress *progress)
{
    const int scalars = cz__optim_scalar_count(zero->optim);
    const int64_t *word = progress->words;
    for (int64_t p = 0; p < zero->param_count; p++) {
        const int64_t steps = *word++, used = *word++;
        progress->steps[p] = steps == INT64_MIN ? 0 : steps;
        progress->used[p] = used == INT64_MIN ? 0 : (unsigned)used;
        for (int k = 0; k < scalars; k++)
            memcpy(&progress->scalars[p * scalars + k], word++, sizeof *word);
    }
}

static cz_status allocate(const cz_zero *zero, cz__zero_progress *progress)
{
    const size_t params = (size_t)zero->param_count;
    const size_t scalars = (size_t)cz__optim_scalar_count(zero->optim);
    progress->words = cz__calloc(params * (2 + scalars), sizeof *progress->words);
    progress->steps = cz__calloc(params, sizeof *progress->steps);
    progress->used = cz__calloc(params, sizeof *progress->used);
    progress->scalars = cz__calloc(params * scalars, sizeof *progress->scalars);
    if (!progress->words || !progress->steps || !progress->used || !progress->scalars)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for the progress of %zu parameters",
                        params);
    return CZ_OK;
}

cz_status cz__zero_progress_none(const cz_zero *zero, cz__zero_progress *progress)
{
    *progress = (cz__zero_progress){0};
    return allocate(zero, progress);
}

cz_status cz__zero_progress_create(const cz_zero *zero, cz__zero_progress *progress)
{
    const cz__progress own = cz__optim_progress(zero->optim);
    const int64_t words = zero->param_count * (2 + cz__optim_scalar_count(zero->optim));
    *progress = (cz__zero_progress){0};
    CZ_TRY(cz__agree(zero->group, allocate(zero, progress), 0, NULL, "zero: progress"));
    write_rows(zero, &own, progress);
    CZ_TRY(cz_all_reduce(zero->group, progress->words, words, CZ_I64, CZ_MAX,
                         CZ_LABEL("zero: progress")));
    read_rows(zero, progress);
    return CZ_OK;
}
