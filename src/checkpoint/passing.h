/* SPDX-License-Identifier: MIT */
/* Dictionaries whose files some ranks cannot see: those that can send them. */
#ifndef CZ_CHECKPOINT_PASSING_H
#define CZ_CHECKPOINT_PASSING_H

#include "checkpoint/loading.h"

/* The common one, and each rank's own. Collective; all ranks get the same. 2 MiB at most beside the dictionaries, and
 * what names and shapes take. */
cz_status cz__pass_dictionaries(cz__loading *loading);
/* Own dictionaries only: to each rank r that of saved rank wants[r], -1: none, if it does not see it itself. */
cz_status cz__pass_own(cz__loading *loading, const int32_t *wants);

#endif
