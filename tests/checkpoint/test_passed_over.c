/* SPDX-License-Identifier: MIT */
/* Generations that are passed over: never completed, however many in a row, or damaged. Neither is
 * taken for nothing. */
#include <inttypes.h>
#include <sys/stat.h>

#include "checkpoint/folder.h"
#include "czero/checkpoint.h"

enum { ELEMENTS = 200 };

typedef struct trial {
    char folder[FOLDER_BYTES];
    bool save; /* as step 7; or load */
    cz_load_options load;
    int64_t found; /* step; -2: CZ_ERR_STATE */
} trial;

/* A cz_rank_main. */
static cz_status visit(cz_group *world, void *context)
{
    trial *t = context;
    float values[ELEMENTS] = {0}, grads[ELEMENTS];
    cz_model *model = NULL;
    cz_checkpoint *checkpoint = NULL;
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    cz_save_options save = CZ_SAVE_OPTIONS_INIT;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    CZ_CHECK(cz_model_create(&model));
    CZ_CHECK(cz_model_add(model, "w", values, grads, CZ_F32, 1, (int64_t[]){ELEMENTS}));
    options.model = model;
    CZ_CHECK(cz_checkpoint_create(&checkpoint, world, t->folder, &options));
    save.step = 7;
    const cz_status status = t->save ? cz_checkpoint_save(checkpoint, &save)
                                     : cz_checkpoint_load(checkpoint, &t->load, &result);
    if (cz_group_rank(world) == 0)
        t->found = status == CZ_OK ? result.step : status == CZ_ERR_STATE ? -2 : -3;
    cz_state_dict_destroy(&result.common);
    cz_state_dict_destroy(&result.own);
    cz_checkpoint_destroy(&checkpoint);
    cz_model_destroy(&model);
    return CZ_OK;
}

static int64_t launch(trial *t, int ranks)
{
    cz_launch_options options = CZ_LAUNCH_OPTIONS_INIT;
    options.ranks = ranks;
    assert_ok(cz_launch(visit, t, &options));
    return t->found;
}

static void begin(trial *t, bool save)
{
    *t = (trial){.load = CZ_LOAD_OPTIONS_INIT};
    make_folder(t->folder);
    t->save = save;
    if (save)
        (void)launch(t, 2);
    t->save = false;
}

/* As killed jobs leave them. */
static void interrupt(const trial *t, int from, int count)
{
    char path[FOLDER_BYTES + 64];
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%08d-step-%d", t->folder, from + i, 100 + i);
        assert_int_equal(mkdir(path, 0777), 0);
    }
}

TEST(any_number_of_interrupted_saves)
{
    static const int counts[] = {1, 62, 63, 64, 65, 127, 128, 129, 300};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        trial t;
        begin(&t, true);
        interrupt(&t, 2, counts[i]);
        assert_int_equal(launch(&t, 1 + (int)i % 3), 7);
        t.load.step = 7;
        t.load.missing_ok = 1;
        assert_int_equal(launch(&t, 2), 7);
        t.load.step = 100; /* it is there, but not complete */
        assert_int_equal(launch(&t, 2), -1);
        t.load.missing_ok = 0;
        assert_int_equal(launch(&t, 2), -2);
        remove_folder(t.folder);
    }
}

TEST(nothing_but_interrupted_saves_is_nothing)
{
    static const int counts[] = {0, 1, 64, 130};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        trial t;
        begin(&t, false);
        interrupt(&t, 1, counts[i]);
        assert_int_equal(launch(&t, 3), -2);
        t.load.missing_ok = t.load.fall_back = 1;
        assert_int_equal(launch(&t, 3), -1);
        remove_folder(t.folder);
    }
}

TEST(damaged_is_not_missing)
{
    trial t;
    char path[FOLDER_BYTES + 64];
    begin(&t, true);
    snprintf(path, sizeof path, "%s/00000001-step-7/rank-00000-of-00002.safetensors", t.folder);
    assert_int_equal(truncate(path, 20), 0);
    t.load.missing_ok = t.load.fall_back = 1;
    for (int ranks = 1; ranks <= 3; ranks++)
        assert_int_equal(launch(&t, ranks), -2);
    interrupt(&t, 2, 70);
    assert_int_equal(launch(&t, 2), -2);
    t.load.step = 8; /* there was never such a step */
    assert_int_equal(launch(&t, 2), -1);
    remove_folder(t.folder);
}
