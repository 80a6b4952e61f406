/* SPDX-License-Identifier: MIT */
/* Real numbers in a checkpoint: saved and loaded in any locale and floating-point environment of
 * the program, they have the bits that they had. */
#include "checkpoint/folder.h"
#include "support/comma_locale.h"
#include "support/float_mode.h"

#include "czero/czero.h"

enum { REALS = 2000 };

typedef struct trial {
    char folder[FOLDER_BYTES];
    test_mode saves, loads;
} trial;

static double real(int i)
{
    return (i % 2 ? -1.0 : 1.0) * (i + 0.1) / (i % 17 + 3) * (i % 5 == 0 ? 0x1p-1060 : 1);
}

static cz_status make_dict(cz_state_dict **dict)
{
    CZ_TRY(cz_state_dict_create(dict));
    for (int i = 0; i < REALS; i++) {
        char key[16];
        snprintf(key, sizeof key, "r%d", i);
        CZ_TRY(cz_state_dict_set_real(*dict, key, real(i)));
    }
    return CZ_OK;
}

static cz_status save_and_load(cz_group *group, void *context)
{
    trial *t = context;
    float w[3] = {1, 2, 3}, g[3] = {0.1f, 0.2f, 0.3f};
    cz_model *model;
    cz_zero *zero;
    cz_checkpoint *checkpoint;
    cz_state_dict *dict, *back = NULL;
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    cz_save_options save = CZ_SAVE_OPTIONS_INIT;
    cz_load_result loaded = CZ_LOAD_RESULT_INIT;
    double rate;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "w", w, g, CZ_F32, 1, (int64_t[]){3}));
    CZ_TRY(cz_zero_create(&zero, group, model, cz_rule_nadam(), CZ_HYPERS({"lr", 0.1 / 3}), NULL));
    CZ_TRY(make_dict(&dict));
    options.zero = zero;
    CZ_TRY(cz_zero_step(zero, NULL, NULL));
    IN_MODE(t->saves, cz_checkpoint_create(&checkpoint, group, t->folder, &options));
    save.step = 1;
    save.common = dict;
    IN_MODE(t->saves, cz_checkpoint_save(checkpoint, &save));
    CZ_TRY(cz_optim_set_hyper(cz_zero_local_optim(zero), CZ_ALL_GROUPS, "lr", 1));
    IN_MODE(t->loads, cz_checkpoint_load(checkpoint, NULL, &loaded));
    back = loaded.common;
    cz_state_dict_destroy(&loaded.own);
    if (!cz_state_dict_equal(dict, back))
        return cz_fail(CZ_ERR_INTERNAL, "reals differ");
    CZ_TRY(cz_optim_get_hyper(cz_zero_local_optim(zero), 0, "lr", &rate));
    if (rate != 0.1 / 3)
        return cz_fail(CZ_ERR_INTERNAL, "the rate is %.17g", rate);
    cz_state_dict_destroy(&back);
    cz_state_dict_destroy(&dict);
    cz_checkpoint_destroy(&checkpoint);
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    return CZ_OK;
}

static void run_trial(test_mode saves, test_mode loads)
{
    char why[256];
    trial t = {.saves = saves, .loads = loads};
    make_quick_folder(t.folder);
    const cz_status status = cz_test_run_ranks(2, save_and_load, &t, why);
    remove_folder(t.folder);
    if (status != CZ_OK)
        fail_msg("saved %s, loaded %s: %s", mode_name(saves), mode_name(loads), why);
}

TEST(reals_come_back_in_every_floating_point_environment)
{
    for (int mode = MODE_DEFAULT; mode < MODE_COUNT; mode++) {
        run_trial((test_mode)mode, MODE_DEFAULT);
        run_trial(MODE_DEFAULT, (test_mode)mode);
        run_trial((test_mode)mode, (test_mode)((mode + 1) % MODE_COUNT));
    }
}

TEST(reals_come_back_in_a_locale_of_commas)
{
    if (!set_comma_locale())
        skip();
    run_trial(MODE_DEFAULT, MODE_DEFAULT);
    run_trial(MODE_UP, MODE_FLUSH);
    setlocale(LC_ALL, "C");
}
