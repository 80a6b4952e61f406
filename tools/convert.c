/* SPDX-License-Identifier: MIT */
/* czero convert: the same checkpoint in another form, or for another number of ranks. */
#include "convert.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interop/archive.h"
#include "interop/bundle.h"
#include "interop/dcp_write.h"
#include "json.h"
#include "show.h"
#include "tool.h"

enum {
    OPTION_RANKS = 'n',
    OPTION_FORMAT = 'f',
    OPTION_MAX = 'm',
    OPTION_STEP = 's',
    OPTION_PARAMS = 'p',
    OPTION_STATE = 'o',
    OPTION_RULE = 'r',
    OPTION_FORCE = 'F',
    OPTION_QUIET = 'q',
    OPTION_JSON = 'j',
    OPTION_RENAME = 256, /* without a letter, as those that follow */
    OPTION_PREFIX,
    OPTION_RESHAPE,
    OPTION_AVERAGE
};

typedef struct convert_options {
    const char *from, *to, *rule;
    int64_t step;
    bool force, json;
    bool state; /* of the optimizer, in a folder of hf */
} convert_options;

typedef struct convert_request {
    convert_options options;
    conversion conversion;
    convert_rules rules;
} convert_request;

/* ---- the command line ---- */

#define TWO_PATHS "two paths are wanted: what there is, and what to make"

static convert_format format_of(const struct argp_state *state, const char *text)
{
    static const char *const names[] = {"sharded", "safetensors", "hf", "torch", "dcp"};
    for (int i = 0; i < 5; i++)
        if (strcmp(text, names[i]) == 0)
            return (convert_format)(FORMAT_SHARDED + i);
    argp_error(state, "--format is '%s', wanted sharded, safetensors, hf, torch or dcp", text);
    return FORMAT_NONE;
}

/* Where --format is not given, from what is. */
static convert_format guess(const conversion *c)
{
    if (c->ranks > 0)
        return FORMAT_SHARDED;
    if (c->max_file_bytes > 0)
        return FORMAT_HF;
    if (cz__torch_is_name(c->to))
        return FORMAT_TORCH;
    if (cz__dcp_is_name(c->to))
        return FORMAT_DISTRIBUTED;
    return cz__ends_with(c->to, ".safetensors") ? FORMAT_SAFETENSORS : FORMAT_NONE;
}

