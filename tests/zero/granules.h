/* SPDX-License-Identifier: MIT */
/* Rules that are cut at granules, and parameters at whose sizes that goes wrong. */
#ifndef CZ_TEST_GRANULES_H
#define CZ_TEST_GRANULES_H

#include "czero/optim.h"

/* A copy of the rule with this granule; `room` is kept as long as the rule is used. */
static inline const cz_rule *with_granule(cz_rule *room, const cz_rule *rule, int64_t granule)
{
    *room = *rule;
    room->granule = granule;
    return room;
}

enum { GRANULE_PARAMS = 9 };
static const int64_t granule_sizes[GRANULE_PARAMS] = {40, 0, 257, 1, 768, 255, 1021, 256, 96};
/* Those that are matrices have rows of 3, 192 and 48. */
static const int64_t granule_rows[GRANULE_PARAMS] = {0, 0, 0, 0, 4, 85, 0, 0, 2};

static const int64_t granules[] = {1, 256, CZ_GRANULE_ROW, CZ_GRANULE_WHOLE, 7};
enum { GRANULES = sizeof granules / sizeof *granules };

/* In groups of their own: as the rule says, blocks, rows, whole ones. */
static const int64_t granule_some[] = {6, 0}, granule_blocks[] = {2, 3, 7},
                     granule_matrices[] = {8, 4, 5}, granule_whole[] = {1};
static const cz_param_group granule_groups[] = {
    {.size = sizeof(cz_param_group), .params = granule_some, .param_count = 2},
    {.size = sizeof(cz_param_group), .params = granule_blocks, .param_count = 3, .granule = 256},
    {.size = sizeof(cz_param_group),
     .params = granule_matrices,
     .param_count = 3,
     .granule = CZ_GRANULE_ROW},
    {.size = sizeof(cz_param_group),
     .params = granule_whole,
     .param_count = 1,
     .granule = CZ_GRANULE_WHOLE}};
enum { GRANULE_GROUPS = sizeof granule_groups / sizeof *granule_groups };

#endif
