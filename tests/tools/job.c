/* SPDX-License-Identifier: MIT */
/* Checkpoints for the tests of the czero command, the same training on any number of ranks:
 *
 *     job save RANKS PARTITION SEED FOLDER [FILE [HF-FOLDER MAX-BYTES]]
 *                                     train, save; export (PARTITION/PARTS: in parts;
 *                                     PARTITION:GRANULE: cut there)
 *     job average RANKS PARTITION SEED FOLDER FILE
 *                                     train with moving averages, save; export what is evaluated
 *     job run RANKS PARTITION SEED FOLDER STEPS EVERY [FLIP]
 *                                     a run's folder: the log of its losses, and of fingerprints
 *                                     after each so many steps (0: none); checkpoints after each
 *                                     third step; after step FLIP a bit of a value is another one
 *     job load RANKS FOLDER FILE      load, export what was loaded
 *     job import RANKS PATH FILE      import, export
 *     job json KEY… < FILE            the value under these keys (or indices); fails if not JSON
 *     job flip FILE OFFSET            a bit of a byte; from the end, if below 0
 *     job tensor FILE NAME            the bytes of a tensor of a safetensors file
 *     job stall late|sub|fine         flight recordings of ranks, the last of which comes late, or
 *                                     of none
 */
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <czero/czero.h>

enum { PARAMS = 7, LARGEST = 150, TRAINED_STEPS = 3 };

static const struct {
    const char *name;
    int64_t count;
    int dimensions;
    int64_t shape[2];
} params[PARAMS] = {{"embed.weight", 40, 2, {5, 8}}, {"layers.0.w", 150, 2, {15, 10}},
                    {"layers.0.b", 10, 1, {10}},     {"layers.1.w", 150, 2, {15, 10}},
                    {"layers.1.b", 10, 1, {10}},     {"empty", 0, 1, {0}},
                    {"head.scale", 1, 0, {0}}};

typedef struct job {
    const char *mode, *folder, *file, *hf;
    int partition, parts, granule, seed;
    int steps, every, flip; /* of a run */
    uint64_t max_bytes;
} job;

typedef struct training {
    cz_group *group;
    cz_model *model;
    cz_parts *parts;
    cz_zero *zero;
    cz_checkpoint *checkpoint;
    cz_state_dict *common, *own;
    float values[PARAMS][LARGEST], grads[PARAMS][LARGEST];
    int64_t seen;
    double mean[5];
} training;

static void close_training(training *t)
{
    cz_checkpoint_destroy(&t->checkpoint);
    cz_zero_destroy(&t->zero);
    cz_parts_destroy(&t->parts);
    cz_model_destroy(&t->model);
    cz_state_dict_destroy(&t->common);
    cz_state_dict_destroy(&t->own);
}

static cz_status make_model(training *t, int seed)
{
    const int64_t five = 5;
    CZ_TRY(cz_model_create(&t->model));
    for (int p = 0; p < PARAMS; p++) {
        for (int i = 0; i < LARGEST; i++)
            t->values[p][i] = (float)(i % 17 - p + seed) / 16;
        CZ_TRY(cz_model_add(t->model, params[p].name, t->values[p], t->grads[p], CZ_F32,
                            params[p].dimensions, params[p].shape));
    }
    t->seen = 1000 + seed;
    for (int i = 0; i < 5; i++)
        t->mean[i] = i + 0.25;
    CZ_TRY(cz_model_add_buffer(t->model, "norm.mean", t->mean, CZ_F64, 1, &five));
    return cz_model_add_buffer(t->model, "norm.seen", &t->seen, CZ_I64, 0, NULL);
}

static cz_status make_optimizer(training *t, const job *j)
{
    int64_t even[PARAMS], odd[PARAMS], evens = 0, odds = 0;
    for (int p = 0; p < PARAMS; p++)
        *(p % 2 ? &odd[odds++] : &even[evens++]) = p;
    const cz_param_group groups[] = {{.size = sizeof(cz_param_group),
                                      .params = even,
                                      .param_count = evens,
                                      .hypers = CZ_HYPERS({"lr", 0.125}),
                                      .granule = j->granule},
                                     {.size = sizeof(cz_param_group),
                                      .params = odd,
                                      .param_count = odds,
                                      .hypers = CZ_HYPERS({"weight_decay", 0.0625}),
                                      .granule = j->granule}};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.partition = (cz_partition)j->partition;
    options.groups = groups;
    options.group_count = 2;
    if (j->parts > 0)
        CZ_TRY(cz_parts_create(&t->parts, t->group, t->model,
                               &(cz_parts_options){sizeof(cz_parts_options), j->parts, 0}));
    options.parts = t->parts;
    const cz_moving_average average = {
        .size = sizeof average, .kind = CZ_MOVING_AVERAGE_EMA, .decay = 0.75};
    if (strcmp(j->mode, "average") == 0)
        options.average = &average;
    return cz_zero_create(&t->zero, t->group, t->model, cz_rule_adam(), CZ_HYPERS({"amsgrad", 1}),
                          &options);
}