static void check_arguments(convert_request *r, const struct argp_state *state)
{
    conversion *c = &r->conversion;
    if (!r->options.to)
        argp_error(state, TWO_PATHS);
    c->to = r->options.to;
    if (c->format == FORMAT_NONE)
        c->format = guess(c);
    if (c->format == FORMAT_NONE)
        argp_error(state,
                   "into which form? --ranks N for N ranks, --format hf for a folder as Hugging "
                   "Face's, or a TO that ends with .safetensors or .pt for one file, or with .dcp "
                   "for a folder of torch.distributed.checkpoint");
    if (c->format == FORMAT_TORCH && !cz__torch_is_name(c->to))
        argp_error(state, "a file for torch has a name that ends with .pt, .pth or .bin");
    if (c->ranks > 0 && c->format != FORMAT_SHARDED)
        argp_error(state, "--ranks goes with --format sharded");
    if (c->max_file_bytes > 0 && c->format != FORMAT_HF)
        argp_error(state, "--max-file-size goes with --format hf");
    if (c->parameters_only && c->format == FORMAT_SHARDED)
        argp_error(state, "--parameters-only goes with --format safetensors, hf, torch or dcp");
    if (c->averages && c->format == FORMAT_SHARDED)
        argp_error(state, "--average goes with --format safetensors, hf, torch or dcp");
    if (c->averages && r->options.state)
        argp_error(state, "--average or --optimizer, not both: its state is of other values");
    c->parameters_only = c->parameters_only || c->averages;
    if (r->options.state && c->format != FORMAT_HF)
        argp_error(state, "--optimizer goes with --format hf: the other forms have its state");
    if (r->options.state && c->parameters_only)
        argp_error(state, "--optimizer or --parameters-only, not both");
    if (c->format == FORMAT_HF && !r->options.state) /* the way models are published */
        c->parameters_only = true;
    if (c->format == FORMAT_HF && c->max_file_bytes == 0)
        c->max_file_bytes = UINT64_C(5) << 30;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    convert_request *r = state->input;
    conversion *c = &r->conversion;
    switch (key) {
    case OPTION_RANKS:
        c->ranks = (int)tool_number(state, "ranks", text, 1, CZ__MOST_RANKS);
        return 0;
    case OPTION_FORMAT:
        c->format = format_of(state, text);
        return 0;
    case OPTION_MAX:
        c->max_file_bytes = tool_bytes(state, "max-file-size", text);
        return 0;
    case OPTION_STEP:
        r->options.step = tool_number(state, "step", text, 0, INT64_MAX);
        return 0;
    case OPTION_PARAMS:
        c->parameters_only = true;
        return 0;
    case OPTION_AVERAGE:
        c->averages = true;
        return 0;
    case OPTION_STATE:
        r->options.state = true;
        return 0;
    case OPTION_RULE:
        r->options.rule = tool_rule(state, text)->name;
        return 0;
    case OPTION_FORCE:
        r->options.force = true;
        return 0;
    case OPTION_QUIET:
        c->quiet = true;
        return 0;
    case OPTION_JSON:
        r->options.json = c->quiet = true;
        return 0;
    case OPTION_RENAME:
    case OPTION_PREFIX:
        if (convert_rules_add(&r->rules, text, key == OPTION_PREFIX) != CZ_OK)
            argp_error(state, "%s", cz_last_error());
        return 0;
    case OPTION_RESHAPE:
        if (r->rules.path)
            argp_error(state, "--reshape is given twice; a file may have any number of rules");
        r->rules.path = text;
        return 0;
    case ARGP_KEY_ARG:
        tool_take_path(state, &r->options.from, &r->options.to, text, TWO_PATHS);
        return 0;
    case ARGP_KEY_END:
        check_arguments(r, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"ranks", OPTION_RANKS, "N", 0, "a folder of checkpoints with one as N ranks would save it", 0},
    {"format", OPTION_FORMAT, "FORM", 0,
     "sharded, safetensors (one file), hf (a folder as Hugging Face's tools have it), torch (a "
     "file that torch.load() reads) or dcp (a folder that torch.distributed.checkpoint.load() "
     "reads)",
     0},
    {"max-file-size", OPTION_MAX, "BYTES", 0,
     "of elements in a file of hf, such as 500M (5G); a tensor is not split", 0},
    {"step", OPTION_STEP, "STEP", 0, "the generation of that step, instead of the newest", 0},
    {"parameters-only", OPTION_PARAMS, NULL, 0,
     "values and nothing else, the way a model is published; hf has nothing else anyway", 0},
    {"average", OPTION_AVERAGE, NULL, 0,
     "moving averages in the place of the values that have one, and nothing else", 0},
    {"optimizer", OPTION_STATE, NULL, 0,
     "in a folder of hf: the optimizer's state and what was saved beside, too", 0},
    {"rule", OPTION_RULE, "NAME", 0,
     "the optimizer's update rule, such as adamw, where a file of torch leaves it open", 0},
    {"strip-prefix", OPTION_PREFIX, "TEXT", 0, "names that begin with TEXT lose it", 0},
    {"rename", OPTION_RENAME, "FROM=TO", 0,
     "names of tensors and their state; each '*' in FROM is any text, and again in TO", 0},
    {"reshape", OPTION_RESHAPE, "FILE", 0,
     "tensors get the shapes, or are split into those, that rules in FILE say", 0},
    {"split", OPTION_RESHAPE, NULL, OPTION_ALIAS, NULL, 0},
    {"force", OPTION_FORCE, NULL, 0,
     "replace a file that is there, add to a folder that is not empty", 0},
    {"quiet", OPTION_QUIET, NULL, 0, "no bar, no summary", 0},
    {"json", OPTION_JSON, NULL, 0, "the summary as JSON", 0},
    {0}};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "FROM TO",
    .doc = "Write a checkpoint in another form, or for another number of ranks. What is read is "
           "verified first and never changed; TO appears when it is complete.\vLoading does not "
           "need this: any number of ranks loads any checkpoint. Examples:\n"
           "  czero convert checkpoints model.safetensors\n"
           "  czero convert checkpoints model.pt\n"
           "  czero convert checkpoints run.dcp\n"
           "  czero convert model.pt checkpoints --ranks 8 --rule adamw\n"
           "  czero convert model.pt model.safetensors --strip-prefix module. --rename "
           "'h.*=layers.*'\n"
           "  czero convert checkpoints model --format hf\n"
           "  czero convert checkpoints averaged.safetensors --average\n"
           "  czero convert model.safetensors checkpoints --ranks 8"};

/* ---- what is read ---- */

