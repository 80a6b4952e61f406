/* SPDX-License-Identifier: MIT */
/* The local optimizer as other parts use it: over the spans of one rank, as a dictionary, inside
 * passes. */
#ifndef CZ_OPTIM_OPTIM_H
#define CZ_OPTIM_OPTIM_H

#include "czero/in_backward.h"
#include "czero/optim.h"
#include "czero/shard.h"
#include "czero/state.h"
#include "collective/description.h"

/* The first half of cz_optim_create(): check everything and build the parameter groups. It owns
 * nothing yet. Freezes the model's list only when it succeeds. */
cz_status cz__optim_create(cz_optim **out, cz_model *model, const cz_rule *rule,
                           const cz_hyper *hypers, const cz_optim_options *options);

/* The second half: own the spans of `rank` in `map` (borrowed, outlives the optimizer) and reserve
 * zeroed state for those of trainable parameters, in one arena. Once per optimizer. */
cz_status cz__optim_set_map(cz_optim *optim, const cz_shard_map *map, int rank);

/* Append a parameter group, checked like those at creation; its spans are nowhere yet. And take the
 * last one back. */
cz_status cz__optim_add_group(cz_optim *optim, const cz_param_group *group);
/* Has a rule of its own that a program gives a group state from its creation on? The group may be
 * wrong. */
bool cz__param_group_has_state(const cz_param_group *group);
void cz__optim_remove_group(cz_optim *optim);

/* What the arena of a shard has for a slot with that many bytes of elements. And what an optimizer
 * allocates beside it, with one parameter group of all parameters. */
size_t cz__slot_bytes(size_t bytes);
size_t cz__optim_bytes(const cz_rule *rule, bool averages, int64_t params, int64_t spans);

/* The model; and is the optimizer part of a sharded one, which alone may step it? */
cz_model *cz__optim_model(const cz_optim *optim);
bool cz__optim_is_part(const cz_optim *optim);

/* Has a step been made, whatever it found to update here? */
bool cz__optim_stepped(const cz_optim *optim);

/* Has it no state but what it began with: neither a step nor a load was made, whatever they found
 * here? */
bool cz__optim_is_fresh(const cz_optim *optim);

/* A fingerprint of all groups' members and hyper-parameters. What groups before the last one
 * contribute is remembered until some value changes. */
uint64_t cz__optim_groups_print(cz_optim *optim);

/* The parameters of a group, in its order. Owned by the optimizer. */
const int64_t *cz__optim_group_params(const cz_optim *optim, int64_t param_group, int64_t *count);

/* The group of a parameter, -1 if none. */
int64_t cz__optim_group_of(const cz_optim *optim, int64_t param);

/* What sharding is to know of a parameter, as its group and its rule say it. Elements of a granule
 * (1: single elements, also where it is in no group; 0: all of it), and the cost of a whole one
 * (below 0: its elements). CZ_ERR_ARGUMENT: the rule's cost is none. */
int64_t cz__optim_granule(const cz_optim *optim, int64_t param);
cz_status cz__optim_cost(const cz_optim *optim, int64_t param, double *cost);

/* How far each parameter of the model is. Of a sharded optimizer: as put together from all
 * ranks. */
typedef struct cz__progress {
    const int64_t *steps;
    const unsigned *used;  /* bit e: element slot e has been used */
    const double *scalars; /* cz__optim_scalar_count() of each */
} cz__progress;

/* This rank's own. */
cz__progress cz__optim_progress(const cz_optim *optim);

/* Is some span of this parameter here (or its step count, if it is empty)? */
bool cz__optim_holds(const cz_optim *optim, int64_t param);

/* The names of the slots that come after the rule's: of masters, of averages, with its scalar. */
#define CZ__MASTER "master_param"
#define CZ__AVERAGE "average"
#define CZ__AVERAGED "n_averaged"

/* The type of an element slot of a parameter. */
cz_dtype cz__optim_slot_dtype(const cz_optim *optim, int64_t param, int slot);

