/* SPDX-License-Identifier: MIT */
/** @file group.h  Process groups: ranks that call collective operations together.
 *
 *  Every operation matches by its place in the order of calls on its group, never by arrival, and
 *  carries a header: ranks that disagree, or a rank whose own check fails, are found before data
 *  moves; then *all* ranks return the same status and sentence and the group stays usable.
 *
 *      static cz_status each_rank(cz_group *group, void *context)
 *      {
 *          float sum = 1;
 *          CZ_TRY(cz_all_reduce(group, &sum, 1, CZ_F32, CZ_SUM, NULL));
 *          return printf("%g ranks\n", sum) > 0 ? CZ_OK : cz_fail(CZ_ERR_IO, "no standard output");
 *      }
 *      … CZ_CHECK(cz_launch(each_rank, NULL, &options));
 *
 *  **Words of all headers.** *Local*: it concerns this rank alone and waits for no other.
 *  *Collective*: every rank of the group calls it, in the same order as its other collective calls.
 *  *Borrowed*: the caller's, and it outlives what borrows it.
 *
 *  **Errors of collective calls.** Each of them, whether it says so or not, may return, beside what
 *  it lists itself:
 *  - CZ_ERR_PEER, CZ_ERR_TIMEOUT: a rank failed, left or did not come. The group is broken, on all
 *    ranks: destroy it.
 *  - CZ_ERR_ARGUMENT on this rank alone: the handle that the group is known by is NULL. The other
 *    ranks wait for this one until their timeout.
 *  What it lists itself is seen by all ranks, with the same sentence; nothing was changed and the
 *  group stays usable, unless something else is said there.
 *
 *  **Threads, signals, children.** Threads of the library block all signals, which are the
 *  program's. pthread_cancel() of a thread inside a call of the library takes effect when the call
 *  has returned; whoever cancels a rank's thread between calls destroys its handle, or the others
 *  wait until their timeout. In a child of fork() groups, and objects on them, are dead: calls
 *  return CZ_ERR_STATE, and destroying them and exit() return at once. A child may make groups of
 *  its own. */
#ifndef CZERO_GROUP_H
#define CZERO_GROUP_H

#include "czero/device.h"
#include "czero/tensor.h"

CZ_BEGIN_DECLS

/** One rank's handle on a process group. Not shared between ranks, also when they are threads. One
 *  thread at a time per handle starts operations; works may be waited for by any thread. */
typedef struct cz_group cz_group;

/** An operation in flight. */
typedef struct cz_work cz_work;

/** Where ranks differ in an option that they compare: CZ_ERR_MISMATCH on all of them, with the
 *  option and both values; of the call that makes the group if that is collective
 *  (cz_group_create_mpi(), cz_group_create_world()), else of every operation
 *  (cz_group_create_custom()). Sub-groups have the options of the group that they are made from. */
typedef struct cz_group_options {
    size_t size; /**< set by CZ_GROUP_OPTIONS_INIT */
    /** An operation that some rank has not joined after this time breaks the group on every rank;
     *  0: CZERO_TIMEOUT, else 600. May differ between ranks: the shortest counts. */
    double timeout_seconds;
    /** After this time a line in the log says who is awaited; 0: CZERO_WARN, else 30. May differ.
     *  */
    double warn_seconds;
    /** Large transfers are cut into segments of this size; a multiple of 64; 0: 128 KiB, less in
     *  large groups. An operation by messages may need 2 size + 1 of them as staging memory, and as
     *  many again for each of up to three more rounds under way, while all fit into 8 MiB. Equal on
     *  all ranks (compared). */
    size_t segment_bytes;
    /** 1: ranks also compare labels, and which parameters take part; 0: if CZERO_DEBUG says
     *  collectives. Equal on all ranks (compared). */
    int32_t checked;
    int32_t reserved; /**< 0 */
} cz_group_options;
#define CZ_GROUP_OPTIONS_INIT {sizeof(cz_group_options), 0, 0, 0, 0, 0}
CZ_INIT_FUNCTION(cz_group_options, CZ_GROUP_OPTIONS_INIT)

/** A group of `world_size` ranks that are threads of this process: out[r] is to be used by rank r
 *  alone. Most programs let cz_launch() do this.
 *
 *  Local: one thread makes all handles. Each is destroyed on its own, by any thread.
 *  @return CZ_ERR_ARGUMENT: world_size outside 1 … 4096, an option out of range; CZ_ERR_MEMORY. On
 *          an error no handle exists. */
