/* SPDX-License-Identifier: MIT */
/* Partial sums of a rule. Each parameter has a rank that adds up what all ranks hold, exactly, rounds once,
 * and tells everybody; these are dealt out in turn, whoever owns the elements. */
#include "zero/sums.h"

#include <inttypes.h>

#include "base/memory.h"
#include "base/status.h"

struct cz__zero_sums {
    cz_shard_map *sums;   /* owned, as all: the chunks of each parameter's sums, i64 */
    cz_shard_map *values; /* and the rounded sums, f64 */
    void **sources;       /* of this rank's elements; NULL: it has none */
    void **totals;        /* where this rank adds up */
    void **rounded;       /* where the update reads */
    cz_sum *memory;       /* of the totals */
};

static int adder_of(const cz_zero *zero, int64_t param)
{
    return (int)(param % cz_group_size(zero->group));
}

static cz_status make_map(const cz_zero *zero, int64_t count, cz_shard_map **out)
{
    const size_t params = (size_t)zero->param_count;
    int64_t *counts = cz__calloc(params, sizeof *counts);
    int *adders = cz__calloc(params, sizeof *adders);
    cz_status status = CZ_ERR_MEMORY;
    if (counts && adders) {
        for (int64_t p = 0; p < zero->param_count; p++) {
            counts[p] = count;
            adders[p] = adder_of(zero, p);
        }
        status = cz_shard_map_create_owners(out, cz_group_size(zero->group), zero->param_count,
                                            counts, adders, NULL);
    } else {
        cz__fail(status, "zero: tables of %zu parameters", params);
    }
    cz__free(counts);
    cz__free(adders);
    return status;
}

static cz_status build(cz__zero_sums *sums, const cz_zero *zero)
{
    const int count = cz__optim_sum_count(zero->optim);
    const size_t params = (size_t)zero->param_count;
    const int64_t ranks = cz_group_size(zero->group);
    const int64_t own = (zero->param_count + ranks - 1) / ranks; /* at most */
    CZ_TRY(make_map(zero, (int64_t)count * CZ_SUM_CHUNKS, &sums->sums));
    CZ_TRY(make_map(zero, count, &sums->values));
    sums->sources = cz__calloc(params, sizeof *sums->sources);
    sums->totals = cz__calloc(params, sizeof *sums->totals);
    sums->rounded = cz__calloc(params, sizeof *sums->rounded);
    sums->memory = cz__calloc((size_t)(own * count), sizeof *sums->memory);
    if (!sums->sources || !sums->totals || !sums->rounded || !sums->memory)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for %d partial sums of %zu parameters",
                        count, params);
    for (int64_t p = 0; p < zero->param_count; p++) {
        sums->rounded[p] = cz__optim_sum_values(zero->optim, p);
        if (adder_of(zero, p) == cz_group_rank(zero->group))
            sums->totals[p] = sums->memory + p / ranks * count;
    }
    return CZ_OK;
}

cz_status cz__zero_sums_create(cz__zero_sums **out, const cz_zero *zero)
{
    *out = NULL;
    if (cz__optim_sum_count(zero->optim) == 0)
        return CZ_OK;
    cz__zero_sums *sums = cz__calloc(1, sizeof *sums);
    if (!sums)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for partial sums");
    const cz_status status = build(sums, zero);
    if (status != CZ_OK)
        cz__zero_sums_destroy(&sums);
    *out = sums;
    return status;
}

void cz__zero_sums_destroy(cz__zero_sums **sums)
{
    if (!sums || !*sums)
        return;
    cz_shard_map_destroy(&(*sums)->sums);
    cz_shard_map_destroy(&(*sums)->values);
    cz__free((*sums)->sources);
    cz__free((*sums)->totals);
    cz__free((*sums)->rounded);
    cz__free((*sums)->memory);
    cz__free(*sums);
    *sums = NULL;
}

size_t cz__zero_sums_bytes(const cz_zero *zero)
{
    return (size_t)zero->param_count * (size_t)cz__optim_sum_count(zero->optim) * sizeof(cz_sum);
}

static cz_status add_up(cz_zero *zero)
{
    cz__zero_sums *sums = zero->sums;
    const cz__mapped memory = {.map = sums->sums,
                               .data = sums->sources,
                               .include = zero->present,
                               .dtype = CZ_I64,
                               .result = sums->totals,
                               .reserve = zero->transfers};
    for (int64_t p = 0; p < zero->param_count; p++)
        sums->sources[p] = zero->present[p] ? cz__optim_sums(zero->optim, p) : NULL;
    return cz__reduce_along_map(zero->group, &memory, CZ_SUM, CZ_LABEL("partial sums"));
}

static cz_status tell(cz_zero *zero)
{
    const cz__zero_sums *sums = zero->sums;
    const int count = cz__optim_sum_count(zero->optim);
    const cz__mapped memory = {.map = sums->values,
                               .data = sums->rounded,
                               .include = zero->present,
                               .dtype = CZ_F64,
                               .reserve = zero->transfers};
    for (int64_t p = 0; p < zero->param_count; p++)
        for (int k = 0; zero->present[p] && sums->totals[p] && k < count; k++)
            ((double *)sums->rounded[p])[k] = cz_sum_value((const cz_sum *)sums->totals[p] + k);
    return cz__gather_along_map(zero->group, &memory, CZ_LABEL("partial sums"));
}

cz_status cz__zero_sums_exchange(cz_zero *zero)
{
    CZ_TRY(add_up(zero));
    return tell(zero);
}
