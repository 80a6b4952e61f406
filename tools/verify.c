/* SPDX-License-Identifier: MIT */
/* czero verify: is a checkpoint whole and undamaged? All that is wrong is listed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "checkpoint/folder.h"
#include "io/seal.h"
#include "coverage.h"
#include "json.h"
#include "progress.h"
#include "show.h"
#include "source.h"
#include "tool.h"

enum { OPTION_STEP = 's', OPTION_ALL = 'a', OPTION_JSON = 'j', OPTION_QUIET = 'q' };

typedef struct verify_options {
    const char *path;
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
    {"quiet", OPTION_QUIET, NULL, 0, "only the exit code, and what is wrong", 0},
    {"json", OPTION_JSON, NULL, 0, "print the result as JSON", 0},
    {0}};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "PATH",
    .doc = "Check that a checkpoint is whole and undamaged: every checksum, every header, every "
           "element exactly once. Nothing is changed.\v"
           "It ends with 0 if all is well, 1 if something is damaged or missing, 2 if it could not "
           "be looked at. Files without checksums (safetensors) are checked as far as headers "
           "and sizes go."};

/* ---- what is found ---- */

typedef struct report {
    const verify_options *options;
    json_t *root;        /* "checkpoints"; NULL without --json */
    json_t *problems;    /* of the present one */
    int64_t here, total; /* problems */
    int64_t tensors, checksums;
    uint64_t bytes;
} report;

static cz_status problem(const char *sentence, void *context)
{
    report *r = context;
    r->here++;
    r->total++;
    if (r->problems)
        return json_array_append_new(r->problems, json_any_text(sentence)) == 0
                   ? CZ_OK
                   : cz__fail(CZ_ERR_MEMORY, "no memory for JSON");
    printf("  ");
    tool_say(stdout, sentence);
    printf("\n");
    return CZ_OK;
}

/* What cannot be looked at is no damage: no rights, no descriptors, no memory, a medium that does not answer. A file that
 * is not there is. */
static bool could_not_look(cz_status status)
{
    return status == CZ_ERR_MEMORY || (status == CZ_ERR_IO && !cz__reader_missed());
}

/* A failure of the library as a problem. */
static cz_status found(report *r, cz_status status)
{
    return status == CZ_OK || could_not_look(status) ? status : problem(cz_last_error(), r);
}

static cz_status note_damage(void *context)
{
    return problem(cz_last_error(), context);
}

static cz_status check_dictionary(report *r, cz_status status, cz_state_dict **dict)
{
    cz_state_dict_destroy(dict);
    return found(r, status);
}

/* ---- a checkpoint in parts ---- */

static cz_status check_part(report *r, source *s, int rank, coverage *c)
{
    cz_state_dict *own = NULL;
    cz_status status = cz__input_part(&s->input, rank);
    if (status != CZ_OK)
        return found(r, status);
    const cz__safetensors *header = s->input.parts[rank].header;
    CZ_TRY(coverage_add(c, header, rank));
    r->tensors += cz__safetensors_count(header);
    r->bytes += cz__safetensors_data_begin(header) + cz__safetensors_data_bytes(header);
    r->checksums += cz__safetensors_count(header) + 2; /* the header's and the mark's */
    const int64_t before = r->here;
    CZ_TRY(found(r, cz__input_verify_each(&s->input, rank, note_damage, r)));
    if (r->here > before) /* its dictionary has the same tensors */
        return CZ_OK;
    status = cz__input_own(&s->input, rank, &own);
    return check_dictionary(r, status, &own);
}

/* The folder has the name that the index gives it, or nobody finds it. */
static cz_status check_name(report *r, const source *s)
{
    char wanted[64], sentence[600];
    const char *slash = strrchr(source_path(s), '/');
    const char *name = slash ? slash + 1 : source_path(s);
    snprintf(wanted, sizeof wanted, "%08" PRId64 "-step-%" PRId64, s->input.index.generation,
             s->input.index.step);
    if (strcmp(name, wanted) == 0 || strcmp(name, ".") == 0)
        return CZ_OK;
    snprintf(sentence, sizeof sentence,
             "the folder is called %s, by its index it is %s: a load does not find it",
             cz__show(name).text, wanted);
    return problem(sentence, r);
}

static cz_status check_parts(report *r, source *s, coverage *c)
{
    cz_state_dict *common = NULL;
    const int ranks = s->input.index.world_size;
    progress bar = {0};
    progress_begin(&bar, "verifying", (uint64_t)ranks, r->options->quiet);
    bar.counts = true;
    for (int k = 0; k < ranks; k++) {
        CZ_TRY(check_part(r, s, k, c));
        progress_add(&bar, 1);
    }
    progress_end(&bar);
    r->checksums++; /* the index's */
    CZ_TRY(check_dictionary(r, cz__input_common(&s->input, &common), &common));
    CZ_TRY(check_name(r, s));
    return r->here == 0 ? coverage_check(c, &s->input.index, problem, r) : CZ_OK;
}

/* ---- consolidated files ---- */

