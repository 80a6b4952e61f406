/* SPDX-License-Identifier: MIT */
/* The plugin's two doors: cz_group_create_mpi(), and what a program finds with dlopen(). */
#include <fenv.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "czero/mpi.h"
#include "internal.h"

/* Larger structs are none: a size that was never set is found here, not by reading that far. */
enum { OPTIONS_BYTES = 4096 };

/* As the library reads option structs: the shorter size counts, unknown bytes must be zero. */
static cz_status read_options(cz_mpi_options *ours, const cz_mpi_options *theirs)
{
    *ours = (cz_mpi_options)CZ_MPI_OPTIONS_INIT;
    if (!theirs)
        return CZ_OK;
    const size_t size = theirs->size;
    if (size < sizeof size || size > OPTIONS_BYTES)
        return cz_fail(CZ_ERR_ARGUMENT,
                       "cz_mpi_options: size is %zu, set it to sizeof(cz_mpi_options)", size);
    for (size_t i = sizeof *ours; i < size; i++)
        if (((const unsigned char *)theirs)[i] != 0)
            return cz_fail(CZ_ERR_UNSUPPORTED,
                           "cz_mpi_options: byte %zu is set, this plugin knows the first %zu only",
                           i, sizeof *ours);
    memcpy(ours, theirs, size < sizeof *ours ? size : sizeof *ours);
    return CZ_OK;
}

static cz_status check_state(void)
{
    int initialised = 0, finalised = 0;
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    if (!initialised)
        return cz_fail(CZ_ERR_STATE, "group_create_mpi: MPI is not initialised; call "
                                     "MPI_Init_thread first, best with MPI_THREAD_MULTIPLE");
    if (finalised || cz__mpi_over())
        return cz_fail(CZ_ERR_STATE, "group_create_mpi: MPI_Finalize was called already");
    if (!cz__carrier_is_of_this_process())
        return cz_fail(CZ_ERR_STATE, "group_create_mpi: this process is a child of one that has "
                                     "groups on MPI, which a child cannot use");
    return CZ_OK;
}

static cz_status check_comm(MPI_Comm comm)
{
    int inter = 0;
    char why[CZ_MPI_SENTENCE_BYTES];
    if (comm == MPI_COMM_NULL)
        return cz_fail(CZ_ERR_ARGUMENT, "group_create_mpi: comm is MPI_COMM_NULL");
    const int error = MPI_Comm_test_inter(comm, &inter);
    if (error != MPI_SUCCESS) {
        cz__mpi_error(error, why, sizeof why);
        return cz_fail(CZ_ERR_IO, "group_create_mpi: %s", why);
    }
    return inter ? cz_fail(CZ_ERR_ARGUMENT, "group_create_mpi: comm is an intercommunicator")
                 : CZ_OK;
}

/* Until the duplicate is there; other groups go on meanwhile. */
static cz_status wait_until_ready(cz__wire *wire, double timeout)
{
    const struct timespec nap = {.tv_nsec = 50000};
    const double until = cz__mpi_seconds() + timeout;
    while (atomic_load(&wire->ready) == 0) {
        if (cz__mpi_seconds() > until)
            return cz_fail(CZ_ERR_TIMEOUT, "group_create_mpi: not all ranks called it within %g s",
                           timeout);
        if (!cz__carrier_exists() && cz__mpi_enter()) {
            (void)cz__carrier_round();
            (void)cz__endpoints_changed();
            cz__mpi_leave();
        }
        nanosleep(&nap, NULL);
    }
    return atomic_load(&wire->ready) > 0
               ? CZ_OK
               : cz_fail(CZ_ERR_IO, "group_create_mpi: MPI_Comm_idup: %s", wire->why);
}

/* "0.5" is one half in every locale of the program. */
static double number_of(const char *text)
{
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const double number = plain ? strtod_l(text, NULL, plain) : strtod(text, NULL);
    if (plain)
        freelocale(plain);
    return number;
}

/* As the library's own for operations. */
static double timeout_of(const cz_group_options *options)
{
    const size_t end = offsetof(cz_group_options, timeout_seconds) + sizeof(double);
    const char *text = secure_getenv("CZERO_TIMEOUT");
    const double set = text ? number_of(text) : 0;
    if (options && options->size >= end && options->timeout_seconds > 0)
        return options->timeout_seconds;
    return set > 0 ? set : 600;
}

static void share(cz__endpoint *of)
{
    cz__share_create(of);
    atomic_store(&of->attention, true);
    cz__carrier_wake();
}

/* This rank's side of a duplicate of `comm`. */
static cz_status make_endpoint(cz__endpoint **out, MPI_Comm comm, double timeout)
{
    int rank, size;
    cz__wire *wire;
    if (!cz__mpi_enter())
        return cz__mpi_check();
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    cz_status status = cz__wire_create(&wire, comm, cz__control_listen);
    if (status == CZ_OK) /* before the wire is ready: others may be faster, and tell it something */
        status = cz__endpoint_create(out, wire, rank, size, NULL, NULL);
    cz__mpi_leave();
    CZ_TRY(status);
    cz__carrier_wake();
    status = wait_until_ready(wire, timeout);
    if (cz__mpi_enter()) {
        if (status == CZ_OK)
            share(*out);
        else
            cz__endpoint_forget(*out);
        cz__mpi_leave();
    }
    return status;
}

