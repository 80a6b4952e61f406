/* SPDX-License-Identifier: MIT */
/* Making what a rank trains with: sampler, model, ddp with its hook, optimizer. */
#include "trainer.h"

#include <stdlib.h>
#include <string.h>

/* Memory in whole cache lines and, where large, whole huge pages. */
static void *block(int64_t count, cz_dtype dtype)
{
    size_t bytes = (size_t)count * cz_dtype_size(dtype);
    const size_t alignment = bytes >= (2u << 20) ? 2u << 20 : 64;
    bytes = (bytes + alignment - 1) / alignment * alignment;
    void *memory = aligned_alloc(alignment, bytes ? bytes : alignment);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

static cz_status create_sampler(trainer *t)
{
    const options *o = &t->options;
    cz_sampler_options sampler = CZ_SAMPLER_OPTIONS_INIT;
    sampler.sample_count = t->text->train_count - o->model.block_size;
    sampler.global_batch = o->batch;
    sampler.rank = t->rank;
    sampler.world_size = t->size;
    sampler.seed = o->seed;
    sampler.part_count = o->parts;
    cz_sampler_info info = CZ_SAMPLER_INFO_INIT;
    CZ_TRY(cz_sampler_create(&t->sampler, &sampler));
    CZ_TRY(cz_sampler_get_info(t->sampler, &info));
    t->local_batch = o->parts ? (o->batch + o->parts - 1) / o->parts : info.local_batch;
    return CZ_OK;
}

cz_status trainer_weigh_parts(trainer *t)
{
    const options *o = &t->options;
    for (int i = 0, part; (part = cz_parts_own(t->parts, i)) >= 0; i++)
        t->part_counts[i] = o->batch / o->parts + (part < o->batch % o->parts);
    return cz_parts_set_weights(t->parts, t->part_counts);
}

static cz_status create_parts(trainer *t)
{
    cz_parts_options parts = CZ_PARTS_OPTIONS_INIT;
    parts.count = t->options.parts;
    CZ_TRY(cz_parts_create(&t->parts, t->world, t->model, &parts));
    t->part_losses = calloc((size_t)parts.count, sizeof *t->part_losses);
    t->part_counts = calloc((size_t)parts.count, sizeof *t->part_counts);
    if (!t->part_losses || !t->part_counts)
        return cz_fail(CZ_ERR_MEMORY, "no memory for %d parts", parts.count);
    return trainer_weigh_parts(t);
}

/* The whole block as it is, each parameter with its shape. */
static cz_status add_parameters(trainer *t, const gpt_parameter *list, int count)
{
    cz_view *views = calloc((size_t)count, sizeof *views);
    if (!views)
        return cz_fail(CZ_ERR_MEMORY, "no memory for %d names", count);
    for (int p = 0; p < count; p++)
        views[p] = (cz_view){list[p].name, 0, list[p].dims, {list[p].shape[0], list[p].shape[1]}};
    const cz_status status =
        cz_model_add_views(t->model, t->values, t->gradients, t->options.dtype, views, count);
    free(views);
    return status;
}

/* Of this rank, or one block for all; then one rank sets values, and making the ddp tells the
 * others. */
static cz_status create_params(trainer *t)
{
    const cz_dtype dtype = t->options.dtype;
    if (t->options.share && t->options.unsharded)
        return cz_fail(CZ_ERR_ARGUMENT,
                       "--share goes with a sharded optimizer: with --unsharded and with hook "
                       "post_local_sgd each rank has parameters of its own");
    if (t->options.share) {
        void *values;
        const size_t bytes = (size_t)t->elements * cz_dtype_size(dtype);
        CZ_TRY(cz_shared_create(&t->shared, t->world, bytes, &values));
        t->values = values;
    } else {
        t->values = block(t->elements, dtype);
    }
    t->gradients = block(t->elements, dtype);
    t->params = dtype == CZ_F32 ? t->values : block(t->elements, CZ_F32);
    t->grads = dtype == CZ_F32 ? t->gradients : block(t->elements, CZ_F32);
    if (!t->values || !t->gradients || !t->params || !t->grads)
        return cz_fail(CZ_ERR_MEMORY, "no memory for %lld parameters", (long long)t->elements);
    if (t->shared && t->rank > 0)
        return CZ_OK;
    gpt_init(t->gpt, t->params, t->options.seed);
    return dtype == CZ_F32
               ? CZ_OK
               : cz_device_cpu()->convert(NULL, dtype, t->values, CZ_F32, t->params, t->elements);
}

cz_status trainer_take_values(trainer *t)
{
    const cz_dtype dtype = t->options.dtype;
    return dtype == CZ_F32
               ? CZ_OK
               : cz_device_cpu()->convert(NULL, CZ_F32, t->params, dtype, t->values, t->elements);
}

cz_status trainer_give_gradient(const trainer *t, int parameter)
{
    int count;
    const cz_dtype dtype = t->options.dtype;
    const gpt_parameter *p = &gpt_parameters(t->gpt, &count)[parameter];
    char *to = (char *)t->gradients + (size_t)p->offset * cz_dtype_size(dtype);
    for (int64_t i = 0; t->options.loss_scale > 0 && i < p->count; i++)
        t->grads[p->offset + i] *= (float)t->loss_scale.scale;
    return dtype == CZ_F32
               ? CZ_OK
               : cz_device_cpu()->convert(NULL, dtype, to, CZ_F32, t->grads + p->offset, p->count);
}

static cz_status create_model(trainer *t)
{
    const options *o = &t->options;
    gpt_config config = o->model;
    config.vocab = t->text->vocab;
    const int64_t rows = t->local_batch > 0 ? t->local_batch : 1;
    if (t->options.threads == 0)
        CZ_TRY(cz_group_local_cores(t->world, &t->options.threads));
    if (!gpt_create(&t->gpt, &config, (int)rows, t->options.threads))
        return cz_fail(CZ_ERR_MEMORY, "no memory for the model's activations, or no %d threads",
                       t->options.threads);
    int count;
    const gpt_parameter *list = gpt_parameters(t->gpt, &count);
    t->elements = gpt_element_count(t->gpt);
    t->tokens = calloc((size_t)(rows * config.block_size), sizeof *t->tokens);
    t->targets = calloc((size_t)(rows * config.block_size), sizeof *t->targets);
    t->samples = calloc((size_t)rows, sizeof *t->samples);
    if (!t->tokens || !t->targets || !t->samples)
        return cz_fail(CZ_ERR_MEMORY, "no memory for a batch of %lld", (long long)rows);
    CZ_TRY(create_params(t));
    CZ_TRY(cz_model_create(&t->model));
    return add_parameters(t, list, count);
}

/* Buckets of about a block's gradients each: the first ones are on their way early. */
static cz_status create_ddp(trainer *t)
{
    const options *o = &t->options;
    cz_ddp_options ddp = CZ_DDP_OPTIONS_INIT;
    ddp.bucket_bytes = ddp.first_bucket_bytes =
        (size_t)t->elements * cz_dtype_size(o->dtype) / (size_t)(o->model.layers + 1);
    ddp.parts = t->parts;
    ddp.all_reduce = o->hook && !hook_gives_slices(o->hook);
    CZ_TRY(cz_ddp_create(&t->ddp, t->world, t->model, &ddp));
    return o->hook ? hook_register(&t->hook, t->ddp, o, o->hook) : CZ_OK;
}

/* What keeps ranks together that step on their own gradients. */
static cz_status create_averager(trainer *t)
{
    cz_averager_options averager = CZ_AVERAGER_OPTIONS_INIT;
    averager.warmup_steps = t->options.compress_after;
    CZ_TRY(cz_averager_create_periodic(&t->averager, t->world, t->model, t->options.average_every,
                                       &averager));
    return cz_post_local_optim_create(&t->post, t->optim, t->averager);
}

/* Of these values those that the rule has. */
static void choose_hypers(const cz_rule *rule, const cz_hyper *all, cz_hyper *chosen)
{
    for (; all->name; all++)
        for (int k = 0; k < rule->hyper_count; k++)
            if (strcmp(rule->hypers[k].name, all->name) == 0)
                *chosen++ = *all;
    *chosen = (cz_hyper){NULL, 0};
}

/* Parameter groups: matrices decay, biases and norms do not. A rule that takes whole matrices
 * (muon) has those of the blocks, as a third group, and AdamW the embeddings and all else: at one
 * rate, which adjust_lr_fn 1 is for. */
static cz_status create_optimizer(trainer *t)
{
    enum { MATRICES, OTHERS, OF_BLOCKS, GROUPS };
    const options *o = &t->options;
    const cz_rule *whole = o->rule->update_tensor ? o->rule : NULL;
    const cz_rule *rule = whole ? cz_rule_adamw() : o->rule;
    const cz_hyper all[] = {
        {"lr", o->lr}, {"beta1", o->beta1}, {"beta2", o->beta2}, {"weight_decay", 0}, {NULL, 0}};
    const cz_hyper of_matrices[] = {{"weight_decay", o->weight_decay}, {NULL, 0}};
    const cz_hyper of_blocks[] = {
        {"lr", o->lr}, {"weight_decay", o->weight_decay}, {"adjust_lr_fn", 1}, {NULL, 0}};
    cz_hyper hypers[5], decay[2], block_hypers[4];
    int count;
    const gpt_parameter *list = gpt_parameters(t->gpt, &count);
    int64_t *params = calloc(GROUPS * (size_t)count, sizeof *params);
    cz_param_group groups[GROUPS];
    if (!params)
        return cz_fail(CZ_ERR_MEMORY, "no memory for parameter groups");
    choose_hypers(rule, all, hypers);
    choose_hypers(rule, of_matrices, decay);
    choose_hypers(o->rule, of_blocks, block_hypers);
    for (int g = 0; g < GROUPS; g++) {
        groups[g] = (cz_param_group)CZ_PARAM_GROUP_INIT;
        groups[g].params = params + g * count;
        groups[g].master = o->no_master ? CZ_MASTER_NONE : CZ_MASTER_COPY;
        groups[g].state_dtype = o->state;
    }
    groups[MATRICES].hypers = decay;
    groups[OF_BLOCKS].hypers = block_hypers;
    groups[OF_BLOCKS].rule = whole;
    for (int p = 0; p < count; p++) {
        const bool in_block = strncmp(list[p].name, "h.", 2) == 0;
        const int matrices = whole && in_block ? OF_BLOCKS : MATRICES;
        const int g = list[p].dims == 2 ? matrices : OTHERS;
        params[g * count + groups[g].param_count++] = p;
    }
    const cz_moving_average average = {
        .size = sizeof average, .kind = CZ_MOVING_AVERAGE_EMA, .warm_up = 1, .decay = o->ema};
    cz_status status;
    if (o->unsharded) {
        cz_optim_options local = CZ_OPTIM_OPTIONS_INIT;
        local.groups = groups;
        local.group_count = whole ? GROUPS : OF_BLOCKS;
        local.average = o->ema > 0 ? &average : NULL;
        status = cz_optim_create(&t->optim, t->model, rule, hypers, &local);
    } else {
        cz_zero_options sharded = CZ_ZERO_OPTIONS_INIT;
        sharded.groups = groups;
        sharded.group_count = whole ? GROUPS : OF_BLOCKS;
        sharded.average = o->ema > 0 ? &average : NULL;
        sharded.partition = o->partition;
        sharded.ddp = t->ddp;
        sharded.parts = t->parts;
        if (!o->hook) /* steps are made inside passes; with norms of parameters, at their ends */
            sharded.overlap = rule->sum_count > 0 ? CZ_OVERLAP_STEP : CZ_OVERLAP_INTERLEAVED;
        status = cz_zero_create(&t->zero, t->world, t->model, rule, hypers, &sharded);
    }
    free(params);
    return status;
}

cz_status trainer_set_rates(trainer *t, double lr)
{
    cz_optim *optim = t->zero ? cz_zero_local_optim(t->zero) : t->optim;
    CZ_TRY(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "lr", lr));
    return t->options.ema > 0
               ? cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "average_decay", t->options.ema)
               : CZ_OK;
}

