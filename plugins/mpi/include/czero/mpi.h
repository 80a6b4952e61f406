/* SPDX-License-Identifier: MIT */
/** @file mpi.h Process groups on MPI: link czero::mpi, in CMake find_package(czero COMPONENTS mpi),
 *  and give it a communicator.
 *
 *  MPI only carries bytes: all adding is the library's, so results are the bits of every other
 *  backend. The plugin uses one communicator of its own for each group made here and for all
 *  sub-groups of that.
 *
 *  **Threads.** At MPI_THREAD_MULTIPLE one thread for all groups of the process, the carrier, calls
 *  MPI while groups exist, and asleep or awake it needs next to no time while nothing is to be
 *  done. Below that level there is no such thread: messages move while the program is inside a call
 *  of the library, such as cz_work_wait() or cz_progress(), with the same results; a line in the
 *  log says so, once per process. At MPI_THREAD_SERIALIZED a program that makes no MPI calls of its
 *  own while groups exist may declare that and gets the carrier. At MPI_THREAD_FUNNELED and below,
 *  only the main thread may use the groups. At MPI_THREAD_SINGLE, which plain MPI_Init() may mean,
 *  the library has no thread at all in the process, also none for kernels, whatever an optimizer's
 *  options say: MPI_Init_thread() with MPI_THREAD_FUNNELED allows them. All threads of the plugin
 *  and of the library block signals, which are the program's. In a child of fork() groups are dead:
 *  calls return CZ_ERR_STATE, and exit() and cz_group_destroy() return at once.
 *
 *  **One machine.** Where all ranks of a group are on one, data move through memory that they
 *  share, some MiB for each rank of which only what is used takes room. It needs nothing in
 *  /dev/shm and nothing is left of it. Where it cannot be had (processes that do not see each
 *  other), messages carry everything, with the same results, and a line in the log, at info, says
 *  why. CZERO_MPI_WINDOW=0 asks for that.
 *
 *  **Several machines.** Those that have more than one rank share memory in the same way. In
 *  reductions, gathers and broadcasts a machine then sends one partial sum for each subtree of the
 *  tree of sums that it has all of, and gets one copy of what goes to all; with the same bits.
 *  Ranks in blocks, one after the other on each machine, save most. Machines are told apart by
 *  their names (CZERO_MPI_NODE instead of the host's).
 *
 *  **The end.** MPI is initialised and finalised by the program, if not by cz_launch(). After
 *  CZ_ERR_TIMEOUT or CZ_ERR_PEER a rank may be stopped or dead, and MPI_Finalize, or any other
 *  collective call of MPI, then waits for it for ever: call MPI_Abort, or set `abort_on_break`. A
 *  group that is still there when MPI_Finalize is called is broken from then on, on all ranks; it
 *  can be destroyed afterwards. MPICH may abort in that case: destroy groups first.
 *
 *  **Limits** follow from MPI_TAG_UB (31 bits in Open MPI, 28 in MPICH). A group and its sub-groups
 *  are at most 1024 at once in Open MPI, 128 in MPICH. Messages of an operation that is 4096 or
 *  more ahead of its group's oldest one in flight wait until that has ended; where continuations
 *  start operations, 512 or more ahead, or 256 or more of one operation. */
#ifndef CZERO_MPI_H
#define CZERO_MPI_H

/* The C++ bindings that MPI 3 took away need a library of their own. A program that wants them
 * includes mpi.h first. */
#ifdef __cplusplus
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#endif

#include <mpi.h>

#include "czero/group.h"

CZ_BEGIN_DECLS

typedef struct cz_mpi_options {
    size_t size; /**< sizeof(cz_mpi_options) where the caller was compiled */
    /** not 0: at MPI_THREAD_SERIALIZED the program makes no MPI call while a group exists, but for
     *  cz_group_create_mpi() and MPI_Finalize; so a carrier may be used. The same for all groups
     *  that exist at once. */
    int serialized_is_ours;
    int abort_on_break; /**< not 0: a fifth of a second after the group broke, end the whole job
                                 (MPI_Abort of MPI_COMM_WORLD) */
} cz_mpi_options;
#define CZ_MPI_OPTIONS_INIT {sizeof(cz_mpi_options), 0, 0}
CZ_INIT_FUNCTION(cz_mpi_options, CZ_MPI_OPTIONS_INIT)

/** A group of the ranks of a communicator, with its ranks.
 *
 *  Collective over `comm`, which is duplicated (without blocking other groups meanwhile) and not
 *  used later. Thread-safety: as MPI_Comm_idup() on `comm`, at the level that MPI was initialised
 *  with.
 *  @param mpi, options  NULL for defaults
 *  @return CZ_ERR_ARGUMENT: a NULL, MPI_COMM_NULL, an intercommunicator, an option out of range.
 *          CZ_ERR_STATE: MPI is not initialised, or finalised already; not on the main thread below
 *          MPI_THREAD_SERIALIZED; groups with another serialized_is_ours exist. CZ_ERR_IO: MPI
 *          failed. CZ_ERR_MEMORY. CZ_ERR_TIMEOUT: not all ranks called it within the group's
 *          timeout. All of them local: the other ranks wait for this one, or get CZ_ERR_PEER. Seen
 *          by all ranks: CZ_ERR_MISMATCH (options that must be equal, see cz_group_options). */
CZ_API cz_status cz_group_create_mpi(cz_group **out, MPI_Comm comm, const cz_mpi_options *mpi,
                                     const cz_group_options *options);

/** The same for a communicator as Fortran has it: an INTEGER of the module mpi or of mpif.h, or the
 *  MPI_VAL of a type(MPI_Comm) of mpi_f08. Collective, thread-safety, parameters and errors as
 *  cz_group_create_mpi(); CZ_ERR_ARGUMENT also where Open MPI knows no communicator of that number
 *  (MPICH may end the program). The module czero_mpi (docs/fortran.md) calls it. */
CZ_API cz_status cz_group_create_mpi_f(cz_group **out, MPI_Fint comm, const cz_mpi_options *mpi,
                                       const cz_group_options *options);

/** Does a carrier thread move this group's messages? False: they move inside calls of the library
 *  only; or the group is none of this plugin's, or NULL. Local; any thread. */
CZ_API bool cz_mpi_carrier(const cz_group *group);

/** For dlopen(), without mpi.h: a group of MPI_COMM_WORLD.
 *
 *  Collective over all processes. @param initialise  call MPI_Init_thread(MPI_THREAD_MULTIPLE) if
 *  nobody has called it yet; then cz_plugin_mpi_finish() is to be called at the end.
 *  @return as cz_group_create_mpi() */
CZ_API cz_status cz_plugin_mpi_world(cz_group **out, bool initialise,
                                     const cz_group_options *options);

/** The end of the job, if cz_plugin_mpi_world() initialised MPI and nobody finalised it since; else
 *  nothing. Wait until all processes have come to it, then MPI_Finalize. Where one has not come and
 *  has not answered for the timeout (5 s at least), or after cz_plugin_mpi_give_up(): MPI_Abort.
 *  Does nothing in a child of fork(). On the thread that initialised it; may be given to atexit();
 *  may be called again. */
CZ_API void cz_plugin_mpi_finish(void);

/** A rank does not come any more, as after CZ_ERR_TIMEOUT or CZ_ERR_PEER: cz_plugin_mpi_finish()
 *  ends the job; with `keep_job` it does nothing, and the program sees to the end of MPI. Local. */
CZ_API void cz_plugin_mpi_give_up(bool keep_job);

CZ_END_DECLS
#endif
