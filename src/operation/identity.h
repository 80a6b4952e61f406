/* SPDX-License-Identifier: MIT */
/* Which object of which group: what ranks compare in every call on an object, so that two of equal
 * shape are not taken for each other. */
#ifndef CZ_OPERATION_IDENTITY_H
#define CZ_OPERATION_IDENTITY_H

#include <stdint.h>

#include "czero/group.h"

typedef enum cz__object_kind {
    CZ__OBJECT_OPTIMIZER, /* sharded */
    CZ__OBJECT_DDP,
    CZ__OBJECT_AVERAGER,
    CZ__OBJECT_CHECKPOINT,
    CZ__OBJECT_JOIN,
    CZ__OBJECT_PARTS,
    CZ__OBJECT_KINDS
} cz__object_kind;

#define CZ__GROUP_NAME_BYTES 56
#define CZ__OBJECT_NAME_BYTES 96
#define CZ__GROUP_PLACE_BYTES (CZ__OBJECT_NAME_BYTES + 8)

/* Zeroed: an object that is not made yet. */
typedef struct cz__object {
    uint64_t members;                 /* of its group: see cz__group_members() */
    char name[CZ__OBJECT_NAME_BYTES]; /* "optimizer 2 of group 'world'" */
} cz__object;

/* Count one more object of that kind in the group. To be called on all ranks or on none: after they
 * have agreed that it can be made. */
void cz__object_make(cz__object *object, cz_group *group, cz__object_kind kind);

/* A number that two groups share if, and practically only if, they have the same ranks in the same
 * order, and come by splits from the same group. Equal on all ranks; 0 until an operation has
 * ended. Local. */
uint64_t cz__group_members(const cz_group *group);

/* From now on the group is named as the object, whose own it is. */
void cz__group_serve(cz_group *group, const cz__object *object);

/* What a call on the group is on: "ddp 2 of group 'world'", or the group's own name. */
const char *cz__group_calls(const cz_group *group, char text[CZ__GROUP_NAME_BYTES]);

/* "group 'world'", "group 'ranks 0, 2, … of world'". */
void cz__group_name(const cz_group *group, char text[CZ__GROUP_NAME_BYTES]);

/* Sentences call ranks by their global numbers, and say of sub-groups which they mean: " (in group
 * 'ranks 1, 3 of world')", " (in ddp 2 of group 'world')", "" of a group that was not made by a
 * split. */
void cz__group_place(const cz_group *group, char text[CZ__GROUP_PLACE_BYTES]);
/* A sentence with that at its end, cut before it if need be. */
void cz__group_tell(const cz_group *group, const char *sentence, char *text, size_t bytes);
/* A number that stands for a list of numbers: that of those before, and the next. */
uint64_t cz__mix(uint64_t hash, uint64_t value);

/* A number that no other rank has, practically. */
uint64_t cz__group_nonce(const cz_group *group);

/* The device whose memory the group moves. Local. */
const cz_device *cz__group_device(const cz_group *group);

/* Is it of no use any more, as far as this rank knows? */
bool cz__group_is_broken(cz_group *group);

#endif
