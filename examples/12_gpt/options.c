/* SPDX-License-Identifier: MIT */
/* The command line. */
#include "options.h"

#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "hooks.h"

enum {
    KEY_LAYERS = 256,
    KEY_HEADS,
    KEY_CHANNELS,
    KEY_BLOCK,
    KEY_RULE,
    KEY_LR,
    KEY_MIN_LR,
    KEY_WARMUP,
    KEY_DECAY,
    KEY_BETA1,
    KEY_BETA2,
    KEY_SEED,
    KEY_THREADS,
    KEY_PARTITION,
    KEY_UNSHARDED,
    KEY_SHARE,
    KEY_PARTS,
    KEY_VAL_EVERY,
    KEY_VAL_WINDOWS,
    KEY_FINAL_WINDOWS,
    KEY_TEXT_BYTES,
    KEY_SAMPLE,
    KEY_TEMPERATURE,
    KEY_HOOK,
    KEY_COMPRESS_AFTER,
    KEY_POWERSGD_RANK,
    KEY_POWERSGD_LOOPS,
    KEY_AVERAGE_EVERY,
    KEY_SAVE,
    KEY_SAVE_EVERY,
    KEY_KEEP,
    KEY_RESUME,
    KEY_FALL_BACK,
    KEY_STOP_AT,
    KEY_PROOF,
    KEY_CHECK_PARTS,
    KEY_DTYPE,
    KEY_NO_MASTER,
    KEY_BITS,
    KEY_LOSS_SCALE,
    KEY_EMA
};

