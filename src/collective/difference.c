/* SPDX-License-Identifier: MIT */
/* Agreeing on a description, and finding the first difference where ranks do not: said on every
 * rank. */
#include <inttypes.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/status.h"
#include "group/collective.h"
#include "collective/description.h"

static cz_status compare_with_root(cz_group *group, const char *part, cz__describer describe,
                                   const void *context, const uint8_t *bytes, size_t count)
{
    cz__description against = {.others = bytes,
                               .other_count = count,
                               .rank = cz_group_global_rank(group, cz_group_rank(group)),
                               .root = cz_group_global_rank(group, 0),
                               .part = part};
    describe(&against, context);
    CZ_TRY(cz__agree(group, against.status, 0, NULL, part));
    return cz__fail(CZ_ERR_INTERNAL, "%s: ranks differ in bytes but in no field", part);
}

/* Bring rank 0's description to all, and let each rank look for its first difference. Its length
 * travels first, as ranks may differ in it. */
cz_status cz__find_difference(cz_group *group, const char *part, cz__describer describe,
                              const void *context, const cz__description *mine)
{
    const bool root = cz_group_rank(group) == 0;
    int64_t count = (int64_t)mine->count;
    cz_status status = CZ_OK;
    CZ_TRY(cz_broadcast(group, &count, 1, CZ_I64, 0, CZ_LABEL(part)));
    uint8_t *bytes = root ? mine->bytes : cz__calloc(1, (size_t)count);
    if (!bytes)
        status = cz__fail(CZ_ERR_MEMORY, "%s: no memory for a description of %" PRId64 " bytes",
                          part, count);
    status = cz__agree(group, status, 0, NULL, part);
    if (status)
        goto done;
    status = cz_broadcast(group, bytes, count, CZ_U8, 0, CZ_LABEL(part));
    if (status)
        goto done;
    status = compare_with_root(group, part, describe, context, bytes, (size_t)count);
done:
    if (!root)
        cz__free(bytes);
    return status;
}

cz_status cz__agree_on(cz_group *group, const char *part, cz__describer describe,
                       const void *context, cz_status mine, cz__description *room)
{
    bool same;
    room->count = 0;
    room->status = CZ_OK;
    room->part = part;
    if (mine == CZ_OK) {
        describe(room, context);
        mine = room->status;
    }
    const uint64_t fingerprint =
        mine == CZ_OK ? cz__fingerprint_elements(0, room->bytes, room->count) : 0;
    CZ_TRY(cz__agree(group, mine, fingerprint, &same, part));
    return same ? CZ_OK : cz__find_difference(group, part, describe, context, room);
}

static void describe_call(cz__description *d, const void *object)
{
    cz__describe_call(d, object);
}

cz_status cz__agree_for(cz_group *group, const cz__object *object, cz_status mine,
                        uint64_t fingerprint, bool *same, const char *label)
{
    static const cz__object none;
    cz__description room = {0};
    if (!object)
        object = &none;
    const uint64_t print = cz__fingerprint(fingerprint, object, sizeof *object);
    CZ_TRY(cz__agree(group, mine, print, same, label));
    const cz_status status =
        *same ? CZ_OK : cz__agree_on(group, label, describe_call, object, CZ_OK, &room);
    cz__description_clear(&room);
    return status;
}
