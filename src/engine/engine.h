/* SPDX-License-Identifier: MIT */
/* Engines: each is a way to take an operation through one of its two stages. In the first the ranks
 * meet, so that all know whether they agree (a tree of messages; boxes in a window; memory of one
 * process). In the second the data move (messages, memory of one process, a shared segment, the
 * backend's own collectives). group/driver.c drives whichever engine takes an operation, and names
 * none; the list is in list.c. */
#ifndef CZ_ENGINE_ENGINE_H
#define CZ_ENGINE_ENGINE_H

#include <stdatomic.h>

#include "operation/operation.h"

/* What came of moving an operation on. */
typedef enum cz__engine_progress {
    /* Nothing could be done now. */
    CZ__WAITS,
    /* Something happened; ask again. */
    CZ__MOVED,
    /* Meeting: this rank's header, or what it merges it into, is about to be told; ask again. */
    CZ__TO_TELL,
    /* Meeting: the verdict is what all have said, on rank 0 and perhaps on others; ask again. */
    CZ__HEARD,
    /* The verdict is there, or this rank's data have moved. */
    CZ__DONE,
    /* It cannot after all, on no rank: the next engine that takes the operation goes on. */
    CZ__REFUSED,
    /* Ranks have to meet once more before it can go on. */
    CZ__TO_MEET
} cz__engine_progress;

/* Entries that are not said to be optional are required. Each is called by the driver only, unless
 * it says so. */
struct cz__engine {
    bool meets; /* it is of the first stage */
    /* May it take the operation, which no engine before it in the list takes? Asked when it is time
     * for the engine's stage. With `grant` that decides, instead. */
    bool (*takes)(const cz_work *work);
    /* Its state in the stage, for a group of that size, of which all ranks are `in_process` or not:
     * any thread. */
    size_t (*bytes)(int size, bool in_process);
    /* Optional, on every rank: can it take the operation here? And on rank 0 where all ranks can: a
     * number for all, or 0: it shall not. One of the first stage has no say in how ranks meet for
     * this operation: where all ranks can it takes later ones. */
    bool (*offers)(cz_work *work);
    uint64_t (*grant)(cz_work *work);
    /* Fill the state, which was another operation's. Of the first stage: any thread, with the
     * executor's lock held or not. */
    void (*begin)(cz_work *work);
    /* Move it on without waiting. An error, with cz_last_error(), breaks the group. */
    cz_status (*advance)(cz_work *work, cz__engine_progress *progress);
    /* Optional, after CZ__DONE: is nothing of it under way any more? The operation does not end
     * before. */
    cz_status (*settle)(cz_work *work, bool *settled);
    /* Optional: the program's memory and the work's are no more in use when this returns, or the
     * work is `stuck`. In any state, also twice. */
    void (*withdraw)(cz_work *work);
    /* Optional: it failed, and the group with it; operations before it go on. */
    void (*give_up)(cz_work *work);
    /* Does it wait for that rank? */
    bool (*awaits)(const cz_work *work, int rank);
    /* Optional: when to look again, in cz__seconds(), though nobody notifies. */
    double (*watch)(const cz_work *work, double now);
    /* Optional: look for so many turns at what it waits for, without being notified of it; not if
     * the count of events changes. True: there is something to do. */
    bool (*spin)(cz_work *work, int turns, const atomic_ullong *events, uint64_t seen);
    /* Optional: free what it has made for a group that nobody refers to any more. */
    void (*forget)(cz_group *group);
};

extern const cz__engine cz__engine_native, cz__engine_rendezvous, cz__engine_boxes_meet,
    cz__engine_boxes, cz__engine_letters_meet, cz__engine_letters, cz__engine_tree,
    cz__engine_counts, cz__engine_places, cz__engine_direct, cz__engine_window, cz__engine_messages;

/* counts.c */
/* What this rank puts in the header for its counts, `size` of each. */
uint64_t cz__counts_balance(const cz_group *group, const int64_t *send_counts,
                            const int64_t *receive_counts);

/* list.c */
/* The one that takes an operation's next stage. NULL: how its ranks meet is not known yet. */
const cz__engine *cz__engine_choose(const cz_work *work);
/* Of a new group, whose backend and rendezvous are there: nothing is known. */
void cz__engines_start(cz_group *group);
/* May that change in the group's life? Then only the driver can choose. */
bool cz__engines_may_change(const cz_group *group);
/* The verdict of an operation is there, its first. */
void cz__engines_learn(const cz_work *work);
/* What engines can do here goes into the header, in what is left of those below; rank 0: into the
 * verdict, the first that grants it. True: it was asked; on other ranks: rank 0 is, and its answer
 * is not in the verdict. */
void cz__engines_offer(cz_work *work);
bool cz__engines_grant(cz_work *work);
/* The most that the state of a stage takes. */
size_t cz__engines_bytes(bool meets, int size, bool in_process);
void cz__engines_forget(cz_group *group);

#endif
