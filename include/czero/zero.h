/* SPDX-License-Identifier: MIT */
/** @file zero.h  The sharded optimizer: every rank keeps the state of its shard only, updates it,
 *  and brings the new values to all ranks.
 *
 *      cz_zero *zero;
 *      CZ_TRY(cz_zero_create(&zero, group, model, cz_rule_adamw(), CZ_HYPERS({"lr", 1e-3}), NULL));
 *      for (…) { gradients of this rank's examples; CZ_TRY(cz_zero_step(zero, NULL, NULL)); }
 *
 *  @see Rajbhandari et al., "ZeRO", SC20, arXiv:1910.02054. */
#ifndef CZERO_ZERO_H
#define CZERO_ZERO_H

#include "czero/ddp.h"
#include "czero/group.h"
#include "czero/join.h"
#include "czero/optim.h"
#include "czero/parts.h"
#include "czero/shard.h"
#include "czero/state.h"
#include "czero/trace.h"

CZ_BEGIN_DECLS

typedef enum cz_partition {
    /** even cuts through the fixed layout: what two ranks own differs by one block of 64 bytes
     *  at most, so their state by 64 bytes for each element slot of the rule (Adam has two: 128
     *  bytes). With granules (of the rule, of a group) by one of them, and by what they leave of
     *  parameters that lie on nearly all ranks. Whole tensors whose rule knows their cost go by
     *  that: the fullest rank has 1.05 times the mean, or moving one and exchanging two no longer
     *  helps. Where nothing is cut and no cost is known: CZ_PARTITION_GREEDY */
    CZ_PARTITION_ELEMENTS = 0,
    /** whole parameters by the greedy rule, as PyTorch's ZeroRedundancyOptimizer: the largest
     *  first, each to the rank that has the fewest elements */
    CZ_PARTITION_GREEDY = 1,
    CZ_PARTITION_GIVEN = 2, /**< whole parameters, to the owners in the options */
    /** with option `ddp`: bucket b of it to rank b mod world size, what is frozen with it */
    CZ_PARTITION_BUCKETS = 3,
    /** with option `ddp`: its buckets cut between parameters into pieces, at most one for each
     *  rank and bucket, so that ranks have about as much to update (PyTorch's shard_buckets;
     *  where a bucket would need more pieces than there are ranks the last takes the rest).
     *  What is frozen gets owners by the greedy rule. */
    CZ_PARTITION_BUCKET_PIECES = 4
} cz_partition;

typedef enum cz_gradients {
    /** a step reduces to the mean of what every rank holds; where a rank has no gradient and
     *  another has one, it counts as zero */
    CZ_GRADIENTS_LOCAL = 0,
    CZ_GRADIENTS_REDUCED = 1, /**< the program reduces them; only the owner's gradient is read */
    /** as CZ_GRADIENTS_LOCAL, but to the sum, which is not divided: for programs whose gradients
     *  are divided by the size of the whole batch already. Not with options ddp and parts. */
    CZ_GRADIENTS_SUM = 2
} cz_gradients;

/** Where steps are made; see cz_zero_options. */
typedef enum cz_overlap {
    CZ_OVERLAP_NONE = 0, /**< by cz_zero_step() */
    /** during the backward pass: a bucket is updated and brought to every rank as soon as it is
     *  reduced. If a pass fails, what came before the failure is updated, on every rank alike.
     *  Not for rules with partial sums, nor clipping or skipping, which need all gradients
     *  first. */
    CZ_OVERLAP_INTERLEAVED = 1,
    /** by cz_ddp_finish(), once all buckets are reduced; one small bucket (64 KiB) and its step are
     *  one operation */
    CZ_OVERLAP_STEP = 2
} cz_overlap;