static cz_status make_dictionaries(training *t)
{
    cz_state_dict *nested;
    const double lrs[] = {0.5, 0.25, 0.125};
    const cz_tensor tensor = {.data = (void *)lrs, .dtype = CZ_F64, .dimensions = 1, .shape = {3}};
    CZ_TRY(cz_state_dict_create(&t->common));
    CZ_TRY(cz_state_dict_set_integer(t->common, "epoch", 3));
    CZ_TRY(cz_state_dict_add_dict(t->common, "scheduler", &nested));
    CZ_TRY(cz_state_dict_set_real(nested, "best", 0.1));
    CZ_TRY(cz_state_dict_set_tensor(nested, "lrs", &tensor));
    CZ_TRY(cz_state_dict_create(&t->own));
    return cz_state_dict_set_integer(t->own, "random", 100 + cz_group_rank(t->group));
}

/* All ranks have the mean already: the same bits on any number of them. */
static cz_status train_step(training *t, int step, int seed)
{
    for (int p = 0; p < PARAMS; p++)
        for (int i = 0; i < LARGEST; i++)
            t->grads[p][i] = (float)((i + p + step + seed) % 9 - 4) / 32;
    for (int i = 0; cz_parts_own(t->parts, i) >= 0; i++)
        CZ_TRY(cz_parts_add(t->parts));
    return cz_zero_step(t->zero, NULL, NULL);
}

static cz_status train(training *t, int seed)
{
    for (int step = 0; step < TRAINED_STEPS; step++)
        CZ_TRY(train_step(t, step, seed));
    return CZ_OK;
}

static cz_status export(training *t, const char *path, uint64_t max_bytes, int64_t step)
{
    cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
    options.step = step;
    options.common = t->common;
    options.max_file_bytes = max_bytes;
    return cz_checkpoint_export(t->checkpoint, path, &options);
}

static cz_status save(training *t, const job *j)
{
    CZ_TRY(make_dictionaries(t));
    CZ_TRY(train(t, j->seed));
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    options.step = TRAINED_STEPS * (1 + j->seed);
    options.common = t->common;
    options.own = t->own;
    CZ_TRY(cz_checkpoint_save(t->checkpoint, &options));
    if (j->file)
        CZ_TRY(export(t, j->file, 0, options.step));
    return j->hf ? export(t, j->hf, j->max_bytes, options.step) : CZ_OK;
}

static cz_status save_with_averages(training *t, const job *j)
{
    cz_save_options what = CZ_SAVE_OPTIONS_INIT;
    cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
    CZ_TRY(train(t, j->seed));
    what.step = options.step = TRAINED_STEPS;
    CZ_TRY(cz_checkpoint_save(t->checkpoint, &what));
    options.parameters_only = 1;
    CZ_TRY(cz_zero_evaluate(t->zero, true));
    return cz_checkpoint_export(t->checkpoint, j->file, &options);
}

/* ---- a run ---- */

static void print_digits(const uint64_t number[2], char text[33])
{
    snprintf(text, 33, "%016" PRIx64 "%016" PRIx64, number[0], number[1]);
}

static double loss_of(const training *t)
{
    double loss = 0;
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < params[p].count; i++)
            loss += (double)t->values[p][i] * t->values[p][i];
    return loss;
}

static cz_status save_run(training *t, int step, const uint64_t print[2], const uint64_t chain[2])
{
    cz_save_options what = CZ_SAVE_OPTIONS_INIT;
    cz_state_dict *proof;
    char digits[33];
    cz_state_dict_destroy(&t->common);
    CZ_TRY(cz_state_dict_create(&t->common));
    if (print) {
        CZ_TRY(cz_state_dict_add_dict(t->common, "proof", &proof));
        print_digits(print, digits);
        CZ_TRY(cz_state_dict_set_text(proof, "fingerprint", digits));
        print_digits(chain, digits);
        CZ_TRY(cz_state_dict_set_text(proof, "chain", digits));
    }
    what.step = step;
    what.common = t->common;
    return cz_checkpoint_save(t->checkpoint, &what);
}

