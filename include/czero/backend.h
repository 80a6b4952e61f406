/* SPDX-License-Identifier: MIT */
/** @file backend.h  What a backend of process groups must do: move bytes. All adding, all
 *  algorithms and all agreement between ranks live in the library, on top of this table. A backend
 *  whose hardware or library has collectives of its own may offer them: they are used where they
 *  can be. */
#ifndef CZERO_BACKEND_H
#define CZERO_BACKEND_H

#include "czero/group.h"

CZ_BEGIN_DECLS

/** One message, sent or received. It belongs to the library, lives until it has ended, and never
 *  moves, so a backend can link it into lists. */
typedef struct cz_transfer {
    size_t size;  /**< of this struct in the library: a later field is there if it is as large */
    int peer;     /**< group rank of the other side */
    uint64_t tag; /**< sends and receives match by (ranks, tag); equal tags in their order */
    void *data;   /**< a send only reads it */
    /** Equal on both sides, at least 1. A backend checks it: a receive never writes beyond these,
     *  whoever has sent what, and one that gets more or fewer fails. */
    size_t bytes;
    const cz_device *device; /**< where `data` is */
    void *queue;             /**< what orders work on it there, may be NULL */
    void *own[6];            /**< the backend's, zero at the start */
    /** Only where the backend's table has `at_most`: a receive of any number of bytes up to
     *  `bytes`. The backend sets `came` to how many, before `test` says that it has ended. */
    bool at_most;
    size_t came;
} cz_transfer;

/** One rank's part in a collective operation that the backend does itself. It belongs to the
 *  library, lives until it has ended or was taken back, and never moves. Buffers, counts and roots
 *  are as in the call of the same name in group.h; an all_reduce or broadcast has its buffer as
 *  both input and output. */
typedef struct cz_collective {
    size_t size;  /**< of this struct in the library, as in cz_transfer */
    uint64_t tag; /**< equal on all ranks for the same operation; no other one in flight has it */
    /** The program's own calls start in the same order on all ranks; what continuations start does
     *  not: a backend that matches by order refuses it. */
    bool in_order;
    int root; /**< broadcast */
    const void *input;
    void *output;
    int64_t count; /**< at least 1, of a barrier 0 */
    cz_dtype dtype;
    cz_reduction reduction;  /**< all_reduce, reduce_scatter; else 0 */
    const cz_device *device; /**< where the buffers are */
    void *queue;             /**< what orders work on them there, may be NULL */
    void *own[6];            /**< the backend's, zero at the start */
} cz_collective;

#define CZ_BACKEND_ABI 1u

/** Built-in and foreign backends are the same table; `endpoint` is one rank's side of one group.
 *  Only one thread at a time calls into an endpoint, but not always the same one; break_group,
 *  broken, announce and announced may be called beside it. No function waits for another rank. When
 *  a transfer of an endpoint may have ended, or the group broke, or a rank left, the backend calls
 *  the `notify` that it was given, from any thread, but not from inside one of its functions other
 *  than `poll`. One that has no thread of its own has `poll` instead. docs/add-a-backend.md has a
 *  complete one. */