CZ_API cz_status cz_group_create_threads(cz_group **out, int world_size,
                                         const cz_group_options *options);

/** The group of all processes of this program's job, on the backend of that name: "self" (this
 *  process alone) or "mpi" (MPI_COMM_WORLD). The latter loads the plugin libczero-mpi-FLAVOUR.so:
 *  of the MPI that the process has loaded, else of the one that started it; from the folder in
 *  CZERO_PLUGIN_PATH (an absolute path), else from that of this library or from where it was to be
 *  installed. With `initialise` MPI is initialised (MPI_THREAD_MULTIPLE) if nobody has done so, and
 *  finalised at exit, see cz_launch().
 *
 *  Collective over the job.
 *  @return CZ_ERR_ARGUMENT: a NULL, no such backend, an option out of range. CZ_ERR_UNSUPPORTED:
 *          the plugin cannot be loaded. CZ_ERR_STATE: MPI is not initialised, or finalised. Others
 *          as cz_group_create_mpi() in czero/mpi.h. */
CZ_API cz_status cz_group_create_world(cz_group **out, const char *backend, bool initialise,
                                       const cz_group_options *options);

/** A group of one rank: every collective works, on its own. Local. */
static inline cz_status cz_group_create_self(cz_group **out, const cz_group_options *options)
{
    return cz_group_create_world(out, "self", false, options);
}

/** Leave the group. Local: waits for no other rank, but for up to 0.2 s: threads for the end of
 *  what all ranks have come to, the last group of MPI for what is still to be sent. Operations in
 *  flight on this handle fail with CZ_ERR_STATE; ranks that still need this one get CZ_ERR_PEER.
 *  Their buffers may be reused once it returns. Accepts NULL and *NULL. Not from inside a
 *  continuation. */
CZ_API void cz_group_destroy(cz_group **group);

CZ_API int cz_group_rank(const cz_group *group); /**< 0 … size - 1; -1 for NULL. Local. */
CZ_API int cz_group_size(const cz_group *group); /**< ranks in the group; 0 for NULL. Local. */
/** The rank, in the group that this one was made from by splits (or in this one, if by none), of
 *  group rank `rank`. -1 outside 0 … size - 1. Local. */
CZ_API int cz_group_global_rank(const cz_group *group, int rank);

/** Make sub-groups: ranks that give the same `color` become one group, ordered by `key`, equal keys
 *  by their rank in `group`.
 *
 *  Collective over `group`; the new group lives on its own, also after `group` was destroyed.
 *  @param color  0 or more; below 0: this rank joins none
 *  @param out    receives this rank's handle, NULL with a color below 0
 *  @return as a collective operation. CZ_ERR_UNSUPPORTED: the backend has no sub-groups; all ranks
 *          get it. CZ_ERR_MEMORY on some rank: all ranks get it, no group was made. */
CZ_API cz_status cz_group_split(cz_group *group, int color, int key, cz_group **out);

/** Make one sub-group of the listed ranks of `group`, in the order of the list. Collective over all
 *  of `group`, with the same list on every rank (CZ_ERR_MISMATCH otherwise); ranks outside it get
 *  NULL.
 *  @return also CZ_ERR_ARGUMENT: an empty list, a rank outside the group or twice. */
CZ_API cz_status cz_group_subset(cz_group *group, const int *ranks, int count, cz_group **out);

/** What a group is made on, and what this rank has handed to the backend to be sent since the first
 *  of these groups was made: a group, the one that it was made from by splits and all others made
 *  from that one count together. What an operation has sent is in it once its work has ended.
 *
 *  Sums have one order on a group, the one of all such groups, and so the same bits, unless the
 *  backend reduces by itself (its own all_reduce or reduce_scatter). Collectives that a backend
 *  does itself are faster because ranks do not agree on them first, except in checked mode and on
 *  the first one of a group. Otherwise, what the collective operations below promise does not hold
 *  for these:
 *  - A rank whose own check fails, or that has no memory, gets its status and breaks the group: the
 *    others get CZ_ERR_PEER with its sentence. Also if all ranks make the same mistake.
 *  - Ranks that call different operations or give different counts, types, reductions or roots are
 *    not found out: at best they run into the timeout, at worst buffers are overwritten beyond
 *    their end.
 *  Operations that the backend does not do, those of the parts above (cz_zero, …) and the making of
 *  sub-groups agree as everywhere. */
