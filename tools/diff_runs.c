/* SPDX-License-Identifier: MIT */
/* czero diff of two runs: the first step that differs, by their logs of losses and fingerprints. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "czero/archive.h"
#include "diff.h"
#include "json.h"
#include "tool.h"

enum { SIDES = 2 };

/* Generations in the folder "checkpoints" of a run that are nearest to where it differs; -1:
 * none. */
typedef struct nearest {
    cz__text folder; /* owned */
    cz__text before, after;
    int64_t before_step, after_step;
    int64_t same, first; /* the last step that is the same, the first that is not */
} nearest;

typedef struct runs {
    run_log log[SIDES];
    nearest nearest[SIDES];
    bool chains;                   /* of the same steps, so that they can be compared */
    int64_t steps, losses, prints; /* that both have */
    /* The first that differ; NULL: none do. */
    const run_step *loss[SIDES], *print[SIDES], *chain[SIDES];
    /* The last step that both have and that is the same, the first that is not; -1: none. */
    int64_t same, first;
} runs;

static const char *const names[SIDES] = {"A", "B"};

/* ---- comparing ---- */

/* Have both fingerprints of the same steps, as far as both go? Otherwise their chains are of
 * different links. */
static bool have_same_links(const run_log *a, const run_log *b)
{
    const int64_t last_a = a->count > 0 ? a->steps[a->count - 1].step : -1;
    const int64_t last_b = b->count > 0 ? b->steps[b->count - 1].step : -1;
    const int64_t last = last_a < last_b ? last_a : last_b;
    int64_t i = 0, j = 0;
    for (;;) {
        while (i < a->count && !a->steps[i].has_print)
            i++;
        while (j < b->count && !b->steps[j].has_print)
            j++;
        const int64_t next_a = i < a->count ? a->steps[i++].step : INT64_MAX;
        const int64_t next_b = j < b->count ? b->steps[j++].step : INT64_MAX;
        if (next_a > last && next_b > last)
            return true;
        if (next_a != next_b)
            return false;
    }
}

/* Bit for bit; what the logs have as no finite number is alike. */
static bool same_loss(double a, double b)
{
    return (a == b && signbit(a) == signbit(b)) || (isnan(a) && isnan(b));
}

static void note_first(const run_step *first[SIDES], const run_step *a, const run_step *b,
                       bool differs)
{
    if (!differs || first[0])
        return;
    first[0] = a;
    first[1] = b;
}

/* A step that both have. */
static void compare_step(runs *r, const run_step *a, const run_step *b)
{
    const bool losses = a->has_loss && b->has_loss, prints = a->has_print && b->has_print;
    if (!losses && !prints)
        return;
    const bool other_loss = losses && !same_loss(a->loss, b->loss);
    const bool other_print = prints && memcmp(a->print, b->print, sizeof a->print) != 0;
    const bool other_chain =
        prints && r->chains && memcmp(a->chain, b->chain, sizeof a->chain) != 0;
    r->steps++;
    r->losses += losses;
    r->prints += prints;
    note_first(r->loss, a, b, other_loss);
    note_first(r->print, a, b, other_print);
    note_first(r->chain, a, b, other_chain);
    if (r->first < 0 && (other_loss || other_print || other_chain))
        r->first = a->step;
    else if (r->first < 0)
        r->same = a->step;
}

static void compare_logs(runs *r)
{
    const run_log *a = &r->log[0], *b = &r->log[1];
    r->first = r->same = -1;
    r->chains = a->prints > 0 && b->prints > 0 && have_same_links(a, b);
    for (int64_t i = 0, j = 0; i < a->count && j < b->count;) {
        const int64_t step_a = a->steps[i].step, step_b = b->steps[j].step;
        if (step_a == step_b)
            compare_step(r, &a->steps[i], &b->steps[j]);
        i += step_a <= step_b;
        j += step_b <= step_a;
    }
}

/* ---- checkpoints near it ---- */

static cz_status look_at_generation(const cz_archive_generation *generation, void *context)
{
    nearest *n = context;
    const int64_t step = generation->step;
    const bool before = step <= n->same && step > n->before_step;
    const bool after = step >= n->first && (n->after_step < 0 || step < n->after_step);
    if (!generation->complete || (!before && !after))
        return CZ_OK;
    *(before ? &n->before_step : &n->after_step) = step;
    cz__text *path = before ? &n->before : &n->after;
    cz__text_clear(path);
    return cz__text_print(path, "%s", generation->path)
               ? CZ_OK
               : cz_fail(CZ_ERR_MEMORY, "no memory for a path");
}

