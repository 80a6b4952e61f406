/* SPDX-License-Identifier: MIT */
/* Objects: bytes of a length that the receivers do not know. First the length, then the bytes. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "group/internal.h"

cz_status cz_broadcast_object(cz_group *group, const void *object, size_t bytes, int root,
                              void **out, size_t *out_bytes)
{
    CZ__UNCANCELLED;
    if (out)
        *out = NULL;
    if (out_bytes)
        *out_bytes = 0;
    if (!group)
        return cz__fail(CZ_ERR_ARGUMENT, "broadcast_object: group is NULL");
    const bool sends = group->rank == root;
    int64_t count = (int64_t)bytes;
    cz_status mine = CZ_OK;
    if (!out || !out_bytes)
        mine = cz__fail(CZ_ERR_ARGUMENT, "broadcast_object: %s is NULL", out ? "out_bytes" : "out");
    else if (sends && bytes > 0 && !object)
        mine = cz__fail(CZ_ERR_ARGUMENT, "broadcast_object: object of %zu bytes is NULL", bytes);
    CZ_TRY(cz__agree(group, mine, 0, NULL, "object"));
    CZ_TRY(cz_broadcast(group, &count, 1, CZ_I64, root, CZ_LABEL("object length")));
    char *copy = cz__calloc(1, (size_t)count);
    mine =
        copy ? CZ_OK
             : cz__fail(CZ_ERR_MEMORY, "broadcast_object: no memory for %zu bytes", (size_t)count);
    cz_status status = cz__agree(group, mine, 0, NULL, "object memory");
    if (status)
        goto fail;
    if (sends && count > 0)
        memcpy(copy, object, (size_t)count);
    status = cz_broadcast(group, copy, count, CZ_U8, root, CZ_LABEL("object"));
    if (status)
        goto fail;
    *out = copy;
    *out_bytes = (size_t)count;
    return CZ_OK;
fail:
    cz__free(copy);
    return status;
}

void cz_object_free(void *object)
{
    cz__free(object);
}
