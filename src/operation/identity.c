/* SPDX-License-Identifier: MIT */
/* Who is who: ranks of groups, and which object is whose. Every rank has a number of its own, and
 * headers add them up on their way: so all ranks of a group that was not made by a split know one
 * number for it without asking for it. The rest is a matter of which of its ranks are members. */
#include "operation/identity.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "operation/operation.h"

uint64_t cz__mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static const char *const kind_names[CZ__OBJECT_KINDS] = {"optimizer",  "ddp",  "averager",
                                                         "checkpoint", "join", "parts"};

int cz_group_rank(const cz_group *group)
{
    return group ? group->rank : -1;
}

int cz_group_size(const cz_group *group)
{
    return group ? group->size : 0;
}

int cz_group_global_rank(const cz_group *group, int rank)
{
    if (!group || rank < 0 || rank >= group->size)
        return -1;
    return group->global_ranks ? group->global_ranks[rank] : rank;
}

const cz_device *cz__group_device(const cz_group *group)
{
    return group->device;
}

void cz__object_make(cz__object *object, cz_group *group, cz__object_kind kind)
{
    char name[CZ__GROUP_NAME_BYTES];
    cz__group_name(group, name);
    object->members = cz__group_members(group);
    snprintf(object->name, sizeof object->name, "%s %" PRId64 " of %s", kind_names[kind],
             ++group->object_counts[kind], name);
}

uint64_t cz__group_members(const cz_group *group)
{
    uint64_t hash = cz__mix(group->origin, (uint64_t)group->size);
    for (int r = 0; r < group->size; r++)
        hash = cz__mix(hash, (uint64_t)cz_group_global_rank(group, r));
    return group->origin ? hash : 0;
}

void cz__group_serve(cz_group *group, const cz__object *object)
{
    snprintf(group->serves, sizeof group->serves, "%s", object->name);
}

const char *cz__group_calls(const cz_group *group, char text[CZ__GROUP_NAME_BYTES])
{
    if (group->serves[0])
        return group->serves;
    cz__group_name(group, text);
    return text;
}

void cz__group_name(const cz_group *group, char text[CZ__GROUP_NAME_BYTES])
{
    enum { MOST = 4 };
    const char *noun = group->size == 1 ? "rank " : "ranks ";
    int length =
        snprintf(text, CZ__GROUP_NAME_BYTES, "group '%s", group->global_ranks ? noun : "world");
    if (group->global_ranks) {
        for (int r = 0; r < group->size && r < MOST; r++)
            length += snprintf(text + length, CZ__GROUP_NAME_BYTES - (size_t)length, "%s%d",
                               r ? ", " : "", group->global_ranks[r]);
    }
    snprintf(text + length, CZ__GROUP_NAME_BYTES - (size_t)length, "%s%s'",
             group->global_ranks && group->size > MOST ? ", ..." : "",
             group->global_ranks ? " of world" : "");
}

void cz__group_place(const cz_group *group, char text[CZ__GROUP_PLACE_BYTES])
{
    char name[CZ__GROUP_NAME_BYTES];
    text[0] = '\0';
    if (group->global_ranks)
        snprintf(text, CZ__GROUP_PLACE_BYTES, " (in %s)", cz__group_calls(group, name));
}

void cz__group_tell(const cz_group *group, const char *sentence, char *text, size_t bytes)
{
    char place[CZ__GROUP_PLACE_BYTES];
    cz__group_place(group, place);
    if (strstr(sentence, place)) /* another of the object's groups has said it */
        place[0] = '\0';
    snprintf(text, bytes, "%.*s%s", (int)(bytes - 1 - strlen(place)), sentence, place);
}

uint64_t cz__group_nonce(const cz_group *group)
{
    static _Atomic uint64_t last;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t parts[] = {(uint64_t)now.tv_sec, (uint64_t)now.tv_nsec, (uint64_t)getpid(),
                              (uint64_t)(uintptr_t)group, ++last};
    uint64_t hash = 1;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        hash = cz__mix(hash, parts[k]);
    return hash;
}

void cz__group_give_name(cz_group *group, const char *backend, uint64_t number)
{
    snprintf(group->name, sizeof group->name, "%.20s-%" PRIu64, backend, number);
}