/* Its entries have CRC-32s. */
static cz_status check_torch(report *r, source *s)
{
    cz_state_dict *common = NULL;
    const cz__bundle *b = cz__input_bundle(&s->input);
    const cz__torch *file = b->torch->file;
    r->tensors = b->tensor_count;
    r->checksums = file->entry_count;
    for (int64_t i = 0; i < file->entry_count; i++)
        r->bytes += file->entries[i].bytes;
    CZ_TRY(found(r, cz__bundle_verify(b, 0, 1)));
    return check_dictionary(r, cz__input_common(&s->input, &common), &common);
}

/* Headers and names were checked when they were opened; can all bytes be read? */
static cz_status check_files(report *r, source *s)
{
    cz__checksum ignored;
    cz_state_dict *common = NULL;
    const cz__bundle *b = cz__input_bundle(&s->input);
    progress bar = {0};
    r->tensors = b->tensor_count;
    for (int f = 0; f < b->count; f++)
        r->bytes += cz__safetensors_data_begin(b->files[f].header) +
                    cz__safetensors_data_bytes(b->files[f].header);
    progress_begin(&bar, "reading", r->bytes, r->options->quiet);
    for (int f = 0; f < b->count; f++) {
        cz__reader *reader;
        cz_status status = cz__reader_open(&reader, b->files[f].path);
        if (status == CZ_OK) {
            const uint64_t bytes = cz__reader_bytes(reader);
            status = cz__reader_checksum(reader, 0, bytes, &ignored);
            cz__reader_close(&reader);
            progress_add(&bar, bytes);
        }
        CZ_TRY(found(r, status));
    }
    progress_end(&bar);
    return check_dictionary(r, cz__input_common(&s->input, &common), &common);
}

/* ---- the result ---- */

static cz_status say_result(report *r, const source *s, const char *path, json_t *item)
{
    if (item) {
        CZ_TRY(cz__json_set(item, "fine", json_boolean(r->here == 0)));
        CZ_TRY(cz__json_set(item, "tensors", json_integer(r->tensors)));
        CZ_TRY(cz__json_set(item, "checksums", json_integer(r->checksums)));
        return cz__json_set(item, "bytes", json_integer((json_int_t)r->bytes));
    }
    if (r->here > 0)
        printf("%s: not well, see above\n", path);
    else if (!r->options->quiet && s->generation)
        printf("%s: fine: %s of %s compared, every element is there exactly once\n", path,
               show_plural(r->checksums, "checksum", "checksums").text, show_bytes(r->bytes).text);
    else if (!r->options->quiet && cz__input_bundle(&s->input)->torch)
        printf("%s: fine: %s of %s compared\n", path,
               show_plural(r->checksums, "checksum", "checksums").text, show_bytes(r->bytes).text);
    else if (!r->options->quiet)
        printf("%s: fine as far as can be seen: headers, names and sizes of %s fit, %s could be "
               "read; such files have no checksums\n",
               path, show_plural(r->tensors, "tensor", "tensors").text, show_bytes(r->bytes).text);
    return CZ_OK;
}

/* `opened`: how source_open() ended. */
static cz_status check(report *r, source *s, const char *path, cz_status opened)
{
    coverage c = {0};
    json_t *item = r->root ? json_object() : NULL;
    r->here = r->tensors = r->checksums = 0;
    r->bytes = 0;
    if (r->root) {
        r->problems = json_array();
        if (json_array_append_new(json_object_get(r->root, "checkpoints"), item) != 0)
            return cz__fail(CZ_ERR_MEMORY, "no memory for JSON");
        const cz__sentence held = cz__sentence_hold();
        CZ_TRY(cz__json_set(item, "path", json_any_text(path)));
        CZ_TRY(cz__json_set(item, "problems", r->problems));
        cz__sentence_resume(held);
    }
    cz_status status = found(r, opened);
    if (status == CZ_OK && opened == CZ_OK)
        status = s->generation                        ? check_parts(r, s, &c)
                 : cz__input_bundle(&s->input)->torch ? check_torch(r, s)
                                                      : check_files(r, s);
    coverage_clear(&c);
    return status == CZ_OK ? say_result(r, s, path, item) : status;
}

static cz_status check_generation(const char *path, const cz__generation *g, void *context)
{
    source s;
    const cz_status opened = source_open(&s, path, -1);
    const cz_status status = check(context, &s, path, opened);
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
        return cz__generations_visit(o->path, check_generation, r);
    const cz_status opened = source_open(&s, o->path, o->step);
    cz_status status = opened;
    if (!is_trouble(opened)) {
        if (opened == CZ_OK)
            tool_say(stderr, cz__text_get(&s.notes));
        status = check(r, &s, opened == CZ_OK ? source_path(&s) : o->path, opened);
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
    const cz_status status = verify(&r, &o);
    const int result = r.total > 0 ? TOOL_NO : TOOL_FINE;
    if (status != CZ_OK)
        json_decref(r.root);
    else if (o.json && (json_object_set_new(r.root, "fine", json_boolean(r.total == 0)) != 0 ||
                        !json_finish(r.root)))
        return tool_trouble(argv[0], "the output cannot be written");
    if (could_not_look(status))
        return tool_trouble(argv[0],
                            "%s\nNot everything could be looked at: this says nothing about "
                            "the rest of the checkpoint",
                            cz_last_error());
    return status == CZ_OK ? tool_end(argv[0], result) : tool_failed(argv[0]);
}