typedef struct cz_zero_options {
    size_t size; /**< set by CZ_ZERO_OPTIONS_INIT */
    cz_partition partition;
    cz_gradients gradients;
    const cz_param_group *groups; /**< copied; NULL: one group of all parameters. Parameters that no
                                       group lists are left alone. */
    int64_t group_count;
    /** CZ_PARTITION_GIVEN: a group rank per parameter of the model. -1 is allowed for frozen
     *  parameters: they get an owner by the greedy rule. Copied. */
    const int *owners;
    int64_t owner_count;
    /** 1: the values of parameters in groups move into buckets that the optimizer allocates, where
     *  what a rank owns is one piece of memory; they are the parameters' memory from then on, for
     *  other optimizers over the model too. A parameter is in the buckets of one optimizer at a
     *  time: CZ_ERR_STATE on all ranks. Nothing moves if they all lie in one flat block already. 0:
     *  they stay where they are. */
    int32_t parameters_as_bucket_view;
    /** With `ddp`: steps are made inside its passes, with the options of
     *  cz_zero_set_overlap(). cz_zero_step(), which then takes no options, has nothing left to
     *  do but hand out the result. */
    cz_overlap overlap;
    /** Told where a value is from now on: at creation, after shards were made anew, and when the
     *  optimizer is destroyed, which moves values back into the caller's memory. Required where
     *  something moves. */
    void (*moved)(int64_t param, void *value, void *context);
    void *moved_context;
    /** NULL, or a data-parallel model over the same model and the same ranks (compared), which
     *  outlives the optimizer: its passes reduce each gradient to its owner only, and steps take
     *  them from there (as with CZ_GRADIENTS_REDUCED). Even cuts are made bucket by bucket, so that
     *  each bucket is dealt out to all ranks; CZ_PARTITION_BUCKETS and CZ_PARTITION_BUCKET_PIECES
     *  give a bucket to one rank, or to a few. The buckets then stay as they are. One optimizer at
     *  a time; the same rank in both; all trainable parameters are in groups. Between passes only:
     *  state and shards (CZ_ERR_STATE on all ranks); new shards drop what the last pass reduced.
     *  The mean of 16-bit gradients stays with their owner as f32, unrounded, in 4 bytes for each
     *  of its elements, and the gradients stay what they are; a hook, and option all_reduce, round
     *  it into them.
     *  Without it, beside a ddp over the same model, gradients would be averaged twice: a line in
     *  the log says so. Overlap updates from the first pass on, and goes together with several
     *  groups, rates that change, added groups, dictionaries, frozen parameters and sub-groups. */
    cz_ddp *ddp;
    /** 1, with CZ_OVERLAP_INTERLEAVED: cz_ddp_finish() does not wait until values have come to this
     *  rank: they arrive during the next forward pass, which asks for each with
     *  cz_zero_wait_param(). 0: it does. */
    int32_t overlap_gather;
    int32_t threads; /**< of the local update, as in cz_optim_options; may differ between ranks */
    /** NULL, or parts over the same model and ranks, which outlive it (parts.h): a step follows
     *  when each rank has added all its parts (else CZ_ERR_STATE on all ranks), and takes the mean
     *  over parts of what was added, which stays for another try if it fails. Nobody else may use
     *  the parts (CZ_ERR_STATE). With option ddp: those of the ddp, or NULL. Not with
     *  CZ_GRADIENTS_REDUCED. */
    cz_parts *parts;
    cz_master master; /**< as in cz_optim_options, as are the next three */
    cz_dtype state_dtype;
    uint64_t seed;
    const cz_moving_average *average;
    int64_t u8_from;
} cz_zero_options;
#define CZ_ZERO_OPTIONS_INIT                                                                       \
    {                                                                                              \
        sizeof(cz_zero_options), CZ_PARTITION_ELEMENTS, CZ_GRADIENTS_LOCAL, NULL, 0, NULL, 0, 0,   \
            CZ_OVERLAP_NONE, NULL, NULL, NULL, 0, 0, NULL, CZ_MASTER_DEFAULT, (cz_dtype)0, 0,      \
            NULL, 0                                                                                \
    }
CZ_INIT_FUNCTION(cz_zero_options, CZ_ZERO_OPTIONS_INIT)

/** One rank's part of a sharded optimizer. */
typedef struct cz_zero cz_zero;

