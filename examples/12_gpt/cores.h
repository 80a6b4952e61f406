/* SPDX-License-Identifier: MIT */
/* How many cores a rank has. */
#ifndef CORES_H
#define CORES_H

#include "czero/czero.h"

/* The cores on which this rank may run, divided by the ranks that may run on the same ones; at
 * least one. Collective. */
cz_status cores_of_rank(cz_group *world, int *cores);

#endif