static const struct argp_option table[] = {
    {NULL, 0, NULL, 0, "Ranks and sharding:", 1},
    {"ranks", 'r', "N", 0, "Ranks, as threads [CZERO_RANKS, else 2]", 1},
    {"threads", KEY_THREADS, "N", 0,
     "Threads on which each rank computes; they change no loss [the rank's share of the cores]", 1},
    {"partition", KEY_PARTITION, "KIND", 0,
     "How optimizer state is sharded: elements (evenly) or greedy (by whole parameters, as "
     "PyTorch) [elements]",
     1},
    {"unsharded", KEY_UNSHARDED, NULL, 0,
     "To compare with: all-reduce the gradients, and all of the state on every rank", 1},
    {"share", KEY_SHARE, NULL, 0,
     "Hold parameters once for all ranks, which are on one machine; no loss changes in any bit", 1},
    {"parts", KEY_PARTS, "K", 0,
     "Cut each batch into K parts, at least one for each rank, and train part by part: every bit "
     "is "
     "the same on any number of ranks up to K, also where it changes; 0: a part for each rank [0]",
     1},
    {NULL, 0, NULL, 0, "Model:", 2},
    {"layers", KEY_LAYERS, "N", 0, "Blocks of attention and MLP [4]", 2},
    {"heads", KEY_HEADS, "N", 0, "Attention heads, a divisor of the channels [4]", 2},
    {"channels", KEY_CHANNELS, "N", 0, "Width of the residual stream [128]", 2},
    {"block", KEY_BLOCK, "N", 0, "Characters in a sequence [64]", 2},
    {NULL, 0, NULL, 0, "Training:", 3},
    {"steps", 's', "N", 0, "Steps; 0: only validate and generate text [5600]", 3},
    {"batch", 'b', "N", 0, "Sequences in a step, over all ranks together [12]", 3},
    {"rule", KEY_RULE, "NAME", 0,
     "Update rule, by its name in the library; it takes those of the values below that it has, and "
     "wants a learning rate of its own (docs/rules.md); muon is for the matrices of blocks, at "
     "AdamW's "
     "rate, with AdamW for the rest [adamw]",
     3},
    {"lr", KEY_LR, "X", 0, "Learning rate after the warm-up [0.002]", 3},
    {"min-lr", KEY_MIN_LR, "X", 0, "Learning rate at the end of the cosine [0.0002]", 3},
    {"warmup", KEY_WARMUP, "STEPS", 0, "Steps in which the learning rate grows from 0 [100]", 3},
    {"weight-decay", KEY_DECAY, "X", 0, "Of matrices; biases and norms have none [0.1]", 3},
    {"beta1", KEY_BETA1, "X", 0, "Decay of the mean of gradients [0.9]", 3},
    {"beta2", KEY_BETA2, "X", 0, "Decay of the mean of their squares [0.99]", 3},
    {"seed", KEY_SEED, "N", 0, "Of initial values, sampling and text [1]", 3},
    {"dtype", KEY_DTYPE, "TYPE", 0,
     "Values and gradients: f32, bf16 or f16; the model computes in f32 [f32]", 3},
    {"no-master", KEY_NO_MASTER, NULL, 0,
     "Values of 16 bits without f32 copies in the optimizer: they are rounded by chance", 3},
    {"bits", KEY_BITS, "N", 0,
     "Of an element of the moments: 32; 16: bf16, rounded by chance; 8: codes and a scale for each "
     "block of 256, of tensors with 4096 elements and more (docs/precision.md) [32]",
     3},
    {"ema", KEY_EMA, "DECAY", 0,
     "Keep moving averages of values with this decay, such as 0.999, less at first; they are "
     "validated, and write the text",
     3},
    {"loss-scale", KEY_LOSS_SCALE, "X", 0,
     "Multiply the loss by X, and divide gradients by it in the step, so that small ones do not "
     "vanish in 16 bits; dynamic: by 65536 at first, then as PyTorch's GradScaler. Steps with "
     "gradients that are not finite are skipped [1]",
     3},
    {NULL, 0, NULL, 0, "Communication hooks, which say how gradients come together:", 6},
    {"hook", KEY_HOOK, "NAME[,NAME...]", 0,
     "Train with this hook; with each of several, one after the other from the same start, and "
     "compare. Names are below. Steps are made after each pass, so that gradients and parameters "
     "are counted apart [reduce_scatter, and steps inside the passes]",
     6},
    {"compress-after", KEY_COMPRESS_AFTER, "STEPS", 0,
     "The first steps of PowerSGD and post_local_sgd are those of all_reduce [a tenth of all]", 6},
    {"powersgd-rank", KEY_POWERSGD_RANK, "N", 0, "Columns of powersgd and batched_powersgd [1]", 6},
    {"powersgd-loops", KEY_POWERSGD_LOOPS, NULL, 0,
     "PowerSGD's products by the library's loops, not by the BLAS even from 4 columns on", 6},
    {"average-every", KEY_AVERAGE_EVERY, "STEPS", 0,
     "From one averaging of post_local_sgd to the next [8]", 6},
    {NULL, 0, NULL, 0, "Checkpoints:", 7},
    {"save", KEY_SAVE, "DIR", 0,
     "Save the run into this folder: now and then while training goes on, at the end, and on "
     "SIGTERM, SIGINT or SIGUSR1, which "
     "then end it after the present step; SIGUSR1 is the one for mpirun",
     7},
    {"save-every", KEY_SAVE_EVERY, "STEPS", 0, "From one checkpoint to the next [500]", 7},
    {"keep", KEY_KEEP, "N", 0, "Checkpoints that stay in the folder [2]", 7},
    {"resume", KEY_RESUME, NULL, 0,
     "Go on from the newest checkpoint in the folder, if there is one, with any number of ranks",
     7},
    {"fall-back", KEY_FALL_BACK, NULL, 0,
     "If the newest one is damaged, take the one before it; without this, the run ends and says so",
     7},
    {"stop-at", KEY_STOP_AT, "STEP", 0,
     "Save and stop after this step; N%: after that share of all", 7},
    {NULL, 0, NULL, 0, "Proof of a run:", 8},
    {"proof", KEY_PROOF, "STEPS", OPTION_ARG_OPTIONAL,
     "After every step, or each so many, take a fingerprint of all parameters and the optimizer's "
     "state, and chain it to those before: in metrics.jsonl and in checkpoints, for czero diff and "
     "czero verify --run",
     8},
    {"check-parts", KEY_CHECK_PARTS, NULL, 0,
     "First run each part twice and compare the gradients bit for bit; with --parts", 8},
    {NULL, 0, NULL, 0, "Validation, on the last tenth of the text:", 4},
    {"val-every", KEY_VAL_EVERY, "STEPS", 0, "Steps from one validation to the next [250]", 4},
    {"val-windows", KEY_VAL_WINDOWS, "N", 0, "Sequences in each but the last [240]", 4},
    {"final-windows", KEY_FINAL_WINDOWS, "N", 0, "Sequences in the last [2400]", 4},
    {NULL, 0, NULL, 0, "Text and output:", 5},
    {"text", 't', "FILE", 0,
     "Train on this file [the King James text of the packages bible-kjv and bible-kjv-text]", 5},
    {"text-bytes", KEY_TEXT_BYTES, "N", 0, "Only the first N bytes of the text, 0: all [0]", 5},
    {"out", 'o', "DIR", 0,
     "Run folder for metrics.jsonl, summary.json, loss.svg, sample.txt; those of an earlier run "
     "are removed [build/demo]",
     5},
    {"sample", KEY_SAMPLE, "N", 0, "Characters to generate at the end [600]", 5},
    {"temperature", KEY_TEMPERATURE, "X", 0, "Of generated text: lower is safer [0.8]", 5},
    {"quiet", 'q', NULL, 0, "Print errors only", 5},
    {0}};

