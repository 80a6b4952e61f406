/* SPDX-License-Identifier: MIT */
/* What an operation is: the group that it runs in, its header, the memory that it moves, the work
 * that stands for it in flight. How it moves is said in engine/ and group/. */
#ifndef CZ_OPERATION_OPERATION_H
#define CZ_OPERATION_OPERATION_H

#include <pthread.h>
#include <stdatomic.h>

#include "czero/backend.h"
#include "operation/executor.h"
#include "operation/identity.h"
#include "operation/recorder.h"
#include "operation/region.h"
#include "operation/size.h"

#define CZ__LABEL_BYTES 48
#define CZ__SENTENCE_BYTES 320
#define CZ__MAX_WORLD 4096
#define CZ__WINDOW_BYTES                                                                           \
    ((size_t)16 << 20)                    /* what all ranks together move in one round of a move */
#define CZ__TILE_BYTES ((size_t)32 << 10) /* of each rank: what is reduced at once stays in cache */

typedef struct cz__staging cz__staging; /* a block of staging memory, kept for the next operation */
struct cz__staging {
    cz__staging *next;
    size_t bytes;
    char *data;
};

/* What is known of how ranks meet in a group; the driver's. */
typedef struct cz__meetings {
    bool may_change; /* cz__engines_may_change() */
    /* The first operation that is met for by an engine which all ranks offer; UINT64_MAX: none. */
    uint64_t offered_from;
    /* Of the program's operations: of all before this one, and of these from it on, is known what
     * the verdicts said. */
    uint64_t known;
    uint32_t known_after;
} cz__meetings;

struct cz_group {
    int references; /* the handle, handles on works, blocking calls; under the executor's lock */
    pid_t process;  /* that it is of: cz__process() */
    void *forsaken; /* the next one that a child of fork() has left as it is */
    int rank;
    int size;
    const cz_backend *backend; /* points to `table` */
    cz_backend table;          /* a copy; what an older backend does not have is NULL */
    void *endpoint;            /* NULL once the group was left */
    /* Owned: of each rank, in the group that was not made by a split; NULL: this is it. */
    int *global_ranks;
    bool checked;    /* ranks compare labels and which parameters take part, too */
    bool compared;   /* its options were, or are by the operation that began first */
    bool settled;    /* and what the backend does itself begins in the order of calls */
    uint64_t nonce;  /* this rank's part of `origin` */
    uint64_t origin; /* of the group that was not made by a split; 0: no operation has ended */
    int64_t object_counts[CZ__OBJECT_KINDS]; /* objects that were made over it */
    char serves[CZ__OBJECT_NAME_BYTES];      /* the object whose own it is; "": the program's */
    cz__meetings meetings;
    cz_group *next_of_rank; /* in the list of its executor */
    uint64_t number;        /* of the process's groups, for file names */
    /* The same on all its ranks, for recordings: "mpi-0", of which "mpi-0.3" was made. */
    char name[48];
    cz_group *next_recorded;
    cz__recorder recorder;
    uint64_t last_split; /* the largest id of a sub-group made from this one */
    const cz_device *device;
    cz__executor *executor; /* this rank's; shared with its sub-groups */
    double timeout_seconds;
    double warn_seconds;
    size_t segment_bytes;
    uint64_t sequence; /* of the next operation in lane 0 */
    cz_status broken;  /* CZ_OK, or what every further operation returns */
    bool left;         /* it was destroyed, with operations in flight perhaps */
    char why[CZ__SENTENCE_BYTES];
    /* The ranks are of one process and reach each other's memory; else NULL. */
    struct cz__rendezvous_set *rendezvous;
    bool owns_rendezvous;
    char *tile;     /* owned, with rendezvous: CZ__TILE_BYTES for what is not in place, */
    char *zeros;    /* and as many that are 0 */
    cz_work *spare; /* for an operation that has no memory, to tell the others; NULL: lent */
    size_t rendezvous_bytes; /* of the first of the two states of a work */
    cz_work *idle_works;     /* kept for reuse: no allocation in a steady state */
    cz__staging *idle_staging;
    struct cz__window *window; /* owned, the driver's; NULL: none (yet) */
};

struct cz__reserve {
    cz_group *group;         /* referred to */
    const cz_device *device; /* where the staging memory is */
    cz_work *work;           /* NULL while lent */
    cz__staging *staging;    /* NULL while lent, and without any */
    bool bare;               /* it never had any */
};

