/* SPDX-License-Identifier: MIT */
/* Do all ranks hold the same parameters? Each makes a fingerprint of every value; only these travel. */
#include <inttypes.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "zero/zero.h"

typedef struct replica_check {
    cz_zero *zero;
    int64_t *own;              /* owned, as all: the fingerprint of each parameter here */
    int64_t *lowest, *highest; /* of each over the ranks */
    int64_t *of_ranks;         /* of one parameter, rank by rank */
} replica_check;

static void check_clear(replica_check *c)
{
    cz__free(c->own);
    cz__free(c->lowest);
    cz__free(c->highest);
    cz__free(c->of_ranks);
}

/* Values come from the device's memory a block at a time. */
static cz_status fingerprint(const cz_zero *zero, int64_t param, int64_t *out)
{
    uint8_t block[16384];
    const cz_tensor *value = cz_model_value(zero->model, param);
    const size_t bytes = (size_t)cz_tensor_count(value) * cz_dtype_size(value->dtype);
    uint64_t print = 0;
    for (size_t done = 0, part; done < bytes; done += part) {
        part = bytes - done < sizeof block ? bytes - done : sizeof block;
        CZ_TRY(zero->device->copy(NULL, block, (const uint8_t *)value->data + done, part));
        print = cz__fingerprint(print, block, part);
    }
    *out = (int64_t)print;
    return CZ_OK;
}

static cz_status take_fingerprints(replica_check *c)
{
    const size_t params = (size_t)c->zero->param_count;
    c->own = cz__calloc(params, sizeof *c->own);
    c->lowest = cz__calloc(params, sizeof *c->lowest);
    c->highest = cz__calloc(params, sizeof *c->highest);
    c->of_ranks = cz__calloc((size_t)cz_group_size(c->zero->group), sizeof *c->of_ranks);
    if (c->zero->ddp)
        CZ_TRY(cz__ddp_settle(c->zero->ddp));
    if (!c->own || !c->lowest || !c->highest || !c->of_ranks)
        return cz__fail(CZ_ERR_MEMORY, "zero check_replicas: tables of %zu parameters", params);
    for (int64_t p = 0; p < c->zero->param_count; p++) {
        CZ_TRY(fingerprint(c->zero, p, &c->own[p]));
        c->lowest[p] = c->highest[p] = c->own[p];
    }
    return CZ_OK;
}

/* The first rank that does not hold what most do; if no value has a majority, what rank 0 holds. */
static int odd_rank(const replica_check *c)
{
    const int ranks = cz_group_size(c->zero->group);
    int64_t usual = c->of_ranks[0];
    for (int r = 0, most = 0; r < ranks; r++) {
        int same = 0;
        for (int s = 0; s < ranks; s++)
            same += c->of_ranks[s] == c->of_ranks[r];
        if (same > most && (r == 0 || 2 * same > ranks)) {
            most = same;
            usual = c->of_ranks[r];
        }
    }
    int odd = 0;
    while (odd < ranks - 1 && c->of_ranks[odd] == usual)
        odd++;
    return odd;
}

/* Seen alike by all ranks. */
static cz_status name_difference(replica_check *c, int64_t param, int64_t differ)
{
    const cz_zero *zero = c->zero;
    const int64_t mine = c->own[param];
    CZ_TRY(cz_all_gather(zero->group, &mine, c->of_ranks, 1, CZ_I64,
                         CZ_LABEL("zero: check_replicas")));
    return cz__fail(CZ_ERR_MISMATCH,
                    "zero check_replicas: rank %d holds other values of parameter %" PRId64
                    " '%.60s' after %" PRId64 " steps; ranks differ in %" PRId64 " of %" PRId64
                    " parameters",
                    odd_rank(c), param, cz_model_name(zero->model, param), zero->step_count, differ,
                    zero->param_count);
}

static cz_status compare(replica_check *c)
{
    cz_group *group = c->zero->group;
    int64_t first = -1, differ = 0;
    CZ_TRY(cz__agree(group, take_fingerprints(c), 0, NULL, "zero: check_replicas"));
    CZ_TRY(cz_all_reduce(group, c->lowest, c->zero->param_count, CZ_I64, CZ_MIN,
                         CZ_LABEL("zero: check_replicas")));
    CZ_TRY(cz_all_reduce(group, c->highest, c->zero->param_count, CZ_I64, CZ_MAX,
                         CZ_LABEL("zero: check_replicas")));
    for (int64_t p = c->zero->param_count - 1; p >= 0; p--) {
        if (c->lowest[p] == c->highest[p])
            continue;
        first = p;
        differ++;
    }
    return first < 0 ? CZ_OK : name_difference(c, first, differ);
}

cz_status cz_zero_check_replicas(cz_zero *zero)
{
    CZ__UNCANCELLED;
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero check_replicas: zero is NULL");
    replica_check c = {.zero = zero};
    const cz_status status = compare(&c);
    check_clear(&c);
    return status;
}