static cz_status find_nearest(const runs *r, int side, nearest *n)
{
    const run_log *log = &r->log[side];
    n->before_step = n->after_step = -1;
    n->same = r->same;
    n->first = r->first;
    if (!log->in_folder || r->first < 0)
        return CZ_OK;
    const int length = (int)(strlen(log->path) - strlen(RUN_LOG_FILE));
    if (!cz__text_print(&n->folder, "%.*scheckpoints", length, log->path))
        return cz_fail(CZ_ERR_MEMORY, "no memory for a path");
    return cz_archive_list(cz__text_get(&n->folder), look_at_generation, n);
}

/* ---- the result for people ---- */

static shown loss_of(const run_step *step)
{
    shown out;
    snprintf(out.text, sizeof out.text, "%.17g", step->loss);
    return out;
}

static void say_number(const char *what, const run_step *const first[SIDES], bool chain)
{
    char digits[SIDES][33];
    if (!first[0])
        return;
    for (int k = 0; k < SIDES; k++)
        run_log_digits(chain ? first[k]->chain : first[k]->print, digits[k]);
    printf("%-11s  step %" PRId64 ": %s in A, %s in B\n", what, first[0]->step, digits[0],
           digits[1]);
}

static void say_loss(const runs *r)
{
    if (r->loss[0])
        printf("loss         step %" PRId64 ": %s in A, %s in B\n", r->loss[0]->step,
               loss_of(r->loss[0]).text, loss_of(r->loss[1]).text);
    else if (r->losses > 0)
        printf("losses       the same in all of %s\n",
               show_plural(r->losses, "step", "steps").text);
}

static void say_nearest(const runs *r)
{
    const nearest *a = &r->nearest[0], *b = &r->nearest[1];
    for (int k = 0; k < SIDES; k++) {
        const nearest *n = &r->nearest[k];
        if (n->before_step >= 0)
            printf("checkpoint   of %s before: %s\n", names[k],
                   show_path(cz__text_get(&n->before)).text);
        if (n->after_step >= 0)
            printf("checkpoint   of %s from there on: %s\n", names[k],
                   show_path(cz__text_get(&n->after)).text);
    }
    if (a->after_step >= 0 && a->after_step == b->after_step)
        printf("compare      czero diff --step %" PRId64 " %s %s\n", a->after_step,
               show_path(cz__text_get(&a->folder)).text, show_path(cz__text_get(&b->folder)).text);
}

/* What could not be compared. */
static void say_limits(const runs *r)
{
    const run_log *a = &r->log[0], *b = &r->log[1];
    if (a->prints == 0 || b->prints == 0)
        printf("no fingerprints in %s: only losses were compared\n",
               a->prints + b->prints == 0 ? "A and B" : names[a->prints > 0]);
    else if (!r->chains)
        printf("fingerprints are of different steps in A and B: %s that both have were compared, "
               "chains were not\n",
               show_count(r->prints).text);
}

static void say_rest(const runs *r)
{
    int64_t last[SIDES];
    for (int k = 0; k < SIDES; k++)
        last[k] = r->log[k].steps[r->log[k].count - 1].step;
    if (last[0] != last[1])
        printf("; %s goes on to step %" PRId64, names[last[1] > last[0]],
               last[0] > last[1] ? last[0] : last[1]);
    printf("\n");
}

static void say_same(const runs *r)
{
    printf("the same: %s compared", show_plural(r->steps, "step", "steps").text);
    if (r->losses > 0)
        printf(", %s", show_plural(r->losses, "loss", "losses").text);
    if (r->prints > 0)
        printf(", %s%s", show_plural(r->prints, "fingerprint", "fingerprints").text,
               r->chains ? " and their chain" : "");
    printf(", equal in every bit");
    say_rest(r);
}