/* Under the executor's lock. */
struct cz__pool {
    const cz_device *device;
    size_t block_bytes;
    int count;
    cz__staging *idle;     /* owned: blocks that are not lent */
    cz_work *first, *last; /* operations that wait for one, in the order of their start */
};

typedef enum cz__operation_kind {
    CZ__AGREE = 1,
    CZ__BARRIER,
    CZ__BROADCAST,
    CZ__ALL_REDUCE,
    CZ__REDUCE,
    CZ__REDUCE_SCATTER,
    CZ__ALL_GATHER,
    CZ__GATHER,
    CZ__SCATTER,
    CZ__ALL_TO_ALL,
    CZ__ALL_TO_ALL_V,     /* each rank has counts of its own, which must balance */
    CZ__REDUCE_SCATTER_V, /* from here on the fingerprint must be equal, too */
    CZ__ALL_GATHER_V,
    CZ__GATHER_V,
    CZ__SCATTER_V,
    CZ__REDUCE_MAP,
    CZ__GATHER_MAP,
    CZ__STEP_MAP,
    CZ__ALL_REDUCE_MAP
} cz__operation_kind;

/* What travels before any data, so that all ranks act on one verdict: all get all headers and merge
 * them; or up a binomial tree of the ranks, merged on the way, and down again. */
typedef struct cz__header {
    int32_t status; /* CZ_OK, or the status that all ranks will return */
    int32_t same;   /* all fingerprints below here are equal */
    /* The engines that all ranks below here can move it with, a bit each; in a verdict: the one
     * that shall, if any. */
    uint64_t offers;
    uint64_t grant;         /* in a verdict: what that engine said */
    uint64_t balance;       /* all_to_all_v: of the counts; summed over the ranks 0 if they fit */
    uint64_t nonce;         /* of this rank; in a verdict: the sum over all */
    uint32_t offered_later; /* in a verdict: all ranks can meet for later operations another way */
    int32_t rank;           /* whose header this is; with a status: the rank that failed */
    uint32_t kind;
    int32_t dtype;
    int32_t reduction;
    int32_t root;
    int64_t count;
    uint64_t fingerprint;
    uint64_t detail;        /* which parameters take part, as a number */
    uint32_t checked;       /* option of the group; `detail` is there, and labels count */
    uint32_t segment_bytes; /* option of the group */
    char label[CZ__LABEL_BYTES];
    char sentence[CZ__SENTENCE_BYTES];
} cz__header;

/* What to do, as a collective call describes it. */
typedef struct cz__operation {
    cz__header header;
    /* Owners reduce what all ranks have of their stream in `source` into `target`, as elements of
     * type `result`: of 16-bit types that may be f32; */
    bool reduces;
    cz_dtype result;
    /* then rank r gets stream r of `source` here, as stream `rank` of its `target`. */
    bool exchanges;
    bool same_to_all;     /* exchange: all get this rank's own stream */
    cz__reserve *reserve; /* NULL, or where its memory comes from */
    cz__pool *pool;       /* NULL, or where its staging memory does */
    bool detached;        /* started by a continuation, it may outlast the work that it continues */
    /* NULL, or what an owner does with a reduced tile, so that it changes its elements of `values`,
     * which then go to all. */
    cz__tile_update update;
    void *update_context;
    cz__region values;  /* with an update; no data: it changes none */
    bool shared_values; /* all ranks have the same memory there: the owner's write is all */
    /* Bytes that no stream exceeds in the widest of its regions, the same number on all ranks. */
    size_t longest;
    cz__region source;
    cz__region target;
} cz__operation;

/* Messages of one operation between two ranks have tags of their own by step; these have data. */
enum { CZ__STEP_REDUCE = 3, CZ__STEP_EXCHANGE = 4 };

/* Rounds of messages that may be under way. */
enum { CZ__ROUNDS = 4 };

/* A transfer and whether it is on its way. */
typedef struct cz__request {
    cz_transfer transfer;
    bool up;
} cz__request;