/* Is it in 8 bits? Then cz__optim_slot_dtype() is CZ_F32, for which codes stand, and there are
 * addresses only between the next two, of which the first makes f32 of all that is here
 * (CZ_ERR_MEMORY) and the second 8 bits again; or the third, which leaves them as they are. What
 * was not written to keeps its bits. Both may be called where nothing is there. */
bool cz__optim_is_packed(const cz_optim *optim, int64_t param, int slot);
cz_status cz__optim_unpack(cz_optim *optim);
void cz__optim_pack(cz_optim *optim);
void cz__optim_drop_unpacked(cz_optim *optim);

/* Is some value, gradient or state of another type than that in which kernels compute? */
bool cz__optim_is_mixed(const cz_optim *optim);

/* Has its value a master here, in use or to be? */
bool cz__optim_has_master(const cz_optim *optim, int64_t param);

/* Does its group keep averages? And does the parameter have an element slot of that name, in use or
 * to be? */
bool cz__optim_averages(const cz_optim *optim, int64_t param);
bool cz__optim_has_slot(const cz_optim *optim, int64_t param, const char *name);

/* The e-th element slot of a parameter, its rule's and then those of masters and averages, and the
 * k-th scalar slot, "step" left out, its rule's and then the count of what was averaged; the name
 * is NULL where the rule has fewer. How many there are at most. */
cz_slot_spec cz__optim_element_slot(const cz_optim *optim, int64_t param, int e);
cz_slot_spec cz__optim_scalar_slot(const cz_optim *optim, int64_t param, int k);
int cz__optim_slot_count(const cz_optim *optim);
int cz__optim_scalar_count(const cz_optim *optim);
/* The place of an element slot of that name, -1: the parameter's rule has none. */
int cz__optim_find_slot(const cz_optim *optim, int64_t param, const char *name);

/* The rule of a parameter (the optimizer's, where it is in no group), and of a group. */
const cz_rule *cz__optim_rule_of(const cz_optim *optim, int64_t param);
const cz_rule *cz__optim_group_rule(const cz_optim *optim, int64_t param_group);
/* The first of the groups' rules of a kind; NULL: none is. */
typedef enum cz__rule_kind {
    CZ__NEEDS_WHOLE_TENSORS,
    CZ__HAS_PARTIAL_SUMS,
    CZ__HAS_STATE_AT_CREATE,
    CZ__EVALUATES_ANOTHER /* than the value that it trains */
} cz__rule_kind;
const cz_rule *cz__optim_any_rule(const cz_optim *optim, cz__rule_kind kind);

/* The address of an element of an element slot, from where its span is contiguous; NULL: not here,
 * or no memory for this slot. */
void *cz__optim_slot_address(const cz_optim *optim, int64_t param, int slot, int64_t element);

/* Moving to other spans: their memory beside what is here now (`used` as all ranks together know
 * it), then the change, which cannot fail and brings the progress of what is here from now on. */
typedef struct cz__relocation cz__relocation;
cz_status cz__relocation_create(cz__relocation **out, cz_optim *optim, const cz_shard_map *map,
                                int rank, const cz__progress *progress);
/* Where an element will be; the present address if its memory stays. */
void *cz__relocation_slot_address(const cz__relocation *relocation, int64_t param, int slot,
                                  int64_t element);
void cz__relocation_commit(cz__relocation *relocation);
void cz__relocation_destroy(cz__relocation **relocation);

/* Have state for every span of a trainable parameter (parameters may have been unfrozen) before a
 * step begins. CZ_ERR_MEMORY: nothing was changed. */
cz_status cz__optim_prepare(cz_optim *optim);

/* What a step found out for its cz_step_result. */
typedef struct cz__step_outcome {
    double loss, norm;
    bool skipped;
} cz__step_outcome;

/* Of the step that has begun: is every gradient in a memory of its own, or if they are `reused`
 * where no value and no buffer is? CZ_ERR_ARGUMENT, CZ_ERR_MEMORY. What was right before is not
 * looked at again. */