/* Its loss is that of the values before the step. `log` is NULL but on rank 0. */
static cz_status run_step(training *t, const job *j, int step, uint64_t chain[2], FILE *log)
{
    char digits[2][33];
    uint64_t print[2] = {0, 0};
    const bool due = j->every && step % j->every == 0, saved = step % 3 == 0;
    const double loss = loss_of(t);
    CZ_TRY(train_step(t, step - 1, j->seed));
    if (due || (saved && j->every))
        CZ_TRY(cz_zero_fingerprint(t->zero, print));
    if (due)
        cz_fingerprint_chain(chain, step, print);
    if (log)
        fprintf(log, "{\"step\":%d,\"loss\":%.17g", step, loss);
    print_digits(print, digits[0]);
    print_digits(chain, digits[1]);
    if (log && due)
        fprintf(log, ",\"fingerprint\":\"%s\",\"chain\":\"%s\"", digits[0], digits[1]);
    if (log)
        fprintf(log, "}\n");
    if (saved)
        CZ_TRY(save_run(t, step, j->every ? print : NULL, chain));
    if (step == j->flip) /* on all ranks: replicas agree */
        t->values[1][3] = -t->values[1][3];
    return CZ_OK;
}

static cz_status run_log(training *t, const job *j, FILE *log)
{
    uint64_t chain[2] = {0, 0};
    for (int step = 1; step <= j->steps; step++)
        CZ_TRY(run_step(t, j, step, chain, log));
    return CZ_OK;
}

static cz_status make_run(training *t, const job *j)
{
    char path[4200];
    FILE *log = NULL;
    snprintf(path, sizeof path, "%s/metrics.jsonl", j->file);
    if (cz_group_rank(t->group) == 0) {
        log = fopen(path, "w");
        if (!log)
            return cz_fail(CZ_ERR_IO, "%s cannot be made", path);
    }
    const cz_status status = run_log(t, j, log);
    if (log)
        fclose(log);
    return status;
}

static cz_status load(training *t, const job *j)
{
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    CZ_TRY(strcmp(j->mode, "load") == 0
               ? cz_checkpoint_load(t->checkpoint, NULL, &result)
               : cz_checkpoint_import(t->checkpoint, j->folder, NULL, &result));
    t->common = result.common;
    t->own = result.own;
    return export(t, j->file, 0, result.step);
}

static cz_status run(training *t, const job *j)
{
    const bool runs = strcmp(j->mode, "run") == 0, saves = strcmp(j->mode, "save") == 0;
    const bool averages = strcmp(j->mode, "average") == 0;
    CZ_TRY(make_model(t, runs || saves || averages ? j->seed : 77));
    CZ_TRY(make_optimizer(t, j));
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    options.zero = t->zero;
    options.keep = 10;
    CZ_TRY(cz_checkpoint_create(&t->checkpoint, t->group, j->folder, &options));
    if (runs)
        return make_run(t, j);
    if (averages)
        return save_with_averages(t, j);
    return saves ? save(t, j) : load(t, j);
}

static cz_status each_rank(cz_group *group, void *context)
{
    training *t = calloc(1, sizeof *t);
    t->group = group;
    const cz_status status = run(t, context);
    close_training(t);
    free(t);
    return status;
}

/* ---- without ranks ---- */

