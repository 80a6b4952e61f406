/* SPDX-License-Identifier: MIT */
/* Checkpoints of a training in parts: another number of ranks goes on with the bits of one that was
 * never stopped, and another number of parts is another training. */
#include "checkpoint/folder.h"
#include "group/group_test.h"
#include "support/part_trials.h"
#include "czero/archive.h"
#include "czero/checkpoint.h"

static char folder[FOLDER_BYTES];

static int set_up(void **state)
{
    make_quick_folder(folder);
    return 0;
}

static int tear_down(void **state)
{
    remove_folder(folder);
    return 0;
}

EACH_TEST(set_up, tear_down)

/* ---- goes on ---- */

typedef struct leg {
    const part_trial *trial;
    const part_values *expected;
    int begin, end;
} leg;

static cz_status run_leg(cz_group *group, void *arg)
{
    const leg *l = arg;
    return part_trial_resume(group, l->trial, l->expected, l->begin, l->end, folder);
}

static void try_on_three_worlds(const part_trial *t)
{
    static const int worlds[PART_STEPS] = {3, 2, 5};
    part_values e;
    assert_ok(part_trial_work_out(t, &e));
    for (int step = 0; step < PART_STEPS; step++)
        assert_ranks_ok(worlds[step], run_leg, &(leg){t, &e, step, step + 1});
    part_values_free(&e);
}

TEST(other_numbers_of_ranks_go_on_with_the_same_bits)
{
    static const stepping ways[] = {ALONE, ALONE_WHOLE, OVERLAP_NONE, OVERLAP_STEP, WHOLE};
    for (int k = 0; k < (int)(sizeof ways / sizeof *ways); k++) {
        part_trial t = plain_part_trial(ways[k], 12);
        try_on_three_worlds(&t);
        tear_down(NULL);
        set_up(NULL);
        t.parts = 5;
        t.weighing = SOME_ZERO;
        t.some_absent = true;
        try_on_three_worlds(&t);
        tear_down(NULL);
        set_up(NULL);
    }
}

/* ---- how many ---- */

typedef struct saved {
    cz_test_memory memory;
    cz_parts *parts;
    cz_zero *zero;
    cz_checkpoint *checkpoint;
} saved;

static void clear(saved *s)
{
    cz_checkpoint_destroy(&s->checkpoint);
    cz_zero_destroy(&s->zero);
    cz_parts_destroy(&s->parts);
    cz_test_memory_destroy(&s->memory);
}

/* `parts`: 0: none. */
static cz_status create(saved *s, cz_group *group, int parts)
{
    const cz_test_training layout = {
        .param_count = PART_PARAMS, .sizes = small_params, .dtype = CZ_F32};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_checkpoint_options checkpoint = CZ_CHECKPOINT_OPTIONS_INIT;
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    if (parts > 0)
        CZ_TRY(cz_parts_create(&s->parts, group, s->memory.model,
                               &(cz_parts_options){sizeof(cz_parts_options), parts, 0}));
    options.parts = s->parts;
    CZ_TRY(cz_zero_create(&s->zero, group, s->memory.model, cz_rule_adamw(), NULL, &options));
    checkpoint.zero = s->zero;
    return cz_checkpoint_create(&s->checkpoint, group, folder, &checkpoint);
}

static cz_status load(saved *s, bool permissive, const char *difference)
{
    cz_load_options options = CZ_LOAD_OPTIONS_INIT;
    options.permissive = permissive;
    const cz_status status = cz_checkpoint_load(s->checkpoint, &options, NULL);
    CZ_TRY(expect(status, difference && !permissive ? CZ_ERR_ARGUMENT : CZ_OK, difference));
    if (permissive)
        CHECK(!difference || strstr(cz_checkpoint_notes(s->checkpoint), difference), "notes: %s",
              cz_checkpoint_notes(s->checkpoint));
    return CZ_OK;
}

typedef struct trip {
    int saved, loaded;
    const char *difference;
} trip;

