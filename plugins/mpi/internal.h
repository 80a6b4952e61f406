/* SPDX-License-Identifier: MIT */
/* The inside of the MPI plugin. A *wire* is one communicator of ours; an *endpoint* is this rank's
 * side of one group on it; a *parcel* carries one transfer.
 *
 * Sub-groups share the wire of the group that they come from. Each endpoint has a *port*, a number
 * that is new among those of its wire on this rank, and tags of messages to it contain it; so
 * making a sub-group takes no agreement: its members tell each other their ports (HELLO), and sends
 * to a rank wait for that.
 *
 * Functions are declared here in the order of their files, each of which calls only those before
 * it: tag, requests, lock, share, wire, state, parcel, endpoints, control, carrier, job, backend,
 * create. */
#ifndef CZ_MPI_INTERNAL_H
#define CZ_MPI_INTERNAL_H

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#include "czero/backend.h"

#ifndef CZ_MPI_PART_BYTES
#define CZ_MPI_PART_BYTES ((size_t)1 << 30) /* MPI counts in int: larger transfers are cut */
#endif
#define CZ_MPI_SENTENCE_BYTES 320
#define CZ_MPI_GRACE_SECONDS 0.5 /* for messages that a rank sent before it said that it leaves */

typedef struct cz__wire cz__wire;
typedef struct cz__endpoint cz__endpoint;
typedef struct cz__parcel cz__parcel;

/* ---- tag.c ---- */

/* How the bits of a tag are shared out; the core's tag is lane (bit 63), sequence (62 to 24),
 * descendant (23 to 8) and step (7 to 0). On the wire: port, lane, descendant and sequence, step (3
 * bits). */
typedef struct cz__tag_layout {
    int port_bits;
    int sequence_bits[2]; /* per lane */
    int child_bits;       /* in lane 1, above the sequence */
} cz__tag_layout;

enum { CZ__CONTROL_TAG = 7 }; /* port 0, step 7; no transfer has that step */

cz__tag_layout cz__tag_layout_of(int tag_upper_bound);
int cz__tag(const cz__tag_layout *layout, int port, uint64_t core);

/* Which sequences and descendants have transfers under way. What is too far ahead of the oldest
 * would share tags with it and has to wait. */
typedef struct cz__slot {
    uint32_t count;
    uint32_t lowest, highest; /* descendants, since `count` was 0 last */
} cz__slot;

typedef struct cz__tag_window {
    const cz__tag_layout *layout;
    cz__slot *slots[2]; /* per lane: a ring over the low bits of the sequence */
    uint64_t oldest[2], newest[2];
    uint64_t under_way[2];
} cz__tag_window;

bool cz__tag_window_open(cz__tag_window *window,
                         const cz__tag_layout *layout); /* false: no memory */
void cz__tag_window_close(cz__tag_window *window);
bool cz__tag_window_admits(const cz__tag_window *window, uint64_t core);
void cz__tag_window_begin(cz__tag_window *window, uint64_t core);
bool cz__tag_window_end(cz__tag_window *window, uint64_t core); /* true: it may admit more now */

/* ---- requests.c: what was given to MPI and has not ended. All with cz__mpi_enter() ---- */

typedef void cz__landed(void *owner, const MPI_Status *status, int error);

/* Room for `count` more; false: no memory. Then cz__requests_add() cannot fail so often. */
bool cz__requests_reserve(int count);
/* `waits`: it waits for whatever comes, and nobody waits for it. */
void cz__requests_add(MPI_Request request, cz__landed *landed, void *owner, bool waits);
/* Test all; the functions of those that ended are called. True if any ended. */
bool cz__requests_test(void);
void cz__requests_cancel(const void *owner);
/* Call `visit` for each owner of requests that land with `landed`, once per request. */
void cz__requests_visit(cz__landed *landed, void (*visit)(void *owner, void *context),
                        void *context);
int cz__requests_busy(void); /* those that somebody waits for */
void cz__requests_forget(void);
/* "MPI_ERR_TRUNCATE: message truncated" */
void cz__mpi_error(int error, char *text, size_t bytes);

/* ---- lock.c: the lock under which MPI is called, and who may take it ---- */