static int print_json(char **keys)
{
    json_error_t error;
    json_t *root = json_loadf(stdin, JSON_REJECT_DUPLICATES, &error), *at = root;
    for (; at && *keys; keys++)
        at = json_is_array(at) ? json_array_get(at, strtoul(*keys, NULL, 10))
                               : json_object_get(at, *keys);
    char *text = at ? json_dumps(at, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (text)
        puts(text);
    else
        fprintf(stderr, "%s\n", root ? "no such key" : error.text);
    free(text);
    json_decref(root);
    return text ? 0 : 1;
}

static int flip(const char *path, long offset)
{
    FILE *file = fopen(path, "r+b");
    if (!file || fseek(file, offset, offset < 0 ? SEEK_END : SEEK_SET) != 0)
        return 1;
    const int byte = fgetc(file);
    const bool good = byte != EOF && fseek(file, -1, SEEK_CUR) == 0 && fputc(byte ^ 1, file) != EOF;
    return fclose(file) == 0 && good ? 0 : 1;
}

/* The last rank of three, or of the odd ones of four, comes late to an operation, and asks for
 * everybody's recordings before. */
static cz_status stall(cz_group *world, void *context)
{
    const bool sub = strcmp(context, "sub") == 0;
    cz_group *part = NULL;
    float loss = 1;
    if (sub)
        CZ_TRY(cz_group_split(world, cz_group_rank(world) % 2, 0, &part));
    cz_group *group = sub ? part : world;
    for (int i = 0; i < 5; i++)
        CZ_TRY(cz_all_reduce(group, &loss, 1, CZ_F32, CZ_SUM, CZ_LABEL("loss")));
    if (cz_group_rank(world) == cz_group_size(world) - 1) {
        usleep(300000); /* the others wait by now */
        kill(getpid(), SIGUSR2);
        usleep(300000);
    }
    CZ_TRY(cz_all_reduce(group, &loss, 1, CZ_F32, CZ_SUM, CZ_LABEL("loss")));
    cz_group_destroy(&part);
    return CZ_OK;
}

static int make_recordings(char *what)
{
    const bool fine = strcmp(what, "fine") == 0;
    cz_group *group;
    float loss = 1;
    const cz_launch_options launch = {
        .size = sizeof launch, .ranks = strcmp(what, "sub") == 0 ? 4 : 3, .timeout_seconds = 30};
    if (!fine)
        return cz_launch(stall, what, &launch) != CZ_OK;
    if (cz_group_create_self(&group, NULL) != CZ_OK ||
        cz_all_reduce(group, &loss, 1, CZ_F32, CZ_SUM, NULL) != CZ_OK)
        return 1;
    kill(getpid(), SIGUSR2);
    usleep(300000);
    cz_group_destroy(&group);
    return 0;
}

static int print_tensor(const char *path, const char *name)
{
    static char bytes[1 << 20];
    uint64_t head = 0;
    json_int_t begin = 0, end = 0;
    FILE *file = fopen(path, "rb");
    const size_t count = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    if (file)
        fclose(file);
    memcpy(&head, bytes, sizeof head);
    if (count <= sizeof head || head > count - sizeof head)
        return 1;
    json_t *root = json_loadb(bytes + sizeof head, (size_t)head, 0, NULL);
    const int found =
        json_unpack(json_object_get(root, name), "{s:[I, I]}", "data_offsets", &begin, &end);
    json_decref(root);
    const size_t at = sizeof head + (size_t)head + (size_t)begin, length = (size_t)(end - begin);
    if (found != 0 || at + length > count)
        return 1;
    return fwrite(bytes + at, 1, length, stdout) == length ? 0 : 1;
}

int main(int argc, char **argv)
{
    char checkpoints[4200];
    job j = {.mode = argc > 1 ? argv[1] : ""};
    cz_launch_options launch = CZ_LAUNCH_OPTIONS_INIT;
    if (strcmp(j.mode, "json") == 0)
        return print_json(argv + 2);
    if (strcmp(j.mode, "flip") == 0 && argc == 4)
        return flip(argv[2], strtol(argv[3], NULL, 10));
    if (strcmp(j.mode, "tensor") == 0 && argc == 4)
        return print_tensor(argv[2], argv[3]);
    if (strcmp(j.mode, "stall") == 0 && argc == 3)
        return make_recordings(argv[2]);
    if (argc < 5)
        return 2;
    launch.ranks = (int32_t)strtol(argv[2], NULL, 10);
    if ((strcmp(j.mode, "save") == 0 || strcmp(j.mode, "average") == 0) && argc >= 6) {
        char *rest;
        j.partition = (int)strtol(argv[3], &rest, 10);
        j.parts = rest[0] == '/' ? (int)strtol(rest + 1, NULL, 10) : 0;
        j.granule = rest[0] == ':' ? (int)strtol(rest + 1, NULL, 10) : 0;
        j.seed = (int)strtol(argv[4], NULL, 10);
        j.folder = argv[5];
        j.file = argc > 6 ? argv[6] : NULL;
        j.hf = argc > 8 ? argv[7] : NULL;
        j.max_bytes = argc > 8 ? strtoull(argv[8], NULL, 10) : 0;
    } else if (strcmp(j.mode, "run") == 0 && argc >= 8) {
        j.partition = (int)strtol(argv[3], NULL, 10);
        j.seed = (int)strtol(argv[4], NULL, 10);
        j.file = argv[5];
        j.steps = (int)strtol(argv[6], NULL, 10);
        j.every = (int)strtol(argv[7], NULL, 10);
        j.flip = argc > 8 ? (int)strtol(argv[8], NULL, 10) : 0;
        snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", j.file);
        j.folder = checkpoints;
        mkdir(j.file, 0777);
    } else {
        j.folder = argv[3];
        j.file = argv[4];
    }
    if (cz_launch(each_rank, &j, &launch) == CZ_OK)
        return 0;
    fprintf(stderr, "job: %s\n", cz_last_error());
    return 1;
}
