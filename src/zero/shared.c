/* SPDX-License-Identifier: MIT */
/* Values in memory that all ranks see as one. They are found by their addresses; ranks then compare
 * where each is.
 *
 * Why nobody writes what another rank may still read:
 * - An owner writes after all ranks have come to the step (zero/step.c agrees first), so after
 *   their backward passes; with CZ_OVERLAP_STEP that is at the end of the pass, where all have
 *   marked everything.
 * - With CZ_OVERLAP_INTERLEAVED it writes what a bucket has when that bucket is reduced, for which
 *   every rank has given its part, so after all have marked these parameters as often as they use
 *   them.
 * - Every step ends, and with overlap_gather every cz_zero_wait_param(), with a gather that moves
 *   nothing and is over when all owners have come to it, so after they have written; the next write
 *   is then a step away. */
#include <inttypes.h>

#include "base/memory.h"
#include "base/status.h"
#include "collective/shared.h"
#include "zero/zero.h"

static size_t value_bytes(const cz_zero *zero, int64_t param)
{
    const cz_tensor *value = cz__model_value(zero->model, param);
    return (size_t)cz_tensor_count(value) * cz_dtype_size(value->dtype);
}

static cz__shared_place place_of(const cz_zero *zero, int64_t param)
{
    return cz__shared_find(cz__model_value(zero->model, param)->data, value_bytes(zero, param));
}

/* Others than the group's ranks would see values change that nobody told them of. */
static cz_status check_ranks(const cz_zero *zero, int64_t param)
{
    const int ranks = place_of(zero, param).ranks, size = cz_group_size(zero->group);
    if (ranks == size)
        return CZ_OK;
    return cz__fail(
        CZ_ERR_ARGUMENT,
        "zero: the value of parameter %" PRId64
        " '%.60s' is in memory that %d ranks share, the group has %d; wanted the same ranks",
        param, cz__model_name(zero->model, param), ranks, size);
}

cz_status cz__zero_find_shared(cz_zero *zero)
{
    int64_t shared = -1, own = -1;
    for (int64_t p = 0; p < cz__model_param_count(zero->model); p++) {
        if (value_bytes(zero, p) == 0)
            continue;
        const bool found = place_of(zero, p).block != 0;
        if (found)
            CZ_TRY(check_ranks(zero, p));
        *(found ? &shared : &own) = p;
    }
    zero->shared_values = shared >= 0;
    if (shared < 0 || own < 0)
        return CZ_OK;
    return cz__fail(CZ_ERR_ARGUMENT,
                    "zero: the value of parameter %" PRId64
                    " '%.60s' is in memory that ranks share, that of parameter %" PRId64
                    " '%.60s' is not; wanted all or none",
                    shared, cz__model_name(zero->model, shared), own,
                    cz__model_name(zero->model, own));
}

void cz__describe_sharing(cz__description *d, const cz_zero *zero)
{
    static const char *const words[] = {"a rank's own", "shared by ranks", NULL};
    cz__describe_word(d, &(cz__subject){NULL, "the memory of values", -1, NULL, "is"}, words,
                      zero->shared_values);
    if (zero->shared_values) {
        for (int64_t p = 0; p < zero->param_count; p++) {
            const cz__shared_place place = place_of(zero, p);
            const char *name = cz__model_name(zero->model, p);
            if (value_bytes(zero, p) == 0)
                continue;
            cz__describe_number(d, &(cz__subject){"the shared block", "parameter", p, name, "is"},
                                CZ__FIELD_NUMBER, (int64_t)place.block);
            cz__describe_number(
                d, &(cz__subject){"the place in the shared block", "parameter", p, name, "is byte"},
                CZ__FIELD_NUMBER, (int64_t)place.offset);
        }
    }
}

/* ---- the order of a reader's calls, in checked mode ---- */

/* Nothing is on its way yet: all may be read. */
cz_status cz__zero_have_reader_checks(cz_zero *zero)
{
    if (!zero->shared_values || !zero->late || !cz__group_is_checked(zero->group))
        return CZ_OK;
    zero->asked = cz__calloc((size_t)zero->param_count, sizeof *zero->asked);
    if (!zero->asked)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for a table of %" PRId64 " parameters",
                        zero->param_count);
    for (int64_t p = 0; p < zero->param_count; p++)
        atomic_init(&zero->asked[p], true);
    return CZ_OK;
}

void cz__zero_forget_asked(cz_zero *zero)
{
    if (zero->asked)
        for (int64_t p = 0; p < zero->param_count; p++)
            atomic_store(&zero->asked[p], false);
}

cz_status cz__zero_check_reader(cz_zero *zero, int64_t param)
{
    if (zero->asked)
        atomic_store(&zero->asked[param], true);
    if (!zero->shared_values || zero->overlap != CZ_OVERLAP_INTERLEAVED ||
        !cz__group_is_checked(zero->group) || !cz__ddp_is_complete(zero->ddp, param))
        return CZ_OK;
    return cz__fail(CZ_ERR_STATE,
                    "zero wait_param: rank %d asks for parameter %" PRId64
                    " '%.60s' after its last mark of it in this pass; its owner may be writing it",
                    cz_group_global_rank(zero->group, cz_group_rank(zero->group)), param,
                    cz__model_name(zero->model, param));
}

cz_status cz__zero_marks(void *context, int64_t param)
{
    const cz_zero *zero = context;
    if (atomic_load(&zero->asked[param]))
        return CZ_OK;
    return cz__fail(CZ_ERR_STATE,
                    "zero: rank %d marks parameter %" PRId64
                    " '%.60s', which it has not asked for since the last pass "
                    "(cz_zero_wait_param()): what it has read its owner may have been writing",
                    cz_group_global_rank(zero->group, cz_group_rank(zero->group)), param,
                    cz__model_name(zero->model, param));
}
