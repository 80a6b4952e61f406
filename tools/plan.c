/* SPDX-License-Identifier: MIT */
/* czero plan: what a training would need, before anything is allocated. */
#include "guard.h"
#include "plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

enum {
    OPTION_RANKS = 'n',
    OPTION_RULE = 'r',
    OPTION_SET = 's',
    OPTION_PARTITION = 'p',
    OPTION_OVERLAP = 'o',
    OPTION_UNSHARDED = 'u',
    OPTION_BUCKET = 'b',
    OPTION_JSON = 'j',
    OPTION_NO_BUCKETS = 256,
    OPTION_FIRST_BUCKET,
    OPTION_SEGMENT,
    OPTION_IN_PROCESS,
    OPTION_ALL_REDUCE,
    OPTION_WIRE,
    OPTION_VIEWS,
    OPTION_AVERAGE,
    OPTION_SVG,
    OPTION_FORCE,
    OPTION_PARTS,
    OPTION_GRANULE
};

enum { HYPERS = 16, MOST_RANKS = 1 << 20 };

/* What is being read; the lists that options point to. */
typedef struct list_reading {
    plan_request request;
    cz_hyper hypers[HYPERS + 1];
    int hyper_count;
} list_reading;

/* ---- the command line ---- */

static int find_word(const struct argp_state *state, const char *option, const char *text,
                     const char *(*word)(int), int count)
{
    char list[200] = "";
    for (int k = 0; k < count; k++) {
        if (strcmp(word(k), text) == 0)
            return k;
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", k ? ", " : "", word(k));
    }
    argp_error(state, "--%s is '%s', wanted one of: %s", option, text, list);
    return 0;
}

static const char *partition_at(int k)
{
    return plan_partition_word((cz_partition)(k < CZ_PARTITION_GIVEN ? k : k + 1));
}

static const char *overlap_at(int k)
{
    return plan_overlap_word((cz_overlap)k);
}

static const char *wire_at(int k)
{
    return k ? "bf16" : "f16";
}

/* "1,8,64" */
static void read_ranks(plan_request *r, char *text, const struct argp_state *state)
{
    char *rest = NULL;
    r->world_count = 0;
    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (r->world_count == PLAN_WORLDS)
            argp_error(state, "--ranks has more than %d numbers", PLAN_WORLDS);
        r->worlds[r->world_count++] = (int)tool_number(state, "ranks", word, 1, MOST_RANKS);
    }
    if (r->world_count == 0)
        argp_error(state, "--ranks wants a number, or several such as 1,8,64");
}

/* "momentum=0.9" */
static void read_hyper(list_reading *r, char *text, const struct argp_state *state)
{
    char *equals = strchr(text, '='), *end = text;
    if (!equals || r->hyper_count == HYPERS)
        argp_error(state,
                   equals ? "--set is given too often"
                          : "--set is '%s', wanted NAME=NUMBER, such as momentum=0.9",
                   text);
    *equals = 0;
    r->hypers[r->hyper_count++] = (cz_hyper){text, strtod(equals + 1, &end)};
    if (end == equals + 1 || *end)
        argp_error(state, "--set %s is '%s', wanted a number", text, equals + 1);
    r->request.options.hypers = r->hypers;
}

static int64_t read_granule(const struct argp_state *state, const char *text)
{
    if (strcmp(text, "row") == 0)
        return CZ_GRANULE_ROW;
    if (strcmp(text, "whole") == 0)
        return CZ_GRANULE_WHOLE;
    return tool_number(state, "granule", text, 0, INT64_MAX);
}