typedef struct cz_group_info {
    size_t size;           /**< set by CZ_GROUP_INFO_INIT */
    const char *backend;   /**< "self", "threads", …; as long as the group */
    int32_t ordered_sums;  /**< 1: sums have one order; 0: the backend's */
    int32_t reserved;      /**< 0 */
    uint64_t sent_bytes;   /**< to other ranks */
    uint64_t header_bytes; /**< of these: what ranks agree by before an operation's data moves */
    uint64_t messages;
    /** Collectives that the backend made itself: what these send only it knows; it is in no other
     *  number. */
    uint64_t native;
    /** This rank's number among the ranks of the group that are on its machine, in their order, and
     *  how many these are. Threads of one process are together, MPI processes where the name of the
     *  host is the same (CZERO_MPI_NODE, docs/environment.md), others where the backend says so;
     *  where nothing is known each is alone. */
    int32_t local_rank;
    int32_t local_size;
} cz_group_info;
#define CZ_GROUP_INFO_INIT {sizeof(cz_group_info), NULL, 0, 0, 0, 0, 0, 0, 0, 0}
CZ_INIT_FUNCTION(cz_group_info, CZ_GROUP_INFO_INIT)

/** Local; any thread. @return CZ_ERR_ARGUMENT: a NULL, or a size that was not set. */
CZ_API cz_status cz_group_get_info(const cz_group *group, cz_group_info *info);

/** Move operations of this rank on, without waiting. Needed only where there is no helper thread
 *  (an inline backend, MPI below MPI_THREAD_MULTIPLE) and the program computes for long between
 *  calls. Local; any thread that may call the backend.
 *  @return CZ_ERR_ARGUMENT: NULL. CZ_ERR_STATE: inside a continuation. */
CZ_API cz_status cz_progress(cz_group *group);

/** How to start an operation. NULL everywhere means: wait for it, no label.
 *  Inside a continuation every operation is only started, and its buffers must live on. */
typedef struct cz_operation_options {
    size_t size;       /**< set by CZ_OPERATION_OPTIONS_INIT */
    const char *label; /**< a word for messages, e.g. the tensor's name; copied (47 characters) */
    cz_work **work; /**< NULL: return when done. Else: return when started; receives a handle to be
                            destroyed with cz_work_destroy(). */
} cz_operation_options;
#define CZ_OPERATION_OPTIONS_INIT {sizeof(cz_operation_options), NULL, NULL}
CZ_INIT_FUNCTION(cz_operation_options, CZ_OPERATION_OPTIONS_INIT)

/** The options of a blocking operation with a label, and of one that is only started. */
static inline cz_operation_options cz_operation_label(const char *text)
{
    cz_operation_options options = CZ_OPERATION_OPTIONS_INIT;
    options.label = text;
    return options;
}
static inline cz_operation_options cz_operation_start(const char *text, cz_work **work)
{
    cz_operation_options options = CZ_OPERATION_OPTIONS_INIT;
    options.label = text;
    options.work = work;
    return options;
}

/** For C: these in place, as an argument. */
#ifndef __cplusplus
#define CZ_LABEL(text) (&(cz_operation_options){sizeof(cz_operation_options), (text), NULL})
#define CZ_START(text, work) (&(cz_operation_options){sizeof(cz_operation_options), (text), (work)})
#else
#define CZ_LABEL(text) CZ_C_ONLY("CZ_LABEL is for C: give a variable, made by cz_operation_label()")
#define CZ_START(text, work)                                                                       \
    CZ_C_ONLY("CZ_START is for C: give a variable, made by cz_operation_start()")
#endif