static cz_dtype dtype(struct argp_state *state, const char *arg)
{
    static const cz_dtype types[] = {CZ_F32, CZ_BF16, CZ_F16};
    for (int i = 0; i < 3; i++)
        if (strcmp(arg, cz_dtype_name(types[i])) == 0)
            return types[i];
    argp_error(state, "dtype '%s', allowed are f32, bf16 and f16", arg);
    return CZ_F32;
}

static cz_dtype moments(struct argp_state *state, const char *bits)
{
    if (strcmp(bits, "8") == 0 || strcmp(bits, "16") == 0)
        return bits[0] == '8' ? CZ_U8 : CZ_BF16;
    if (strcmp(bits, "32") != 0)
        argp_error(state, "bits '%s', allowed are 32, 16 and 8", bits);
    return CZ_F32;
}

static cz_partition partition(const struct argp_state *state, const char *text)
{
    if (strcmp(text, "elements") && strcmp(text, "greedy"))
        argp_error(state, "--partition is '%s', allowed is elements or greedy", text);
    return strcmp(text, "greedy") ? CZ_PARTITION_ELEMENTS : CZ_PARTITION_GREEDY;
}

static const cz_rule *rule(const struct argp_state *state, const char *name)
{
    char names[400] = "";
    for (int i = 0; cz_rule_name(i); i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", cz_rule_name(i));
    }
    if (!cz_rule_find(name))
        argp_error(state, "--rule is '%.40s'; there are %s", name, names);
    return cz_rule_find(name);
}

/* Cut at the commas, in place. */
static void take_hooks(options *o, char *list, const struct argp_state *state)
{
    char sentence[800];
    for (char *next; list; list = next) {
        next = strchr(list, ',');
        if (next)
            *next++ = '\0';
        if (o->hook_count == HOOKS_MOST)
            argp_error(state, "--hook has more than %d names", HOOKS_MOST);
        if (strlen(list) >= HOOK_NAME_BYTES)
            argp_error(state, "--hook '%.60s': no name is so long", list);
        if (!hook_check(list, sentence, sizeof sentence))
            argp_error(state, "--hook: %s", sentence);
        for (int k = 0; k < o->hook_count; k++)
            if (strcmp(o->hooks[k], list) == 0)
                argp_error(state, "--hook names '%s' twice", list);
        o->hooks[o->hook_count++] = list;
    }
}

