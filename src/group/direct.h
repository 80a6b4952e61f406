/* SPDX-License-Identifier: MIT */
/* The data of an operation between ranks of one process: straight between the program's buffers. */
#ifndef CZ_GROUP_DIRECT_H
#define CZ_GROUP_DIRECT_H

#include "group/region.h"

struct cz__operation;

/* How far a rank is with its part. */
typedef struct cz__part {
    int stream;   /* the next, or the present one */
    bool open;    /* it is in one: */
    bool over;    /* it has done its part */
    size_t end;   /* where its piece of the stream ends, if that is not with it */
    size_t bytes; /* moved in the present stream */
    cz__cursor at;
} cz__part;

/* Move on with this rank's part, in the meeting that its work is in. */
bool cz__direct_advance(cz_work *work);
/* Is it so little that one rank had better do it for all? */
bool cz__direct_is_small(const struct cz__operation *operation);
/* All ranks' parts. */
cz_status cz__direct_all(cz_work *work);

#endif
