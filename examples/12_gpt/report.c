/* SPDX-License-Identifier: MIT */
/* Progress, tables and the run folder. */
#include "report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

struct report {
    options options;
    FILE *metrics;
    bool terminal;
    double begun, shown;    /* seconds */
    bool line_open;         /* the progress bar stands on the present line */
    bool lost;              /* a line of metrics.jsonl, for want of memory */
    const char *not_finite; /* the first such loss, NULL: none */
    int not_finite_step;
    history history; /* seconds, times and traffic in it: up to where it was resumed */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static FILE *open_in_folder(const report *r, const char *name, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/%s", r->options.out, name);
    FILE *file = fopen(path, "w");
    if (!file)
        (void)cz_fail(CZ_ERR_IO, "%s: %s", path, strerror(errno));
    return file;
}

static cz_status close_file(FILE *file, const char *path)
{
    const bool bad = ferror(file) != 0;
    if (fclose(file) || bad)
        return cz_fail(CZ_ERR_IO, "%s: %s", path, strerror(errno));
    return CZ_OK;
}

static void show_task(const options *o, int ranks, int64_t parameters, const text *t)
{
    printf("text   %lld characters, %d different; the last tenth is held out\n",
           (long long)t->count, t->vocab);
    printf("model  %lld parameters: %d layers, %d heads, %d channels, sequences of %d\n",
           (long long)parameters, o->model.layers, o->model.heads, o->model.channels,
           o->model.block_size);
    printf("run    %d steps of %d sequences on %d rank%s of %d thread%s, AdamW %s\n", o->steps,
           o->batch, ranks, ranks == 1 ? "" : "s", o->threads, o->threads == 1 ? "" : "s",
           o->unsharded ? "not sharded" : "sharded");
    if (o->parts)
        printf("parts  %d: the same bits on any number of ranks\n", o->parts);
    if (o->hook)
        printf("hook   %s\n", o->hook);
}

cz_status report_create(report **out, const options *o, int ranks, int64_t parameters,
                        const text *t)
{
    char path[4200];
    *out = NULL;
    CZ_TRY(report_open_folder(o->out));
    report *r = calloc(1, sizeof *r);
    if (!r)
        return cz_fail(CZ_ERR_MEMORY, "no memory for the report");
    r->options = *o;
    r->metrics = open_in_folder(r, "metrics.jsonl", path, sizeof path);
    if (!r->metrics) {
        free(r);
        return CZ_ERR_IO;
    }
    r->terminal = isatty(STDOUT_FILENO) && !o->quiet;
    r->begun = now();
    if (!o->quiet && !o->brief)
        show_task(o, ranks, parameters, t);
    *out = r;
    return CZ_OK;
}

void report_destroy(report **r)
{
    if (!r || !*r)
        return;
    fclose((*r)->metrics);
    history_clear(&(*r)->history);
    free(*r);
    *r = NULL;
}

void report_take_curve(report *r, curve *out)
{
    *out = r->history.train;
    r->history.train = (curve){NULL, 0, 0};
}

void report_pause(report *r, bool pause)
{
    r->history.paused += pause ? -now() : now();
}

/* JSON has no NaN and no infinity. */
json_t *report_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static void write_metric(report *r, json_t *line)
{
    r->lost |= !line;
    if (!line)
        return;
    json_dumpf(line, r->metrics, JSON_COMPACT | JSON_REAL_PRECISION(17)); /* all bits */
    fputc('\n', r->metrics);
    json_decref(line);
}

static double tokens_per_second(const report *r)
{
    const double seconds = now() - r->begun - r->history.paused;
    const double tokens =
        (double)r->history.train.count * r->options.batch * (double)r->options.model.block_size;
    return seconds > 0 ? tokens / seconds : 0;
}

static void time_left(const report *r, int step, char *out, size_t bytes)
{
    const double each = (now() - r->begun) / (step + 1);
    const long left = lround(each * (r->options.steps - step - 1));
    if (left < 6000)
        snprintf(out, bytes, "%ld:%02ld", left / 60, left % 60);
    else
        snprintf(out, bytes, "%ldh%02ld", left / 3600, left / 60 % 60);
}

/* A bar beside the line, in one line of the terminal. */
static void draw_bar(double done, const char *line)
{
    static const char marks[] = "########################################";
    struct winsize window = {.ws_col = 0};
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
    const int columns = (known ? window.ws_col : 80) - 1; /* the last one would wrap */
    const int room = columns - (int)strlen(line) - (int)strlen("[] ");
    const int width = room < (int)strlen(marks) ? room : (int)strlen(marks);
    const int filled = (int)(width * done);
    putchar('\r');
    if (width > 5)
        printf("[%.*s%*s] ", filled, marks, width - filled, "");
    printf("%.*s\033[K", columns, line);
}

static void show_progress(report *r, int step, double lr)
{
    const int steps = r->options.steps, digits = snprintf(NULL, 0, "%d", steps);
    const bool last = step + 1 == steps;
    char left[32], line[160];
    if (r->options.quiet || (r->options.brief && !r->terminal) ||
        (r->terminal && !last && now() - r->shown < 0.1) ||
        (!r->terminal && !last && (step + 1) % (steps >= 20 ? steps / 20 : 1)))
        return;
    r->shown = now();
    time_left(r, step, left, sizeof left);
    snprintf(line, sizeof line, "%*d/%d  loss %.4f  lr %.2e  %5.0f tokens/s  %5s left", digits,
             step + 1, steps, fabs(r->history.smooth), lr, tokens_per_second(r), left);
    if (r->terminal)
        draw_bar((step + 1.0) / steps, line);
    else
        printf("step %s", line);
    if (!r->terminal || last)
        putchar('\n');
    fflush(stdout);
    r->line_open = r->terminal && !last;
}

static void look_at_loss(report *r, int step, double loss, const char *which)
{
    if (isfinite(loss) || r->not_finite)
        return;
    r->not_finite = which;
    r->not_finite_step = step;
}

/* `link` is NULL where the step has no fingerprint. */
static void write_step(report *r, int step, double loss, double lr, double speed,
                       const proof_link *link)
{
    char print[33], chain[33];
    if (link) {
        proof_digits(link->print, print);
        proof_digits(link->chain, chain);
    }
    write_metric(r, json_pack("{s:i, s:o, s:f, s:f, s:s*, s:s*}", "step", step, "loss",
                              report_number(loss), "lr", lr, "tokens_per_second", round(speed),
                              "fingerprint", link ? print : NULL, "chain", link ? chain : NULL));
}

static void write_validation(report *r, int step, double loss)
{
    write_metric(r, json_pack("{s:i, s:o}", "step", step, "val_loss", report_number(loss)));
}

void report_step(report *r, int step, double loss, double lr, const proof_link *link)
{
    history *h = &r->history;
    const double speed = tokens_per_second(r);
    look_at_loss(r, step + 1, loss, "loss");
    h->smooth += (loss - h->smooth) * fmax(0.02, 1.0 / (step + 1));
    curve_add(&h->train, step + 1,
              loss); /* without memory a curve with a gap, rather than no run */
    curve_add(&h->rates, step + 1, lr);
    curve_add(&h->speeds, step + 1, speed);
    write_step(r, step + 1, loss, lr, speed, link);
    show_progress(r, step, lr);
}

/* On a line of its own. */
static void end_bar(report *r)
{
    if (r->line_open)
        printf("\r\033[K");
    r->line_open = false;
}

void report_validation(report *r, int step, double loss)
{
    look_at_loss(r, step, loss, "validation loss");
    curve_add(&r->history.validation, step, loss);
    write_validation(r, step, loss);
    if (r->options.quiet)
        return;
    end_bar(r);
    printf("step %d  validation loss %.4f\n", step, fabs(loss));
    fflush(stdout);
}

/* ---- runs that stop and go on ---- */

/* The lines that the run had written when it was saved. */
static void write_past(report *r, const proof *proved)
{
    const history *h = &r->history;
    for (int i = 0, v = 0; i < h->train.count; i++) {
        const point *p = &h->train.points[i];
        look_at_loss(r, p->step, p->value, "loss");
        write_step(r, p->step, p->value, h->rates.points[i].value, h->speeds.points[i].value,
                   proof_find(proved, p->step));
        for (; v < h->validation.count && h->validation.points[v].step <= p->step; v++) {
            look_at_loss(r, p->step, h->validation.points[v].value, "validation loss");
            write_validation(r, h->validation.points[v].step, h->validation.points[v].value);
        }
    }
}

void report_resume(report *r, history *past, const proof *proved, int step, int ranks)
{
    history_clear(&r->history);
    r->history = *past;
    *past = (history){0};
    r->begun = now() - r->history.seconds;
    if (step < r->options.steps) /* or there is nothing left to do */
        curve_add(&r->history.resumed, step, ranks);
    write_past(r, proved);
}

void report_look_back(report *r, const step_times *times, const cz_trace_totals *update,
                      const traffic *sent, history *out)
{
    r->history.seconds = now() - r->begun;
    *out = r->history;
    out->times = *times;
    out->update = *update;
    out->traffic = *sent;
}

void report_say(report *r, const char *line)
{
    if (r->options.quiet)
        return;
    end_bar(r);
    printf("%s\n", line);
    fflush(stdout);
}

/* ---- the end ---- */

cz_status report_write_summary(const char *folder, json_t *summary)
{
    char path[4200];
    if (!summary)
        return cz_fail(CZ_ERR_MEMORY, "no memory for summary.json");
    snprintf(path, sizeof path, "%s/summary.json", folder);
    const int failed = json_dump_file(summary, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(summary);
    return failed ? cz_fail(CZ_ERR_IO, "%s: cannot be written", path) : CZ_OK;
}

static cz_status write_summary(const report *r, const memory_use *memory, json_t *spent,
                               json_t *sent, double val_loss)
{
    const options *o = &r->options;
    const curve *train = &r->history.train;
    const int count = train->count;
    json_t *state = json_array();
    for (int rank = 0; rank < memory->ranks; rank++)
        json_array_append_new(state, json_integer(memory->state_bytes[rank]));
    json_t *summary = json_pack(
        "{s:i, s:i, s:f, s:f, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:b, s:s, s:i, s:i, s:i, s:i, "
        "s:i, s:i, s:o, s:o, s:o, s:s, s:s?, s:s}",
        "world_size", memory->ranks, "steps", o->steps, "seconds", now() - r->begun,
        "tokens_per_second", tokens_per_second(r), "loss_first",
        report_number(count ? train->points[0].value : NAN), "loss_last",
        report_number(count ? train->points[count - 1].value : NAN), "val_loss",
        report_number(val_loss), "state_bytes_per_rank", state, "state_bytes_unsharded",
        (json_int_t)memory->state_bytes_unsharded, "parameter_bytes",
        (json_int_t)memory->parameter_bytes, "parts_bytes", (json_int_t)memory->parts_bytes,
        "sharded", !o->unsharded, "partition",
        o->partition == CZ_PARTITION_GREEDY ? "greedy" : "elements", "layers", o->model.layers,
        "heads", o->model.heads, "channels", o->model.channels, "block", o->model.block_size,
        "batch", o->batch, "parts", o->parts, "step_seconds", spent, "sent_bytes_per_step", sent,
        "resumed", resumed_json(&r->history.resumed), "rule", o->rule->name, "hook", o->hook,
        "czero", cz_build_info());
    if (o->dtype != CZ_F32)
        (void)json_object_set_new(summary, "dtype", json_string(cz_dtype_name(o->dtype)));
    return report_write_summary(o->out, summary);
}

cz_status report_finish(report *r, const memory_use *memory, const step_times *spent,
                        const cz_trace_totals *update, const traffic *sent, double val_loss)
{
    char path[4200];
    if (!r->options.quiet && !r->options.brief) {
        show_memory(memory);
        times_show(spent, update);
        traffic_show(sent, r->options.steps);
        show_resumed(&r->history);
        printf("\n%d steps in %.1f s, %.0f tokens/s, validation loss %.4f nats per character\n",
               r->options.steps, now() - r->begun, tokens_per_second(r), fabs(val_loss));
    }
    CZ_TRY(write_summary(r, memory, times_json(spent, update), traffic_json(sent, r->options.steps),
                         val_loss));
    snprintf(path, sizeof path, "%s/loss.svg", r->options.out);
    CZ_TRY(plot_write(path, &r->history));
    if (r->lost)
        return cz_fail(CZ_ERR_MEMORY, "no memory for all lines of metrics.jsonl");
    if (fflush(r->metrics) || ferror(r->metrics))
        return cz_fail(CZ_ERR_IO, "%s/metrics.jsonl: %s", r->options.out, strerror(errno));
    return CZ_OK;
}

/* With lines broken between words. */
static void show_sample(const char *sample)
{
    enum { COLUMNS = 78 };
    int column = 0, length;
    for (const char *at = sample; *at; at += length) {
        length = 1 + (int)strcspn(at + 1, " \n"); /* a word and what is before it */
        const bool wrap = *at == ' ' && column + length > COLUMNS;
        column = wrap || *at == '\n' ? length - 1 : column + length;
        printf("%c%.*s", wrap ? '\n' : *at, length - 1, at + 1);
    }
    putchar('\n');
}

cz_status report_sample(report *r, const char *sample)
{
    char path[4200];
    FILE *file = open_in_folder(r, "sample.txt", path, sizeof path);
    if (!file)
        return CZ_ERR_IO;
    fprintf(file, "%s\n", sample);
    CZ_TRY(close_file(file, path));
    if (!r->options.quiet && !r->options.brief) {
        printf("\ngenerated text:\n");
        show_sample(sample);
    }
    return CZ_OK;
}

void report_end(const report *r)
{
    const options *o = &r->options;
    if (!o->quiet && !o->brief)
        printf("\nin %s: metrics.jsonl, summary.json, loss.svg%s\n", o->out,
               o->sample > 0 ? ", sample.txt" : "");
    fflush(stdout);
    if (r->not_finite)
        fprintf(stderr,
                "12_gpt: the %s of step %d is not a finite number: training diverged. A lower --lr "
                "or a longer --warmup may help.\n",
                r->not_finite, r->not_finite_step);
}