static error_t take_hook(options *o, int key, char *arg, const struct argp_state *state)
{
    switch (key) {
    case KEY_HOOK:
        take_hooks(o, arg, state);
        break;
    case KEY_COMPRESS_AFTER:
        o->compress_after = (int)argument_whole(state, "compress-after", arg, 0, 1000000000);
        break;
    case KEY_POWERSGD_RANK:
        o->powersgd_rank = (int)argument_whole(state, "powersgd-rank", arg, 1, 1000);
        break;
    case KEY_POWERSGD_LOOPS:
        o->powersgd_loops = true;
        break;
    case KEY_AVERAGE_EVERY:
        o->average_every = (int)argument_whole(state, "average-every", arg, 1, 1000000000);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* A share is negative until the number of steps is known. */
static int stop_at(const struct argp_state *state, char *arg)
{
    char *sign = strchr(arg, '%');
    if (!sign || sign[1])
        return (int)argument_whole(state, "stop-at", arg, 1, 1000000000);
    *sign = '\0';
    return -(int)argument_whole(state, "stop-at", arg, 1, 99);
}

static error_t take_checkpoint(options *o, int key, char *arg, const struct argp_state *state)
{
    switch (key) {
    case KEY_SAVE:
        o->save = arg;
        break;
    case KEY_SAVE_EVERY:
        o->save_every = (int)argument_whole(state, "save-every", arg, 1, 1000000000);
        break;
    case KEY_KEEP:
        o->keep = (int)argument_whole(state, "keep", arg, 1, 1000);
        break;
    case KEY_RESUME:
        o->resume = true;
        break;
    case KEY_FALL_BACK:
        o->fall_back = true;
        break;
    case KEY_STOP_AT:
        o->stop_at = stop_at(state, arg);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static error_t take_proof(options *o, int key, char *arg, const struct argp_state *state)
{
    switch (key) {
    case KEY_PROOF:
        o->proof = arg ? (int)argument_whole(state, "proof", arg, 1, 1000000000) : 1;
        break;
    case KEY_CHECK_PARTS:
        o->check_parts = true;
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static void check_proof(const options *o, const struct argp_state *state)
{
    for (int k = 0; k < o->hook_count && o->proof; k++)
        if (hook_goes_alone(o->hooks[k]))
            argp_error(state, "--proof: ranks that train with '%s' have each their own parameters",
                       o->hooks[k]);
    if (o->check_parts && !o->parts)
        argp_error(state, "--check-parts goes with --parts");
}

/* When all is read. */
static void check_checkpoint(options *o, const struct argp_state *state)
{
    if (!o->save && (o->resume || o->stop_at))
        argp_error(state, "--%s needs --save, the checkpoints' folder",
                   o->resume ? "resume" : "stop-at");
    if (o->fall_back && !o->resume)
        argp_error(state, "--fall-back goes with --resume");
    if (o->save && o->hook_count > 1)
        argp_error(state, "--save is for one run, --hook names %d", o->hook_count);
    if (o->save && o->hook_count && hook_has_state(o->hooks[0]))
        argp_error(state,
                   "--save: ranks that train with '%s' have each their own state, which "
                   "checkpoints do not have",
                   o->hooks[0]);
    if (o->stop_at < 0) {
        const int64_t step = -(int64_t)o->stop_at * o->steps / 100;
        o->stop_at = step > 0 ? (int)step : 1;
    }
}

static error_t take_model(options *o, int key, const char *arg, const struct argp_state *state)
{
    switch (key) {
    case KEY_LAYERS:
        o->model.layers = (int)argument_whole(state, "layers", arg, 1, 1000);
        break;
    case KEY_HEADS:
        o->model.heads = (int)argument_whole(state, "heads", arg, 1, 1000);
        break;
    case KEY_CHANNELS:
        o->model.channels = (int)argument_whole(state, "channels", arg, 1, 100000);
        break;
    case KEY_BLOCK:
        o->model.block_size = (int)argument_whole(state, "block", arg, 1, 100000);
        break;
    case 'b':
        o->batch = (int)argument_whole(state, "batch", arg, 1, 1000000);
        break;
    case 's':
        o->steps = (int)argument_whole(state, "steps", arg, 0, 1000000000);
        break;
    case KEY_SEED:
        o->seed = (uint64_t)argument_whole(state, "seed", arg, 0, INT64_MAX);
        break;
    case KEY_VAL_EVERY:
        o->val_every = (int)argument_whole(state, "val-every", arg, 1, 1000000000);
        break;
    case KEY_VAL_WINDOWS:
        o->val_windows = (int)argument_whole(state, "val-windows", arg, 1, 1000000);
        break;
    case KEY_FINAL_WINDOWS:
        o->final_windows = (int)argument_whole(state, "final-windows", arg, 1, 1000000);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static error_t take(int key, char *arg, struct argp_state *state)
{
    options *o = state->input;
    switch (key) {
    case 'r':
        o->ranks = (int)argument_whole(state, "ranks", arg, 1, 4096);
        break;
    case KEY_THREADS:
        o->threads = (int)argument_whole(state, "threads", arg, 1, 1024);
        break;
    case KEY_PARTITION:
        o->partition = partition(state, arg);
        break;
    case KEY_DTYPE:
        o->dtype = dtype(state, arg);
        break;
    case KEY_NO_MASTER:
        o->no_master = true;
        break;
    case KEY_BITS:
        o->state = moments(state, arg);
        break;
    case KEY_EMA:
        o->ema = argument_number(state, "ema", arg, 0);
        if (o->ema > 1)
            argp_error(state, "ema %s, allowed is at most 1", arg);
        break;
    case KEY_LOSS_SCALE:
        o->loss_scale_adapts = strcmp(arg, "dynamic") == 0;
        o->loss_scale = o->loss_scale_adapts ? ((cz_loss_scale)CZ_LOSS_SCALE_INIT).scale
                                             : argument_number(state, "loss-scale", arg, 1e-3);
        break;
    case KEY_UNSHARDED:
        o->unsharded = true;
        break;
    case KEY_SHARE:
        o->share = true;
        break;
    case KEY_PARTS:
        o->parts = (int)argument_whole(state, "parts", arg, 0, 4096);
        break;
    case KEY_RULE:
        o->rule = rule(state, arg);
        break;
    case KEY_LR:
        o->lr = argument_number(state, "lr", arg, 0);
        break;
    case KEY_MIN_LR:
        o->min_lr = argument_number(state, "min-lr", arg, 0);
        break;
    case KEY_WARMUP:
        o->warmup = (int)argument_whole(state, "warmup", arg, 0, 1000000000);
        break;
    case KEY_DECAY:
        o->weight_decay = argument_number(state, "weight-decay", arg, 0);
        break;
    case KEY_BETA1:
        o->beta1 = argument_number(state, "beta1", arg, 0);
        break;
    case KEY_BETA2:
        o->beta2 = argument_number(state, "beta2", arg, 0);
        break;
    case 't':
        o->text = arg;
        break;
    case KEY_TEXT_BYTES:
        o->text_bytes = argument_whole(state, "text-bytes", arg, 0, INT64_MAX);
        break;
    case 'o':
        o->out = arg;
        break;
    case KEY_SAMPLE:
        o->sample = (int)argument_whole(state, "sample", arg, 0, 1000000);
        break;
    case KEY_TEMPERATURE:
        o->temperature = argument_number(state, "temperature", arg, 1e-3);
        break;
    case 'q':
        o->quiet = true;
        break;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s': there are options only", arg);
        break;
    case ARGP_KEY_END:
        check_checkpoint(o, state);
        check_proof(o, state);
        if (o->parts && o->hook_count)
            argp_error(state, "--parts goes without --hook: what hooks make of gradients depends "
                              "on the number of ranks");
        if (o->loss_scale > 0 && o->hook_count)
            argp_error(state, "--loss-scale goes without --hook");
        if (o->ema > 0 && o->hook_count)
            argp_error(state, "--ema goes without --hook");
        if (o->compress_after < 0)
            o->compress_after = o->steps / 10;
        if (o->model.channels % o->model.heads)
            argp_error(state, "--heads %d does not divide --channels %d", o->model.heads,
                       o->model.channels);
        break;
    default:
        return take_hook(o, key, arg, state) == 0 || take_checkpoint(o, key, arg, state) == 0 ||
                       take_proof(o, key, arg, state) == 0
                   ? 0
                   : take_model(o, key, arg, state);
    }
    return 0;
}

void options_parse(options *o, int argc, char **argv)
{
    static const struct argp parser = {
        .options = table,
        .parser = take,
        .doc =
            "Train a small GPT on the characters of a text, with the state of AdamW sharded over "
            "ranks by czero; then show what each rank holds, and let the model write.\v"
            "Defaults are in brackets; with them, two ranks on two cores take about 3 minutes. The "
            "batch is that of all ranks together, so the same command with another --ranks trains "
            "the same model, up to rounding, and with --parts to the last bit.\n\n"
            "Hooks are all_reduce; reduce_scatter; fp16_compress and bf16_compress, alone or "
            "around "
            "another one as in 'fp16_compress(powersgd)'; quantize_per_tensor and "
            "quantize_per_channel; powersgd and batched_powersgd, also with _rank2 at the end; "
            "mixed_precision (gradients travel as bf16); post_local_sgd, with which each rank has "
            "a "
            "whole optimizer and goes its own way between averagings. All but reduce_scatter "
            "give every rank whole gradients, of which a sharded optimizer takes its share "
            "(or, with --unsharded, a whole one all). Several leave in the run folder a folder for "
            "each, and summary.json and loss.svg with all of them.\n\n"
            "A larger one:\n"
            "  12_gpt --layers 6 --heads 6 --channels 384 --block 256 --steps 1000"};
    const char *ranks = getenv("CZERO_RANKS");
    *o = (options){
        .model = {.layers = 4, .heads = 4, .channels = 128, .block_size = 64},
        .ranks = ranks && *ranks ? 0 : 2, /* 0: as the library reads it */
        .batch = 12,
        .steps = 5600,
        .rule = cz_rule_adamw(),
        .lr = 2e-3,
        .min_lr = 2e-4,
        .warmup = 100,
        .weight_decay = 0.1,
        .beta1 = 0.9,
        .beta2 = 0.99,
        .dtype = CZ_F32,
        .state = CZ_F32,
        .seed = 1,
        .compress_after = -1, /* to be chosen when all is read */
        .powersgd_rank = 1,
        .average_every = 8,
        .val_every = 250,
        .val_windows = 240,
        .final_windows = 2400,
        .out = "build/demo",
        .save_every = 500,
        .keep = 2,
        .sample = 600,
        .temperature = 0.8,
    };
    argp_program_version = cz_build_info();
    argp_parse(&parser, argc, argv, 0, NULL, o);
}
