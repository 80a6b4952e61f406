/* SPDX-License-Identifier: MIT */
/** @file shared.h  Memory that all ranks of a group see as one: what every rank would hold alike,
 *  the values of a model's parameters above all, is then held once per machine and not once per
 *  rank.
 *
 *      CZ_TRY(cz_shared_create(&shared, group, bytes, &memory));
 *      CZ_TRY(cz_model_add_flat(model, memory, gradients, CZ_F32, count, NULL, sizes));
 *
 *  **Shared parameters.** A sharded optimizer (zero.h) finds out by itself that all values lie in
 *  memory which the ranks of its group share, at the same places: each span is then written by its
 *  owner and sent to nobody. Gradients and buffers stay each rank's own. The rules for readers:
 *  - Before the first step one rank writes values, and cz_zero_broadcast_parameters() from it tells
 *    the others.
 *  - A rank may read a parameter after a step, with option overlap_gather after
 *    cz_zero_wait_param(), and until it calls the next step; with CZ_OVERLAP_STEP until
 *    cz_ddp_finish(), with CZ_OVERLAP_INTERLEAVED until its last mark of that parameter in a pass
 *    that synchronises. An owner writes when all ranks have come so far. A call that loads values
 *    counts as a step.
 *  - Nobody else writes values. Unsharded optimizers and averagers over them are refused.
 *
 *  With CZ_OVERLAP_INTERLEAVED a group in checked mode finds a rank that asks for a parameter after
 *  its last mark, and with overlap_gather one that marks a parameter without having asked for it
 *  since the last pass: CZ_ERR_STATE, of cz_zero_wait_param() on that rank, of the pass on all
 *  ranks. */
#ifndef CZERO_SHARED_H
#define CZERO_SHARED_H

#include "czero/group.h"

CZ_BEGIN_DECLS

/** One rank's handle on a block of shared memory. Not shared between ranks, also when they are
 *  threads. */
typedef struct cz_shared cz_shared;

/** Create a block of zeros that all ranks of the group see: what one writes the others read,
 *  without a copy. Ranks that are threads of one process get the same address, processes of one
 *  machine different ones. It is aligned to 64 bytes; one of 2 MiB and more has large pages where
 *  the system gives them.
 *
 *  Who reads and who writes is between the ranks: a collective call on the group, cz_barrier() if
 *  there is no other, brings what was written before it on one rank to those that read after it on
 *  another.
 *
 *  Collective: every rank of the group, with the same number of bytes. One call at a time per group
 *  handle.
 *  @param out    receives this rank's handle; NULL on an error
 *  @param group  borrowed, for the length of the call: the block outlives it
 *  @param bytes  1 or more
 *  @param data   NULL, or receives the address of the block here; NULL on an error
 *  @return CZ_OK. With each of these no rank has a block: CZ_ERR_ARGUMENT (0 bytes, `out` is NULL),
 *          CZ_ERR_MISMATCH (ranks ask for different sizes), CZ_ERR_UNSUPPORTED (ranks on several
 *          machines, or that may not open each other's memory, or a group that moves memory of
 *          another device than the CPU; the sentence says who and why: let each rank have memory of
 *          its own there, or make the block over a group of one machine's ranks), CZ_ERR_MEMORY. */
CZ_API cz_status cz_shared_create(cz_shared **out, cz_group *group, size_t bytes, void **data);

/** Let go of the block on this rank, whose address is of no use here from now on. The others keep
 *  it; the memory goes back with the last of them, or with the last process, however that ends.
 *  Local; waits for nobody; accepts NULL and *NULL. Models and optimizers over it are destroyed
 *  before. */
CZ_API void cz_shared_destroy(cz_shared **shared);

CZ_END_DECLS
#endif
