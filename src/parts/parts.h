/* SPDX-License-Identifier: MIT */
/* Parts as data-parallel models and sharded optimizers use them. */
#ifndef CZ_PARTS_PARTS_H
#define CZ_PARTS_PARTS_H

#include "czero/parts.h"
#include "collective/description.h"
#include "group/collective.h"
#include "join/join.h"

/* Can an object over this model and group use them? CZ_ERR_ARGUMENT, the sentence begins with
 * `part`. */
cz_status cz__parts_match(const cz_parts *parts, const cz_model *model, const cz_group *group,
                          const char *part);
/* May objects with parts be joined so? CZ_ERR_UNSUPPORTED: the mean is over all parts, or by their
 * weights. */
cz_status cz__parts_check_join(const cz_join *join, const char *part);
/* As option `parts` of an object: none, or which. */
void cz__describe_parts(cz__description *description, const cz_parts *parts);

/* In all; 0: NULL. */
int cz__parts_count(const cz_parts *parts);

/* For the memory of reductions: as cz__terms_longest(), with or without parts (NULL); and where
 * each rank has one leaf. */
size_t cz__parts_longest(const cz_parts *parts, size_t longest);
size_t cz__leaves_longest(const cz__leaves *leaves, size_t longest);

/* For plans: what a rank's parts take but for the sums. */
size_t cz__parts_bytes(const cz__leaves *leaves, int rank, int64_t param_count);

/* One object at a time ends their steps: a data-parallel model, whose passes add them, or a sharded
 * optimizer without one. CZ_ERR_STATE: there is one, the sentence begins with `part`. */
typedef enum cz__parts_user { CZ__PARTS_FREE, CZ__PARTS_DDP, CZ__PARTS_ZERO } cz__parts_user;
cz_status cz__parts_check_free(const cz_parts *parts, const char *part);
void cz__parts_take(cz_parts *parts, cz__parts_user user);
void cz__parts_leave(cz_parts *parts); /* what was added is forgotten */
/* An object is made over a model without its parts, if that has some: a line in the log. */
void cz__parts_say_if_left_out(const cz_parts *given, cz_model *model, const cz_group *group,
                               const char *object);
void cz__parts_hold(cz_parts *parts, bool held); /* a pass is under way, or over */

/* ---- a part ---- */

/* Take the gradient of a parameter (NULL: it has none in this part) as part of the present one. At
 * the rank's last part its terms are complete, and stay in use until the step is over. A parameter
 * once in each part. */
cz_status cz__parts_add_param(cz_parts *parts, int64_t param, void *gradient);
/* All of the present part were taken. */
void cz__parts_next(cz_parts *parts);
/* This rank has nothing to add in this step (any more). */
void cz__parts_skip(cz_parts *parts);
/* What gradients of the present part are multiplied by, in cz__parts_add_param(); 0: they are not
 * read. */
double cz__parts_share(const cz_parts *parts);

/* ---- a step ---- */

/* Could every part be added so far? Has this rank had all its parts? CZ_ERR_STATE, the sentence
 * begins with `part`. */
cz_status cz__parts_are_whole(const cz_parts *parts, const char *part);
cz_status cz__parts_are_all(const cz_parts *parts, const char *part);
/* Is it between two steps? CZ_ERR_STATE. */
cz_status cz__parts_are_none(const cz_parts *parts, const char *part);
/* Did a part of this rank have a gradient of this parameter? */
bool cz__parts_has(const cz_parts *parts, int64_t param);
/* Is the last part's gradient where it was when it was added, now that gradients are there? And in
 * checked mode: as it was? CZ_ERR_STATE. */
cz_status cz__parts_check_last(const cz_parts *parts, int64_t param, const void *gradient);
/* What it gives to reductions; NULL (also for NULL parts): each rank has one part, and gives the
 * next: its gradients as they were added; NULL of a parameter: none, or they do not count. */
const cz__terms *cz__parts_terms(const cz_parts *parts);
void *const *cz__parts_single(const cz_parts *parts);
/* Are all weights 0? Equal on all ranks. */
bool cz__parts_weightless(const cz_parts *parts);
/* It is over: the next begins. */
void cz__parts_end_step(cz_parts *parts);

#endif
