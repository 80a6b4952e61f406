/* SPDX-License-Identifier: MIT */
/* Checkpoints of an optimizer whose parameter groups have rules of their own: on any number of
 * ranks, against optimizers of other rules, as files of other forms. */
#include "checkpoint/by_checkpoint.h"
#include "checkpoint/quick.h"
#include "zero/saved.h"

static saving here = {folder, false};
static const handover by_checkpoint = {load_stage, save_stage, &here};

EACH_TEST(set_up, tear_down)

/* ---- on any number of ranks ---- */

static const int64_t left[] = {0, 2, 4}, right[] = {1, 3, 5};

TEST(several_rules_go_on_with_another_number_of_ranks)
{
    static const char *const rules[][2] = {
        {"adamw", "lion"}, {"lamb", "sgd"}, {"nadam", "adam_mini"}, {"sgd", "ademamix"}};
    static const int worlds[] = {1, 2, 3, 5, 7};
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
        for (int w = 0; w < 5; w++) {
            cz_test_training t = some_training(rules[k][0], CZ_F32);
            cz_param_group groups[] = {CZ_PARAM_GROUP_INIT, CZ_PARAM_GROUP_INIT};
            const stage list[] = {
                {worlds[w], 2, (cz_partition)(w % 2), 0, 0, 0},
                {worlds[4 - w], 2, (cz_partition)((w + 1) % 2), 0, 0.5, w > 2 ? 5 : 0}};
            groups[0].params = left;
            groups[1].params = right;
            groups[0].param_count = groups[1].param_count = 3;
            groups[1].rule = cz_rule_find(rules[k][1]);
            groups[1].hypers = CZ_HYPERS({"lr", 0.25});
            t.groups = groups;
            t.group_count = 2;
            check_stages(&by_checkpoint, &t, list, 2, NULL);
        }
}

/* ---- against other rules ---- */

/* Three parameters; the last one, or two, are a group of a rule of its own. */
typedef struct shape {
    const char *rule, *own; /* "": the first one's */
    int own_from;
} shape;

typedef struct subject {
    small s;
} subject;

static void subject_close(subject *u)
{
    cz_checkpoint_destroy(&u->s.checkpoint);
    small_close(&u->s);
}

static cz_status subject_open(subject *u, cz_group *group, const shape *o)
{
    static const int64_t all[] = {0, 1, 2};
    cz_param_group groups[] = {CZ_PARAM_GROUP_INIT, CZ_PARAM_GROUP_INIT};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_checkpoint_options checkpoint = CZ_CHECKPOINT_OPTIONS_INIT;
    *u = (subject){0};
    CZ_TRY(small_open(&u->s, group, folder, 1, 0));
    cz_checkpoint_destroy(&u->s.checkpoint);
    cz_zero_destroy(&u->s.zero);
    groups[0].params = all;
    groups[0].param_count = o->own_from;
    groups[1].params = all + o->own_from;
    groups[1].param_count = 3 - o->own_from;
    groups[1].rule = *o->own ? cz_rule_find(o->own) : NULL;
    if (o->own_from == 0) /* the other one is empty */
        groups[0].rule = groups[1].rule;
    groups[1].hypers = CZ_HYPERS({"lr", 0.25});
    options.groups = groups;
    options.group_count = 2;
    CZ_TRY(cz_zero_create(&u->s.zero, group, u->s.model, cz_rule_find(o->rule),
                          CZ_HYPERS({"lr", 0.125}), &options));
    checkpoint.zero = u->s.zero;
    return cz_checkpoint_create(&u->s.checkpoint, group, folder, &checkpoint);
}

static cz_status save(cz_group *group, void *context)
{
    subject u;
    cz_status status = subject_open(&u, group, context);
    THEN(small_step(&u.s));
    THEN(cz_checkpoint_save(u.s.checkpoint, NULL));
    subject_close(&u);
    return status;
}

/* What is loaded there, and how it ends. */
typedef struct attempt {
    shape shape;
    const char *sentence, *other; /* NULL: it succeeds */
    bool permissive, keeps_state;
} attempt;

static cz_status try_load(subject *u, const attempt *a)
{
    cz_load_options options = CZ_LOAD_OPTIONS_INIT;
    uint64_t before[2], after[2];
    options.permissive = a->permissive;
    CZ_TRY(small_step(&u->s));
    CZ_TRY(small_step(&u->s));
    CZ_TRY(cz_zero_fingerprint(u->s.zero, before));
    const cz_status status = cz_checkpoint_load(u->s.checkpoint, &options, NULL);
    const char *said = status ? cz_last_error() : cz_checkpoint_notes(u->s.checkpoint);
    if ((status == CZ_OK) != (!a->sentence || a->permissive))
        return cz_fail(CZ_ERR_STATE, "%s: %.200s", cz_status_name(status), cz_last_error());
    if (a->sentence && (!strstr(said, a->sentence) || !strstr(said, a->other)))
        return cz_fail(CZ_ERR_STATE, "it says: %.230s", said);
    CZ_TRY(cz_zero_fingerprint(u->s.zero, after));
    if ((memcmp(before, after, sizeof before) == 0) != (status != CZ_OK))
        return cz_fail(CZ_ERR_STATE, "something was %schanged", status ? "" : "not ");
    const int64_t steps = cz__optim_step_count(cz_zero_local_optim(u->s.zero), 2);
    const bool owned = cz__optim_holds(cz_zero_local_optim(u->s.zero), 2);
    if (owned && steps != (status || a->keeps_state ? 2 : 1))
        return cz_fail(CZ_ERR_STATE, "parameter 2 has made %d steps", (int)steps);
    return CZ_OK;
}

