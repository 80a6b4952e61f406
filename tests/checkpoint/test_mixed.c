/* SPDX-License-Identifier: MIT */
/* Masters and moments in 16 bits in generations, in consolidated files and in PyTorch's: a run goes
 * on with the same bits; one with masters in f32, one in f32 with masters, both exactly. */
#include "checkpoint/small.h"
#include "czero/archive.h"
#include "rule/mixed.h"

static char folder[FOLDER_BYTES];

typedef struct side {
    mixed *m;
    cz_optim *optim, *twin;
    cz_checkpoint *checkpoint;
} side;

static cz_status open_side(side *s, cz_group *group, const cz_optim_options *options, bool twin)
{
    cz_checkpoint_options of = CZ_CHECKPOINT_OPTIONS_INIT;
    s->m = calloc(1, sizeof *s->m);
    mixed_create(s->m, CZ_BF16, CZ_F16, CZ_BF16);
    CZ_TRY(cz_optim_create(&s->optim, s->m->model, cz_rule_adamw(), NULL, options));
    CZ_TRY(cz_optim_create(&s->twin, s->m->twin, cz_rule_adamw(), NULL, NULL));
    of.model = twin ? s->m->twin : s->m->model;
    of.optim = twin ? s->twin : s->optim;
    return cz_checkpoint_create(&s->checkpoint, group, folder, &of);
}

static void close_side(side *s)
{
    cz_checkpoint_destroy(&s->checkpoint);
    cz_optim_destroy(&s->optim);
    cz_optim_destroy(&s->twin);
    if (s->m)
        mixed_destroy(s->m);
    free(s->m);
    *s = (side){0};
}

static cz_status train(side *s, int from, int to, bool both)
{
    for (int step = from; step < to; step++) {
        mixed_set_gradients(s->m, step);
        CZ_TRY(cz_optim_step(s->optim, NULL, NULL));
        if (both)
            CZ_TRY(cz_optim_step(s->twin, NULL, NULL));
    }
    return CZ_OK;
}

static cz_status want_same(const cz_optim *a, const cz_optim *b, const char *what)
{
    uint64_t prints[2][2];
    CZ_TRY(cz_optim_fingerprint(a, prints[0]));
    CZ_TRY(cz_optim_fingerprint(b, prints[1]));
    return memcmp(prints[0], prints[1], sizeof prints[0]) == 0
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "%s: other bits", what);
}

/* How it is saved and loaded. */
static const char *const suffixes[] = {NULL, ".safetensors", ".pt"};

static cz_status put(side *s, cz_group *group, int way, char *path)
{
    cz_save_options save = CZ_SAVE_OPTIONS_INIT;
    cz_export_options out = CZ_EXPORT_OPTIONS_INIT;
    if (way == 0)
        return cz_checkpoint_save(s->checkpoint, &save);
    snprintf(path, FOLDER_BYTES + 32, "%s/out%s", folder, suffixes[way]);
    return cz_checkpoint_export(s->checkpoint, path, &out);
}

static cz_status get(side *s, int way, const char *path, bool convert)
{
    cz_load_options load = CZ_LOAD_OPTIONS_INIT;
    load.convert = convert;
    return way == 0 ? cz_checkpoint_load(s->checkpoint, &load, NULL)
                    : cz_checkpoint_import(s->checkpoint, path, &load, NULL);
}

static cz_status goes_on(cz_group *group, int way, const cz_optim_options *options)
{
    char path[FOLDER_BYTES + 32];
    side a = {0}, b = {0};
    cz_status status = open_side(&a, group, options, false);
    if (!status)
        status = train(&a, 0, 2, false);
    if (!status)
        status = put(&a, group, way, path);
    if (!status)
        status = open_side(&b, group, options, false);
    if (!status)
        status = get(&b, way, path, false);
    if (!status)
        status = want_same(a.optim, b.optim, "loaded");
    if (!status)
        status = train(&a, 2, 4, false);
    if (!status)
        status = train(&b, 2, 4, false);
    if (!status)
        status = want_same(a.optim, b.optim, "trained on");
    close_side(&a);
    close_side(&b);
    return status;
}

/* From masters to f32, and from f32 to masters: afterwards both do the same. */
static cz_status changes_over(cz_group *group, int way, bool to_f32)
{
    char path[FOLDER_BYTES + 32];
    side a = {0}, b = {0};
    cz_status status = open_side(&a, group, NULL, !to_f32);
    if (!status)
        status = train(&a, 0, 2, true);
    if (!status)
        status = put(&a, group, way, path);
    if (!status)
        status = open_side(&b, group, NULL, to_f32);
    if (!status)
        status = get(&b, way, path, !to_f32);
    if (!status && to_f32)
        status = want_same(a.twin, b.twin, "in f32");
    if (!status && !to_f32)
        status = want_same(a.optim, b.optim, "with masters");
    close_side(&a);
    close_side(&b);
    return status;
}

static cz_status all_of_it(cz_group *group, void *arg)
{
    cz_optim_options options[3] = {CZ_OPTIM_OPTIONS_INIT, CZ_OPTIM_OPTIONS_INIT,
                                   CZ_OPTIM_OPTIONS_INIT};
    const int way = *(const int *)arg;
    options[1].state_dtype = CZ_BF16;
    options[2].state_dtype = CZ_BF16;
    options[2].master = CZ_MASTER_NONE;
    options[2].seed = 9;
    for (int k = 0; k < 3; k++)
        CZ_TRY(goes_on(group, way, &options[k]));
    CZ_TRY(changes_over(group, way, true));
    return changes_over(group, way, false);
}

static void run(int way)
{
    static const int worlds[] = {1, 2, 3, 5};
    char why[256];
    for (int w = 0; w < 4; w++) {
        make_folder(folder);
        if (cz_test_run_ranks(worlds[w], all_of_it, &way, why) != CZ_OK)
            fail_msg("world size %d: %s", worlds[w], why);
        remove_folder(folder);
    }
}

TEST(generations)
{
    run(0);
}

TEST(consolidated_files)
{
    run(1);
}

TEST(files_of_pytorch)
{
    run(2);
}

/* What an archive says, and its fingerprint. */
TEST(archives)
{
    cz_group *group;
    cz_archive *archive;
    uint64_t prints[2][2];
    side a = {0};
    make_folder(folder);
    assert_ok(cz_group_create_self(&group, NULL));
    assert_ok(open_side(&a, group, NULL, false));
    assert_ok(train(&a, 0, 2, false));
    assert_ok(put(&a, group, 0, NULL));
    assert_ok(cz_archive_open(&archive, folder, CZ_NEWEST));
    assert_ok(cz_archive_fingerprint(archive, prints[0]));
    assert_ok(cz_optim_fingerprint(a.optim, prints[1]));
    assert_memory_equal(prints[0], prints[1], sizeof prints[0]);
    cz_dtype dtype = CZ_BF16;
    assert_string_equal(cz_archive_slot(archive, 0, 2, &dtype), "master_param");
    assert_int_equal(dtype, CZ_F32);
    cz_archive_destroy(&archive);
    close_side(&a);
    cz_group_destroy(&group);
    remove_folder(folder);
}