cz_status trainer_evaluate(trainer *t, bool evaluated)
{
    if (t->options.ema == 0 && !t->options.rule->evaluated)
        return CZ_OK;
    return t->zero ? cz_zero_evaluate(t->zero, evaluated) : cz_optim_evaluate(t->optim, evaluated);
}

static cz_step_options step_options(trainer *t)
{
    cz_step_options step = CZ_STEP_OPTIONS_INIT;
    if (t->options.loss_scale > 0) {
        step.loss_scale = &t->loss_scale;
        step.skip_nonfinite = true;
    }
    return step;
}

static cz_status create_loss_scale(trainer *t)
{
    t->loss_scale = (cz_loss_scale)CZ_LOSS_SCALE_INIT;
    t->loss_scale.scale = t->options.loss_scale;
    if (!t->options.loss_scale_adapts)
        t->loss_scale.interval = 0;
    const cz_step_options step = step_options(t);
    return t->zero && t->options.loss_scale > 0
               ? cz_zero_set_overlap(t->zero, CZ_OVERLAP_STEP, &step)
               : CZ_OK;
}

cz_status trainer_step(trainer *t)
{
    const cz_step_options step = step_options(t);
    if (t->zero) /* in a pass, where it has its options */
        return cz_zero_step(t->zero, NULL, NULL);
    return t->post ? cz_post_local_optim_step(t->post, NULL, NULL)
                   : cz_optim_step(t->optim, &step, NULL);
}