static cz_status save_and_load(cz_group *group, const trip *t, saved *from, saved *to)
{
    const cz_save_options save = CZ_SAVE_OPTIONS_INIT;
    const cz_export_options publish = CZ_EXPORT_OPTIONS_INIT;
    char path[FOLDER_BYTES + 40];
    snprintf(path, sizeof path, "%s/whole-%d.safetensors", folder, t->saved);
    CZ_TRY(create(from, group, t->saved));
    CZ_TRY(cz_checkpoint_save(from->checkpoint, &save));
    CZ_TRY(cz_checkpoint_export(from->checkpoint, path, &publish));
    clear(from);
    CZ_TRY(create(to, group, t->loaded));
    CZ_TRY(load(to, false, t->difference));
    CZ_TRY(load(to, true, t->difference));
    return expect(cz_checkpoint_import(to->checkpoint, path, NULL, NULL),
                  t->difference ? CZ_ERR_ARGUMENT : CZ_OK, t->difference);
}

static cz_status trip_on_rank(cz_group *group, void *arg)
{
    saved from = {0}, to = {0};
    const cz_status status = save_and_load(group, arg, &from, &to);
    clear(&from);
    clear(&to);
    return status;
}

TEST(another_number_of_parts_is_another_training)
{
    static const trip trips[] = {
        {12, 12, NULL},
        {0, 12, NULL}, /* nothing is known of it */
        {0, 0, NULL},
        {12, 8, "a batch has 8 parts, in the checkpoint 12"},
        {12, 0, "a batch has no parts, in the checkpoint 12"},
    };
    for (int k = 0; k < (int)(sizeof trips / sizeof *trips); k++) {
        assert_ranks_ok(3, trip_on_rank, (void *)&trips[k]);
        tear_down(NULL);
        set_up(NULL);
    }
}

static int64_t parts_in(const char *path)
{
    cz_archive *archive;
    cz_archive_info info = CZ_ARCHIVE_INFO_INIT;
    assert_ok(cz_archive_open(&archive, path, CZ_NEWEST));
    assert_ok(cz_archive_get_info(archive, &info));
    cz_archive_destroy(&archive);
    return info.parts;
}

TEST(archives_say_how_many)
{
    char path[FOLDER_BYTES + 40];
    assert_ranks_ok(2, trip_on_rank, (void *)&(trip){0, 0, NULL});
    assert_int_equal(parts_in(folder), 0);
    assert_ranks_ok(2, trip_on_rank, (void *)&(trip){7, 7, NULL});
    assert_int_equal(parts_in(folder), 7);
    snprintf(path, sizeof path, "%s/whole-7.safetensors", folder);
    assert_int_equal(parts_in(path), 7);
}

/* ---- refused ---- */

static cz_status try_options(cz_group *group, saved *s, saved *other)
{
    cz_checkpoint *none;
    cz_parts *more;
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    CZ_TRY(create(s, group, 12));
    CZ_TRY(create(other, group, 12));
    options.zero = s->zero;
    options.parts = other->parts;
    CZ_TRY(expect(cz_checkpoint_create(&none, group, folder, &options), CZ_ERR_ARGUMENT,
                  "option parts is not what its zero has"));
    options = (cz_checkpoint_options){
        .size = sizeof options, .model = s->memory.model, .parts = other->parts};
    CZ_TRY(expect(cz_checkpoint_create(&none, group, folder, &options), CZ_ERR_ARGUMENT,
                  "checkpoint: option parts is over another model"));
    CZ_TRY(cz_parts_create(&more, group, s->memory.model,
                           &(cz_parts_options){sizeof(cz_parts_options), 12, 0}));
    options.parts = cz_group_rank(group) == 1 ? NULL : more;
    const cz_status status = expect(cz_checkpoint_create(&none, group, folder, &options),
                                    CZ_ERR_MISMATCH, "the number of parts is 0");
    cz_parts_destroy(&more);
    return status;
}

static cz_status refuse_on_rank(cz_group *group, void *arg)
{
    saved s = {0}, other = {0};
    const cz_status status = try_options(group, &s, &other);
    clear(&s);
    clear(&other);
    return status;
}

TEST(parts_of_something_else_and_ranks_without_them_are_refused)
{
    assert_ranks_ok(3, refuse_on_rank, NULL);
}
