/* SPDX-License-Identifier: MIT */
/* czero bench: how fast collectives and update rules are on this machine. */
#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "czero/device.h"
#include "json.h"
#include "tool.h"

enum {
    OPTION_RANKS = 'n',
    OPTION_BYTES = 'b',
    OPTION_ELEMENTS = 'e',
    OPTION_ROUNDS = 'r',
    OPTION_ONLY = 'o',
    OPTION_JSON = 'j'
};

static error_t parse(int key, char *text, struct argp_state *state)
{
    bench_options *o = state->input;
    switch (key) {
    case OPTION_RANKS:
        o->ranks = (int)tool_number(state, "ranks", text, 1, 64);
        return 0;
    case OPTION_BYTES:
        if (o->sizes == BENCH_SIZES)
            argp_error(state, "--bytes may be given %d times", BENCH_SIZES);
        o->bytes[o->sizes] = (int64_t)tool_bytes(state, "bytes", text);
        if (o->bytes[o->sizes++] > INT64_C(1) << 32)
            argp_error(state, "--bytes is '%s', at most 4G", text);
        return 0;
    case OPTION_ELEMENTS:
        o->elements = tool_number(state, "elements", text, 1, INT64_C(1) << 30);
        return 0;
    case OPTION_ROUNDS:
        o->rounds = (int)tool_number(state, "rounds", text, 1, BENCH_ROUNDS);
        return 0;
    case OPTION_ONLY:
        if (strcmp(text, "collectives") != 0 && strcmp(text, "rules") != 0)
            argp_error(state, "--only is '%s', wanted collectives or rules", text);
        o->collectives = text[0] == 'c';
        o->rules = text[0] == 'r';
        return 0;
    case OPTION_JSON:
        o->json = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s': there is nothing to be named here, only options", text);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"ranks", OPTION_RANKS, "N", 0, "threads that are ranks (one for each processor, 2 to 8)", 0},
    {"bytes", OPTION_BYTES, "BYTES", 0,
     "of a collective's buffer; may be repeated (64K, 1M and 16M)", 0},
    {"elements", OPTION_ELEMENTS, "N", 0, "of the parameter that rules update (1048576)", 0},
    {"rounds", OPTION_ROUNDS, "N", 0, "of each measurement, whose median counts (15)", 0},
    {"only", OPTION_ONLY, "WHAT", 0, "collectives or rules", 0},
    {"json", OPTION_JSON, NULL, 0, "print the result as JSON", 0},
    {0}};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .doc = "Time collectives between ranks that are threads, and update rules on one of "
           "them.\vTimes are medians; other programs that run now show in them. A copy of the same "
           "bytes by one thread stands beside, as what the memory does."};

static void fill_in(bench_options *o)
{
    static const int64_t sizes[] = {64 << 10, 1 << 20, 16 << 20};
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (o->ranks == 0 && processors < 2)
        o->ranks = 2;
    else if (o->ranks == 0)
        o->ranks = processors > 8 ? 8 : (int)processors;
    const bool none = o->sizes == 0;
    if (none)
        for (int i = 0; i < 3; i++)
            o->bytes[o->sizes++] = sizes[i];
}

static cz_status measure(const bench_options *o, json_t *collectives, json_t *rules)
{
    if (!o->json)
        printf("%s\n", cz_build_info());
    if (o->collectives)
        CZ_TRY(bench_collectives(o, collectives));
    return o->rules ? bench_rules(o, rules) : CZ_OK;
}

int tool_bench(int argc, char **argv)
{
    bench_options o = {.rounds = 15, .elements = 1 << 20, .collectives = true, .rules = true};
    (void)argp_parse(&argp, argc, argv, 0, NULL, &o);
    fill_in(&o);
    json_t *collectives = json_array(), *rules = json_array();
    const cz_status status = measure(&o, collectives, rules);
    json_t *root = json_pack("{s:s, s:i, s:o, s:o}", "build", cz_build_info(), "ranks", o.ranks,
                             "collectives", collectives, "rules", rules);
    const bool prints = status == CZ_OK && o.json;
    if (!prints)
        json_decref(root);
    else if (!json_finish(root))
        return tool_trouble(argv[0], "the output cannot be written");
    return status == CZ_OK ? tool_end(argv[0], TOOL_FINE) : tool_failed(argv[0]);
}