cz_status trainer_create(trainer *t)
{
    const options *o = &t->options;
    t->traffic.mixed = !o->hook && !o->unsharded;
    t->proof.every = o->proof;
    if (o->parts && o->parts < t->size)
        return cz_fail(CZ_ERR_ARGUMENT,
                       "--parts is %d, and there are %d ranks: each rank needs a part", o->parts,
                       t->size);
    CZ_TRY(create_sampler(t));
    CZ_TRY(create_model(t));
    if (o->parts)
        CZ_TRY(create_parts(t));
    CZ_TRY(create_ddp(t));
    CZ_TRY(create_optimizer(t));
    CZ_TRY(create_loss_scale(t));
    return o->hook && hook_goes_alone(o->hook) ? create_averager(t) : CZ_OK;
}

void trainer_clear(trainer *t)
{
    report_destroy(&t->report);
    cz_checkpoint_destroy(&t->checkpoint);
    cz_post_local_optim_destroy(&t->post);
    cz_averager_destroy(&t->averager);
    cz_zero_destroy(&t->zero);
    cz_optim_destroy(&t->optim);
    cz_ddp_destroy(&t->ddp);
    hook_state_clear(&t->hook);
    cz_parts_destroy(&t->parts);
    cz_model_destroy(&t->model);
    cz_sampler_destroy(&t->sampler);
    gpt_destroy(&t->gpt);
    if (t->params != t->values)
        free(t->params);
    if (t->grads != t->gradients)
        free(t->grads);
    if (!t->shared)
        free(t->values);
    cz_shared_destroy(&t->shared);
    free(t->gradients);
    free(t->tokens);
    free(t->targets);
    free(t->samples);
    free(t->part_losses);
    free(t->part_counts);
    proof_clear(&t->proof);
}