/* Take it. False, and not taken: this thread may not call MPI, or nobody may any more. */
bool cz__mpi_enter(void);
/* As well false if it takes longer: MPI may spin for ever in a carrier whose peer, in shared
 * memory, was stopped at a bad moment. */
bool cz__mpi_enter_within(double seconds);
/* As well false if somebody has it. */
bool cz__mpi_enter_if_free(void);
void cz__mpi_leave(void);
/* As the carrier, which is the plugin's own, and in MPI_Finalize: after those that enter. */
void cz__mpi_lock(void);
/* From now on only this thread may call MPI, or all may. */
void cz__mpi_restrict(bool to_this_thread);
void cz__mpi_end(void); /* with the lock: MPI is over, and nobody enters any more */
bool cz__mpi_over(void);
cz_status cz__mpi_check_end(void);         /* is MPI still there? */
cz_status cz__mpi_check(void);             /* may this thread enter? */
const char *cz__mpi_level_name(int level); /* below MPI_THREAD_MULTIPLE */
double cz__mpi_seconds(void);

/* ---- one communicator ---- */

struct cz__wire {
    MPI_Comm comm;
    cz__tag_layout layout;
    bool (*listen)(cz__wire *wire); /* begin to receive control messages */
    int endpoints;
    int messages;   /* control messages that MPI has not sent yet */
    bool listening; /* the receive for control messages is with MPI */
    bool unclean;   /* messages that nobody received may be in it: not to be freed */
    int size;
    uint64_t name;   /* of this machine, as a number, */
    uint64_t *names; /* and of each rank's */
    /* The communicator and names are there; -1: it could not be made, and `why` */
    atomic_int ready;
    char why[CZ_MPI_SENTENCE_BYTES];
    cz__endpoint **ports; /* 1 << port_bits of them; NULL: free */
    bool *spoilt;         /* old messages may have this port: never to be used again */
    struct cz__message *incoming;
};

/* ---- one transfer ---- */

typedef enum cz__parcel_state {
    CZ__PARCEL_HELD,   /* too far ahead: in its endpoint's list */
    CZ__PARCEL_POSTED, /* in the carrier's queue, or waiting for the peer's port, or with MPI */
    CZ__PARCEL_DONE,
    CZ__PARCEL_LOST,  /* the peer left */
    CZ__PARCEL_FAILED /* `why` says it */
} cz__parcel_state;

struct cz__parcel {
    cz__parcel *next;
    cz__endpoint *of;
    cz_transfer *transfer;
    bool send;
    atomic_int state;
    int parts;      /* requests that have not landed */
    size_t came;    /* bytes, of a receive */
    bool cancelled; /* a part was taken back */
    bool abandoned; /* the library has forgotten it, MPI has not */
    char *why;
};

/* ---- one rank's side of a group ---- */

typedef struct cz__peer {
    int address;     /* its rank in the wire's communicator */
    int parent_rank; /* in a sub-group: its rank in the parent */
    int port;        /* -1: not known yet */
    int machine;     /* the lowest rank of the group that is on the same machine, */
    int crowd;       /* of such a rank: how many are there */
    int place;       /* and its number among those, once cz__share_locate() was called */
    _Atomic uint64_t begun;
    _Atomic double heard_at, asked_at;
    atomic_bool ask;
    bool hello_due, share_due, leave_told;
    atomic_bool gone; /* it left, and `why` is there */
    /* The lowest `broken_from` that it knows of this rank, or this rank of it. */
    uint64_t told_from;
    uint64_t sent, received; /* messages to and from it: to MPI, and landed */
    bool left;
    bool receives_settled, sends_settled; /* since it left: what cannot end was ended */
    double left_at;
    uint64_t sent_in_all, received_in_all; /* by it, to and from this rank */
    char *why;
} cz__peer;

typedef struct cz__hello { /* from a member of a sub-group that this rank has not made yet */
    struct cz__hello *next;
    uint64_t id;
    int rank; /* in the sub-group */
    int port;
} cz__hello;

struct cz__endpoint {
    cz__endpoint *next; /* of all in the process; with cz__mpi_enter() */
    cz__wire *wire;
    int port, rank, size;
    cz__endpoint *parent; /* a sub-group's: messages before its ports are known go there */
    uint64_t id;          /* a sub-group's, among those of the parent */
    bool abort_on_break;