static error_t parse_training(int key, char *text, const struct argp_state *state)
{
    list_reading *r = state->input;
    cz_plan_options *o = &r->request.options;
    switch (key) {
    case OPTION_RULE:
        r->request.options.rule = tool_rule(state, text);
        return 0;
    case OPTION_SET:
        read_hyper(r, text, state);
        return 0;
    case OPTION_PARTITION: {
        const int k = find_word(state, "partition", text, partition_at, 4);
        o->partition = (cz_partition)(k < CZ_PARTITION_GIVEN ? k : k + 1);
        return 0;
    }
    case OPTION_OVERLAP:
        o->overlap = (cz_overlap)find_word(state, "overlap", text, overlap_at, 3);
        return 0;
    case OPTION_UNSHARDED:
        o->unsharded = 1;
        return 0;
    case OPTION_NO_BUCKETS:
        o->ddp = 0;
        return 0;
    case OPTION_ALL_REDUCE:
        o->all_reduce = 1;
        return 0;
    case OPTION_PARTS:
        o->parts = (int32_t)tool_number(state, "parts", text, 0, 4096);
        return 0;
    case OPTION_GRANULE:
        o->granule = read_granule(state, text);
        return 0;
    case OPTION_VIEWS:
        o->views = 1;
        return 0;
    case OPTION_AVERAGE:
        o->average = 1;
        return 0;
    case OPTION_WIRE:
        o->wire = find_word(state, "wire", text, wire_at, 2) ? CZ_BF16 : CZ_F16;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    plan_request *r = &((list_reading *)state->input)->request;
    switch (key) {
    case OPTION_RANKS:
        read_ranks(r, text, state);
        return 0;
    case OPTION_BUCKET:
        r->options.bucket_bytes = tool_bytes(state, "bucket", text);
        return 0;
    case OPTION_FIRST_BUCKET:
        r->options.first_bucket_bytes = tool_bytes(state, "first-bucket", text);
        return 0;
    case OPTION_IN_PROCESS:
        r->options.in_process = 1;
        return 0;
    case OPTION_SEGMENT:
        r->options.segment_bytes = tool_bytes(state, "segment", text);
        return 0;
    case OPTION_JSON:
        r->json = true;
        return 0;
    case OPTION_SVG:
        r->svg = text;
        return 0;
    case OPTION_FORCE:
        r->force = true;
        return 0;
    case ARGP_KEY_ARG:
        if (r->path)
            argp_error(state, "one model at a time");
        r->path = text;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "for which model? Give a checkpoint, a .safetensors or .pt file, or a "
                          "list of shapes (lines such as 'w1 f32 768 3072')");
        return 0;
    default:
        return parse_training(key, text, state);
    }
}

static const struct argp_option options[] = {
    {"ranks", OPTION_RANKS, "N[,N...]", 0, "numbers of ranks to plan for (8)", 0},
    {"rule", OPTION_RULE, "NAME", 0, "the update rule, such as adamw or sgd (adamw)", 1},
    {"set", OPTION_SET, "NAME=NUMBER", 0,
     "a hyper-parameter that state depends on, such as momentum=0.9 or amsgrad=1", 1},
    {"average", OPTION_AVERAGE, NULL, 0, "moving averages of values, in the state", 1},
    {"unsharded", OPTION_UNSHARDED, NULL, 0,
     "every rank has all of the state: plain data parallelism, without a sharded optimizer", 1},
    {"parts", OPTION_PARTS, "K", 0,
     "a batch is K parts (at least as many as ranks): memory for sums, and what is sent", 1},
    {"partition", OPTION_PARTITION, "WORD", 0,
     "how state is dealt out: elements, greedy, buckets, pieces (elements)", 2},
    {"granule", OPTION_GRANULE, "N", 0,
     "no parameter is cut between so many elements; or row, whole (the rule's)", 2},
    {"overlap", OPTION_OVERLAP, "WORD", 0,
     "where the step is made: none: after the backward pass, interleaved: bucket by bucket in it, "
     "step: at its end (none)",
     2},
    {"bucket", OPTION_BUCKET, "BYTES", 0, "gradients in a bucket, such as 25M (25M)", 3},
    {"first-bucket", OPTION_FIRST_BUCKET, "BYTES", 0, "in the first one (1M)", 3},
    {"no-buckets", OPTION_NO_BUCKETS, NULL, 0, "gradients travel in the step, all at once", 3},
    {"all-reduce", OPTION_ALL_REDUCE, NULL, 0, "every rank gets all of the mean gradient", 3},
    {"wire", OPTION_WIRE, "TYPE", 0, "gradients travel as f16 or bf16", 3},
    {"in-process", OPTION_IN_PROCESS, NULL, 0, "ranks are threads of one process", 3},
    {"segment", OPTION_SEGMENT, "BYTES", 0, "pieces that transfers are cut into", 3},
    {"views", OPTION_VIEWS, NULL, 0, "values lie in buckets of the optimizer", 3},
    {"json", OPTION_JSON, NULL, 0, "print all numbers as JSON, in bytes", 4},
    {"svg", OPTION_SVG, "FILE", 0, "draw the memory for each number of ranks, too", 4},
    {"force", OPTION_FORCE, NULL, 0, "replace FILE if it is there", 4},
    {0}};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "PATH",
    .doc = "Say how much memory each rank of a training needs, and how much it sends, before "
           "anything is allocated.\vPATH is a checkpoint, a safetensors file, a file of torch, or "
           "a list of shapes: a line for each tensor with its name, type and sizes, and perhaps "
           "'frozen' or 'buffer'; or JSON.\n\n"
           "  czero plan model.safetensors --ranks 1,8,64"};