/* Once per process. */
static void say_that_there_is_no_carrier(void)
{
    static atomic_bool said;
    int level;
    if (atomic_exchange(&said, true))
        return;
    MPI_Query_thread(&level);
    cz_log(CZ_LOG_WARN,
           "mpi: no carrier thread, because MPI's thread level is %s%s: messages move only while "
           "the program is inside a call of the library, such as cz_work_wait() or cz_progress(), "
           "and not while it computes%s. MPI_Init_thread() with MPI_THREAD_MULTIPLE cures that",
           cz__mpi_level_name(level),
           level == MPI_THREAD_SERIALIZED ? " and serialized_is_ours is not set" : "",
           level == MPI_THREAD_SINGLE ? "; nor are there threads for updates" : "");
}

/* So many processes were started together, as far as a starter has said; 1: none has. */
static int count_started(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    int most = 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = secure_getenv(names[i]);
        const int count = text ? atoi(text) : 0;
        most = count > most ? count : most;
    }
    return most;
}

/* Each of them would train on its own, and nobody would notice. Once per process. */
static void say_if_alone(void)
{
    static atomic_bool said;
    int size = 0;
    const int started = count_started();
    if (started < 2 || MPI_Comm_size(MPI_COMM_WORLD, &size) != MPI_SUCCESS || size != 1 ||
        atomic_exchange(&said, true))
        return;
    cz_log(CZ_LOG_WARN,
           "mpi: %d processes were started together, but MPI takes this one to be alone: that are "
           "%d trainings, and not one. The program's MPI does not understand what started it: take "
           "the mpirun of that MPI, or srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH)",
           started, started);
}

static cz_status create_group(cz_group **out, MPI_Comm comm, const cz_mpi_options *mpi,
                              const cz_group_options *options, bool is_world)
{
    cz_mpi_options read;
    cz__endpoint *endpoint;
    if (!out)
        return cz_fail(CZ_ERR_ARGUMENT, "group_create_mpi: out is NULL");
    *out = NULL;
    CZ_TRY(read_options(&read, mpi));
    CZ_TRY(check_state());
    CZ_TRY(check_comm(comm));
    CZ_TRY(cz__carrier_acquire(read.serialized_is_ours != 0));
    if (!cz__carrier_exists())
        say_that_there_is_no_carrier();
    say_if_alone();
    const cz_status status = make_endpoint(&endpoint, comm, timeout_of(options));
    if (status == CZ_OK && is_world)
        cz__job_watch_end(endpoint);
    if (status != CZ_OK) {
        cz__carrier_release();
        return status;
    }
    endpoint->abort_on_break = read.abort_on_break != 0;
    const cz_backend *backend = &cz__backend_mpi_inline;
    if (cz__carrier_exists())
        backend = &cz__backend_mpi_carrier;
    else if (cz__carrier_is_forbidden())
        backend = &cz__backend_mpi_single;
    CZ_TRY(cz_group_create_custom(out, endpoint->rank, endpoint->size, backend, endpoint, options));
    const cz_status agreed = cz_barrier(*out, CZ_LABEL("group_create_mpi")); /* on the options */
    if (agreed != CZ_OK)
        cz_group_destroy(out);
    return agreed;
}

/* As the library's own calls: in a floating-point environment without traps, and the program's is
 * left as it was. */
static cz_status create(cz_group **out, MPI_Comm comm, const cz_mpi_options *mpi,
                        const cz_group_options *options, bool is_world)
{
    fenv_t callers;
    fegetenv(&callers);
    fesetenv(FE_DFL_ENV);
    const cz_status status = create_group(out, comm, mpi, options, is_world);
    fesetenv(&callers);
    return status;
}

cz_status cz_group_create_mpi(cz_group **out, MPI_Comm comm, const cz_mpi_options *mpi,
                              const cz_group_options *options)
{
    return create(out, comm, mpi, options, false);
}

cz_status cz_group_create_mpi_f(cz_group **out, MPI_Fint comm, const cz_mpi_options *mpi,
                                const cz_group_options *options)
{
    if (out)
        *out = NULL;
    CZ_TRY(check_state()); /* before MPI_Init numbers mean nothing, and asking ends the job */
    MPI_Comm here = MPI_Comm_f2c(comm);
#ifdef OPEN_MPI /* which has pointers, and none for a number that it does not know */
    if (!here)
        return cz_fail(CZ_ERR_ARGUMENT, "group_create_mpi: comm is %d, which is no communicator",
                       (int)comm);
#endif
    return create(out, here, mpi, options, false);
}

bool cz_mpi_carrier(const cz_group *group)
{
    cz_group_info info = CZ_GROUP_INFO_INIT;
    return group && cz_group_get_info(group, &info) == CZ_OK && strcmp(info.backend, "mpi") == 0 &&
           cz__carrier_exists();
}

/* ---- for dlopen() ---- */

cz_status cz_plugin_mpi_world(cz_group **out, bool initialise, const cz_group_options *options)
{
    int initialised = 0;
    MPI_Initialized(&initialised);
    if (initialise && !initialised)
        CZ_TRY(cz__job_begin(timeout_of(options)));
    const cz_status status = create(out, MPI_COMM_WORLD, NULL, options, true);
    if (status == CZ_ERR_TIMEOUT) /* some rank does not come: it will not come to the end either */
        cz_plugin_mpi_give_up(false);
    return status;
}