    pthread_mutex_t notify_lock; /* `notify` may be called; NULL once the library has left */
    void (*notify)(void *context);
    void *context;

    cz__tag_window window; /* these three: the library's thread only */
    cz__parcel *held, **held_end;
    cz__parcel *idle;

    bool located;
    int machines, here, crowd; /* how many; ranks of the group on this one, and at most on one */
    /* Memory of all ranks of this machine, a part each; NULL: not here (yet). */
    _Atomic(char *) share;
    size_t share_bytes, share_part;
    /* The lowest rank here: ranks that still have to open the file. */
    int share_file, share_opening;
    uint64_t share_token;

    _Atomic uint64_t begun;
    _Atomic uint64_t broken_from; /* the operation; UINT64_MAX: it is not broken */
    pthread_mutex_t break_lock;   /* the next two */
    cz_status broken;
    char sentence[CZ_MPI_SENTENCE_BYTES];
    atomic_bool leaving; /* others are to be told, and why */
    char why[200];
    atomic_bool gone;      /* the library has left */
    atomic_bool attention; /* cz__control_attend() has something new to do */

    /* the rest with cz__mpi_enter() */
    double abort_at;
    int untold;                         /* other ranks that do not know that this one leaves */
    int present;                        /* other ranks that have not left */
    int unsettled;                      /* ranks that left and are not settled */
    int under_way;                      /* parcels with MPI */
    cz__parcel *waiting, **waiting_end; /* sends until the peer's port is known */
    cz__hello *hellos;
    bool changed;
    cz__endpoint *next_changed;
    cz__peer peers[];
};

/* ---- share.c: with cz__mpi_enter(), but for the last two ---- */

/* The machine's name: of CZERO_MPI_NODE, or the host's; false: it has none. */
bool cz__share_machine_name(char *name, size_t bytes);
void cz__share_locate(cz__endpoint *of); /* where its ranks are; once its wire is ready */
/* Lowest rank here: make it, tell the others when that can be. */
void cz__share_create(cz__endpoint *of);
/* Process, file and token, and the machine's name; false: it has none. */
bool cz__share_describe(const cz__endpoint *of, uint64_t place[3], char *host, size_t bytes);
void cz__share_open(cz__endpoint *of, const uint64_t place[3], const char *host);
void cz__share_opened(cz__endpoint *of); /* lowest rank here: by one more, or it cannot */
void cz__share_close(cz__endpoint *of);
void *cz__share_part(void *of, int rank, size_t *bytes); /* the table's `window` */
int cz__share_machine(void *of, int rank);               /* … `machine` */

/* ---- wire.c: with cz__mpi_enter() ---- */

/* `listen` is called once the communicator is there; false: no memory. */
cz_status cz__wire_create(cz__wire **out, MPI_Comm comm, bool (*listen)(cz__wire *wire));
/* Give the endpoint a port; false: none is free. */
bool cz__wire_connect(cz__wire *wire, cz__endpoint *of);
/* Take it back. The last one ends the wire. */
void cz__wire_disconnect(cz__wire *wire, cz__endpoint *of, bool clean);
void cz__wire_free_unused(cz__wire *wire); /* if nothing uses it any more */

/* ---- state.c: what an endpoint has to say to the library ---- */

/* Of several the lowest sequence counts; false: it was not. Any thread. */
bool cz__endpoint_break(cz__endpoint *of, uint64_t sequence, cz_status status,
                        const char *sentence);
/* As the table's entry. */
cz_status cz__endpoint_broken(void *of, uint64_t *sequence, char *sentence, size_t bytes);

/* `notify` is to be called; the list of those, which begins anew. With cz__mpi_enter(). */
void cz__endpoint_changed(cz__endpoint *of);
cz__endpoint *cz__endpoints_changed(void);
/* Also without it, as long as nobody frees them meanwhile. */
void cz__endpoints_notify(cz__endpoint *list);

/* ---- parcel.c: with cz__mpi_enter() ---- */

/* Give it to MPI; a send to a rank whose port is unknown stays with the endpoint. */
void cz__parcel_start(cz__parcel *parcel);
/* Take it back from MPI; true if MPI has nothing of it any more. */
bool cz__parcel_stop(cz__parcel *parcel);
/* What is under way from and to a rank that left, as far as it will never end. */
void cz__parcels_settle(cz__endpoint *of, int rank);
/* MPI is about to end. */
void cz__parcels_cancel(cz__endpoint *of);
void cz__parcel_free(cz__parcel *parcel);
size_t cz__parcels_bytes(void); /* that MPI has and has not moved yet */

