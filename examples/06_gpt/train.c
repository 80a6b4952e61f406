/* SPDX-License-Identifier: MIT */
/* Training on one rank: its part of each global batch forward and backward. While the backward pass goes on,
 * gradients that are complete travel to their owners, are spent by the sharded optimizer there, and the new
 * parameters come back to every rank. */
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

typedef struct trainer {
    const task *task;
    cz_group *world;
    int rank, size;
    gpt *gpt;
    cz_model *model;
    cz_ddp *ddp;     /* brings gradients together, bucket by bucket */
    cz_zero *zero;   /* NULL with --unsharded */
    cz_optim *optim; /* NULL otherwise */
    cz_sampler *sampler;
    int64_t local_batch; /* the most sequences of one batch on this rank */
    int64_t elements;
    float *params, *grads; /* one block each */
    int *tokens, *targets; /* local_batch sequences */
    int64_t *samples;
    step_times times;
    report *report; /* rank 0 only */
} trainer;

/* Memory in whole cache lines and, where large, whole huge pages. */
static float *block(int64_t count)
{
    size_t bytes = (size_t)count * sizeof(float);
    const size_t alignment = bytes >= (2u << 20) ? 2u << 20 : 64;
    bytes = (bytes + alignment - 1) / alignment * alignment;
    float *memory = aligned_alloc(alignment, bytes ? bytes : alignment);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

static cz_status create_sampler(trainer *t)
{
    const options *o = &t->task->options;
    cz_sampler_options sampler = CZ_SAMPLER_OPTIONS_INIT;
    sampler.sample_count = t->task->text.train_count - o->model.block_size;
    sampler.global_batch = o->batch;
    sampler.rank = t->rank;
    sampler.world_size = t->size;
    sampler.seed = o->seed;
    CZ_TRY(cz_sampler_create(&t->sampler, &sampler));
    t->local_batch = cz_sampler_local_batch(t->sampler);
    return CZ_OK;
}

static cz_status create_model(trainer *t)
{
    const options *o = &t->task->options;
    gpt_config config = o->model;
    config.vocab = t->task->text.vocab;
    const int64_t rows = t->local_batch > 0 ? t->local_batch : 1;
    if (!gpt_create(&t->gpt, &config, (int)rows))
        return cz_fail(CZ_ERR_MEMORY, "no memory for the model's activations");
    int count;
    const gpt_parameter *list = gpt_parameters(t->gpt, &count);
    t->elements = gpt_element_count(t->gpt);
    t->params = block(t->elements);
    t->grads = block(t->elements);
    t->tokens = calloc((size_t)(rows * config.block_size), sizeof *t->tokens);
    t->targets = calloc((size_t)(rows * config.block_size), sizeof *t->targets);
    t->samples = calloc((size_t)rows, sizeof *t->samples);
    const char **names = calloc((size_t)count, sizeof *names);
    int64_t *sizes = calloc((size_t)count, sizeof *sizes);
    cz_status status = CZ_OK;
    if (!t->params || !t->grads || !t->tokens || !t->targets || !t->samples || !names || !sizes)
        status = cz_fail(CZ_ERR_MEMORY, "no memory for %lld parameters", (long long)t->elements);
    for (int p = 0; p < count && status == CZ_OK; p++) {
        names[p] = list[p].name;
        sizes[p] = list[p].count;
    }
    if (status == CZ_OK)
        gpt_init(t->gpt, t->params, o->seed);
    if (status == CZ_OK)
        status = cz_model_create(&t->model);
    if (status == CZ_OK)
        status = cz_model_add_flat(t->model, t->params, t->grads, CZ_F32, count, names, sizes);
    free(names);
    free(sizes);
    return status;
}

/* Buckets of about a block's gradients each: the first ones are on their way early. */
static cz_status create_ddp(trainer *t)
{
    cz_ddp_options ddp = CZ_DDP_OPTIONS_INIT;
    ddp.bucket_bytes = ddp.first_bucket_bytes =
        (size_t)t->elements * sizeof(float) / (size_t)(t->task->options.model.layers + 1);
    return cz_ddp_create(&t->ddp, t->world, t->model, &ddp);
}

/* AdamW over two parameter groups: matrices decay, biases and norms do not. */
static cz_status create_optimizer(trainer *t)
{
    const options *o = &t->task->options;
    const cz_hyper hypers[] = {
        {"lr", o->lr}, {"beta1", o->beta1}, {"beta2", o->beta2}, {"weight_decay", 0}, {NULL, 0}};
    const cz_hyper decay[] = {{"weight_decay", o->weight_decay}, {NULL, 0}};
    int count;
    const gpt_parameter *list = gpt_parameters(t->gpt, &count);
    int64_t *params = calloc(2 * (size_t)count, sizeof *params), matrices = 0, others = 0;
    if (!params)
        return cz_fail(CZ_ERR_MEMORY, "no memory for parameter groups");
    for (int p = 0; p < count; p++)
        *(list[p].dims == 2 ? &params[matrices++] : &params[count + others++]) = p;
    const cz_param_group groups[] = {
        {sizeof(cz_param_group), params, matrices, decay},
        {sizeof(cz_param_group), params + count, others, NULL},
    };
    cz_status status;
    if (o->unsharded) {
        cz_optim_options local = CZ_OPTIM_OPTIONS_INIT;
        local.groups = groups;
        local.group_count = 2;
        status = cz_optim_create(&t->optim, t->model, cz_rule_adamw(), hypers, &local);
    } else {
        cz_zero_options sharded = CZ_ZERO_OPTIONS_INIT;
        sharded.groups = groups;
        sharded.group_count = 2;
        sharded.partition = o->partition;
        sharded.ddp = t->ddp;
        sharded.overlap = CZ_OVERLAP_INTERLEAVED; /* steps are made inside passes */
        status = cz_zero_create(&t->zero, t->world, t->model, cz_rule_adamw(), hypers, &sharded);
    }
    free(params);
    return status;
}

static cz_status set_learning_rate(trainer *t, double lr)
{
    return t->zero ? cz_zero_set_hyper(t->zero, CZ_ALL_GROUPS, "lr", lr)
                   : cz_optim_set_hyper(t->optim, CZ_ALL_GROUPS, "lr", lr);
}

/* Linear warm-up, then half a cosine. */
static double learning_rate(const options *o, int step)
{
    if (step < o->warmup)
        return o->lr * (step + 1) / o->warmup;
    const int rest = o->steps - o->warmup;
    const double x = rest > 1 ? (double)(step - o->warmup) / (rest - 1) : 1;
    return o->min_lr + (o->lr - o->min_lr) * 0.5 * (1 + cos(acos(-1.0) * x));
}

/* The sum over ranks of (loss times sequences, sequences): the mean over all sequences. */
static cz_status mean_over_ranks(trainer *t, double sum, double count, const char *label,
                                 double *mean)
{
    double both[2] = {sum, count};
    CZ_TRY(cz_all_reduce(t->world, both, 2, CZ_F64, CZ_SUM, CZ_LABEL(label)));
    *mean = both[0] / both[1];
    return CZ_OK;
}

static cz_status forward(trainer *t, int sequences, float *loss)
{
    if (!gpt_forward(t->gpt, t->params, t->tokens, t->targets, sequences,
                     t->task->options.model.block_size, loss))
        return cz_fail(CZ_ERR_INTERNAL, "the model refused %d sequences", sequences);
    return CZ_OK;
}

/* This rank's part of the global batch, and gradients to add to. */
static cz_status next_batch(trainer *t, int64_t *count)
{
    const int length = t->task->options.model.block_size;
    CZ_TRY(cz_sampler_next(t->sampler, t->samples, count));
    memset(t->grads, 0, (size_t)t->elements * sizeof *t->grads);
    for (int64_t i = 0; i < *count; i++)
        text_window(&t->task->text, t->samples[i], length, t->tokens + i * length,
                    t->targets + i * length);
    return CZ_OK;
}

/* A gpt_ready. What fails here fails in cz_ddp_finish(), on every rank. */
static void mark(void *arg, int parameter)
{
    const trainer *t = arg;
    (void)cz_ddp_mark_ready(t->ddp, parameter);
}

static void backward(trainer *t, int64_t count)
{
    int parameters;
    gpt_parameters(t->gpt, &parameters);
    if (count > 0)
        gpt_backward(t->gpt, t->params, t->grads, mark, t);
    for (int p = 0; count == 0 && p < parameters; p++) /* no part of this batch: zeros */
        mark(t, p);
}

/* One step. The mean is that over all sequences: ranks may have more or fewer than others. */
static cz_status train_step(trainer *t, double lr, double *loss)
{
    int64_t count;
    float local = 0;
    times_begin_step(&t->times);
    CZ_TRY(next_batch(t, &count));
    CZ_TRY(set_learning_rate(t, lr));
    CZ_TRY(cz_ddp_set_weight(t->ddp, (double)count));
    times_end_phase(&t->times, PHASE_DATA);
    CZ_TRY(cz_ddp_begin(t->ddp, true));
    times_end_phase(&t->times, PHASE_AGREE);
    if (count > 0)
        CZ_TRY(forward(t, (int)count, &local));
    times_end_phase(&t->times, PHASE_FORWARD);
    backward(t, count);
    times_end_phase(&t->times, PHASE_BACKWARD);
    CZ_TRY(cz_ddp_finish(t->ddp));
    times_end_phase(&t->times, PHASE_WAIT);
    CZ_TRY(t->zero ? cz_zero_step(t->zero, NULL, NULL) : cz_optim_step(t->optim, NULL, NULL));
    times_end_phase(&t->times, PHASE_STEP);
    CZ_TRY(mean_over_ranks(t, (double)local * (double)count, (double)count, "loss", loss));
    times_end_phase(&t->times, PHASE_LOSS);
    return CZ_OK;
}

/* The mean loss over `windows` sequences spread over the held-out text, shared among the ranks. */
static cz_status validate(trainer *t, int64_t windows, double *mean)
{
    const text *corpus = &t->task->text;
    const int length = t->task->options.model.block_size;
    const int64_t room = corpus->count - corpus->train_count - length;
    const int64_t most = t->local_batch > 0 ? t->local_batch : 1;
    double sum = 0, seen = 0;
    int64_t pending = 0;
    for (int64_t w = t->rank; w < windows; w += t->size) {
        const int64_t begin =
            corpus->train_count + (windows > 1 ? (room - 1) * w / (windows - 1) : 0);
        text_window(corpus, begin, length, t->tokens + pending * length,
                    t->targets + pending * length);
        if (++pending < most && w + t->size < windows)
            continue;
        float loss;
        CZ_TRY(forward(t, (int)pending, &loss));
        sum += (double)loss * (double)pending;
        seen += (double)pending;
        pending = 0;
    }
    return mean_over_ranks(t, sum, seen, "validation loss", mean);
}

static cz_status run_steps(trainer *t)
{
    const options *o = &t->task->options;
    for (int step = 0; step < o->steps; step++) {
        double loss, held_out;
        const double lr = learning_rate(o, step);
        CZ_TRY(train_step(t, lr, &loss));
        if (t->report)
            report_step(t->report, step, loss, lr);
        if ((step + 1) % o->val_every || step + 1 == o->steps)
            continue;
        if (t->report)
            report_pause(t->report, true);
        CZ_TRY(validate(t, o->val_windows, &held_out));
        if (t->report) {
            report_pause(t->report, false);
            report_validation(t->report, step + 1, held_out);
        }
    }
    return CZ_OK;
}

/* A character drawn from the model's distribution at the given temperature. */
static int draw(const float *logits, int vocab, double temperature, float uniform)
{
    double most = -INFINITY, total = 0;
    for (int v = 0; v < vocab; v++)
        most = fmax(most, logits[v]);
    for (int v = 0; v < vocab; v++)
        total += exp((logits[v] - most) / temperature);
    double left = uniform * total;
    for (int v = 0; v < vocab - 1; v++)
        if ((left -= exp((logits[v] - most) / temperature)) < 0)
            return v;
    return vocab - 1;
}

/* Where `length` characters of the held-out text begin that end with a line, if any do. */
static int64_t prompt(const text *corpus, int length)
{
    for (int64_t i = corpus->train_count + length; i < corpus->count; i++)
        if (corpus->characters[corpus->tokens[i - 1]] == '\n')
            return i - length;
    return corpus->train_count;
}

/* Text that goes on from a piece of the held-out part; rank 0 alone. */
static cz_status generate(trainer *t)
{
    const options *o = &t->task->options;
    const text *corpus = &t->task->text;
    const int length = o->model.block_size;
    char *sample = calloc((size_t)o->sample + 1, 1);
    float logits[256];
    int *tokens = t->tokens;
    if (!sample)
        return cz_fail(CZ_ERR_MEMORY, "no memory for the sample");
    const int64_t begin = prompt(corpus, length);
    for (int i = 0; i < length; i++)
        tokens[i] = corpus->tokens[begin + i];
    for (int i = 0; i < o->sample; i++) {
        gpt_logits(t->gpt, t->params, tokens, length, logits);
        const int next = draw(logits, corpus->vocab, o->temperature,
                              cz_random_uniform(o->seed, UINT64_MAX, (uint64_t)i));
        memmove(tokens, tokens + 1, (size_t)(length - 1) * sizeof *tokens);
        tokens[length - 1] = next;
        sample[i] = corpus->characters[next];
    }
    const cz_status status = report_sample(t->report, sample);
    free(sample);
    return status;
}

/* Everyone's state bytes, and what the whole state would be. */
static cz_status finish(trainer *t, double val_loss)
{
    cz_trace_totals update = {0, 0, 0};
    int64_t bytes =
        (int64_t)(t->zero ? cz_zero_state_bytes(t->zero) : cz_optim_state_bytes(t->optim));
    int64_t *all = calloc((size_t)t->size, sizeof *all);
    if (!all)
        return cz_fail(CZ_ERR_MEMORY, "no memory for the table");
    cz_status status = cz_all_gather(t->world, &bytes, all, 1, CZ_I64, CZ_LABEL("state bytes"));
    if (status == CZ_OK && t->zero)
        status = cz_zero_trace(t->zero, CZ_TRACE_UPDATE, &update);
    if (status == CZ_OK && t->report) {
        const memory_use memory = {.ranks = t->size,
                                   .state_bytes = all,
                                   .state_bytes_unsharded =
                                       t->elements * 2 * (int64_t)sizeof(float),
                                   .parameter_bytes = t->elements * (int64_t)sizeof(float),
                                   .gradient_bytes = t->elements * (int64_t)sizeof(float)};
        status = report_finish(t->report, &memory, &t->times, &update, val_loss);
    }
    free(all);
    return status;
}

static cz_status run(trainer *t)
{
    const options *o = &t->task->options;
    double val_loss;
    CZ_TRY(create_sampler(t));
    CZ_TRY(create_model(t));
    CZ_TRY(create_ddp(t));
    CZ_TRY(create_optimizer(t));
    if (t->rank == 0)
        CZ_TRY(report_create(&t->report, o, t->size, t->elements, &t->task->text));
    CZ_TRY(run_steps(t));
    if (t->report)
        report_pause(t->report, true);
    CZ_TRY(validate(t, o->final_windows, &val_loss));
    if (t->report) {
        report_pause(t->report, false);
        report_validation(t->report, o->steps, val_loss);
    }
    CZ_TRY(finish(t, val_loss));
    if (t->report && o->sample > 0)
        CZ_TRY(generate(t));
    if (t->report)
        report_end(t->report);
    return CZ_OK;
}

cz_status train(cz_group *world, void *context)
{
    trainer t = {.task = context,
                 .world = world,
                 .rank = cz_group_rank(world),
                 .size = cz_group_size(world)};
    const cz_status status = run(&t);
    report_destroy(&t.report);
    cz_zero_destroy(&t.zero);
    cz_optim_destroy(&t.optim);
    cz_ddp_destroy(&t.ddp);
    cz_model_destroy(&t.model);
    cz_sampler_destroy(&t.sampler);
    gpt_destroy(&t.gpt);
    free(t.params);
    free(t.grads);
    free(t.tokens);
    free(t.targets);
    free(t.samples);
    return status;
}