static void say_different(const runs *r)
{
    say_number("fingerprint", r->print, false);
    say_number("chain", r->chain, true);
    say_loss(r);
    say_nearest(r);
    if (r->chain[0] && r->chain[0]->step == r->first && !r->loss[0] && !r->print[0])
        printf("chains differ where fingerprints do not: an earlier step differs, which the logs "
               "do not have\n");
    say_limits(r);
    printf("different: step %" PRId64 " is the first of %s that differs", r->first,
           show_plural(r->steps, "step", "steps").text);
    if (r->same >= 0)
        printf("; up to step %" PRId64 " all is the same", r->same);
    printf("\n");
}

/* ---- and as JSON ---- */

static json_t *step_json(int64_t step)
{
    return step >= 0 ? json_integer((json_int_t)step) : json_null();
}

static json_t *first_json(const run_step *const first[SIDES])
{
    return step_json(first[0] ? first[0]->step : -1);
}

static json_t *checkpoint_json(const nearest *n)
{
    return json_pack("{s:o, s:o}", "before",
                     n->before_step >= 0 ? json_any_text(cz__text_get(&n->before)) : json_null(),
                     "after",
                     n->after_step >= 0 ? json_any_text(cz__text_get(&n->after)) : json_null());
}

static json_t *side_json(const runs *r, int side)
{
    const run_log *log = &r->log[side];
    return json_pack("{s:o, s:I, s:o, s:I, s:o}", "path", json_any_text(log->path), "steps",
                     (json_int_t)log->count, "last",
                     step_json(log->count > 0 ? log->steps[log->count - 1].step : -1),
                     "fingerprints", (json_int_t)log->prints, "checkpoints",
                     checkpoint_json(&r->nearest[side]));
}

static bool say_json(const runs *r)
{
    return json_finish(json_pack(
        "{s:o, s:o, s:b, s:I, s:I, s:I, s:b, s:o, s:o, s:o, s:o, s:o}", "a", side_json(r, 0), "b",
        side_json(r, 1), "same", r->first < 0, "compared", (json_int_t)r->steps, "losses",
        (json_int_t)r->losses, "fingerprints", (json_int_t)r->prints, "chains", r->chains, "first",
        step_json(r->first), "last_same", step_json(r->same), "first_loss", first_json(r->loss),
        "first_fingerprint", first_json(r->print), "first_chain", first_json(r->chain)));
}

/* ---- all of it ---- */

static cz_status nothing_in_both(const runs *r)
{
    const run_log *a = &r->log[0], *b = &r->log[1];
    for (int k = 0; k < SIDES; k++)
        if (r->log[k].count == 0)
            return cz_fail(CZ_ERR_ARGUMENT,
                           "%s: no line of it has a step with a loss or a fingerprint",
                           r->log[k].path);
    return cz_fail(CZ_ERR_ARGUMENT,
                   "no step of A, which has %" PRId64 " to %" PRId64
                   ", can be compared with one of B, which has %" PRId64 " to %" PRId64,
                   a->steps[0].step, a->steps[a->count - 1].step, b->steps[0].step,
                   b->steps[b->count - 1].step);
}

static void say(const runs *r)
{
    if (r->first >= 0) {
        say_different(r);
        return;
    }
    say_limits(r);
    say_same(r);
}

static cz_status compare_runs(runs *r, const char *const paths[SIDES], diff_wish wish)
{
    for (int k = 0; k < SIDES; k++)
        CZ_TRY(run_log_read(&r->log[k], paths[k]));
    compare_logs(r);
    if (r->steps == 0)
        return nothing_in_both(r);
    for (int k = 0; k < SIDES; k++) {
        run_log_notes(&r->log[k]);
        CZ_TRY(find_nearest(r, k, &r->nearest[k]));
    }
    if (wish.json)
        return say_json(r) ? CZ_OK : cz_fail(CZ_ERR_IO, "the output cannot be written");
    if (!wish.quiet)
        say(r);
    return CZ_OK;
}

cz_status diff_runs(const char *a, const char *b, diff_wish wish, bool *differ)
{
    runs r = {0};
    const cz_status status = compare_runs(&r, (const char *const[]){a, b}, wish);
    *differ = r.first >= 0;
    for (int k = 0; k < SIDES; k++) {
        run_log_clear(&r.log[k]);
        cz__text_clear(&r.nearest[k].folder);
        cz__text_clear(&r.nearest[k].before);
        cz__text_clear(&r.nearest[k].after);
    }
    return status;
}