cz_status cz__optim_check_gradients(cz_optim *optim, bool reused);
/* The same when it is made: whoever updates without a look at all gradients at once has them
 * `reused`. */
cz_status cz__optim_check_memory(cz_optim *optim, bool reused);

/* CZ_ERR_STATE: of so many trainable parameters none has a gradient. */
cz_status cz__step_without_gradients(const char *part, int64_t params);

/* Steps that updated this parameter; 0 if none, or none here. */
int64_t cz__optim_step_count(const cz_optim *optim, int64_t param);

/* Of the step that has begun. */
const cz_step_options *cz__optim_step_options(const cz_optim *optim);

/* What every step begins with: the closure is run, if there is one, in the floating-point
 * environment of the program, so before ours is entered, and the outcome is that of a step that has
 * found out nothing else; then options and result are right, the rule has begun, there is memory
 * for state. And what it ends with, once it has succeeded. */
cz_status cz__step_run_closure(const cz_step_options *options, cz__step_outcome *outcome);
cz_status cz__step_begin(cz_optim *optim, const cz_step_options *options,
                         const cz_step_result *result, cz_status closure);
void cz__step_end(cz_step_result *result, const cz__step_outcome *outcome);

/* From now on gradients that are given are of the type in which kernels compute, as means of 16-bit
 * ones are that nobody has rounded; false: they are of the model's types. */
void cz__optim_take_means(cz_optim *optim, bool taken);

/* Does this step need the norm? Then: the squares of what is here, settled; and with those of all
 * ranks, the norm, and the decision to skip, or what to multiply gradients by (1: leave them). */
bool cz__step_wants_norm(const cz_step_options *options);
bool cz__norm_is_wanted(const cz_optim *optim);
void cz__norm_add(const cz_optim *optim, void *const *gradients, cz_sum *sum);
double cz__norm_judge(cz_optim *optim, const cz_sum *sum, int shift, cz__step_outcome *outcome);
/* Where the sum of all ranks is beyond the range of double, or so small that bits are missing: the
 * power of two with which all have to add up what is here again, and tell the others; 0: it is
 * right. */
int cz__norm_shift(const cz_optim *optim, const cz_sum *sum);
void cz__norm_add_shifted(const cz_optim *optim, void *const *gradients, int shift, cz_sum *sum);
/* In their memory; those of another type than kernels compute in on their way into the updates of
 * this step. */
void cz__norm_scale(cz_optim *optim, void *const *gradients, double factor);

/* The loss scale of the step that has begun, for ranks to compare; cz__norm_judge() changes it. */
uint64_t cz__loss_scale_print(const cz_optim *optim, uint64_t print);
void cz__describe_loss_scale(cz__description *description, const cz_optim *optim);

/* The gradient of a parameter in the step that has begun: its address, NULL: there is none. */
void *cz__step_gradient(const cz_optim *optim, int64_t param);

/* Rules with partial sums: how many at most (0: none has any, and none of these functions is to be
 * called), and has a parameter's rule any? The first pass, with gradients as for
 * cz__optim_update(), or of one parameter; the settled sums of this rank's elements of a parameter
 * that has some, NULL: none of it is here; and where the second pass, cz__optim_update(), reads
 * those of all ranks. */
int cz__optim_sum_count(const cz_optim *optim);
bool cz__optim_has_sums(const cz_optim *optim, int64_t param);
void cz__optim_update_sums(cz_optim *optim, void *const *gradients);
void cz__optim_update_sums_param(cz_optim *optim, int64_t param, const void *gradient);
cz_sum *cz__optim_sums(const cz_optim *optim, int64_t param);
double *cz__optim_sum_values(const cz_optim *optim, int64_t param);

/* Update the local spans of trainable parameters in groups. gradients[p]: address of the whole
 * gradient of parameter p (element 0), NULL: skip p, its step count stays. Cannot fail after
 * cz__optim_prepare(). Returns the bytes that were read and written. */
