/* SPDX-License-Identifier: MIT */
/* Training with one hook after the other, from the same start and on the same batches; and what
 * differs: the loss, and what travels. */
#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 10 };

/* OUT/HOOK, with '-' for what a shell would trip over. */
static void folder_of(const char *out, const char *hook, char *path, size_t bytes)
{
    const int begin = snprintf(path, bytes, "%s/", out);
    snprintf(path + begin, bytes - (size_t)begin, "%s", hook);
    for (char *c = path + begin; *c; c++)
        if (*c == '(' || *c == ')')
            *c = c[1] ? '-' : '\0';
}

/* ---- numbers ---- */

/* The mean loss over the steps since the point before this one: one batch alone says little. */
static double loss_at(const curve *c, int nth, int *step)
{
    const int begin = (int)((int64_t)c->count * nth / POINTS);
    const int end = (int)((int64_t)c->count * (nth + 1) / POINTS);
    double sum = 0;
    for (int i = begin; i < end; i++)
        sum += c->points[i].value;
    *step = end > begin ? c->points[end - 1].step : 0;
    return end > begin ? sum / (end - begin) : NAN;
}

static double gradient_bytes(const outcome *o, int steps)
{
    return steps ? (double)o->sent.sent[CARGO_GRADIENTS] / steps : 0;
}

static double all_bytes(const outcome *o, int steps)
{
    return gradient_bytes(o, steps) + (steps ? (double)o->sent.sent[CARGO_PARAMETERS] / steps : 0);
}

/* What the others are measured by; NULL: it was not asked for. */
static const outcome *yardstick(const outcome *all, int count)
{
    for (int k = 0; k < count; k++)
        if (strcmp(all[k].hook, "all_reduce") == 0)
            return &all[k];
    return NULL;
}

/* NAN: there is nothing to divide by. */
static double ratio(double value, double by)
{
    return by > 0 ? value / by : NAN;
}

/* ---- tables ---- */

/* Columns that the longest name takes. */
static int widest(const outcome *all, int count)
{
    int most = 0;
    for (int k = 0; k < count; k++)
        most = (int)strlen(all[k].hook) > most ? (int)strlen(all[k].hook) : most;
    return most;
}

static void show_losses(const outcome *all, int count)
{
    const int width = widest(all, count);
    int step;
    printf("\nloss, mean of the steps up to\n  %-*s", width, "");
    for (int nth = 0; nth < POINTS; nth++) {
        (void)loss_at(&all[0].train, nth, &step);
        if (step)
            printf(" %7d", step);
    }
    printf("   held out\n");
    for (int k = 0; k < count; k++) {
        printf("  %-*s", width, all[k].hook);
        for (int nth = 0; nth < POINTS; nth++) {
            const double loss = loss_at(&all[k].train, nth, &step);
            if (step)
                printf(" %7.4f", loss);
        }
        printf("   %8.4f\n", all[k].val_loss);
    }
}

static void show_ratio(double value)
{
    if (isfinite(value))
        printf(" %8.1f%%", 100 * value);
    else
        printf(" %9s", "-");
}

static void show_bytes(const outcome *all, int count, int steps)
{
    const outcome *by = yardstick(all, count);
    const int width = widest(all, count);
    printf("\nbytes that a rank sends in a step, on average, and their share of all_reduce's\n"
           "  %-*s %12s %9s %12s %12s %9s %9s\n",
           width, "", "gradients", "share", "parameters", "together", "share", "step");
    for (int k = 0; k < count; k++) {
        const double gradients = gradient_bytes(&all[k], steps), both = all_bytes(&all[k], steps);
        printf("  %-*s %12.0f", width, all[k].hook, gradients);
        show_ratio(by ? ratio(gradients, gradient_bytes(by, steps)) : NAN);
        printf(" %12.0f %12.0f", both - gradients, both);
        show_ratio(by ? ratio(both, all_bytes(by, steps)) : NAN);
        printf(" %6.2f ms\n", 1e3 * all[k].seconds);
    }
    if (!by)
        printf("  no shares: all_reduce is not among the hooks\n");
}

