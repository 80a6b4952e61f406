/* SPDX-License-Identifier: MIT */
/* Checkpoints for the tests of the czero command, the same training on any number of ranks:
 *
 *     job save RANKS PARTITION SEED FOLDER [FILE [HF-FOLDER MAX-BYTES]]   train, save; export
 *                                                       (PARTITION/PARTS: in parts)
 *     job load RANKS FOLDER FILE      load, export what was loaded
 *     job import RANKS PATH FILE      import, export
 *     job json KEY… < FILE            the value under these keys (or indices); fails if it is no JSON
 *     job flip FILE OFFSET            a bit of a byte; from the end, if below 0
 *     job stall late|sub|fine         flight recordings of ranks of which the last comes late, or of none
 */
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    int partition, parts, seed;
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
    const cz_param_group groups[] = {
        {sizeof(cz_param_group), even, evens, CZ_HYPERS({"lr", 0.125})},
        {sizeof(cz_param_group), odd, odds, CZ_HYPERS({"weight_decay", 0.0625})}};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.partition = (cz_partition)j->partition;
    options.groups = groups;
    options.group_count = 2;
    if (j->parts > 0)
        CZ_TRY(cz_parts_create(&t->parts, t->group, t->model,
                               &(cz_parts_options){sizeof(cz_parts_options), j->parts, 0}));
    options.parts = t->parts;
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
static cz_status train(training *t, int seed)
{
    for (int step = 0; step < TRAINED_STEPS; step++) {
        for (int p = 0; p < PARAMS; p++)
            for (int i = 0; i < LARGEST; i++)
                t->grads[p][i] = (float)((i + p + step + seed) % 9 - 4) / 32;
        for (int i = 0; cz_parts_own(t->parts, i) >= 0; i++)
            CZ_TRY(cz_parts_add(t->parts));
        CZ_TRY(cz_zero_step(t->zero, NULL, NULL));
    }
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
    const bool saves = strcmp(j->mode, "save") == 0;
    CZ_TRY(make_model(t, saves ? j->seed : 77));
    CZ_TRY(make_optimizer(t, j));
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    options.zero = t->zero;
    options.keep = 10;
    CZ_TRY(cz_checkpoint_create(&t->checkpoint, t->group, j->folder, &options));
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

/* The last rank of three, or of the odd ones of four, comes late to an operation, and asks for everybody's recordings
 * before. */
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

int main(int argc, char **argv)
{
    job j = {.mode = argc > 1 ? argv[1] : ""};
    cz_launch_options launch = CZ_LAUNCH_OPTIONS_INIT;
    if (strcmp(j.mode, "json") == 0)
        return print_json(argv + 2);
    if (strcmp(j.mode, "flip") == 0 && argc == 4)
        return flip(argv[2], strtol(argv[3], NULL, 10));
    if (strcmp(j.mode, "stall") == 0 && argc == 3)
        return make_recordings(argv[2]);
    if (argc < 5)
        return 2;
    launch.ranks = (int32_t)strtol(argv[2], NULL, 10);
    if (strcmp(j.mode, "save") == 0 && argc >= 6) {
        char *rest;
        j.partition = (int)strtol(argv[3], &rest, 10);
        j.parts = rest[0] == '/' ? (int)strtol(rest + 1, NULL, 10) : 0;
        j.seed = (int)strtol(argv[4], NULL, 10);
        j.folder = argv[5];
        j.file = argc > 6 ? argv[6] : NULL;
        j.hf = argc > 8 ? argv[7] : NULL;
        j.max_bytes = argc > 8 ? strtoull(argv[8], NULL, 10) : 0;
    } else {
        j.folder = argv[3];
        j.file = argv[4];
    }
    if (cz_launch(each_rank, &j, &launch) == CZ_OK)
        return 0;
    fprintf(stderr, "job: %s\n", cz_last_error());
    return 1;
}