/** Create a sharded optimizer: each rank keeps the state of its own shard of the parameters.
 *
 *  All ranks give the same model, groups, rule, hyper-parameters and options; this is checked.
 *  Values are not synchronised: call cz_zero_broadcast_parameters() unless they are equal. State
 *  for the local spans of trainable parameters is reserved here, zeroed. For parameters in memory
 *  that the ranks share see "Shared parameters" in shared.h.
 *
 *  Collective: every rank of `group`. One call at a time per handle.
 *  @param group   borrowed; outlives the optimizer
 *  @param model   borrowed, as its tensors; its list of parameters is frozen from now on
 *  @param rule, hypers  as for cz_optim_create(): of groups that have no rule of their own
 *  @return CZ_OK, or with a sentence that names rank and thing:
 *          - CZ_ERR_ARGUMENT: as cz_optim_create(); a NULL; an owner out of range, an owner missing
 *            for a trainable parameter, owner_count not the number of parameters, owners without
 *            CZ_PARTITION_GIVEN, a partition by buckets without option ddp; values of which some
 *            are in shared memory and some are not, or in that of more or fewer ranks.
 *          - CZ_ERR_MISMATCH: the first difference between two ranks.
 *          - CZ_ERR_STATE: parameters_as_bucket_view, and a parameter is in another optimizer's
 *            buckets.
 *          - CZ_ERR_UNSUPPORTED: as cz_optim_create() for a rule and types;
 *            parameters_as_bucket_view would move values out of shared memory; a tensor anywhere in
 *            the model that is sparse, or not on a device of the type whose memory the group moves.
 *          - CZ_ERR_MEMORY. */
CZ_API cz_status cz_zero_create(cz_zero **out, cz_group *group, cz_model *model,
                                const cz_rule *rule, const cz_hyper *hypers,
                                const cz_zero_options *options);

/** Local, but that it waits for values which a pass has left on their way (overlap_gather); accepts
 *  NULL and *NULL; before or after the group is broken, before it is destroyed; also after
 *  cz_model_destroy(), which leaves nothing else to be done with an optimizer (values in buckets
 *  are then lost). */
CZ_API void cz_zero_destroy(cz_zero **zero);

/** Every rank's parameters and buffers become those of group rank `root`, parameters in no group
 *  and frozen ones too.
 *
 *  Collective.
 *  @return CZ_OK. CZ_ERR_ARGUMENT (a root outside the group), CZ_ERR_MISMATCH (ranks gave different
 *          roots), CZ_ERR_MEMORY. Where the group breaks values are undefined. */
CZ_API cz_status cz_zero_broadcast_parameters(cz_zero *zero, int root);

/** Do all ranks hold the same bits in every parameter and buffer of the model? For now and then:
 *  each rank reads all of them and sends 16 bytes for each. cz_zero_broadcast_parameters() from a
 *  good rank repairs what is found. Where buffers are meant to differ: cz_model_check_replicas().
 *
 *  Collective.
 *  @return CZ_OK. CZ_ERR_MISMATCH (the sentence names the first tensor that differs, a rank that
 *          does not hold what most do, and the number of steps done), CZ_ERR_MEMORY. */
CZ_API cz_status cz_zero_check_replicas(cz_zero *zero);

/** Update this rank's spans, then bring the new values into every rank's parameters.
 *
 *  Collective. With option overlap the steps are in the passes, and this call is local, takes no
 *  `options` (else CZ_ERR_ARGUMENT) and hands out the last pass's result; it need not be made.
 *  Thread-safety: one call at a time per handle; ranks may be threads of one process.
 *  @param zero     With CZ_GRADIENTS_LOCAL the owned spans of the gradients are overwritten with
 *                  the mean over ranks (CZ_GRADIENTS_SUM: the sum); the rest is left as it was, or
 *                  multiplied by this rank's share, see cz_zero_set_weight(). Of 16-bit gradients
 *                  the owned spans are left so, too: they travel in 16 bits, are added in f32, and
 *                  their mean goes to the update as f32, without being rounded. Where a step needs
 *                  all of it first (a norm, a rule with partial sums), or has threads, the owner
 *                  has memory for that, 4 bytes for each of its elements.
 *  @param options  NULL for none: closure (run on every rank, once), gradients instead of the
 *                  model's, an argument for the rule, max_norm with its norm, skip_nonfinite,
 *                  allow_no_gradients.
 *  @param result   NULL, or receives loss, norm, skipped.
 *  @post        Every rank's trainable parameters hold the same bits, whatever the backend. A
 *               parameter without a gradient (on any rank; with CZ_GRADIENTS_REDUCED: on its
 *               owners) is left as it was, its step count too.
 *  @return CZ_OK, or:
 *          - CZ_ERR_MISMATCH: ranks differ in which parameters are frozen, in a hyper-parameter, in
 *            whether they have a weight, or in max_norm, skip_nonfinite, norm; in a group in
 *            checked mode also in the value of a trained parameter: there they compare fingerprints
 *            of these before each step.
 *          - CZ_ERR_STATE: no trainable parameter of the groups has a gradient on any rank (see
 *            allow_no_gradients); with CZ_GRADIENTS_REDUCED, a parameter has a gradient on some of
 *            its owners only; with a data-parallel model, its last pass has not reduced gradients.
 *          - CZ_ERR_ARGUMENT: gradient_count is not the model's; a gradient that has moved shares
 *            memory with another one, a value or a buffer; the sum of weights is not finite.
 *          - CZ_ERR_MEMORY: state for an unfrozen parameter, a gradient that only other ranks have.
 *          - The status of the closure, or of the rule's begin_step(), on whichever rank it failed.
 *          Where the group breaks parameters are undefined. */
