/* SPDX-License-Identifier: MIT */
/* czero verify: is a checkpoint whole and undamaged, and that of its run? All that is wrong is
 * listed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "io/json.h"
#include "io/stream.h"
#include "json.h"
#include "progress.h"
#include "show.h"
#include "source.h"
#include "tool.h"
#include "verify.h"

enum {
    OPTION_STEP = 's',
    OPTION_ALL = 'a',
    OPTION_RUN = 'r',
    OPTION_JSON = 'j',
    OPTION_QUIET = 'q'
};

typedef struct verify_options {
    const char *path;
    const char *run; /* NULL: its run is not asked */
    int64_t step;
    bool all, json, quiet;
} verify_options;

static error_t parse(int key, char *text, struct argp_state *state)
{
    verify_options *o = state->input;
    switch (key) {
    case OPTION_STEP:
        o->step = tool_number(state, "step", text, 0, INT64_MAX);
        return 0;
    case OPTION_ALL:
        o->all = true;
        return 0;
    case OPTION_RUN:
        o->run = text;
        return 0;
    case OPTION_JSON:
        o->json = true;
        return 0;
    case OPTION_QUIET:
        o->quiet = true;
        return 0;
    case ARGP_KEY_ARG:
        if (o->path)
            argp_error(state, "one checkpoint at a time");
        o->path = text;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which checkpoint? Give its folder, or a .safetensors or .pt file");
        return 0;
    case ARGP_KEY_END:
        if (o->all && o->step >= 0)
            argp_error(state, "--all or --step, not both");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"step", OPTION_STEP, "STEP", 0, "the generation of that step, instead of the newest", 0},
    {"all", OPTION_ALL, NULL, 0, "every generation in the folder", 0},
    {"run", OPTION_RUN, "FOLDER", 0,
     "compare it with the fingerprints of the run that saved it, in FOLDER/" RUN_LOG_FILE, 0},
    {"quiet", OPTION_QUIET, NULL, 0, "only the exit code, and what is wrong", 0},
    {"json", OPTION_JSON, NULL, 0, "print the result as JSON", 0},
    {0}};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "PATH",
    .doc = "Check that a checkpoint is whole and undamaged: every checksum, every header, every "
           "element exactly once. Nothing is changed.\vIt ends with 0 if all is well, 1 if "
           "something is damaged or missing, 2 if it could not be looked at. Files without "
           "checksums (safetensors) are checked as far as headers and sizes go."};

/* ---- what is found ---- */

typedef struct report {
    const verify_options *options;
    json_t *root;        /* "checkpoints"; NULL without --json */
    json_t *problems;    /* of the present one */
    int64_t here, total; /* problems */
    const source *source;
    progress bar;
    cz_verify_result result;
    run_log log;        /* with --run */
    verify_proof proof; /* of the present one */
} report;

static cz_status problem(const char *sentence, void *context)
{
    report *r = context;
    r->here++;
    r->total++;
    if (r->problems)
        return json_array_append_new(r->problems, json_any_text(sentence)) == 0
                   ? CZ_OK
                   : cz_fail(CZ_ERR_MEMORY, "no memory for JSON");
    printf("  ");
    tool_say(stdout, sentence);
    printf("\n");
    return CZ_OK;
}

/* What cannot be looked at is no damage: no rights, no descriptors, no memory, a medium that does
 * not answer. A file that is not there is. */
static bool could_not_look(cz_status status)
{
    return status == CZ_ERR_MEMORY || (status == CZ_ERR_IO && !cz__reader_missed());
}

/* A failure of the library as a problem. */
static cz_status found(report *r, cz_status status)
{
    return status == CZ_OK || could_not_look(status) ? status : problem(cz_last_error(), r);
}

/* ---- verifying ---- */

static void show_progress(uint64_t done, uint64_t total, void *context)
{
    report *r = context;
    if (done == 0)
        progress_begin(&r->bar, r->source->generation ? "verifying" : "reading", total,
                       r->options->quiet);
    r->bar.counts = r->source->generation;
    progress_add(&r->bar, done - r->bar.done);
}

/* All that is wrong with it was said on the way. */
static cz_status verify_source(report *r, const source *s)
{
    const cz_verify_options watched = {sizeof watched, problem, show_progress, r};
    r->source = s;
    r->bar = (progress){0};
    const cz_status status = cz_archive_verify(s->archive, &watched, &r->result);
    progress_end(&r->bar);
    return status == CZ_ERR_FORMAT && r->here > 0 ? CZ_OK : status;
}

/* What is damaged has no fingerprint to compare. */
static cz_status verify_run(report *r, const source *s)
{
    return r->options->run && r->here == 0 ? verify_proof_of(s, &r->log, problem, r, &r->proof)
                                           : CZ_OK;
}

/* ---- the result ---- */

static cz_status set_proof(const report *r, json_t *item)
{
    char digits[33];
    if (!r->options->run || r->proof.print[0] + r->proof.print[1] == 0)
        return CZ_OK;
    run_log_digits(r->proof.print, digits);
    CZ_TRY(cz__json_set(item, "fingerprint", json_string(digits)));
    return cz__json_set(item, "links", json_integer((json_int_t)r->proof.links));
}

