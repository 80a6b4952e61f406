/* SPDX-License-Identifier: MIT */
/* The mpi plugin, loaded when it is asked for by name. */
#ifndef CZ_GROUP_PLUGIN_H
#define CZ_GROUP_PLUGIN_H

#include "czero/group.h"

/* Was this process started as one of a job (by mpirun or mpiexec)? */
bool cz__plugin_in_job(void);
/* What has to happen at the end of a program that let cz_group_create_world() initialise MPI. Collective
 * over the job; more than once is allowed. */
void cz__plugin_finish(void);

#endif