CZ_API cz_status cz_zero_step(cz_zero *zero, const cz_step_options *options,
                              cz_step_result *result);

/** As cz_optim_evaluate(), on all ranks: each owner changes its spans, and all ranks get them. What
 *  is put aside are spans, too, so no rank has a second copy of the model.
 *
 *  Collective; between passes.
 *  @return CZ_OK. CZ_ERR_MISMATCH (ranks differ in `evaluated`), CZ_ERR_STATE (as that; a pass is
 *          under way), CZ_ERR_MEMORY. Where the group breaks values are undefined. */
CZ_API cz_status cz_zero_evaluate(cz_zero *zero, bool evaluated);

/** What this rank's gradients count for in the mean that steps make, from the next one on: the mean
 *  is the sum of weight times gradient over the sum of weights. With the number of examples of each
 *  rank's batch as weights the mean is that over all examples, however they are dealt out, also
 *  where there are more ranks than examples. A gradient is multiplied by its rank's share (weight *
 *  ranks / sum of weights, 1 if all are equal) at the beginning of the step, in place. A rank of
 *  weight 0 takes part, its gradients become zero and are not read; if all weights are 0 the step
 *  is skipped (cz_step_result). Gradients of 16 bits are multiplied in their type: that rounds, and
 *  in f16 the product has to fit, so keep a factor of `ranks` below 65504. For CZ_GRADIENTS_LOCAL
 *  without ddp and parts, which have their own.
 *
 *  Local; between steps; on all ranks or none.
 *  @return CZ_OK. CZ_ERR_ARGUMENT: NULL, a weight below 0 or not finite. CZ_ERR_UNSUPPORTED: option
 *          ddp, see cz_ddp_set_weight(); option parts, see cz_parts_set_weights(); option gradients
 *          is another one. */
CZ_API cz_status cz_zero_set_weight(cz_zero *zero, double weight);

/** To join it with uneven inputs (join.h): steps notify, unless a pass of its ddp makes them; a
 *  rank that has joined makes the same steps (option step of the join), with the gradients that its
 *  ddp has reduced, or with none (CZ_GRADIENTS_LOCAL; CZ_GRADIENTS_SUM, for CZ_JOIN_BY_WORLD only),
 *  or with those in memory (CZ_GRADIENTS_REDUCED). With CZ_JOIN_BY_ACTIVE or CZ_JOIN_BY_WEIGHT, and
 *  CZ_GRADIENTS_LOCAL, gradients are multiplied by their share first, in place. Local.
 *  @param out  as for cz_optim_joinable()
 *  @return as that */
CZ_API cz_status cz_zero_joinable(cz_zero *zero, cz_joinable *out);

/** Change option overlap, and say with which options steps inside passes are made, from the next
 *  one on. With another overlap than before, what the last pass has reduced goes. Local; between
 *  passes; alike on all ranks, which the next pass compares.
 *  @param options  copied; NULL: none
 *  @return CZ_OK. CZ_ERR_ARGUMENT: `zero` is NULL, no such overlap, no option ddp, option
 *          overlap_gather with another one than CZ_OVERLAP_INTERLEAVED; options with
 *          CZ_OVERLAP_NONE, a closure, gradients, an option out of range. CZ_ERR_STATE: a pass is
 *          under way. CZ_ERR_UNSUPPORTED: CZ_OVERLAP_INTERLEAVED and some group's rule with partial
 *          sums, or max_norm, skip_nonfinite, norm or loss_scale. CZ_ERR_MEMORY. Nothing was
 *          changed. */
CZ_API cz_status cz_zero_set_overlap(cz_zero *zero, cz_overlap overlap,
                                     const cz_step_options *options);

