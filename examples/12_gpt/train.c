/* SPDX-License-Identifier: MIT */
/* Training on one rank: its part of each global batch forward and backward. While the backward pass
 * goes on, gradients that are complete travel to their owners, are spent by the sharded optimizer
 * there, and the new parameters come back to every rank. */
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "resume.h"
#include "trainer.h"

/* Linear warm-up, then half a cosine. */
static double learning_rate(const options *o, int step)
{
    if (step < o->warmup)
        return o->lr * (step + 1) / o->warmup;
    const int rest = o->steps - o->warmup;
    const double x = rest > 1 ? (double)(step - o->warmup) / (rest - 1) : 1;
    return o->min_lr + (o->lr - o->min_lr) * 0.5 * (1 + cos(acos(-1.0) * x));
}

/* The sum over ranks of (loss times sequences, sequences): the mean over all sequences. Whether a
 * rank was asked to stop travels with it, so that all ranks stop after the same step. */
static cz_status mean_over_ranks(trainer *t, double sum, double count, const char *label,
                                 double *mean)
{
    double sums[3] = {sum, count, resume_stop_asked()};
    CZ_TRY(cz_all_reduce(t->world, sums, 3, CZ_F64, CZ_SUM, CZ_LABEL(label)));
    *mean = sums[0] / sums[1];
    t->stop |= sums[2] > 0;
    return CZ_OK;
}

/* The same of losses of parts, each weighted by its sequences: the same bits on any number of
 * ranks. */
static cz_status mean_over_parts(trainer *t, double *mean)
{
    double stop = resume_stop_asked();
    CZ_TRY(cz_parts_mean(t->parts, t->part_losses, 1, mean));
    CZ_TRY(cz_all_reduce(t->world, &stop, 1, CZ_F64, CZ_MAX, CZ_LABEL("stop")));
    t->stop |= stop > 0;
    return CZ_OK;
}

static cz_status forward(trainer *t, int sequences, float *loss)
{
    CZ_TRY(trainer_take_values(t));
    if (!gpt_forward(t->gpt, t->params, t->tokens, t->targets, sequences,
                     t->options.model.block_size, loss))
        return cz_fail(CZ_ERR_INTERNAL, "the model refused %d sequences", sequences);
    return CZ_OK;
}

/* This rank's share of the global batch, or its next part, and gradients to add to. */
static cz_status next_batch(trainer *t, int64_t *count)
{
    const int length = t->options.model.block_size;
    CZ_TRY(cz_sampler_next(t->sampler, t->samples, count));
    memset(t->grads, 0, (size_t)t->elements * sizeof *t->grads);
    for (int64_t i = 0; i < *count; i++)
        text_window(t->text, t->samples[i], length, t->tokens + i * length,
                    t->targets + i * length);
    return CZ_OK;
}

