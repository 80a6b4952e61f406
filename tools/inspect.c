/* SPDX-License-Identifier: MIT */
/* czero inspect: what a checkpoint holds. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "inspect.h"
#include "metadata.h"
#include "tool.h"

enum { OPTION_STEP = 's', OPTION_PARAMS = 'p', OPTION_ALL = 'a', OPTION_JSON = 'j' };

static error_t parse(int key, char *text, struct argp_state *state)
{
    inspect_options *o = state->input;
    switch (key) {
    case OPTION_STEP:
        o->step = tool_number(state, "step", text, 0, INT64_MAX);
        return 0;
    case OPTION_PARAMS:
        o->tree.pattern = text;
        return 0;
    case OPTION_ALL:
        o->tree.all = true;
        return 0;
    case OPTION_JSON:
        o->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (o->path)
            argp_error(state, "one checkpoint at a time; to compare two: czero diff");
        o->path = text;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "of which checkpoint? Give its folder, or a .safetensors file");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"step", OPTION_STEP, "STEP", 0, "the generation of that step, instead of the newest", 0},
    {"params", OPTION_PARAMS, "PATTERN", 0,
     "only tensors whose names fit, such as 'layers.0.*' (quoted)", 0},
    {"all", OPTION_ALL, NULL, 0, "list everything: do not fold what is alike", 0},
    {"json", OPTION_JSON, NULL, 0, "print all of it as JSON", 0},
    {0}};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "PATH",
    .doc = "Show what a checkpoint holds: tensors, their shapes and sizes, who wrote them, the "
           "optimizer's settings and steps. Nothing is changed.\vPATH is a folder of checkpoints "
           "(its newest complete one is shown), one of these, a safetensors file, a folder with "
           "model.safetensors.index.json, a .pt file of torch, or a folder of "
           "torch.distributed.checkpoint."};

/* ---- for people ---- */

static void say_sizes(const source *s)
{
    uint64_t values = 0, state = 0;
    int64_t elements = 0, in_buffers = 0;
    for (int64_t i = 0; i < source_count(s); i++) {
        values += source_value_bytes(s, i);
        state += source_state_bytes(s, i);
        *(i < s->info.param_count ? &elements : &in_buffers) += source_tensor(s, i).count;
    }
    printf("  parameters  %s in %s\n", show_plural(elements, "element", "elements").text,
           show_plural(s->info.param_count, "tensor", "tensors").text);
    if (s->info.buffer_count > 0)
        printf("  buffers     %s in %s\n", show_plural(in_buffers, "element", "elements").text,
               show_plural(s->info.buffer_count, "tensor", "tensors").text);
    printf("  bytes       %s of values", show_bytes(values).text);
    if (state > 0)
        printf(", %s of optimizer state", show_bytes(state).text);
    printf("\n");
}

static void say_rule(const source *s)
{
    const char *rule;
    if (s->info.foreign)
        printf("  optimizer   the files say nothing of one\n");
    else if (!s->info.optimizer)
        printf("  optimizer   none was saved\n");
    else if (cz_state_dict_get_text(s->info.optimizer, "rule", &rule) == CZ_OK)
        printf("  optimizer   %s%s\n", cz__show(rule).text,
               inspect_group_rules(s) ? ", and rules of parameter groups" : "");
}

static void say_head(const source *s, bool all)
{
    printf("%s: %s\n", show_path(s->info.path).text, s->info.kind);
    if (s->info.step >= 0)
        printf("  step        %s\n", show_count(s->info.step).text);
    if (s->generation)
        printf("  saved by    %s, czero %s\n",
               show_plural(s->info.world_size, "rank", "ranks").text,
               s->info.library ? cz__show(s->info.library).text : "?");
    if (s->info.parts > 0)
        printf("  parts       %s of each batch\n", show_count(s->info.parts).text);
    say_sizes(s);
    say_rule(s);
    metadata_say(s, all);
}

static cz_status say_tensors(const source *s, const inspect_options *o, bool *folded)
{
    table rows = {0};
    int64_t count;
    tree_options tree = o->tree;
    tree.ranks = s->generation;
    const cz_status status = tree_rows(&rows, s, &tree, folded, &count);
    if (status == CZ_OK) {
        printf("\n");
        table_print(&rows, stdout);
    }
    table_clear(&rows);
    if (status == CZ_OK && count == 0)
        printf(tree.pattern ? "no tensor's name fits '%s'; '*' stands for any characters\n"
                            : "no tensors\n",
               tree.pattern);
    return status;
}

static cz_status say_all(source *s, const inspect_options *o)
{
    bool folded;
    say_head(s, o->tree.all);
    CZ_TRY(say_tensors(s, o, &folded));
    if (!o->tree.pattern)
        CZ_TRY(inspect_rest(s, o->tree.all));
    if (folded)
        printf("\nTensors that are alike but for a number are shown once; --all lists each%s.\n",
               s->generation ? ", and who wrote it" : "");
    return CZ_OK;
}

int tool_inspect(int argc, char **argv)
{
    inspect_options o = {.step = -1};
    source s;
    (void)argp_parse(&argp, argc, argv, 0, NULL, &o);
    cz_status status = source_open(&s, o.path, o.step);
    if (!status) {
        tool_say(stderr, s.info.notes);
        status = o.json ? inspect_json(&s, &o) : say_all(&s, &o);
    }
    source_close(&s);
    return status == CZ_OK ? tool_end(argv[0], TOOL_FINE) : tool_failed(argv[0]);
}