/** How far an overlapped optimizer has come, in the terms of PyTorch's `_OverlapStatus`: there, two
 *  passes are lost before it begins; here every pass steps. */
typedef enum cz_overlap_status {
    CZ_OVERLAP_UNINITIALIZED = 0, /**< no pass has stepped, buckets are the first ones */
    /** no pass has stepped, buckets were made anew before */
    CZ_OVERLAP_DDP_HAS_REBUILT_BUCKETS = 1,
    CZ_OVERLAP_INITIALIZED = 2 /**< passes step */
} cz_overlap_status;

/** With option overlap_gather: wait until the value of a parameter has come from its owners; the
 *  forward pass calls it before it reads the value, in any order. What is not asked for is waited
 *  for by the first cz_ddp_mark_ready() of the next pass, and by all calls on the optimizer that
 *  need it. Without the option: nothing. Local; one call at a time, not while cz_ddp_mark_ready()
 *  is called.
 *  @return CZ_OK. CZ_ERR_ARGUMENT: NULL, no such parameter. CZ_ERR_STATE: in checked mode, shared
 *          values are asked for too late, see shared.h. CZ_ERR_PEER, CZ_ERR_TIMEOUT: the
 *          group is broken, the value is undefined; the next pass fails on all ranks. */
CZ_API cz_status cz_zero_wait_param(cz_zero *zero, int64_t param);

/** Append a parameter group of parameters that are in none yet, with values for the new group as at
 *  creation, and make the shards anew. With the greedy rule, given owners and whole buckets no
 *  parameter changes its owner (new ones are dealt out greedily, or go with their bucket); even
 *  cuts and pieces of buckets are made afresh, and state moves with its elements. An addition costs
 *  as much as a look at all parameters. Before the first step or load it costs no more than a look
 *  at the new ones: shards are then made once for all additions, when they are asked for or used
 *  (even cuts and the greedy rule; without ddp, bucket views, and state from creation on).
 *
 *  Collective. @param group  copied
 *  @return CZ_OK. CZ_ERR_ARGUMENT (as for groups at creation), CZ_ERR_MISMATCH (ranks differ in the
 *          new group, or in settings as for a step), CZ_ERR_STATE (as at creation; or a pass of the
 *          data-parallel model is under way), CZ_ERR_MEMORY. Where the group breaks state is
 *          undefined. */
CZ_API cz_status cz_zero_add_param_group(cz_zero *zero, const cz_param_group *group);

/** Make the shards anew: with another partition or other owners, or even again after parameters
 *  were frozen or unfrozen. State moves with its elements: the next step has the bits that it would
 *  have had.
 *
 *  Collective. @param owners, owner_count  as in cz_zero_options; copied
 *  @return as cz_zero_add_param_group(). */
CZ_API cz_status cz_zero_reshard(cz_zero *zero, cz_partition partition, const int *owners,
                                 int64_t owner_count);

/** The local optimizer over this rank's spans. Its parameter groups are the sharded optimizer's:
 *  schedulers, rules and the program set and read hyper-parameters there, alike on every rank
 *  before the next step, which compares them; stepping it is CZ_ERR_STATE. NULL for NULL, or
 *  without memory for the shards of groups that have just been added. Local. */
CZ_API cz_optim *cz_zero_local_optim(const cz_zero *zero);

/** As cz_optim_zero_grad(), of the whole gradients of all its groups. Local. */
static inline cz_status cz_zero_zero_grad(cz_zero *zero, bool to_none)
{
    return cz_optim_zero_grad(cz_zero_local_optim(zero), to_none);
}

/** What it was made with, and how it is now. */
typedef struct cz_zero_info {
    size_t size; /**< set by CZ_ZERO_INFO_INIT */
    cz_group *group;
    cz_model *model;
    cz_ddp *ddp;             /**< option ddp; NULL: none */
    const cz_device *device; /**< where all tensors are */
    cz_partition partition;
    cz_gradients gradients;
    cz_overlap overlap;
    cz_overlap_status overlap_status;
    int64_t group_count;
    /** steps that were skipped because of a gradient that is not finite; the same on all ranks
     *  */
    int64_t skip_count;
    size_t state_bytes; /**< of optimizer state on this rank */
    /** who owns what; the optimizer's, until shards are made anew */
    const cz_shard_map *shard_map;
} cz_zero_info;
#define CZ_ZERO_INFO_INIT                                                                          \
    {                                                                                              \
        sizeof(cz_zero_info), NULL, NULL, NULL, NULL, CZ_PARTITION_ELEMENTS, CZ_GRADIENTS_LOCAL,   \
            CZ_OVERLAP_NONE, CZ_OVERLAP_UNINITIALIZED, 0, 0, 0, NULL                               \
    }