static cz_status load(cz_group *group, void *context)
{
    subject u;
    const attempt *a = context;
    cz_status status = subject_open(&u, group, &a->shape);
    THEN(try_load(&u, a));
    subject_close(&u);
    return status;
}

TEST(rules_are_compared_group_by_group)
{
    static const attempt attempts[] = {
        {{"adamw", "lion", 2}, NULL, NULL, false, false},
        {{"lion", "", 2},
         "the rule of parameter group 0 is lion",
         "layer0.weight' in the check",
         false,
         false},
        {{"adamw", "", 1},
         "the rule of parameter group 1 is adamw",
         "'layer2.weight' in the check",
         false,
         false},
        {{"adamw", "lion", 1},
         "the rule of parameter group 1 is lion",
         "'layer1.weight' in the checkpoint adamw",
         false,
         false},
        {{"adamw", "lion", 1},
         "the rule of parameter group 1 is lion",
         "'layer1.weight' in the checkpoint adamw",
         true,
         true},
        {{"adamw", "sgd", 2}, "group 1 is sgd", "in the checkpoint lion", false, false},
    };
    static shape saved = {"adamw", "lion", 2};
    assert_ranks_ok(3, save, &saved);
    for (size_t k = 0; k < sizeof attempts / sizeof *attempts; k++)
        for (int world = 1; world <= 3; world += 2)
            assert_ranks_ok(world, load, (void *)&attempts[k]);
}

/* ---- the index ---- */

static char *text_of(const char *path)
{
    char *text = calloc(1, 1 << 16);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    return text;
}

static void expect_version(const shape *o, const char *version, bool says_rule)
{
    char path[SMALL_PATH];
    assert_ranks_ok(2, save, (void *)o);
    snprintf(path, sizeof path, "%s/00000001-step-0/index.json", folder);
    char *text = text_of(path);
    assert_non_null(strstr(text, version));
    assert_true(!!strstr(text, "\"rule\":\"lion\"") == says_rule);
    free(text);
    remove_folder(folder);
    make_quick_folder(folder);
}

TEST(an_index_with_rules_of_groups_is_of_version_2)
{
    expect_version(&(shape){"adamw", "lion", 2}, "\"version\":2,", true);
    expect_version(&(shape){"adamw", "adamw", 2}, "\"version\":1,", false);
    expect_version(&(shape){"adamw", "", 2}, "\"version\":1,", false);
}

/* ---- other forms ---- */

static cz_status export(subject *u)
{
    char path[SMALL_PATH];
    CZ_TRY(small_step(&u->s));
    snprintf(path, sizeof path, "%s/whole.safetensors", folder);
    CZ_TRY(cz_checkpoint_export(u->s.checkpoint, path, NULL));
    CZ_TRY(small_step(&u->s));
    CZ_TRY(cz_checkpoint_import(u->s.checkpoint, path, NULL, NULL));
    const int64_t steps = cz__optim_step_count(cz_zero_local_optim(u->s.zero), 2);
    if (cz__optim_holds(cz_zero_local_optim(u->s.zero), 2) && steps != 1)
        return cz_fail(CZ_ERR_STATE, "parameter 2 has made %d steps", (int)steps);
    static const char *const torch[] = {"whole.pt", "whole.dcp"};
    for (int k = 0; k < 2; k++) {
        cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
        snprintf(path, sizeof path, "%s/%s", folder, torch[k]);
        const cz_status status = cz_checkpoint_export(u->s.checkpoint, path, NULL);
        if (status != CZ_ERR_UNSUPPORTED || !strstr(cz_last_error(), "several rules"))
            return cz_fail(CZ_ERR_STATE, "%s: %.200s", cz_status_name(status), cz_last_error());
        options.parameters_only = 1;
        CZ_TRY(cz_checkpoint_export(u->s.checkpoint, path, &options));
    }
    return CZ_OK;
}

static cz_status export_body(cz_group *group, void *context)
{
    subject u;
    cz_status status = subject_open(&u, group, context);
    THEN(export(&u));
    subject_close(&u);
    return status;
}

TEST(torch_has_no_word_for_several_rules)
{
    static shape both = {"adamw", "lion", 1};
    for (int world = 1; world <= 3; world++)
        assert_ranks_ok(world, export_body, &both);
}

/* An optimizer whose groups all have another rule than its own has one rule. */
static cz_status export_one(cz_group *group, void *context)
{
    subject u;
    char path[SMALL_PATH];
    snprintf(path, sizeof path, "%s/one.pt", folder);
    cz_status status = subject_open(&u, group, context);
    THEN(small_step(&u.s));
    THEN(cz_checkpoint_export(u.s.checkpoint, path, NULL));
    THEN(small_step(&u.s));
    THEN(cz_checkpoint_import(u.s.checkpoint, path, NULL, NULL));
    subject_close(&u);
    return status;
}

TEST(one_rule_of_all_groups_goes_to_torch)
{
    static shape one = {"sgd", "adamw", 0};
    assert_ranks_ok(2, export_one, &one);
}
