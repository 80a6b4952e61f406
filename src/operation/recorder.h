/* SPDX-License-Identifier: MIT */
/* The flight recorder: what the last operations of a group were, for the day on which it breaks. */
#ifndef CZ_OPERATION_RECORDER_H
#define CZ_OPERATION_RECORDER_H

#include "czero/group.h"

enum { CZ__RECORDS = 64, CZ__RECORD_LABEL_BYTES = 48 };

typedef struct cz__record {
    /* Counts the operations of this rank in the group, from 1; 0: an empty place. */
    uint64_t number;
    uint64_t sequence;
    uint32_t child;
    int lane;
    uint32_t kind;
    int32_t dtype, reduction, root;
    int64_t count;
    double begun, ended; /* cz__seconds(); ended 0: in flight */
    cz_status status;
    char label[CZ__RECORD_LABEL_BYTES];
} cz__record;

/* A ring; under the executor's lock. */
typedef struct cz__recorder {
    uint64_t last;
    cz__record records[CZ__RECORDS];
} cz__recorder;

/* Take down that a work began, and how it ended. */
void cz__recorder_begin(cz_work *work);
void cz__recorder_end(const cz_work *work);

/* Where CZERO_FLIGHT_RECORDER names a folder: write the group's records as JSON into it. Without
 * the lock. */
void cz__recorder_write(cz_group *group, const char *reason);

/* Groups whose records SIGUSR2 asks for, where CZERO_FLIGHT_RECORDER is set. */
void cz__recorder_add(cz_group *group);
void cz__recorder_remove(cz_group *group);

#endif