/* Where the files leave the rule open they now have the one that was given. */
static cz_status settle_rule(const conversion *c, const char *rule)
{
    const char *says = NULL;
    cz_state_dict *optimizer = c->input->index.optimizer;
    if (!optimizer || cz_state_dict_get_text(optimizer, "rule", &says) != CZ_OK)
        return cz_fail(CZ_ERR_ARGUMENT, "%s: --rule %s, but no state of an optimizer is read there",
                       c->input->path, rule);
    if (strcmp(says, rule) == 0)
        return CZ_OK;
    if (strcmp(says, CZ__ADAM_OR_ADAMW) == 0 &&
        (strcmp(rule, "adam") == 0 || strcmp(rule, "adamw") == 0))
        return cz_state_dict_set_text(optimizer, "rule", rule);
    return cz_fail(CZ_ERR_ARGUMENT, "%s: --rule %s, but its optimizer is %s", c->input->path, rule,
                   cz__show(says).text);
}

static cz_status open_source(convert_request *r)
{
    conversion *c = &r->conversion;
    const convert_options *o = &r->options;
    CZ_TRY(source_open_by(c->from, o->from, o->step, cz__archive_open_of_rule, o->rule));
    c->input = c->original = cz__archive_input(c->from->archive);
    if (o->rule)
        CZ_TRY(settle_rule(c, o->rule));
    if (!convert_rules_are(&r->rules) && !c->averages)
        return CZ_OK;
    CZ_TRY(convert_rules_read(&r->rules));
    CZ_TRY(convert_view(&c->view, c->original, &r->rules, c->averages));
    c->input = &c->view;
    return CZ_OK;
}

/* ---- before anything is written ---- */

/* The parts against their checksums, as a load does. */
static cz_status verify(conversion *c)
{
    const int ranks = c->original->index.world_size;
    if (!c->from->generation)
        return cz__bundle_verify(cz__input_bundle(c->original), 0, 1);
    progress_begin(&c->bar, "verifying", (uint64_t)ranks, c->quiet);
    c->bar.counts = true;
    cz_status status = CZ_OK;
    for (int k = 0; k < ranks && !status; k++) {
        status = cz__input_verify(c->original, k);
        progress_add(&c->bar, 1);
        const cz_status going_on = convert_wrote(0, c);
        if (going_on)
            status = going_on;
    }
    progress_end(&c->bar);
    return status;
}

static cz_status convert(convert_request *r)
{
    conversion *c = &r->conversion;
    if (c->format == FORMAT_SHARDED && c->ranks == 0)
        c->ranks = c->from->generation ? c->input->index.world_size : 1;
    CZ_TRY(convert_check_target(c, r->options.force));
    convert_catch_signals();
    CZ_TRY(verify(c));
    CZ_TRY(convert_check_apart(c)); /* now that all that is read was opened */
    return c->format == FORMAT_SHARDED ? convert_to_parts(c) : convert_to_files(c);
}

/* ---- afterwards ---- */

static bool say(const convert_request *r)
{
    const conversion *c = &r->conversion;
    const char *made = cz__text_get(&c->made);
    if (c->format == FORMAT_HF && c->parameters_only && c->input->index.optimizer &&
        !r->options.json && !c->quiet)
        fprintf(stderr, "note: values only; the optimizer's state goes with --optimizer\n");
    if (c->lost > 0 && !r->options.json)
        fprintf(stderr, "note: what %s had saved for %s alone (random numbers, say) is not in it\n",
                show_plural(c->lost, "rank", "ranks").text, c->lost == 1 ? "itself" : "themselves");
    if (r->options.json)
        return json_finish(json_pack("{s:o, s:o, s:I, s:I}", "from",
                                     json_any_text(c->from->info.path), "to", json_any_text(made),
                                     "bytes", (json_int_t)c->bytes, "own_dictionaries_left_out",
                                     (json_int_t)c->lost));
    if (!c->quiet)
        printf("%s: %s of elements from %s\n", show_path(made).text, show_bytes(c->bytes).text,
               show_path(c->from->info.path).text);
    return true;
}

int tool_convert(int argc, char **argv)
{
    source from = {0};
    convert_request r = {.options = {.step = -1}, .conversion = {.from = &from}};
    (void)argp_parse(&argp, argc, argv, 0, NULL, &r);
    cz_status status = open_source(&r);
    if (!status) {
        tool_say(stderr, from.info.notes);
        status = convert(&r);
    }
    progress_end(&r.conversion.bar);
    /* What is made is made: a summary that does not arrive is no failure of it. */
    if (status == CZ_OK && (!say(&r) || fflush(stdout) != 0 || ferror(stdout)))
        (void)tool_trouble(argv[0], "%s is made, but the summary cannot be written: %s",
                           cz__text_get(&r.conversion.made), strerror(errno));
    cz__text_clear(&r.conversion.made);
    cz__input_close(&r.conversion.view);
    convert_rules_clear(&r.rules);
    source_close(&from);
    return status == CZ_OK ? TOOL_FINE : tool_failed(argv[0]);
}
