/* SPDX-License-Identifier: MIT */
/* The mpi plugin, loaded when it is asked for by name. */
#ifndef CZ_GROUP_PLUGIN_H
#define CZ_GROUP_PLUGIN_H

#include "czero/group.h"

/* This rank of a job whose MPI the library has initialised ended for want of another one: at its
 * exit the process ends the job, and waits for nobody; or leaves it alone, with `keep_job`. */
void cz__plugin_give_up(bool keep_job);

#endif
