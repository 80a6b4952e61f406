/* SPDX-License-Identifier: MIT */
/* czero plan: what was asked for, and the plan for each number of ranks. */
#ifndef CZ_TOOL_PLAN_H
#define CZ_TOOL_PLAN_H

#include <stdbool.h>

#include "czero/plan.h"

enum { PLAN_WORLDS = 16 };

typedef struct planned {
    int world_size;
    cz_plan_info info;
    cz_plan_memory least, most, mean, first; /* `first`: rank 0, which has what is consolidated */
} planned;

typedef struct plan_request {
    const char *path, *svg;
    bool json, force;
    cz_plan_options options;
    int worlds[PLAN_WORLDS], world_count;
    cz_shapes *shapes;
    planned planned[PLAN_WORLDS];
    cz_plan_memory alone;
} plan_request;

int tool_plan(int argc, char **argv);

/* The words that options use. */
const char *plan_partition_word(cz_partition partition);
const char *plan_overlap_word(cz_overlap overlap);

/* What a bar, a column and a member of the JSON are made of: a number of cz_plan_memory, by its
 * words. */
typedef struct plan_line {
    const char *key, *label, *remark;
    size_t offset; /* in cz_plan_memory */
} plan_line;
/* They add up to training_bytes; NULL ends each list. */
extern const plan_line plan_training_lines[];
extern const plan_line plan_beside_lines[];
uint64_t plan_number(const cz_plan_memory *memory, const plan_line *line);

/* "1.2 GiB" */
typedef struct plan_text {
    char text[32];
} plan_text;
plan_text plan_bytes(uint64_t bytes);

void plan_print(const plan_request *request);
void plan_print_json(const plan_request *request);
bool plan_may_write_svg(const plan_request *request); /* false: it has said why */
bool plan_write_svg(const plan_request *request);     /* false: errno says why */

#endif
