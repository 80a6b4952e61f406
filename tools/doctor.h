/* SPDX-License-Identifier: MIT */
/* What flight recordings say: one rank's view of one group each. */
#ifndef CZ_TOOL_DOCTOR_H
#define CZ_TOOL_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* An operation that the program has begun on a rank; those of continuations are left to their
 * parent. */
typedef struct recorded {
    int64_t sequence; /* -1: there is none */
    const char *operation, *label, *dtype, *status;
    int64_t count;
    int root;
    double ago; /* seconds, when it was written */
    bool in_flight;
} recorded;

typedef struct recording {
    json_t *root;         /* owned: texts are its own */
    recorded *operations; /* owned, by sequence */
    int64_t operation_count;
    const char *group, *backend, *reason;
    int rank, size, global_rank;
    double written; /* since 1970 */
    int64_t process;
    recorded last;   /* that the rank has begun */
    recorded waited; /* the oldest in flight, or the first that failed */
} recording;

typedef struct recordings {
    recording *list; /* owned */
    int count, unread;
    uint64_t bytes, cost; /* of their files, in memory */
} recordings;

bool recording_is_whole(const json_t *root);
/* Takes the root. False: out of memory. */
bool recording_read(recording *r, json_t *root);
void recording_clear(recording *r);
/* By group and rank; of several of one rank the newest stays. */
void recordings_sort(recordings *all);

typedef enum finding_state {
    FINDING_FINE,      /* nobody waits */
    FINDING_LATE,      /* some have not come */
    FINDING_DIFFERENT, /* ranks have begun different operations */
    FINDING_DATA       /* all have come, and data did not */
} finding_state;

/* Of one group. Ranks are global ones. */
typedef struct finding {
    const char *group;
    int size;
    finding_state state;
    int *waiting, *late, *unrecorded; /* owned, as what follows */
    int waiting_count, late_count, unrecorded_count;
    char *sentences[16], *advice[8];
    int sentence_count, advice_count;
    bool incomplete; /* there was no memory for one of these */
    int next;        /* the first recording of the next group */
} finding;

/* Of the group whose first recording is list[at]. False: out of memory. */
bool finding_make(finding *f, const recordings *all, int at);
const char *finding_state_name(finding_state state);
void finding_clear(finding *f);

#endif
