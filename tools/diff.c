/* SPDX-License-Identifier: MIT */
/* czero diff: what differs between two checkpoints, and by how much; or two runs, and from which
 * step on. */
#include "diff.h"
#include "metadata.h"

#include <inttypes.h>
#include <stdio.h>

#include "json.h"
#include "tool.h"

enum {
    OPTION_ULPS = 'u',
    OPTION_STEP = 's',
    OPTION_ALL = 'a',
    OPTION_PARAMS = 'p',
    OPTION_QUIET = 'q',
    OPTION_JSON = 'j'
};

typedef struct diff_options {
    const char *a, *b;
    int64_t step[2];
    int steps; /* that were given */
    bool json;
    const char *of_checkpoints; /* an option that is for them alone; NULL: none */
} diff_options;

typedef struct diff_request {
    diff_options options;
    comparison comparison;
} diff_request;

#define TWO_CHECKPOINTS "two checkpoints are wanted, A and B, or the folders of two runs"

/* Once it is for both, twice for A and then for B. */
static void take_step(const struct argp_state *state, diff_options *o, const char *text)
{
    const int64_t step = tool_number(state, "step", text, 0, INT64_MAX);
    if (o->steps == 2)
        argp_error(state, "--step is given once, or twice: for A and for B");
    o->step[o->steps++] = step;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    diff_request *r = state->input;
    comparison *c = &r->comparison;
    switch (key) {
    case OPTION_ULPS:
        c->tolerant = true;
        r->options.of_checkpoints = "ulps";
        c->allowed = (uint64_t)tool_number(state, "ulps", text, 0, INT64_MAX);
        return 0;
    case OPTION_STEP:
        take_step(state, &r->options, text);
        r->options.of_checkpoints = "step";
        return 0;
    case OPTION_ALL:
        c->all = true;
        r->options.of_checkpoints = "all";
        return 0;
    case OPTION_PARAMS:
        c->parameters_only = true;
        r->options.of_checkpoints = "parameters-only";
        return 0;
    case OPTION_QUIET:
        c->quiet = true;
        return 0;
    case OPTION_JSON:
        r->options.json = c->quiet = true;
        return 0;
    case ARGP_KEY_ARG:
        tool_take_path(state, &r->options.a, &r->options.b, text, TWO_CHECKPOINTS);
        return 0;
    case ARGP_KEY_END:
        if (!r->options.b)
            argp_error(state, TWO_CHECKPOINTS);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"ulps", OPTION_ULPS, "N", 0,
     "elements that are up to N steps of their type apart are no difference", 0},
    {"step", OPTION_STEP, "STEP", 0,
     "in a folder of generations: that of this step, instead of the newest; twice: of A, then of B",
     0},
    {"all", OPTION_ALL, NULL, 0, "list tensors that are the same, too", 0},
    {"parameters-only", OPTION_PARAMS, NULL, 0,
     "only values of parameters and buffers: neither state nor settings", 0},
    {"quiet", OPTION_QUIET, NULL, 0, "print nothing: only the exit code", 0},
    {"json", OPTION_JSON, NULL, 0, "print the result as JSON", 0},
    {0}};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "A B",
    .doc =
        "Say what differs between two checkpoints: tensors by name, by how much, the optimizer's "
        "state and settings. Forms, numbers of ranks and partitions may be different.\vA and B are "
        "paths as for czero inspect; a generation may be given by its own folder, too, such as "
        "checkpoints/00000003-step-300. Or they are two run folders, with metrics.jsonl: the first "
        "step that differs. It ends with 0 if they are the same, 1 if not, 2 in trouble."};

static cz_status compare(comparison *c)
{
    CZ_TRY(diff_tensors(c));
    if (!c->parameters_only)
        CZ_TRY(metadata_compare(c));
    return c->parameters_only ? CZ_OK : diff_settings(c);
}

static bool differ(const comparison *c)
{
    return c->differing > 0 || c->other_count > 0;
}

static bool say_json(comparison *c)
{
    json_t *root =
        json_pack("{s:o, s:o, s:b, s:I, s:I, s:s, s:O, s:O}", "a", json_any_text(c->a->info.path),
                  "b", json_any_text(c->b->info.path), "same", !differ(c), "compared",
                  (json_int_t)c->compared, "differing", (json_int_t)c->differing, "hint",
                  cz__text_get(&c->hint), "tensors", c->tensors, "others", c->others);
    return json_finish(root);
}

/* "; values differ by 1.2 % of their size" */
static void say_part(const char *equal, const char *differ, const distance *d)
{
    if (d->count == 0)
        return;
    printf("; %s", d->different == 0 ? equal : differ);
    if (d->different > 0 && d->size > 0)
        printf(" by %.2g %% of their size", 100 * ulps_relative(d));
}