typedef struct cz_backend {
    uint32_t abi;     /**< CZ_BACKEND_ABI; others are refused */
    size_t size;      /**< sizeof(cz_backend): entries past an older table's end read as NULL */
    const char *name; /**< the word a user writes to choose it */
    /** Once, before all others: from now on `notify(context)` may be called. */
    void (*start)(void *endpoint, void (*notify)(void *context), void *context);
    cz_status (*post_send)(void *endpoint, cz_transfer *transfer);
    cz_status (*post_receive)(void *endpoint, cz_transfer *transfer);
    /** Has it ended? CZ_ERR_PEER: it never will, because the peer left. Another error: not as it
     *  should, such as with a message of other bytes than expected. */
    cz_status (*test)(void *endpoint, cz_transfer *transfer, bool *done);
    /** Stop using a transfer that has not ended, and its memory. A backend that cannot (MPI) says
     *  false: the library then keeps the transfer and its own memory, and the program must keep its
     *  own, until the process ends. */
    bool (*withdraw)(void *endpoint, cz_transfer *transfer);
    /** The group is of no use any more, on all ranks, from operation `sequence` on: let all of them
     *  know. Of several calls the one with the smallest sequence counts, the first among equals.
     *  Transfers go on: those of earlier operations may still be needed. */
    void (*break_group)(void *endpoint, uint64_t sequence, cz_status status, const char *sentence);
    /** CZ_OK if the group was not broken; else what it was broken with. `sentence` may be NULL. */
    cz_status (*broken)(void *endpoint, uint64_t *sequence, char *sentence, size_t bytes);
    /** Let all ranks know how many operations the program has begun on this rank, and read what
     *  another rank let know last: so that messages can name who has not come. `announced` may ask
     *  the other rank and know more the next time. */
    void (*announce)(void *endpoint, uint64_t begun);
    uint64_t (*announced)(void *endpoint, int rank);
    /** This rank leaves; `why` NULL: in peace. Frees the endpoint. */
    void (*leave)(void *endpoint, const char *why);
    /** Optional: make progress. The library calls it while it waits for transfers, every
     *  `poll_seconds` or more often. */
    void (*poll)(void *endpoint);
    double poll_seconds;
    /** The backend may only be called on threads that are inside a call of the library (Python with
     *  its lock, MPI below MPI_THREAD_MULTIPLE): operations move on in such calls and in
     *  cz_progress(). */
    bool inline_only;
    /** Optional: make this rank's endpoint of a group of some of the ranks; without it there are no
     *  sub-groups. Called on every rank of the old group, in the same order, with what the ranks
     *  agreed on: `id` is new among the groups made from this one, `ranks` are the members' ranks
     *  in the old group; `rank` is this one's in the new, -1 where it is not a member (*out is then
     *  not looked at). */
    cz_status (*split)(void *endpoint, uint64_t id, const int *ranks, int count, int rank,
                       void **out);
    /** Optional, each by itself: start a collective of the backend's own and return at once. What
     *  is NULL the library does with sends and receives. CZ_ERR_UNSUPPORTED, equally on all ranks
     *  and before anything has moved: not this one (its type, its reduction, not in_order): the
     *  library does it. Other errors break the group. Before a native collective ranks compare
     *  nothing, except in checked mode; group.h says at cz_group_info what that means for
     *  the program. Sub-groups use them too, with the endpoint from `split`. */
    cz_status (*all_reduce)(void *endpoint, cz_collective *collective);
    cz_status (*reduce_scatter)(void *endpoint, cz_collective *collective);
    cz_status (*all_gather)(void *endpoint, cz_collective *collective);
    cz_status (*broadcast)(void *endpoint, cz_collective *collective);
    cz_status (*barrier)(void *endpoint, cz_collective *collective);
    /** Has it ended on this rank: is the output complete and are the buffers the program's again?
     *  CZ_ERR_PEER: it never will, because a rank left without having done its part. Required with
     *  any of the five, as the next. */
    cz_status (*test_collective)(void *endpoint, cz_collective *collective, bool *done);
    /** As `withdraw`, of one that has not ended. */
    bool (*withdraw_collective)(void *endpoint, cz_collective *collective);
    /** Optional: memory that the processes of all ranks of the group share, a part for each rank:
     *  the address here of rank `rank`'s part and its bytes, as many for all. At least 64-byte
     *  aligned, all zeros at first, the library's from then on; it stays where it is until `leave`,
     *  also when other ranks are gone. NULL: this process does not reach it, or not yet. Where all
     *  ranks reach all parts large operations go through it, instead of messages. Never waits. With
     *  `machine`: of the ranks of this rank's machine only, also where that is this rank alone; the
     *  bytes are the same on all machines. */
    void *(*window)(void *endpoint, int rank, size_t *bytes);
    /** CZ_OK, or CZ_ERR_PEER: this other rank left (any other error: it might as well have). What
     *  it wrote into the window before is there. Required with `window`. */
    cz_status (*present)(void *endpoint, int rank);
    /** Optional, with `window`: the lowest rank of the group that is on the same machine as rank
     *  `rank`, which all ranks must see alike. Between machines with several ranks each, data then
     *  go once. NULL: the ranks of a group with a window are all on one machine. */
    int (*machine)(void *endpoint, int rank);
    /** The program may have one thread only (MPI_THREAD_SINGLE): from the first group on, the
     *  library starts none in this process: no kernel threads, whatever an optimizer's options say;
     *  saves are written inside the calls that start them; the flight recorder does not listen to
     *  signals. With `inline_only`. */
    bool one_thread;
    /** Optional, with `poll`: from now on (`begins`) this thread, which waits for something small,
     *  calls `poll` again and again with no pause, so that a thread of the backend's own may rest;
     *  until the same with false, a fraction of a millisecond after the last thing happened. The
     *  endpoints of a process may be attended at once. With it, and not `inline_only`, `poll` is
     *  called in between only. False: it shall not, for example not on this thread. */
    bool (*attend)(void *endpoint, bool begins);
    /** Receives may be longer than what is sent (cz_transfer.at_most): then headers and small data
     *  of an operation travel in one message. Equal on all ranks. */
    bool at_most;
} cz_backend;

/** A group on a backend of the program's own.
 *
 *  Local: every rank makes its handle on its own endpoint. The backend's name outlives it; the
 *  endpoint belongs to the group from here on, and is left if the call fails, unless the table
 *  itself is refused.
 *  @return The endpoint was left: CZ_ERR_ARGUMENT (a rank outside the size, a size outside 1 …
 *          4096, an option out of range), CZ_ERR_MEMORY. The endpoint is still the caller's:
 *          CZ_ERR_ARGUMENT (a NULL, a required entry that is missing, a table that is too short for
 *          them), CZ_ERR_UNSUPPORTED (another CZ_BACKEND_ABI). */
CZ_API cz_status cz_group_create_custom(cz_group **out, int rank, int size,
                                        const cz_backend *backend, void *endpoint,
                                        const cz_group_options *options);

CZ_END_DECLS
#endif