CZ_INIT_FUNCTION(cz_zero_info, CZ_ZERO_INFO_INIT)

/** Local.
 *  @return CZ_ERR_ARGUMENT: a NULL. CZ_ERR_MEMORY: for the shards of groups that have just been
 *          added. */
CZ_API cz_status cz_zero_get_info(const cz_zero *zero, cz_zero_info *info);

#define CZ_ALL_RANKS (-1)

/** Put the state of all ranks together, on group rank `to` or on every rank (CZ_ALL_RANKS): a
 *  snapshot, which later steps do not change, in the form that an unsharded optimizer has
 *  (cz_optim_state_dict()). It is streamed: beside training state and result a rank needs at most
 *  48 MiB, and to one rank each element travels once. What was consolidated before is freed first.
 *
 *  Collective.
 *  @return CZ_OK. CZ_ERR_ARGUMENT (`to` is no rank), CZ_ERR_MISMATCH (ranks differ in `to`, or in
 *          settings as for a step), CZ_ERR_MEMORY. Training state is never changed. */
CZ_API cz_status cz_zero_consolidate_state_dict(cz_zero *zero, int to);

/** Hand over what was consolidated on this rank: *out is the caller's, for cz_state_dict_destroy().
 *  Local.
 *  @return CZ_ERR_ARGUMENT: a NULL. CZ_ERR_STATE: nothing was consolidated here, or it was handed
 *          over, or a step, a load or a change of shards came after it: the sentence says which
 *          rank has it, or how many steps old it is. */
CZ_API cz_status cz_zero_state_dict(cz_zero *zero, cz_state_dict **out);

/** Take state, step counts and hyper-parameters from a dictionary: of any world size and partition,
 *  or of an unsharded optimizer. As cz_optim_load_state_dict(), on all ranks or on none.
 *
 *  Collective: every rank with an equal dictionary, of which it copies its own spans. The
 *  dictionary is borrowed and left as it is.
 *  @return CZ_OK. CZ_ERR_ARGUMENT (as cz_optim_load_state_dict()), CZ_ERR_MISMATCH (ranks have
 *          different dictionaries, in a value or an element: which), CZ_ERR_MEMORY. */
CZ_API cz_status cz_zero_load_state_dict(cz_zero *zero, const cz_state_dict *dict);

/** A number of 128 bits for all values and all state (element slots that a step has used, step
 *  counts, scalars), by names of parameters and slots: the same on any number of ranks, for every
 *  partition, backend and order, and for cz_optim_fingerprint() and cz_archive_fingerprint() of the
 *  same. It differs where a bit differs, but for chance; it is no defence against somebody who
 *  looks for two that are equal. Each rank reads its shard once. cz_fingerprint_chain() makes one
 *  number of those of all steps.
 *
 *  Collective; between passes.
 *  @return CZ_OK. CZ_ERR_ARGUMENT (a NULL), CZ_ERR_STATE (a pass is under way), CZ_ERR_MEMORY. */
CZ_API cz_status cz_zero_fingerprint(cz_zero *zero, uint64_t fingerprint[2]);

/** Has memory changed since the last cz_zero_fingerprint(), with no step between: a bit that has
 *  flipped, a program that wrote where it should not? Of values each rank looks at those that it
 *  owns; cz_zero_check_replicas() compares the others.
 *
 *  Collective; between passes.
 *  @return CZ_OK. CZ_ERR_MISMATCH (the sentence names rank, parameter, slot, and a range of
 *          elements), CZ_ERR_STATE (no fingerprint was taken, or a step, a load or a change of
 *          shards came after it; a pass is under way). */
CZ_API cz_status cz_zero_check_fingerprint(cz_zero *zero);

/** What this optimizer's steps spent at one point, since it was made. Local.
 *  @return CZ_ERR_ARGUMENT: a NULL, no such point. */
CZ_API cz_status cz_zero_trace(const cz_zero *zero, cz_trace_point point, cz_trace_totals *totals);

CZ_END_DECLS
#endif
