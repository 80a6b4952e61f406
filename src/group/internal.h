/* SPDX-License-Identifier: MIT */
/* The inside of the group part: groups, their memory, and what drives their operations. */
#ifndef CZ_GROUP_INTERNAL_H
#define CZ_GROUP_INTERNAL_H

#include "engine/engine.h"
#include "group/collective.h"

/* The prototypes of each file follow in the order of the files: each uses only those before it. */

/* threads/threads.c: world_size endpoints that share one block, the rendezvous of that, and what an
 * endpoint takes. */
cz_status cz__threads_create(void **endpoints, int world_size);
struct cz__rendezvous_set *cz__threads_rendezvous(void *endpoint);
size_t cz__threads_endpoint_bytes(void);

/* memory.c */
cz_status cz__group_make_spare(cz_group *group);
cz_status cz__group_make_tiles(cz_group *group);
void cz__group_free_memory(cz_group *group); /* nobody refers to it any more */
/* Lock held at call, given up; the last reference to a group frees it. */
void cz__group_unreference(cz_group *group);
/* The rest with the executor's lock held. */
/* From the reserve, if there is one and it has not lent it; NULL: no memory. */
cz_work *cz__group_take_work(cz_group *group, cz__reserve *reserve);
cz_work *cz__group_take_spare(cz_group *group); /* NULL: it is lent */
void cz__work_unreference(cz_work *work);       /* the last one returns it to its group */

/* driver.c */
/* Begin an operation and, unless options say otherwise or a continuation is running, wait for it.
 * `mine` is this rank's own verdict (its sentence is the calling thread's); the operation is begun
 * anyway, so that all ranks learn of it. `same` may be NULL. */
cz_status cz__operation_run(cz_group *group, cz__operation *operation, cz_status mine,
                            const cz_operation_options *options, bool *same);
/* Fail it, take back its transfers, and bring it to CZ__PHASE_CONTINUE. */
void cz__operation_fail(cz_work *work, cz_status status, const char *sentence);
/* Its memory, and the program's, are no more in use, or it is stuck. */
void cz__operation_withdraw(cz_work *work);
/* For the executor: see there. */
bool cz__operation_advance(cz_work *work);
bool cz__operation_is_close(const cz_work *work);
bool cz__operation_spin(cz_work *work, int turns, const atomic_ullong *events, uint64_t seen);

/* watch.c */
double cz__operation_watch(cz_work *work, double now);
/* The ranks that this operation waits for, as "rank 2" or "ranks 1, 3"; "some rank" if it does not
 * know. */
void cz__operation_awaited(const cz_work *work, char *text, size_t bytes);

/* group.c */
/* A group on an endpoint, which is left on failure too. `rendezvous`: those of its ranks, or NULL.
 * `executor` NULL: one of its own. The backend's entries are complete. */
cz_status cz__group_create(cz_group **out, int rank, int size, const cz_backend *backend,
                           void *endpoint, struct cz__rendezvous_set *rendezvous,
                           cz__executor *executor, const cz_group_options *options);
/* A group of one rank. */
cz_status cz__group_create_self(cz_group **out, const cz_group_options *options);
/* As cz_group_destroy(), telling the others why. */
void cz__group_leave(cz_group *group, const char *why);

/* backend.c: copy the table of a program or a plugin; entries that it does not have are NULL. */
cz_status cz__backend_read(cz_backend *out, const cz_backend *backend);

extern const cz_backend cz__backend_self;
extern const cz_backend cz__backend_threads;

#endif
