/* SPDX-License-Identifier: MIT */
/* Who started this process, and with how many others. */
#ifndef CZ_GROUP_STARTER_H
#define CZ_GROUP_STARTER_H

#include "czero/group.h"

typedef enum cz__starter {
    CZ__STARTER_NONE,    /* nobody that we know: it is alone */
    CZ__STARTER_OPENMPI, /* Open MPI's mpirun */
    CZ__STARTER_PMI,     /* MPICH's mpiexec, or Slurm's srun with PMI-2 */
    CZ__STARTER_PMIX,    /* srun with PMIx, or another starter that speaks it */
    CZ__STARTER_SLURM,   /* srun without any of these: no MPI will find the other tasks */
    CZ__STARTER_TORCH    /* torchrun, or one that sets the same variables: likewise */
} cz__starter;

/* As the environment says. *processes: how many the job has; 0: it does not say. */
cz__starter cz__starter_find(int *processes);

/* Are this process and the others that were started with it one job, in which it is one rank?
 * CZERO_BACKEND decides where it is set. CZ_ERR_ARGUMENT: it is none of its values. CZ_ERR_STATE:
 * tasks that cannot find each other, each of which would be a training of its own; the sentence
 * says what to do. */
cz_status cz__starter_choose(bool *job);

/* MPI has made a world of `size` processes: is that all of the job? CZ_ERR_STATE as above. */
cz_status cz__starter_check_size(int size);

#endif
