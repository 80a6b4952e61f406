/* SPDX-License-Identifier: MIT */
/* Who started this process: each starter leaves variables in the environment. Several processes of
 * which each takes itself to be alone would train each on its own, and nobody would notice. */
#include "group/starter.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "base/status.h"

static bool is_set(const char *variable)
{
    const char *value = cz__environment_text(variable);
    return value && *value;
}

static int number_in(const char *variable)
{
    const char *value = cz__environment_text(variable);
    return value ? atoi(value) : 0;
}

/* Of the step that srun made, 0: it is not one. The script of a batch job has SLURM_NTASKS too, but
 * is not in a step; PMIx, where it is, is srun's. */
static int slurm_tasks(void)
{
    const int tasks = number_in("SLURM_STEP_NUM_TASKS");
    if (!is_set("SLURM_PROCID") || tasks > 0)
        return is_set("SLURM_PROCID") ? tasks : 0;
    return is_set("SLURM_STEP_ID") || is_set("PMIX_RANK") ? number_in("SLURM_NTASKS") : 0;
}

cz__starter cz__starter_find(int *processes)
{
    const int tasks = slurm_tasks();
    *processes = number_in("OMPI_COMM_WORLD_SIZE");
    if (is_set("OMPI_COMM_WORLD_SIZE"))
        return CZ__STARTER_OPENMPI;
    *processes = tasks;
    if (is_set("PMIX_RANK"))
        return tasks == 1 ? CZ__STARTER_NONE : CZ__STARTER_PMIX;
    if (is_set("PMI_SIZE") && is_set("PMI_RANK")) {
        *processes = number_in("PMI_SIZE");
        return tasks == 1 ? CZ__STARTER_NONE : CZ__STARTER_PMI;
    }
    if (tasks > 1)
        return CZ__STARTER_SLURM;
    *processes = number_in("WORLD_SIZE");
    return *processes > 1 && is_set("RANK") && is_set("MASTER_ADDR") && is_set("MASTER_PORT")
               ? CZ__STARTER_TORCH
               : CZ__STARTER_NONE;
}

#define HOW                                                                                        \
    "start it with srun --mpi=pmix (srun --mpi=list says whether there is that), or with mpirun; " \
    "CZERO_BACKEND=threads makes each process a training of its own"

/* PMIx says how its server is reached. Without that MPI_Init ends the process, and says less. */
static bool has_pmix_server(void)
{
    static const char prefix[] = "PMIX_SERVER_URI";
    for (char **variable = environ; variable && *variable; variable++)
        if (strncmp(*variable, prefix, sizeof prefix - 1) == 0)
            return true;
    return false;
}

static cz_status check_starter(cz__starter starter, int processes)
{
    if (starter == CZ__STARTER_SLURM)
        return cz__fail(CZ_ERR_STATE,
                        "launch: srun started this as one of %d tasks and without PMI, so MPI "
                        "cannot find the others: " HOW,
                        processes);
    if (starter == CZ__STARTER_TORCH)
        return cz__fail(CZ_ERR_STATE,
                        "launch: RANK, WORLD_SIZE and MASTER_ADDR say that this is one of %d "
                        "processes, as torchrun sets them, and MPI cannot find the others by "
                        "these: " HOW,
                        processes);
    if (starter == CZ__STARTER_PMIX && !has_pmix_server())
        return cz__fail(CZ_ERR_STATE,
                        "launch: PMIX_RANK is set, as one of %d tasks of a job, but there is no "
                        "server of PMIx (PMIX_SERVER_URI…) through which to find the others: " HOW,
                        processes);
    return CZ_OK;
}

cz_status cz__starter_choose(bool *job)
{
    int processes;
    const char *backend = cz__environment_text("CZERO_BACKEND");
    const cz__starter starter = cz__starter_find(&processes);
    const bool is_chosen = backend && *backend;
    if (is_chosen && strcmp(backend, "threads") != 0 && strcmp(backend, "mpi") != 0)
        return cz__fail(CZ_ERR_ARGUMENT, "launch: CZERO_BACKEND is '%s', allowed is threads or mpi",
                        backend);
    *job = is_chosen ? strcmp(backend, "mpi") == 0 : starter != CZ__STARTER_NONE;
    return *job ? check_starter(starter, processes) : CZ_OK;
}

cz_status cz__starter_check_size(int size)
{
    static const char *const names[] = {[CZ__STARTER_NONE] = "nobody",
                                        [CZ__STARTER_OPENMPI] = "Open MPI's mpirun",
                                        [CZ__STARTER_PMI] = "a starter with PMI",
                                        [CZ__STARTER_PMIX] = "a starter with PMIx",
                                        [CZ__STARTER_SLURM] = "srun",
                                        [CZ__STARTER_TORCH] = "torchrun"};
    int processes;
    const cz__starter starter = cz__starter_find(&processes);
    if (size > 1 || processes <= 1)
        return CZ_OK;
    return cz__fail(CZ_ERR_STATE,
                    "launch: %s started %d processes, but MPI takes this one to be alone: the MPI "
                    "that it has loaded does not understand that starter; " HOW,
                    names[starter], processes);
}