static void say_proof(const report *r, const source *s)
{
    char digits[33];
    run_log_digits(r->proof.print, digits);
    printf("  fingerprint %s: as %s, %s\n", digits,
           r->proof.in_log ? "the log of its run says" : "when it was saved",
           r->proof.links > 0 ? "and the chain up to it holds" : "before the chain begins");
    printf("  %s up to step %" PRId64 " in %s\n",
           show_plural(r->proof.links, "fingerprint", "fingerprints").text, s->info.step,
           show_path(r->log.path).text);
}

static cz_status say_result(report *r, const source *s, const char *path, json_t *item)
{
    if (item) {
        CZ_TRY(cz__json_set(item, "fine", json_boolean(r->here == 0)));
        CZ_TRY(cz__json_set(item, "tensors", json_integer(r->result.tensors)));
        CZ_TRY(cz__json_set(item, "checksums", json_integer(r->result.checksums)));
        CZ_TRY(set_proof(r, item));
        return cz__json_set(item, "bytes", json_integer((json_int_t)r->result.bytes));
    }
    const shown_path where = show_path(path);
    if (r->here > 0)
        printf("%s: not well, see above\n", where.text);
    else if (!r->options->quiet && s->generation)
        printf("%s: fine: %s of %s compared, every element is there exactly once\n", where.text,
               show_plural(r->result.checksums, "checksum", "checksums").text,
               show_bytes(r->result.bytes).text);
    else if (!r->options->quiet && s->info.torch)
        printf("%s: fine: %s of %s compared\n", where.text,
               show_plural(r->result.checksums, "checksum", "checksums").text,
               show_bytes(r->result.bytes).text);
    else if (!r->options->quiet)
        printf("%s: fine as far as can be seen: headers, names and sizes of %s fit, %s could be "
               "read; such files have no checksums\n",
               where.text, show_plural(r->result.tensors, "tensor", "tensors").text,
               show_bytes(r->result.bytes).text);
    if (r->options->run && r->here == 0 && !r->options->quiet)
        say_proof(r, s);
    return CZ_OK;
}

/* `opened`: how source_open() ended. */
static cz_status report_source(report *r, source *s, const char *path, cz_status opened)
{
    json_t *item = r->root ? json_object() : NULL;
    r->here = 0;
    r->result = (cz_verify_result)CZ_VERIFY_RESULT_INIT;
    r->proof = (verify_proof){0};
    if (r->root) {
        r->problems = json_array();
        if (json_array_append_new(json_object_get(r->root, "checkpoints"), item) != 0)
            return cz_fail(CZ_ERR_MEMORY, "no memory for JSON");
        const cz__sentence held = cz__sentence_hold();
        CZ_TRY(cz__json_set(item, "path", json_any_text(path)));
        CZ_TRY(cz__json_set(item, "problems", r->problems));
        cz__sentence_resume(held);
    }
    cz_status status = found(r, opened);
    if (status == CZ_OK && opened == CZ_OK)
        status = verify_source(r, s);
    if (status == CZ_OK && opened == CZ_OK)
        status = verify_run(r, s);
    return status == CZ_OK ? say_result(r, s, path, item) : status;
}

static cz_status check_generation(const cz_archive_generation *g, void *context)
{
    source s;
    const cz_status opened = source_open(&s, g->path, -1);
    const cz_status status = report_source(context, &s, g->path, opened);
    source_close(&s);
    return status;
}

/* What is no checkpoint, or cannot be read, is trouble and not damage. */
static bool is_trouble(cz_status status)
{
    return status == CZ_ERR_ARGUMENT || status == CZ_ERR_UNSUPPORTED || could_not_look(status);
}

static cz_status verify(report *r, const verify_options *o)
{
    source s;
    bool folder = false;
    if (o->all)
        CZ_TRY(source_is_folder(o->path, &folder));
    if (folder)
        return cz_archive_list(o->path, check_generation, r);
    const cz_status opened = source_open(&s, o->path, o->step);
    cz_status status = opened;
    if (!is_trouble(opened)) {
        if (opened == CZ_OK)
            tool_say(stderr, s.info.notes);
        status = report_source(r, &s, opened == CZ_OK ? s.info.path : o->path, opened);
    }
    source_close(&s);
    return status;
}

int tool_verify(int argc, char **argv)
{
    verify_options o = {.step = -1};
    (void)argp_parse(&argp, argc, argv, 0, NULL, &o);
    report r = {.options = &o};
    if (o.json) {
        r.root = json_pack("{s:[]}", "checkpoints");
        o.quiet = true;
        if (!r.root)
            return tool_trouble(argv[0], "no memory for JSON");
    }
    cz_status status = o.run ? run_log_read(&r.log, o.run) : CZ_OK;
    if (status == CZ_OK && o.run)
        run_log_notes(&r.log);
    if (status == CZ_OK)
        status = verify(&r, &o);
    run_log_clear(&r.log);
    const int result = r.total > 0 ? TOOL_NO : TOOL_FINE;
    if (status != CZ_OK)
        json_decref(r.root);
    else if (o.json && (json_object_set_new(r.root, "fine", json_boolean(r.total == 0)) != 0 ||
                        !json_finish(r.root)))
        return tool_trouble(argv[0], "the output cannot be written");
    if (could_not_look(status))
        return tool_trouble(argv[0],
                            "%s\nNot everything could be looked at: this says nothing about the "
                            "rest of the checkpoint",
                            cz_last_error());
    return status == CZ_OK ? tool_end(argv[0], result) : tool_failed(argv[0]);
}