/* ---- planning ---- */

static cz_status plan_world(plan_request *r, int k)
{
    planned *p = &r->planned[k];
    cz_plan *plan;
    r->options.world_size = p->world_size = r->worlds[k];
    CZ_TRY(cz_plan_create(&plan, r->shapes, &r->options));
    p->least = p->most = p->mean = p->first = (cz_plan_memory)CZ_PLAN_MEMORY_INIT;
    cz_status status = cz_plan_ranks(plan, &p->least, &p->most, &p->mean, NULL);
    if (status)
        goto done;
    status = cz_plan_rank(plan, 0, &p->first);
    if (status)
        goto done;
    status = cz_plan_rank(plan, CZ_PLAN_ALONE, &r->alone);
    if (status)
        goto done;
    p->info = (cz_plan_info)CZ_PLAN_INFO_INIT;
    status = cz_plan_get_info(plan, &p->info);
done:
    cz_plan_destroy(&plan);
    return status;
}

static cz_status plan_all(plan_request *r)
{
    CZ_TRY(cz_shapes_read(&r->shapes, r->path));
    for (int k = 0; k < r->world_count; k++)
        CZ_TRY(plan_world(r, k));
    return CZ_OK;
}

/* The drawing comes last: where something fails, its file is as it was. */
static int answer(plan_request *r)
{
    if (guard_read(r->path) != CZ_OK)
        return tool_failed("czero plan");
    if (r->svg && !plan_may_write_svg(r))
        return TOOL_TROUBLE;
    if (plan_all(r) != CZ_OK)
        return tool_failed("czero plan");
    if (guard_read(r->path) != CZ_OK) /* once more, now that all that is read was opened */
        return tool_failed("czero plan");
    if (r->svg && !plan_may_write_svg(r))
        return TOOL_TROUBLE;
    (r->json ? plan_print_json : plan_print)(r);
    const int result = tool_end("czero plan", TOOL_FINE);
    if (result == TOOL_FINE && r->svg && !plan_write_svg(r))
        return tool_trouble("czero plan", "%s: cannot be written: %s", r->svg, strerror(errno));
    return result;
}

int tool_plan(int argc, char **argv)
{
    list_reading r = {.request = {.options = CZ_PLAN_OPTIONS_INIT,
                                  .worlds = {8},
                                  .world_count = 1,
                                  .alone = CZ_PLAN_MEMORY_INIT}};
    r.request.options.ddp = 1;
    r.request.options.rule = cz_rule_adamw();
    (void)argp_parse(&argp, argc, argv, 0, NULL, &r);
    const int result = answer(&r.request);
    cz_shapes_destroy(&r.request.shapes);
    return result;
}
