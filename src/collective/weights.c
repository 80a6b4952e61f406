/* SPDX-License-Identifier: MIT */
/* Ranks tell each other their weights. */
#include "collective/weights.h"

#include <math.h>

#include "base/status.h"

/* The product may be too large for a number. */
static double share_of(double weight, int ranks, double sum)
{
    return isfinite(weight * ranks) ? weight * ranks / sum : weight / sum * ranks;
}

cz_status cz__share_of_weight(cz_group *group, double weight, const char *part, const char *see,
                              double *share, bool *weightless)
{
    double sum = weight, extremes[] = {weight, -weight};
    CZ_TRY(cz_all_reduce(group, &sum, 1, CZ_F64, CZ_SUM, CZ_LABEL("weights")));
    CZ_TRY(cz_all_reduce(group, extremes, 2, CZ_F64, CZ_MAX, CZ_LABEL("weights")));
    if (!isfinite(sum))
        return cz__fail(CZ_ERR_ARGUMENT, "%s: the weights of all ranks sum up to %g; see %s", part,
                        sum, see);
    *weightless = sum == 0;
    *share = 1;
    if (sum == 0)
        *share = 0;
    else if (extremes[0] != -extremes[1])
        *share = share_of(weight, cz_group_size(group), sum);
    return CZ_OK;
}
