/* SPDX-License-Identifier: MIT */
/* What each rank's gradients count for in a mean. */
#ifndef CZ_COLLECTIVE_WEIGHTS_H
#define CZ_COLLECTIVE_WEIGHTS_H

#include "czero/group.h"

/* From this rank's weight, NaN if it has none, what its gradients are multiplied by before a mean
 * over ranks: 1 to the last bit where all weights are equal. *weightless: all of them are 0, and so
 * is the share. Collective. `part` and `see` are for the sentence: CZ_ERR_ARGUMENT, the sum is not
 * finite. CZ_ERR_MEMORY. */
cz_status cz__share_of_weight(cz_group *group, double weight, const char *part, const char *see,
                              double *share, bool *weightless);

#endif