/** The collective operations. All of them:
 *
 *  Collective: every rank of the group, in the same order on every rank.
 *  Thread-safety: one call at a time per handle.
 *  Buffers: contiguous CPU memory of the caller; an operation that was started owns them until its
 *  work is done. Counts are elements and equal on all ranks; 0 is allowed.
 *  @return CZ_OK. Seen by all ranks, no data moved, group usable: CZ_ERR_ARGUMENT (some rank gave a
 *          NULL buffer, a count below 0, an unknown type, a root outside the group, input and
 *          output that share memory where they must not), CZ_ERR_MISMATCH (ranks called different
 *          operations or gave different counts, types, reductions, roots),
 *          CZ_ERR_UNSUPPORTED (a reduction that does not exist for the type), CZ_ERR_MEMORY. Group
 *          broken, buffers undefined: CZ_ERR_PEER, CZ_ERR_TIMEOUT. Local: CZ_ERR_ARGUMENT (the
 *          group itself is NULL; peers run into their timeout), CZ_ERR_STATE (inside a
 *          continuation of another group). For an operation that was started, they come from
 *          cz_work_wait(), except the local ones and those of a group that is broken already: then
 *          nothing was started and *work is NULL. So it is on a rank without memory for an
 *          operation, whose call returns CZ_ERR_MEMORY when all ranks have come to know it; a
 *          continuation cannot wait for that, so that a second such operation breaks the group.
 */

/** Every rank's `buffer` becomes that of group rank `root`. */
CZ_API cz_status cz_broadcast(cz_group *group, void *buffer, int64_t count, cz_dtype dtype,
                              int root, const cz_operation_options *options);

/** Every rank's `buffer` becomes the reduction of all. The same bits on every rank, and on every
 *  backend that leaves the sum to the library (cz_group_info). */
CZ_API cz_status cz_all_reduce(cz_group *group, void *buffer, int64_t count, cz_dtype dtype,
                               cz_reduction reduction, const cz_operation_options *options);

/** `output` (count elements) becomes block `rank` of the reduction of `input` (size * count).
 *  `output` may be block `rank` of `input`; otherwise they do not overlap. */
CZ_API cz_status cz_reduce_scatter(cz_group *group, const void *input, void *output, int64_t count,
                                   cz_dtype dtype, cz_reduction reduction,
                                   const cz_operation_options *options);

/** Block r of `output` (size * count elements) becomes rank r's `input` (count). `input` may be
 *  block `rank` of `output`; otherwise they do not overlap. */
CZ_API cz_status cz_all_gather(cz_group *group, const void *input, void *output, int64_t count,
                               cz_dtype dtype, const cz_operation_options *options);

/** Group rank `root` gets the reduction of all ranks' `input` in `output`; the others' `output` is
 *  not looked at. `output` may be `input`; otherwise they do not overlap. */
CZ_API cz_status cz_reduce(cz_group *group, const void *input, void *output, int64_t count,
                           cz_dtype dtype, cz_reduction reduction, int root,
                           const cz_operation_options *options);

/** Block r of `output` (size * count elements) on group rank `root` becomes rank r's `input`
 *  (count); the others' `output` is not looked at. On the root `input` may be its block of
 *  `output`. */
CZ_API cz_status cz_gather(cz_group *group, const void *input, void *output, int64_t count,
                           cz_dtype dtype, int root, const cz_operation_options *options);

/** Every rank's `output` (count elements) becomes block `rank` of the root's `input` (size *
 *  count); the others' `input` is not looked at. On the root `output` may be its block of `input`.
 *  */
CZ_API cz_status cz_scatter(cz_group *group, const void *input, void *output, int64_t count,
                            cz_dtype dtype, int root, const cz_operation_options *options);

/** Block r of `output` becomes block `rank` of rank r's `input`; both have size * count elements
 *  and do not overlap. */
CZ_API cz_status cz_all_to_all(cz_group *group, const void *input, void *output, int64_t count,
                               cz_dtype dtype, const cz_operation_options *options);

/** With a count for each rank. `counts` has size entries, equal on all ranks (CZ_ERR_MISMATCH
 *  otherwise), and is in use until the work is done. A rank's part has counts[rank] elements; the
 *  whole is the parts one after the other in rank order. */
CZ_API cz_status cz_reduce_scatter_v(cz_group *group, const void *input, void *output,
                                     const int64_t *counts, cz_dtype dtype, cz_reduction reduction,
                                     const cz_operation_options *options);
CZ_API cz_status cz_all_gather_v(cz_group *group, const void *input, void *output,
                                 const int64_t *counts, cz_dtype dtype,
                                 const cz_operation_options *options);
CZ_API cz_status cz_gather_v(cz_group *group, const void *input, void *output,
                             const int64_t *counts, cz_dtype dtype, int root,
                             const cz_operation_options *options);
CZ_API cz_status cz_scatter_v(cz_group *group, const void *input, void *output,
                              const int64_t *counts, cz_dtype dtype, int root,
                              const cz_operation_options *options);