/* ---- endpoints.c: made, listed, freed. All but the last two with cz__mpi_enter() ---- */

/* `parent` NULL: rank r is rank r of the communicator; else it is rank ranks[r] of the parent. */
cz_status cz__endpoint_create(cz__endpoint **out, cz__wire *wire, int rank, int size,
                              cz__endpoint *parent, const int *ranks);
/* The one that this rank made of a group, NULL if it has not. */
cz__endpoint *cz__endpoints_find(const cz__endpoint *parent, uint64_t id);
cz__endpoint *cz__endpoints_first(void);                        /* of all, by `next` */
void cz__endpoints_attend_children(const cz__endpoint *parent); /* the next time */
/* Free those that this rank and all others have left. */
void cz__endpoints_reap(void);
int cz__endpoints_waiting(void); /* those with sends that wait for a port */
int cz__endpoints_present(void); /* ranks of their groups that have not left */
int cz__endpoints_untold(void);  /* those that this rank leaves and not all others know it */
/* MPI or the process is about to end: break all groups but one, tell the others; what this rank's
 * operations say, and what the others hear. */
void cz__endpoints_end(const cz__endpoint *but, const char *sentence, const char *why);
void cz__endpoint_free(cz__endpoint *of); /* when MPI is over */
/* Its wire never got ready: what MPI still has of the two stays where it is. */
void cz__endpoint_forget(cz__endpoint *of);

/* ---- control.c: what ranks tell each other beside transfers. With cz__mpi_enter() ---- */

bool cz__control_listen(cz__wire *wire); /* false: no memory */
/* Adopt what members of a new sub-group said before this rank made its endpoint. */
void cz__control_meet(cz__endpoint *of);
/* Do what the flags of all endpoints ask for. */
void cz__control_attend(void);

/* ---- carrier.c: the process's one carrier, or none ---- */

/* Before a group is made: find out who may call MPI, start the carrier. One cz__carrier_release()
 * each. */
cz_status cz__carrier_acquire(bool serialized_is_ours);
void cz__carrier_retain(void); /* one more, while there is one */
void cz__carrier_release(void);
/* MPI_Finalize is next. Returns when the carrier has ended; false: it has not, it does not come
 * back from MPI. */
bool cz__carrier_stop(double patience);
bool cz__carrier_is_this_thread(void);     /* exit() may be called anywhere */
bool cz__carrier_exists(void);             /* else: inline */
bool cz__carrier_is_forbidden(void);       /* and any other thread, too */
bool cz__carrier_is_of_this_process(void); /* and not of its parent */

/* With the lock: give what is in the queue to MPI; true if anything was. */
bool cz__carrier_start_posted(void);
/* With the lock: one round of everything; true if something happened. */
bool cz__carrier_round(void);
/* A thread of the library makes rounds from now on, or no more: the carrier rests meanwhile. */
void cz__carrier_attend(bool begins);
/* With the lock, by such a thread: a round in which no endpoint is freed; whoever has something new
 * is notified. */
void cz__carrier_round_of_waiter(void);
bool cz__carrier_is_attended(void);

void cz__carrier_post(cz__parcel *parcel); /* to the end of the queue */
/* Take it out of the queue; false: it is not in there. */
bool cz__carrier_unpost(cz__parcel *parcel);
void cz__carrier_wake(void);

/* As pthread_create(), with all signals blocked but for those of an error in the thread: they are
 * the program's. */
int cz__plugin_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                      void *context);

/* ---- job.c: where the library has initialised MPI ---- */

/* MPI_Init_thread; if it lasts longer, this process ends, and the job with it. */
cz_status cz__job_begin(double timeout);
/* `world` has just been made: at the end of the job ranks wait for each other by it. */
void cz__job_watch_end(cz__endpoint *world);

/* ---- backend.c: the tables ---- */

extern const cz_backend cz__backend_mpi_carrier;
extern const cz_backend cz__backend_mpi_inline;
extern const cz_backend cz__backend_mpi_single; /* at MPI_THREAD_SINGLE */

#endif