/* ---- files ---- */

static json_t *losses_json(const curve *c)
{
    json_t *losses = json_array();
    for (int nth = 0; nth < POINTS; nth++) {
        int step;
        const double loss = loss_at(c, nth, &step);
        if (step)
            json_array_append_new(
                losses, json_pack("{s:i, s:o}", "step", step, "loss", report_number(loss)));
    }
    return losses;
}

static json_t *outcome_json(const outcome *o, const outcome *by, int steps)
{
    return json_pack(
        "{s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:f}", "hook", o->hook, "sharded", !o->unsharded,
        "losses", losses_json(&o->train), "val_loss", report_number(o->val_loss),
        "sent_bytes_per_step", traffic_json(&o->sent, steps), "gradients_to_all_reduce",
        report_number(by ? ratio(gradient_bytes(o, steps), gradient_bytes(by, steps)) : NAN),
        "all_to_all_reduce",
        report_number(by ? ratio(all_bytes(o, steps), all_bytes(by, steps)) : NAN),
        "seconds_per_step", o->seconds);
}

static cz_status write_summary(const options *o, int ranks, const outcome *all, int count)
{
    json_t *hooks = json_array();
    for (int k = 0; k < count; k++)
        json_array_append_new(hooks, outcome_json(&all[k], yardstick(all, count), o->steps));
    json_t *summary = json_pack("{s:i, s:i, s:i, s:i, s:o, s:s}", "world_size", ranks, "steps",
                                o->steps, "compress_after", o->compress_after, "powersgd_rank",
                                o->powersgd_rank, "hooks", hooks, "czero", cz_build_info());
    return report_write_summary(o->out, summary);
}

static cz_status write_plot(const options *o, const outcome *all, int count)
{
    const curve *curves[HOOKS_MOST];
    const char *names[HOOKS_MOST];
    char path[4200];
    for (int k = 0; k < count; k++) {
        curves[k] = &all[k].train;
        names[k] = all[k].hook;
    }
    snprintf(path, sizeof path, "%s/loss.svg", o->out);
    return plot_compare(path, curves, names, count);
}

static cz_status show(const options *o, int ranks, const outcome *all, int count)
{
    CZ_TRY(write_summary(o, ranks, all, count));
    CZ_TRY(write_plot(o, all, count));
    if (o->quiet)
        return CZ_OK;
    show_losses(all, count);
    show_bytes(all, count, o->steps);
    printf("\nin %s: summary.json, loss.svg, and a folder for each hook\n", o->out);
    fflush(stdout);
    return CZ_OK;
}

/* ---- runs ---- */

static cz_status run_all(cz_group *world, const task *job, outcome *all)
{
    const int rank = cz_group_rank(world), size = cz_group_size(world);
    const options *o = &job->options;
    char path[4200];
    if (rank == 0)
        CZ_TRY(report_open_folder(o->out));
    if (rank == 0 && !o->quiet)
        printf("%d hooks, each with %d steps of %d sequences on %d rank%s\n", o->hook_count,
               o->steps, o->batch, size, size == 1 ? "" : "s");
    for (int k = 0; k < o->hook_count; k++) {
        options one = *o;
        one.hook = o->hooks[k];
        one.brief = true;
        one.out = path;
        folder_of(o->out, one.hook, path, sizeof path);
        if (rank == 0 && !o->quiet)
            printf("\n%s\n", one.hook);
        CZ_TRY(train_once(world, &job->text, &one, &all[k]));
    }
    return rank == 0 ? show(o, size, all, o->hook_count) : CZ_OK;
}

cz_status compare(cz_group *world, const task *job)
{
    outcome all[HOOKS_MOST] = {{0}};
    const cz_status status = run_all(world, job, all);
    for (int k = 0; k < HOOKS_MOST; k++)
        free(all[k].train.points);
    return status;
}