/** Block r of `output` becomes block `rank` of rank r's `input`, as in cz_all_to_all(), with a
 *  count for each pair. Each rank gives its own lists of size entries, in use until the work is
 *  done: block r of `input` has send_counts[r] elements, block r of `output` receive_counts[r]; the
 *  blocks are one after the other. What a rank sends to another must be what that one expects:
 *  CZ_ERR_MISMATCH otherwise, the sentence names both ranks and counts. Blocks of 0 elements cost
 *  no message. */
CZ_API cz_status cz_all_to_all_v(cz_group *group, const void *input, const int64_t *send_counts,
                                 void *output, const int64_t *receive_counts, cz_dtype dtype,
                                 const cz_operation_options *options);

/** Bytes of a length that only the root knows. Blocking.
 *  @param object, bytes  on the root: what to send (0 bytes: `object` may be NULL); else not looked
 *                 at
 *  @param out, out_bytes  receive a copy and its length, on the root too; to be given to
 *                 cz_object_free(). NULL and 0 on an error.
 *  @return as a collective operation; CZ_ERR_MEMORY is seen by all ranks. */
CZ_API cz_status cz_broadcast_object(cz_group *group, const void *object, size_t bytes, int root,
                                     void **out, size_t *out_bytes);
CZ_API void cz_object_free(void *object); /**< local; accepts NULL */

/** Returns when every rank has called it. */
CZ_API cz_status cz_barrier(cz_group *group, const cz_operation_options *options);

/** Wait until the work is done, its continuation and what that started included. May be called
 *  again, and by several threads. The waiting thread does the rank's work meanwhile.
 *
 *  Local.
 *  @return the operation's status; its sentence is copied to the calling thread. CZ_ERR_ARGUMENT:
 *          NULL. CZ_ERR_STATE: inside a continuation. */
CZ_API cz_status cz_work_wait(cz_work *work);

/** Has the work ended? Moves it on if it can without waiting. Local.
 *  @return CZ_OK and *done; once *done is true, cz_work_wait() returns at once. CZ_ERR_ARGUMENT. */
CZ_API cz_status cz_work_test(cz_work *work, bool *done);

/** Runs when an operation has ended, with its status: on a thread that waits, or on the rank's
 *  executor thread. Continuations of a group run one at a time, in the order of their operations.
 *  They may start operations on the same group with options (label only: such operations belong to
 *  this work, which is done when they are) but not wait. What it returns becomes the work's status
 *  if the operation itself succeeded. */
typedef cz_status (*cz_continuation)(cz_status status, void *context);

/** Attach a continuation. At most one per work, before the work is done or after. Local.
 *  @return CZ_ERR_ARGUMENT: a NULL. CZ_ERR_STATE: there is one already, or the work was waited for.
 *  */
CZ_API cz_status cz_work_then(cz_work *work, cz_continuation continuation, void *context);

/** Let go of the handle; an operation in flight goes on and its buffers stay in use. Local; accepts
 *  NULL and *NULL; any thread, once. */
CZ_API void cz_work_destroy(cz_work **work);

typedef struct cz_replicas_options {
    size_t size; /**< set by CZ_REPLICAS_OPTIONS_INIT */
    /** 1: buffers may differ, as running means do that nobody brings together; 0: they are compared
     *  too. */
    int32_t parameters_only;
    int32_t reserved; /**< 0 */
} cz_replicas_options;
#define CZ_REPLICAS_OPTIONS_INIT {sizeof(cz_replicas_options), 0, 0}
CZ_INIT_FUNCTION(cz_replicas_options, CZ_REPLICAS_OPTIONS_INIT)

/** Do all ranks hold the same bits in every parameter and buffer of a model? No optimizer is
 *  needed: for models that start from a seed or a file on each rank, for data-parallel training and
 *  averaging. For now and then: each rank reads all its tensors once and sends 16 bytes for each.
 *
 *  Collective. @param model  between passes and steps: nothing writes to it during the call
 *  @param options  alike on all ranks; NULL: the defaults
 *  @return CZ_OK. Seen by all ranks, nothing was changed, group usable: CZ_ERR_MISMATCH (the
 *          sentence names the first tensor that differs, a rank that does not hold what most do,
 *          and how many differ; or in what models or options differ), CZ_ERR_ARGUMENT (`model` is
 *          NULL, an option), CZ_ERR_UNSUPPORTED (sparse tensors, another device's memory),
 *          CZ_ERR_MEMORY. */