typedef enum cz__phase {
    CZ__PHASE_BEGIN, /* an engine is to be chosen for what comes next */
    CZ__PHASE_MEET,  /* ranks find out whether they agree */
    CZ__PHASE_DATA,
    CZ__PHASE_CONTINUE, /* data has moved, or the operation failed; the continuation may run */
    CZ__PHASE_CHILDREN, /* what the continuation started goes on */
    CZ__PHASE_ENDED
} cz__phase;

typedef struct cz__engine cz__engine; /* engine/engine.h */

/* An engine that has the operation, and what it keeps of it: `bytes` of the engine. */
typedef struct cz__stage {
    const cz__engine *engine; /* NULL: none yet */
    void *state;
} cz__stage;

/* When somebody last moved it on: warning and timeout count from there. */
typedef struct cz__patience {
    double since; /* 0: it has just moved */
    bool warned;
    double asked_at; /* all ranks, how far they are, for the next warning or timeout */
} cz__patience;

typedef struct cz__then {
    cz_continuation run;
    void *context;
    bool ran;
    cz_continuation last; /* takes the place of `run` when what that started has ended */
} cz__then;

/* What it descends from, and what descends from it. A work of lane 0 is its own root. */
typedef struct cz__family {
    uint32_t child;       /* lane 1: its number among the descendants of the root */
    cz_work *root;        /* the lane 0 work that it is or descends from */
    uint32_t descendants; /* in a root: how many were started, so the next one's number */
    cz_work *parent;      /* lane 1: the work whose continuation started it */
    int children;         /* not ended yet */
} cz__family;

/* How far ranks have come with meeting for it. */
typedef struct cz__meeting {
    bool needed;  /* whoever moves its data */
    bool agreed;  /* they have met, and agree */
    bool again;   /* it is not the first time */
    bool asks;    /* rank 0 was asked to choose among those that offer to move its data */
    bool refused; /* by the backend, which might have done it itself */
} cz__meeting;

/* Its staging memory. */
typedef struct cz__staged {
    cz__staging *block; /* NULL: none (yet) */
    bool queued;        /* it waits for its turn to have some */
    cz_work *next;      /* waits after this one */
} cz__staged;

struct cz_work {
    int references;  /* the executor's list, the program's handle; under the executor's lock */
    uint64_t record; /* its number in the recorder */
    cz_work *previous, *next; /* in the executor's list, in the order of start */
    cz_group *group;
    int lane;          /* 0: the program's call; 1: started by a continuation */
    uint64_t sequence; /* of the lane 0 operation that it is or descends from */
    cz__family family;
    cz__phase phase; /* the driver's */
    cz_status status;
    bool ended;  /* under the executor's lock: it is no more in its list */
    bool unseen; /* the program has no handle, so there is no continuation */
    bool waited; /* somebody saw the end */
    bool stuck;  /* a backend could not take back a transfer: never reuse its memory */
    cz__meeting meeting;
    cz__patience patience;
    cz__then then;
    cz__staged staging;
    cz__stage rendezvous, data;
    /* From here on it is not cleared when it is used again: all is written before it is read. */
    char sentence[CZ__SENTENCE_BYTES]; /* of `status` */
    cz__operation operation;
    cz__header verdict;
    _Alignas(64) char states[]; /* of the two stages */
};

/* Do data move, once ranks have met and agree? With an agreement only where all fingerprints are
 * equal. */
static inline bool cz__work_moves_data(const cz_work *work)
{
    const cz__operation *operation = &work->operation;
    return (operation->reduces || operation->exchanges) &&
           (operation->header.kind != CZ__AGREE || work->verdict.same);
}

/* The prototypes of each file follow in the order of the files: each uses only those before it. */

/* region.c */
/* What an exchange takes from its ranks, and where to it brings that: values, where there is an
 * update; what a reduction has made. */
const cz__region *cz__region_given(const cz__operation *operation);
const cz__region *cz__region_taken(const cz__operation *operation);
/* The bytes of streams that take at most so many in every region of the operation. */
size_t cz__stream_bytes(const cz__operation *operation, size_t bytes);
/* Let a step's owner update its elements of a chunk, the gradient of which is at `gradient`; NULL:
 * where `target` has it. */
void cz__update_chunk(const cz__operation *operation, const cz__chunk *chunk, const char *gradient);