uint64_t cz__optim_update(cz_optim *optim, void *const *gradients);

/* What a rule prepared for one step count. */
typedef struct cz__prepared {
    int64_t step; /* 0: nothing yet */
    unsigned flags;
    double coefficients[CZ_RULE_COEFFICIENTS];
    double weight; /* of the new value in the average; 0: it is not averaged in this step */
    uint64_t key;  /* of the parameter in this step: of its rounding by chance */
} cz__prepared;

/* The same in tiles, of an optimizer that cz__optim_takes_tiles() (rank by rank: it may differ):
 * tiles of a parameter come one after the other, in any number; the end sees to parameters without
 * elements and counts the step. The gradient is that of the tile's first element. */
typedef struct cz__tiles {
    cz_optim *optim;
    cz_dtype dtype; /* of gradients that are given; it begins as the one in which kernels compute */
    int64_t param;  /* the present one; -1: none yet */
    int64_t place;
    cz__prepared prepared; /* for it */
    double factor;         /* gradients are multiplied by it first; 1: they are not */
    /* With another factor: each parameter's element 0, where that is to be done in memory: not for
     * parameters whose gradients are of another type than kernels compute in. */
    void *const *gradients;
    cz_sum *squares; /* cz__norm_add_tile() adds to it */
} cz__tiles;
bool cz__optim_takes_tiles(const cz_optim *optim);
cz__tiles cz__optim_tiles(cz_optim *optim);
void cz__optim_update_tile(cz__tiles *tiles, int64_t param, int64_t first, int64_t count,
                           const void *gradient);
uint64_t cz__optim_end_tiles(cz__tiles *tiles, const uint8_t *present);
/* How many elements of these parameters are here. */
int64_t cz__optim_elements(const cz_optim *optim, const uint8_t *present);

/* And in tiles: cz__norm_add(), and cz__optim_update_sums(). */
void cz__norm_add_tile(cz__tiles *tiles, int64_t count, const void *gradient);
void cz__optim_begin_sum_tiles(cz__tiles *tiles, const uint8_t *present);
void cz__optim_sum_tile(cz__tiles *tiles, int64_t param, int64_t first, int64_t count,
                        const void *gradient);
void cz__optim_end_sum_tiles(cz__tiles *tiles, const uint8_t *present);

/* The same for one parameter, if something of it is here and it is trainable. */
uint64_t cz__optim_update_param(cz_optim *optim, int64_t param, const void *gradient);

/* All of a step that has begun, for one parameter of an unsharded optimizer, if it is in a group
 * and trainable. */
void cz__optim_step_param(cz_optim *optim, int64_t param, const void *gradient);

/* ---- average.c: values that are evaluated ---- */

/* With these slots in use, is something else than its value evaluated of a parameter? */
bool cz__optim_has_evaluated(const cz_optim *optim, int64_t param, unsigned used);
/* Have memory for the change, once nothing is on its way: CZ_ERR_STATE, CZ_ERR_MEMORY. Then make
 * it, here; and back, which needs nothing in advance. Or take the memory back. */
cz_status cz__optim_prepare_evaluation(cz_optim *optim);
void cz__optim_evaluate(cz_optim *optim, bool evaluated);
void cz__optim_release_kept(cz_optim *optim);
bool cz__optim_is_evaluated(const cz_optim *optim);
/* CZ_ERR_STATE: the values are not those that train. */
cz_status cz__optim_check_trained(const cz_optim *optim, const char *call);

/* ---- save.c, load.c: state dictionaries ----
 *
 * In steps that the sharded optimizer can put its own between. */

/* Everything but the elements of slots that have been used: those tensors are zeroed. */
cz_status cz__optim_dict_create(cz_state_dict **out, const cz_optim *optim,
                                const cz__progress *progress);

/* An outline: a dictionary without elements, where a slot that has been used is a text, the name of
 * its type; other slots are left out. Whoever keeps it keeps the elements elsewhere. */
