/* SPDX-License-Identifier: MIT */
/* Ranks describe something differently: find the first difference, and say it on every rank. */
#include <inttypes.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/status.h"
#include "group/collective.h"
#include "zero/zero.h"

/* Bring rank 0's description to all, and let each rank look for its first difference. Its length travels
 * first, as ranks may differ in it. */
cz_status cz__zero_find_difference(const cz_zero *zero, cz__describer describe, const void *context,
                                   const cz__description *mine)
{
    const bool root = cz_group_rank(zero->group) == 0;
    int64_t count = (int64_t)mine->count;
    cz_status status = CZ_OK;
    CZ_TRY(cz_broadcast(zero->group, &count, 1, CZ_I64, 0, CZ_LABEL("zero: description")));
    uint8_t *bytes = root ? mine->bytes : cz__calloc(1, (size_t)count);
    if (!bytes)
        status = cz__fail(CZ_ERR_MEMORY, "zero: no memory for a description of %" PRId64 " bytes",
                          count);
    status = cz__agree(zero->group, status, 0, NULL, "zero: description");
    if (status == CZ_OK)
        status = cz_broadcast(zero->group, bytes, count, CZ_U8, 0, CZ_LABEL("zero: description"));
    if (status == CZ_OK) {
        cz__description against = {
            .others = bytes, .other_count = (size_t)count, .rank = cz_group_rank(zero->group)};
        describe(zero, context, &against);
        status = cz__agree(zero->group, against.status, 0, NULL, "zero: description");
    }
    if (status == CZ_OK) /* bytes differ, yet no field does */
        status = cz__fail(CZ_ERR_INTERNAL, "zero: ranks differ in their description");
    if (!root)
        cz__free(bytes);
    return status;
}

cz_status cz__zero_agree_on(cz_zero *zero, cz__describer describe, const void *context,
                            cz_status mine)
{
    bool same;
    zero->settings.count = 0;
    zero->settings.status = CZ_OK;
    if (mine == CZ_OK) {
        describe(zero, context, &zero->settings);
        mine = zero->settings.status;
    }
    const uint64_t fingerprint =
        mine == CZ_OK ? cz__fingerprint(0, zero->settings.bytes, zero->settings.count) : 0;
    CZ_TRY(cz__agree(zero->group, mine, fingerprint, &same, "zero: settings"));
    return same ? CZ_OK : cz__zero_find_difference(zero, describe, context, &zero->settings);
}