/* A gpt_ready. What fails here fails in cz_ddp_finish(), on every rank. */
static void mark(void *arg, int parameter)
{
    const trainer *t = arg;
    if (trainer_give_gradient(t, parameter) == CZ_OK)
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

/* What the sampler gives next, forward and backward: gradients of the mean over it. */
static cz_status run_pass(trainer *t, bool sync, int64_t *count, double *loss)
{
    float mean = 0;
    CZ_TRY(next_batch(t, count));
    if (!t->parts)
        CZ_TRY(cz_ddp_set_weight(t->ddp, (double)*count));
    times_end_phase(&t->times, PHASE_DATA);
    CZ_TRY(cz_ddp_begin(t->ddp, sync));
    times_end_phase(&t->times, PHASE_AGREE);
    if (*count > 0)
        CZ_TRY(forward(t, (int)*count, &mean));
    times_end_phase(&t->times, PHASE_FORWARD);
    backward(t, *count);
    times_end_phase(&t->times, PHASE_BACKWARD);
    CZ_TRY(cz_ddp_finish(t->ddp));
    times_end_phase(&t->times, PHASE_WAIT);
    *loss = mean;
    return CZ_OK;
}

/* This rank's parts, one pass each; the last one brings gradients together. */
static cz_status run_parts(trainer *t)
{
    int64_t count;
    for (int i = 0; cz_parts_own(t->parts, i) >= 0; i++)
        CZ_TRY(run_pass(t, cz_parts_is_last(t->parts), &count, &t->part_losses[i]));
    return CZ_OK;
}

/* One step. The mean is that over all sequences: ranks, or parts, may have more or fewer than
 * others. */
static cz_status train_step(trainer *t, double lr, double *loss)
{
    int64_t count = 0;
    double local = 0;
    CZ_TRY(traffic_begin_step(&t->traffic, t->world));
    times_begin_step(&t->times);
    CZ_TRY(trainer_set_rates(t, lr));
    CZ_TRY(t->parts ? run_parts(t) : run_pass(t, true, &count, &local));
    CZ_TRY(traffic_count(&t->traffic, t->world, CARGO_GRADIENTS));
    CZ_TRY(trainer_step(t));
    CZ_TRY(traffic_count(&t->traffic, t->world, CARGO_PARAMETERS));
    traffic_end_step(&t->traffic);
    times_end_phase(&t->times, PHASE_STEP);
    CZ_TRY(t->parts ? mean_over_parts(t, loss)
                    : mean_over_ranks(t, local * (double)count, (double)count, "loss", loss));
    times_end_phase(&t->times, PHASE_LOSS);
    return CZ_OK;
}

/* The losses of windows first, first + stride, … of all that are spread over the held-out text:
 * their sum, and how many there are. */
static cz_status look_at_windows(trainer *t, int64_t windows, int64_t first, int64_t stride,
                                 double *sum, double *seen)
{
    const text *corpus = t->text;
    const int length = t->options.model.block_size;
    const int64_t room = corpus->count - corpus->train_count - length;
    const int64_t most = t->local_batch > 0 ? t->local_batch : 1;
    int64_t pending = 0;
    *sum = *seen = 0;
    for (int64_t w = first; w < windows; w += stride) {
        const int64_t begin =
            corpus->train_count + (windows > 1 ? (room - 1) * w / (windows - 1) : 0);
        text_window(corpus, begin, length, t->tokens + pending * length,
                    t->targets + pending * length);
        if (++pending < most && w + stride < windows)
            continue;
        float loss;
        CZ_TRY(forward(t, (int)pending, &loss));
        *sum += (double)loss * (double)pending;
        *seen += (double)pending;
        pending = 0;
    }
    return CZ_OK;
}

/* The windows are dealt out to parts as to ranks; for this mean each part counts for as many as it
 * has. */
static cz_status validate_parts(trainer *t, int64_t windows, double *mean)
{
    for (int i = 0, part; (part = cz_parts_own(t->parts, i)) >= 0; i++) {
        double sum;
        CZ_TRY(look_at_windows(t, windows, part, t->options.parts, &sum, &t->part_counts[i]));
        t->part_losses[i] = t->part_counts[i] > 0 ? sum / t->part_counts[i] : 0;
    }
    CZ_TRY(cz_parts_set_weights(t->parts, t->part_counts));
    CZ_TRY(mean_over_parts(t, mean));
    return trainer_weigh_parts(t);
}

/* The mean loss over `windows` sequences spread over the held-out text, shared among the ranks. */
static cz_status validate(trainer *t, int64_t windows, double *mean)
{
    double sum, seen;
    if (t->parts)
        return validate_parts(t, windows, mean);
    CZ_TRY(look_at_windows(t, windows, t->rank, t->size, &sum, &seen));
    return mean_over_ranks(t, sum, seen, "validation loss", mean);
}

static cz_status validate_now(trainer *t, int step)
{
    double held_out;
    if (t->report)
        report_pause(t->report, true);
    CZ_TRY(trainer_evaluate(t, true));
    CZ_TRY(validate(t, t->options.val_windows, &held_out));
    CZ_TRY(trainer_evaluate(t, false));
    if (t->report) {
        report_pause(t->report, false);
        report_validation(t->report, step, held_out);
    }
    return CZ_OK;
}

/* After `step` steps of all. */
static cz_status save_if_due(trainer *t, int step)
{
    const options *o = &t->options;
    t->stop |= step == o->stop_at;
    if (!t->checkpoint || (!t->stop && step % o->save_every && step != o->steps))
        return CZ_OK;
    return resume_save(t, step, !t->stop);
}

/* With --proof, after a step: its fingerprint. */
static cz_status take_print(trainer *t, int step)
{
    uint64_t print[2];
    if (!proof_is_due(&t->proof, step))
        return CZ_OK;
    CZ_TRY(proof_look(t->zero, t->optim, print));
    return proof_add(&t->proof, step, print);
}

/* A cz_parts_run: forward and backward of one part, which comes again in the training. */
static cz_status run_part(int part, void *context)
{
    trainer *t = context;
    cz_sampler_info now = CZ_SAMPLER_INFO_INIT;
    int64_t count = 0;
    float loss;
    CZ_TRY(cz_sampler_get_info(t->sampler, &now));
    for (int i = 0, own = -1; own != part; i++) {
        own = cz_parts_own(t->parts, i);
        CZ_TRY(next_batch(t, &count));
    }
    CZ_TRY(cz_sampler_set_position(t->sampler, now.position));
    if (count > 0) {
        CZ_TRY(forward(t, (int)count, &loss));
        gpt_backward(t->gpt, t->params, t->grads, NULL, NULL);
    }
    return CZ_OK;
}

static cz_status check_parts(trainer *t)
{
    if (!t->options.check_parts || t->step == t->options.steps)
        return CZ_OK;
    CZ_TRY(cz_parts_check(t->parts, run_part, t));
    if (t->report)
        report_say(t->report, "parts  rank 0's were run twice: the same gradients, bit for bit");
    return CZ_OK;
}

static cz_status run_steps(trainer *t)
{
    const options *o = &t->options;
    while (t->step < o->steps && !t->stop) {
        double loss;
        const double lr = learning_rate(o, t->step);
        CZ_TRY(train_step(t, lr, &loss));
        CZ_TRY(take_print(t, t->step + 1));
        if (t->report)
            report_step(t->report, t->step, loss, lr, proof_find(&t->proof, t->step + 1));
        t->step++;
        if (t->step % o->val_every == 0 && t->step < o->steps)
            CZ_TRY(validate_now(t, t->step));
        CZ_TRY(save_if_due(t, t->step));
    }
    return CZ_OK;
}

/* Two moments of each element, a master and an average. */
static int64_t state_bytes(const trainer *t)
{
    const options *o = &t->options;
    int64_t moments = t->elements * (o->state == CZ_BF16 ? 2 : 4);
    int count = 0;
    const gpt_parameter *list = gpt_parameters(t->gpt, &count);
    for (int p = 0; p < count && o->state == CZ_U8; p++)
        if (list[p].count >= 4096)
            moments += (list[p].count + 255) / 256 * 4 - 3 * list[p].count;
    return 2 * moments + (o->dtype != CZ_F32 && !o->no_master ? 4 * t->elements : 0) +
           (o->ema > 0 ? 4 * t->elements : 0);
}

/* Everyone's state bytes, and what the whole state would be. */
static cz_status finish(trainer *t, double val_loss)
{
    const int64_t size = (int64_t)cz_dtype_size(t->options.dtype);
    cz_trace_totals update = CZ_TRACE_TOTALS_INIT;
    cz_optim_info info = CZ_OPTIM_INFO_INIT;
    cz_parts_info parts = CZ_PARTS_INFO_INIT;
    CZ_TRY(cz_optim_get_info(t->zero ? cz_zero_local_optim(t->zero) : t->optim, &info));
    if (t->parts)
        CZ_TRY(cz_parts_get_info(t->parts, &parts));
    int64_t bytes = (int64_t)info.state_bytes;
    int64_t *all = calloc((size_t)t->size, sizeof *all);
    if (!all)
        return cz_fail(CZ_ERR_MEMORY, "no memory for the table");
    cz_status status = cz_all_gather(t->world, &bytes, all, 1, CZ_I64, CZ_LABEL("state bytes"));
    if (status == CZ_OK)
        status = resume_update_time(t, &update);
    if (status == CZ_OK && t->report) {
        const memory_use memory = {.ranks = t->size,
                                   .state_bytes = all,
                                   .state_bytes_unsharded = state_bytes(t),
                                   .parameter_bytes = t->elements * size,
                                   .gradient_bytes = t->elements * size,
                                   .parts_bytes = (int64_t)parts.kept_bytes};
        status = report_finish(t->report, &memory, &t->times, &update, &t->traffic, val_loss);
    }
    free(all);
    return status;
}

/* Ranks that went their own ways end with one model. */
static cz_status come_together(trainer *t)
{
    if (!t->post || t->options.steps == 0)
        return CZ_OK;
    CZ_TRY(traffic_count(&t->traffic, t->world, CARGO_OTHER));
    CZ_TRY(cz_all_reduce(t->world, t->values, t->elements, t->options.dtype, CZ_AVERAGE,
                         CZ_LABEL("last averaging")));
    return traffic_count(&t->traffic, t->world, CARGO_PARAMETERS);
}

/* The end of a run that is over: its last validation, what it leaves. */
static cz_status conclude(trainer *t, double *val_loss)
{
    const options *o = &t->options;
    if (t->report)
        report_pause(t->report, true);
    CZ_TRY(come_together(t));
    CZ_TRY(resume_wait(t));
    CZ_TRY(trainer_evaluate(t, true)); /* to the end */
    CZ_TRY(validate(t, o->final_windows, val_loss));
    if (t->report) {
        report_pause(t->report, false);
        report_validation(t->report, o->steps, *val_loss);
    }
    CZ_TRY(traffic_agree(&t->traffic, t->world));
    CZ_TRY(finish(t, *val_loss));
    if (t->report && o->sample > 0)
        CZ_TRY(generate(t));
    if (t->report)
        report_end(t->report);
    return CZ_OK;
}

/* The end of one that was asked to stop: it is saved. */
static void say_stopped(const trainer *t)
{
    char line[4300];
    snprintf(line, sizeof line,
             "stopped after step %d of %d; saved in %s, the same command with --resume goes on",
             t->step, t->options.steps, t->options.save);
    report_say(t->report, line);
}

static cz_status begin(trainer *t)
{
    history past = {0};
    CZ_TRY(trainer_create(t));
    cz_status status = resume_begin(t, &past);
    if (status == CZ_OK && t->rank == 0)
        status = report_create(&t->report, &t->options, t->size, t->elements, t->text);
    if (status == CZ_OK && t->report && t->step > 0)
        report_resume(t->report, &past, &t->proof, t->step, t->size);
    history_clear(&past);
    return status;
}

static cz_status run(trainer *t, double *val_loss)
{
    CZ_TRY(begin(t));
    CZ_TRY(check_parts(t));
    CZ_TRY(run_steps(t));
    if (!t->stop || t->step == t->options.steps)
        return conclude(t, val_loss);
    if (t->report)
        say_stopped(t);
    return CZ_OK;
}

cz_status train_once(cz_group *world, const text *corpus, const options *o, outcome *out)
{
    trainer t = {.text = corpus,
                 .options = *o,
                 .world = world,
                 .rank = cz_group_rank(world),
                 .size = cz_group_size(world)};
    double val_loss = 0;
    if (o->hook && hook_goes_alone(o->hook))
        t.options.unsharded = true;
    const cz_status status = run(&t, &val_loss);
    if (status == CZ_OK && t.report && out) {
        *out = (outcome){.hook = o->hook,
                         .unsharded = t.options.unsharded,
                         .val_loss = val_loss,
                         .sent = t.traffic,
                         .seconds = times_of_step(&t.times)};
        report_take_curve(t.report, &out->train);
    }
    trainer_clear(&t);
    return status;
}

cz_status train(cz_group *world, void *context)
{
    const task *job = context;
    options o = job->options;
    if (o.hook_count > 1)
        return compare(world, job);
    o.hook = o.hook_count ? o.hooks[0] : NULL;
    return train_once(world, &job->text, &o, NULL);
}