static void say_difference(const comparison *c)
{
    const int64_t a = c->a->info.step, b = c->b->info.step;
    printf("different: %s of %s, %s", show_count(c->differing).text,
           show_plural(c->compared, "tensor", "tensors").text,
           show_plural(c->other_count, "other difference", "other differences").text);
    if (a >= 0 && b >= 0 && a != b && !c->parameters_only && !c->a->info.foreign &&
        !c->b->info.foreign)
        printf("; B is %s %s A", show_plural(a < b ? b - a : a - b, "step", "steps").text,
               a < b ? "after" : "before");
    say_part("values are equal", "values differ", &c->values);
    say_part("the optimizer's state is equal", "the optimizer's state differs", &c->state);
    printf("\n");
}

static void say(const comparison *c)
{
    diff_fold_print(c);
    if (c->other_count > 0) {
        diff_notes_print(c);
        printf("\n");
    }
    if (c->hint.count > 0)
        printf("%s\n", cz__text_get(&c->hint));
    if (!differ(c) && c->tolerant)
        printf("the same, to %" PRIu64 " ulps: %s compared\n", c->allowed,
               show_plural(c->compared, "tensor", "tensors").text);
    else if (!differ(c))
        printf("the same: %s compared, equal in every bit\n",
               show_plural(c->compared, "tensor", "tensors").text);
    else
        say_difference(c);
    if (c->a->info.foreign || c->b->info.foreign)
        printf("one of them has values and nothing else: only these were compared\n");
}

/* One that is for both is for those that have generations, of which there has to be one. */
static cz_status choose_steps(const diff_options *o, int64_t step[2])
{
    bool folder[2] = {true, true};
    step[0] = o->steps > 0 ? o->step[0] : -1;
    step[1] = o->steps == 2 ? o->step[1] : step[0];
    if (o->steps != 1)
        return CZ_OK;
    CZ_TRY(source_is_folder(o->a, &folder[0]));
    CZ_TRY(source_is_folder(o->b, &folder[1]));
    for (int k = 0; k < 2; k++)
        if (!folder[k] && folder[1 - k])
            step[k] = -1;
    return CZ_OK;
}

static cz_status compare_sources(diff_request *r, source *a, source *b)
{
    comparison *c = &r->comparison;
    int64_t step[2];
    CZ_TRY(choose_steps(&r->options, step));
    CZ_TRY(source_open(a, r->options.a, step[0]));
    CZ_TRY(source_open(b, r->options.b, step[1]));
    tool_say(stderr, a->info.notes);
    tool_say(stderr, b->info.notes);
    if (r->options.json && (!(c->tensors = json_array()) || !(c->others = json_array())))
        return cz_fail(CZ_ERR_MEMORY, "no memory for JSON");
    CZ_TRY(compare(c));
    if (r->options.json)
        return say_json(c) ? CZ_OK : cz_fail(CZ_ERR_IO, "the output cannot be written");
    if (!c->quiet)
        say(c);
    return CZ_OK;
}

/* Two runs, or neither is one. */
static cz_status look_for_runs(const diff_options *o, bool *are)
{
    bool a, b;
    CZ_TRY(run_log_is(o->a, &a));
    CZ_TRY(run_log_is(o->b, &b));
    *are = a && b;
    if (a != b)
        return cz_fail(CZ_ERR_ARGUMENT, "%s is a run, with " RUN_LOG_FILE ", and %s is not",
                       a ? o->a : o->b, a ? o->b : o->a);
    return *are && o->of_checkpoints
               ? cz_fail(CZ_ERR_ARGUMENT, "--%s is for checkpoints, and these are runs",
                         o->of_checkpoints)
               : CZ_OK;
}

int tool_diff(int argc, char **argv)
{
    source a = {0}, b = {0};
    diff_request r = {.comparison = {.a = &a, .b = &b}};
    (void)argp_parse(&argp, argc, argv, 0, NULL, &r);
    bool are_runs = false, runs_differ = false;
    cz_status status = look_for_runs(&r.options, &are_runs);
    if (status == CZ_OK && are_runs)
        status = diff_runs(r.options.a, r.options.b,
                           (diff_wish){r.comparison.quiet, r.options.json}, &runs_differ);
    else if (status == CZ_OK)
        status = compare_sources(&r, &a, &b);
    const int result = differ(&r.comparison) || runs_differ ? TOOL_NO : TOOL_FINE;
    diff_fold_destroy(&r.comparison.fold);
    cz__text_clear(&r.comparison.hint);
    cz__text_clear(&r.comparison.notes);
    json_decref(r.comparison.tensors);
    json_decref(r.comparison.others);
    source_close(&a);
    source_close(&b);
    return status == CZ_OK ? tool_end(argv[0], result) : tool_failed(argv[0]);
}