cz_status cz__optim_outline_create(cz_state_dict **out, const cz_optim *optim,
                                   const cz__progress *progress);

/* The address of element 0 of a used slot in a dictionary made so. */
void *cz__optim_dict_slot(const cz_optim *optim, const cz_state_dict *dict, int64_t param,
                          int slot);

/* A dictionary that was checked against an optimizer: what loading it will change. */
typedef struct cz__load cz__load;

/* Check everything, and have the memory that it needs; the optimizer works on as before. Both are
 * borrowed until the end. `missing`: of what is sharded only CZ_MISSING_NONE. With `outline`, slots
 * may be without elements: those are undefined after the change until the caller puts them to
 * cz__optim_slot_address(). CZ_ERR_ARGUMENT, CZ_ERR_MEMORY. */
cz_status cz__load_create(cz__load **out, cz_optim *optim, const cz_state_dict *dict,
                          cz_missing_state missing, bool outline);
/* Of all that is loaded: to compare between ranks. */
uint64_t cz__load_fingerprint(const cz__load *load);
/* Make the change. Cannot fail. */
void cz__load_commit(cz__load *load);
void cz__load_destroy(cz__load **load);

/* ---- groups.c: what optimizers of several ranks have in common, as a description ---- */

/* Its name, and what decides which state there is and how it travels; its functions cannot be
 * compared. */
void cz__describe_rule(cz__description *description, const cz_rule *rule);
/* The same of those that groups have beside the optimizer's; after cz__describe_members(). */
void cz__describe_other_rules(cz__description *description, const cz_optim *optim);
/* How many parameter groups there are, and their members. */
void cz__describe_members(cz__description *description, const cz_optim *optim);
/* With the name of each one's first member: for optimizers whose models nobody else compares, which
 * are told apart by it. */
void cz__describe_named_members(cz__description *description, const cz_optim *optim);
/* All values of all groups, with the names of those that were added. */
void cz__describe_hypers(cz__description *description, const cz_optim *optim);
/* A fingerprint of what a group's state is made of (types, masters, the seed, the rule's name), and
 * one of its hyper-parameters, for ranks with the same rule; `print`: of what comes before. */
uint64_t cz__optim_types_print(const cz_optim *optim, int64_t param_group, uint64_t print);
uint64_t cz__optim_hypers_print(const cz_optim *optim, int64_t param_group, uint64_t print);

/* ---- in_backward.c: inside the backward pass, as a data-parallel model uses it ---- */

cz_model *cz__in_backward_model(const cz_in_backward *in_backward);

/* Somebody else steps it: the program may not, from now on; false: it may again. Is it so? */
void cz__in_backward_drive(cz_in_backward *in_backward, bool driven);
bool cz__in_backward_is_driven(const cz_in_backward *in_backward);
/* Do its steps have an end, which nobody who drives it makes? */
bool cz__in_backward_has_end(const cz_in_backward *in_backward);

/* As the public ones, for who drives. The gradient exists. */
cz_status cz__in_backward_begin(cz_in_backward *in_backward, const void *argument);
void cz__in_backward_update(cz_in_backward *in_backward, int64_t param, void *gradient);

/* Of rules, groups and their values: to compare between ranks, first as a number. */
uint64_t cz__in_backward_fingerprint(const cz_in_backward *in_backward);
void cz__in_backward_describe(cz__description *description, const void *in_backward);

/* As their names say; what is not there is NULL, 0 or -1. */
const cz_rule *cz__optim_rule(const cz_optim *optim);
int64_t cz__optim_group_count(const cz_optim *optim);
size_t cz__optim_state_bytes(const cz_optim *optim);
int64_t cz__optim_skip_count(const cz_optim *optim);
int64_t cz__optim_group_param_count(const cz_optim *optim, int64_t param_group);
int64_t cz__optim_group_param(const cz_optim *optim, int64_t param_group, int64_t place);
int cz__optim_hyper_count(const cz_optim *optim, int64_t param_group);

#endif
