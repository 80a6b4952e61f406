/* SPDX-License-Identifier: MIT */
/* The inside of an averager, for the files of this folder. */
#ifndef CZ_AVERAGING_AVERAGER_H
#define CZ_AVERAGING_AVERAGER_H

#include "czero/averaging.h"
#include "group/collective.h"
#include "collective/description.h"

typedef struct cz__level {
    int64_t period;
    int ranks;
    cz_group *group;   /* borrowed if `ranks` are all, owned otherwise; NULL: of a single rank */
    cz_shard_map *map; /* owned, as the next; NULL: of a single rank. Who adds up which elements */
    cz__reserve *transfers; /* nothing is averaged in part */
} cz__level;

struct cz_averager {
    cz_group *group; /* borrowed */
    cz__object object;
    cz_model *model; /* borrowed; frozen if `froze` */
    bool froze;
    int64_t param_count;
    cz_averager_options options;
    int64_t step;
    int64_t level_count;
    cz__level *levels; /* owned, as what follows */
    void **values;     /* per parameter: its address, */
    uint8_t *present;  /* is it averaged, */
    uint8_t *include;  /* and in the operation at hand? */
    cz__description room;
};

/* average.c: can this parameter's mean be made? CZ_ERR_UNSUPPORTED. */
cz_status cz__averager_check_param(const cz_averager *averager, int64_t param);

/* As cz_averager_average(), where this rank may have failed before: `mine`, with the thread's
 * sentence. All ranks get it if it is time; otherwise this rank alone. */
cz_status cz__averager_average(cz_averager *averager, cz_status mine, int *ranks);

#endif