CZ_API cz_status cz_model_check_replicas(cz_group *group, const cz_model *model,
                                         const cz_replicas_options *options);

/** How many threads a rank may run so that all ranks of its machine together have a core for each:
 *
 *      CZ_TRY(cz_group_local_cores(world, &cores));
 *      omp_set_num_threads(cores);
 *
 *  Of each core (as the system counts them: a hardware thread) that the calling thread may use a
 *  rank has an equal part with the other ranks of the group that may use it, whether mpirun or srun
 *  have bound them to cores or not; of a quota of its control group an equal part with all ranks of
 *  the machine. Give the group of all ranks, before anything binds the thread (OMP_PROC_BIND does
 *  in the first parallel region). Ranks may have different numbers, also from one run to the next:
 *  where results depend on the number of threads see docs/parts.md.
 *
 *  Collective. @param cores  receives at least 1
 *  @return CZ_OK. CZ_ERR_ARGUMENT: `cores` is NULL; CZ_ERR_MEMORY. */
CZ_API cz_status cz_group_local_cores(cz_group *group, int *cores);

/** The main function of each rank. `world` belongs to the launcher: do not destroy it. */
typedef cz_status (*cz_rank_main)(cz_group *world, void *context);

typedef struct cz_launch_options {
    size_t size;      /**< set by CZ_LAUNCH_OPTIONS_INIT */
    int32_t ranks;    /**< 0: CZERO_RANKS, else 1 */
    int32_t reserved; /**< 0 */
    /** The groups' timeout, and how long ranks may go on after one failed; 0: CZERO_TIMEOUT, else
     *  600. */
    double timeout_seconds;
    /** 1: after a failure of an MPI job its end is the program's: the library neither finalises nor
     *  aborts MPI. */
    int32_t keep_job;
    int32_t reserved_2; /**< 0 */
} cz_launch_options;
#define CZ_LAUNCH_OPTIONS_INIT {sizeof(cz_launch_options), 0, 0, 0, 0, 0}
CZ_INIT_FUNCTION(cz_launch_options, CZ_LAUNCH_OPTIONS_INIT)

/** Run `main_function` once per rank, each on a thread of its own, and wait for all. In a process
 *  that mpirun (or mpiexec) started, unless CZERO_BACKEND is "threads": run it once, on the calling
 *  thread, as this process's rank of the job; `ranks` is then what the job has, and MPI is
 *  initialised, and finalised when the process ends, if the program has not initialised it. So it
 *  is with tasks of Slurm's srun, if MPI can join them (PMIx, or PMI-2 and MPICH). It may be called
 *  any number of times.
 *
 *  **The end of an MPI job** that the library has initialised never waits for a rank that is
 *  stopped, dead or cut off. A failure is also a line in the log. After CZ_ERR_TIMEOUT or
 *  CZ_ERR_PEER the end of the process ends the whole job (MPI_Abort, after up to 2 s in which other
 *  ranks may say why they fail), see `keep_job`. Otherwise it waits for the other ranks as long as
 *  they answer, which they do while they compute too, and finalises MPI with them; where one has
 *  not answered for `timeout_seconds` (5 at least), it says so and ends the job. Below
 *  MPI_THREAD_MULTIPLE a rank answers only inside calls of the library, so there it has to come to
 *  its end as soon as that (10 s at least).
 *
 *  Rank threads have the signal mask of the caller: what one of them is to wait for with sigwait()
 *  is to be blocked before. Where one is cancelled or calls pthread_exit() in the program's code,
 *  its rank has failed (CZ_ERR_STATE).
 *
 *  Local. @param context  given to every rank (shared: ranks are threads of one process)
 *  @return CZ_OK if every rank returned CZ_OK. Otherwise the status of the rank that failed first
 *          (those that only heard of it do not count), the sentence naming the rank.
 *          CZ_ERR_TIMEOUT: ranks were still in the program's own code `timeout_seconds` after
 *          another had failed; their threads and memory are left alone. CZ_ERR_ARGUMENT,
 *          CZ_ERR_MEMORY: nothing ran. CZ_ERR_STATE: nothing ran either, because processes were
 *          started together that cannot find each other; the sentence says how to start them.
 */
CZ_API cz_status cz_launch(cz_rank_main main_function, void *context,
                           const cz_launch_options *options);

CZ_END_DECLS
#endif