/* traffic.c */
/* A message of one of the steps, or a collective of the backend's own, is on its way. */
void cz__traffic_sent(const cz_group *group, unsigned step, size_t bytes);
/* Of what was sent in messages with headers so many bytes were data. */
void cz__traffic_were_data(const cz_group *group, size_t bytes);
/* Without a message, by another rank of the process. */
void cz__traffic_handed_over(const cz_group *group, size_t bytes);
/* Headers that would have been sent. */
void cz__traffic_headers(const cz_group *group, unsigned count);
void cz__traffic_native(const cz_group *group);

/* identity.c: the name of one that is part of no other: the next one of its backend in this
 * process. Ranks that make theirs in one order give them one name. */
void cz__group_give_name(cz_group *group, const char *backend, uint64_t number);

/* header.c */
const char *cz__operation_name(cz__operation_kind kind);
/* "all_reduce 'loss'" */
void cz__header_name(const cz__header *header, char *text, size_t bytes);
void cz__work_name(const cz_work *work, char *text,
                   size_t bytes); /* "all_reduce 'loss' (operation 17)" */
/* Take in what others say. A status of a lower rank counts before that of a higher. */
void cz__header_merge(cz__header *mine, const cz__header *other, uint64_t sequence);
/* The sentence only if there is one. */
void cz__header_copy(cz__header *to, const cz__header *from);
/* The i-th rank whose header comes to this one in the tree, or -1. */
int cz__header_child(const cz_group *group, int i);
/* The rank that this one's header goes to in the tree; not of rank 0. */
int cz__header_parent(const cz_group *group);
/* How many headers this rank sends so: one up, one to each child. */
unsigned cz__header_messages(const cz_group *group);

/* broken.c */
/* The group is of no use any more from operation `sequence` on: tell the other ranks. Returns what
 * all ranks will say, which may be what another one found before; the sentence goes to `why`, of
 * CZ__SENTENCE_BYTES. Without the lock. */
cz_status cz__group_break(cz_group *group, uint64_t sequence, cz_status status,
                          const char *sentence, char *why);
/* CZ_OK, or what operation `sequence` ends with because the group was broken before it. */
cz_status cz__group_intact(const cz_group *group, uint64_t sequence);
/* CZ_OK, or CZ_ERR_STATE in a child of fork(): the group is the parent's, and here nobody will ever
 * move it on or unlock its locks. */
cz_status cz__group_check_process(const cz_group *group, const char *call);

/* request.c */
/* Lane, sequence, descendant and step: equal on all ranks for the same message, whatever the order
 * in which they get there. */
uint64_t cz__work_tag(const cz_work *work, unsigned step);
cz_status cz__request_send(cz_work *work, cz__request *request, int peer, unsigned step, void *data,
                           size_t bytes);
cz_status cz__request_receive(cz_work *work, cz__request *request, int peer, unsigned step,
                              void *data, size_t bytes);
/* As many as the other side sends: `came` of the transfer says how many. Where the backend has
 * `at_most`. */
cz_status cz__request_receive_most(cz_work *work, cz__request *request, int peer, unsigned step,
                                   void *data, size_t most);
/* CZ_OK and whether it has landed; requests that are not up have. */
cz_status cz__request_landed(cz_work *work, cz__request *request, bool *landed);
void cz__request_withdraw(cz_work *work, cz__request *request);
bool cz__request_awaits(const cz__request *request, int rank); /* is it up, to or from that rank? */

/* staging.c */
/* The chunks of an operation whose longest stream has `longest` bytes, and its staging memory (0:
 * ranks of one process need none); equal on all ranks. */
size_t cz__chunk_bytes(const cz_group *group, size_t longest);
size_t cz__staging_bytes(const cz_group *group, size_t longest);
cz__staging *cz__staging_create(const cz_group *group, size_t bytes); /* NULL: no memory */
void cz__staging_destroy(const cz_device *device, cz__staging *staging);
/* Without the lock: has it staging memory, or is it its turn to have some? */
bool cz__pool_take(cz_work *work);
/* Without the lock: it needs no staging memory (any more), if it had a turn. */
void cz__pool_pass(cz_work *work);
/* The rest with the executor's lock held. */
void cz__pool_leave(cz_work *work); /* it needs no staging memory (any more) */
/* What it needs; from a pool, it waits for its turn from now on. */
cz_status cz__work_take_staging(cz_work *work);
void cz__work_return_staging(cz_work *work);

#endif
