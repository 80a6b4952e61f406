/* SPDX-License-Identifier: MIT */
/* Ranks whose checkpoints would not be one: refused when they are made, and at each save, before
 * anything is written or taken away, with one sentence on all ranks. And what a save writes badly
 * costs no older generation. */
#include "checkpoint/saves.h"

enum { MOST = 5, SENTENCE = 512 };

/* What one rank does otherwise. */
typedef enum otherwise {
    NOTHING,
    NO_OPTIMIZER,
    ANOTHER_NAME,
    ANOTHER_SHAPE,
    ANOTHER_TYPE,
    ANOTHER_ORDER,
    A_PARAMETER_MORE,
    ANOTHER_BUFFER,
    ANOTHER_RULE,
    ANOTHER_RATE,
    ANOTHER_GROUP,
    ANOTHER_KEEP,
    AT_CREATE, /* those before it are found there, those after it at a save */
    A_STEP_MORE,
    A_LATER_RATE,
    ANOTHER_ENTRY,
    AN_ENTRY_MORE,
    NO_COMMON
} otherwise;

typedef struct trial {
    otherwise odd;
    int odd_rank;
    bool export;
    const char *word;
    char sentences[MOST][SENTENCE];
} trial;

typedef struct replica {
    cz_model *model;
    cz_optim *optim;
    cz_checkpoint *checkpoint;
    cz_state_dict *common;
    double first[6], second[6], gradients[2][6], buffer[2][2];
    double third[2][2];
} replica;

static void replica_close(replica *r)
{
    cz_state_dict_destroy(&r->common);
    cz_checkpoint_destroy(&r->checkpoint);
    cz_optim_destroy(&r->optim);
    cz_model_destroy(&r->model);
}

static cz_status add_parameter(replica *r, int which, otherwise odd)
{
    static const int64_t shape[] = {6}, other_shape[] = {5};
    const char *name = which ? "bias" : "weight";
    if (which && odd == ANOTHER_NAME)
        name = "biases";
    return cz_model_add(r->model, name, which ? r->second : r->first, r->gradients[which],
                        odd == ANOTHER_TYPE ? CZ_F32 : CZ_F64, 1,
                        which && odd == ANOTHER_SHAPE ? other_shape : shape);
}

static cz_status make_model(replica *r, otherwise odd)
{
    const int order = odd == ANOTHER_ORDER;
    CZ_TRY(cz_model_create(&r->model));
    CZ_TRY(add_parameter(r, order, odd));
    CZ_TRY(add_parameter(r, !order, odd));
    if (odd == A_PARAMETER_MORE)
        CZ_TRY(
            cz_model_add(r->model, "third", r->third[0], r->third[1], CZ_F64, 1, (int64_t[]){2}));
    return cz_model_add_buffer(r->model, odd == ANOTHER_BUFFER ? "variance" : "mean", r->buffer,
                               CZ_F64, 1, (int64_t[]){2});
}

static cz_status make_optimizer(replica *r, otherwise odd)
{
    static const int64_t members[][1] = {{0}, {1}};
    const int order = odd == ANOTHER_GROUP;
    const cz_param_group groups[] = {{sizeof *groups, members[order], 1, NULL},
                                     {sizeof *groups, members[!order], 1, NULL}};
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    options.groups = groups;
    options.group_count = 2;
    return cz_optim_create(&r->optim, r->model,
                           odd == ANOTHER_RULE ? cz_rule_adamw() : cz_rule_adam(),
                           CZ_HYPERS({"lr", odd == ANOTHER_RATE ? 0.5 : 0.25}), &options);
}

static cz_status replica_open(replica *r, cz_group *group, otherwise odd)
{
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    CZ_TRY(make_model(r, odd));
    CZ_TRY(make_optimizer(r, odd));
    options.model = r->model;
    options.optim = odd == NO_OPTIMIZER ? NULL : r->optim;
    options.keep = odd == ANOTHER_KEEP ? 1 : 2;
    return cz_checkpoint_create(&r->checkpoint, group, folder, &options);
}

/* Beside the common dictionary of all: numbers of the program, and what a scheduler would have. */
static cz_status make_common(replica *r, otherwise odd)
{
    cz_state_dict *sched;
    cz_state_dict_destroy(&r->common);
    if (odd == NO_COMMON)
        return CZ_OK;
    CZ_TRY(cz_state_dict_create(&r->common));
    CZ_TRY(cz_state_dict_set_integer(r->common, "epoch", 3));
    CZ_TRY(cz_state_dict_add_dict(r->common, "scheduler", &sched));
    CZ_TRY(cz_state_dict_set_real(sched, "last_lr", odd == ANOTHER_ENTRY ? 0.5 : 0.25));
    return odd == AN_ENTRY_MORE ? cz_state_dict_set_integer(sched, "more", 1) : CZ_OK;
}

static cz_status save(replica *r, int64_t step, otherwise odd)
{
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    CZ_TRY(make_common(r, odd));
    options.step = step;
    options.common = r->common;
    return cz_checkpoint_save(r->checkpoint, &options);
}

static cz_status differ_later(replica *r, otherwise odd)
{
    if (odd == A_STEP_MORE)
        return cz_optim_step(r->optim, NULL, NULL);
    return odd == A_LATER_RATE ? cz_optim_set_hyper(r->optim, 1, "lr", 0.125) : CZ_OK;
}

/* Two generations by ranks that are alike, then what one rank does otherwise. */
static cz_status save_otherwise(replica *r, cz_group *group, const trial *t, otherwise odd)
{
    char path[2 * SMALL_PATH];
    CZ_TRY(save(r, 1, NOTHING));
    CZ_TRY(cz_optim_step(r->optim, NULL, NULL));
    CZ_TRY(save(r, 2, NOTHING));
    CZ_TRY(differ_later(r, odd));
    if (!t->export)
        return save(r, 3, odd);
    cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
    CZ_TRY(make_common(r, odd));
    options.common = r->common;
    snprintf(path, sizeof path, "%s/exported", folder);
    return cz_checkpoint_export(r->checkpoint, path, &options);
}

static cz_status differ(cz_group *group, void *context)
{
    trial *t = context;
    replica r = {0};
    const int rank = cz_group_rank(group);
    const otherwise odd = rank == t->odd_rank ? t->odd : NOTHING;
    cz_status status = replica_open(&r, group, odd);
    if (t->odd > AT_CREATE && status == CZ_OK)
        status = save_otherwise(&r, group, t, odd);
    else if (t->odd < AT_CREATE && r.checkpoint)
        status = cz_fail(CZ_ERR_STATE, "a checkpoint was made, wanted none");
    snprintf(t->sentences[rank], SENTENCE, "%s", status == CZ_OK ? "CZ_OK" : cz_last_error());
    if (t->odd > AT_CREATE && cz_barrier(group, NULL) == CZ_OK) {
        cz_load_result result = CZ_LOAD_RESULT_INIT; /* ranks that differ as they did before */
        if (cz_checkpoint_load(r.checkpoint, NULL, &result) != CZ_OK)
            snprintf(t->sentences[rank], SENTENCE, "load: %s", cz_last_error());
        if (result.step != 2)
            snprintf(t->sentences[rank], SENTENCE, "step %d was loaded", (int)result.step);
        small_result_clear(&result);
    }
    replica_close(&r);
    return small_expect(status, ONE(CZ_ERR_MISMATCH), t->word, NULL);
}

static void expect_mismatch(int world, otherwise odd, const char *word)
{
    trial t = {.odd = odd, .odd_rank = world - 1, .word = word};
    for (int export = 0; export <= (odd > AT_CREATE); export ++) {
        t.export = export;
        assert_ranks_ok(world, differ, &t);
        for (int r = 1; r < world; r++)
            assert_string_equal(t.sentences[r], t.sentences[0]);
        assert_int_equal(entries(folder), odd > AT_CREATE ? 2 : 0);
        remove_folder(folder);
        assert_int_equal(mkdir(folder, 0777), 0);
    }
}

static const int several[] = {2, 3, 5};

EACH_TEST(set_up, tear_down)

TEST(ranks_that_differ_make_no_checkpoint)
{
    for (int w = 0; w < 3; w++) {
        expect_mismatch(several[w], NO_OPTIMIZER, "the optimizer is none on rank");
        expect_mismatch(several[w], ANOTHER_NAME, "'biases' on rank");
        expect_mismatch(several[w], ANOTHER_SHAPE, "'bias' has shape [5] on rank");
        expect_mismatch(several[w], ANOTHER_TYPE, "'weight' has type");
        expect_mismatch(several[w], ANOTHER_ORDER, "parameter 0 is 'bias' on rank");
        expect_mismatch(several[w], A_PARAMETER_MORE, "the number of parameters is 3 on rank");
        expect_mismatch(several[w], ANOTHER_BUFFER, "buffer 0 is 'variance' on rank");
        expect_mismatch(several[w], ANOTHER_RULE, "rule of the optimizer is 'adamw' on rank");
        expect_mismatch(several[w], ANOTHER_RATE, "lr of the optimizer is 0.5 on rank");
        expect_mismatch(several[w], ANOTHER_GROUP, "member of parameter group 0 is 'bias' on rank");
        expect_mismatch(several[w], ANOTHER_KEEP, "option keep is 1 on rank");
    }
}

TEST(ranks_that_differ_save_and_export_nothing_and_lose_nothing)
{
    for (int w = 0; w < 3; w++) {
        expect_mismatch(several[w], A_STEP_MORE,
                        "weight/step of the optimizer's state is 2 on rank");
        expect_mismatch(several[w], A_LATER_RATE, "param_groups/1/lr of the optimizer is 0.125");
        expect_mismatch(several[w], ANOTHER_ENTRY,
                        "scheduler/last_lr of the common dictionary is 0.5");
        expect_mismatch(several[w], AN_ENTRY_MORE, "'more' on rank");
        expect_mismatch(several[w], NO_COMMON, "'epoch' on rank 0");
    }
}

/* ---- elements ---- */

/* Each rank has running values of its own: those that are saved belong together. */
static cz_status save_buffers(cz_group *group, void *context)
{
    replica r = {0};
    double more[3][4] = {{0}};
    const double rank = cz_group_rank(group);
    cz_status status = make_model(&r, NOTHING);
    for (int b = 0; status == CZ_OK && b < 3; b++)
        status = cz_model_add_buffer(r.model, (const char *[]){"variance", "a", "b"}[b], more[b],
                                     CZ_F64, 1, (int64_t[]){b + 2});
    for (int b = 0; b < 3; b++)
        for (int i = 0; i < 4; i++)
            more[b][i] = rank;
    r.buffer[0][0] = r.buffer[0][1] = rank;
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    options.model = r.model;
    THEN(cz_checkpoint_create(&r.checkpoint, group, folder, &options));
    THEN(cz_checkpoint_save(r.checkpoint, NULL));
    more[0][0] = more[1][0] = more[2][3] = 9;
    THEN(cz_checkpoint_load(r.checkpoint, NULL, NULL));
    THEN(want(r.buffer[0][0] == 0 && r.buffer[0][1] == 0 && more[0][0] == 0 && more[0][1] == 0 &&
                  more[1][0] == 0 && more[2][3] == 0,
              "all buffers of rank 0"));
    replica_close(&r);
    return status;
}

TEST(buffers_of_a_checkpoint_are_all_of_one_rank)
{
    for (int w = 0; w < 3; w++)
        assert_ranks_ok(several[w], save_buffers, NULL);
}

/* In checked mode replicas that have drifted are not saved as one. */
static cz_status save_drifted(cz_group *group, void *context)
{
    const char *word = context;
    replica r = {0};
    cz_status status = replica_open(&r, group, NOTHING);
    if (cz_group_rank(group) == 1)
        r.gradients[1][2] = 1;
    THEN(cz_optim_step(r.optim, NULL, NULL));
    if (cz_group_rank(group) == 1 && strstr(word, "exp_avg"))
        r.second[2] = 0; /* values are alike again */
    THEN(small_expect(save(&r, 1, NOTHING), ONE(CZ_ERR_MISMATCH), word, "rank 1"));
    replica_close(&r);
    return status;
}

TEST(drifted_replicas_are_not_saved_in_checked_mode)
{
    assert_int_equal(setenv("CZERO_DEBUG", "collectives", 1), 0);
    assert_ranks_ok(3, save_drifted, (char *)"other values of parameter 1 'bias'");
    assert_ranks_ok(3, save_drifted, (char *)"other values of exp_avg of parameter 1 'bias'");
    assert_int_equal(unsetenv("CZERO_DEBUG"), 0);
    assert_int_equal(entries(folder), 0);
}

/* Members of two groups that are in one now: which values they go on with is said. */
static cz_status load_merged(cz_group *group, void *context)
{
    static const int64_t both[] = {1, 0};
    replica r = {0}, merged = {0};
    double rate = 0;
    const cz_param_group one = {sizeof one, both, 2, NULL};
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    cz_checkpoint_options of_checkpoint = CZ_CHECKPOINT_OPTIONS_INIT;
    cz_load_options load = CZ_LOAD_OPTIONS_INIT;
    options.groups = &one;
    options.group_count = 1;
    load.permissive = 1;
    cz_status status = replica_open(&r, group, NOTHING);
    THEN(cz_optim_set_hyper(r.optim, 1, "lr", 0.0625));
    THEN(save(&r, 1, NOTHING));
    THEN(make_model(&merged, NOTHING));
    THEN(cz_optim_create(&merged.optim, merged.model, cz_rule_adam(), NULL, &options));
    of_checkpoint.model = merged.model;
    of_checkpoint.optim = merged.optim;
    THEN(cz_checkpoint_create(&merged.checkpoint, group, folder, &of_checkpoint));
    THEN(cz_checkpoint_load(merged.checkpoint, &load, NULL));
    THEN(cz_optim_get_hyper(merged.optim, 0, "lr", &rate));
    THEN(want(rate == 0.0625 && strstr(cz_checkpoint_notes(merged.checkpoint),
                                       "'bias' was; 'weight' was in group 0"),
              "the values of the first member's group, and a note"));
    replica_close(&merged);
    replica_close(&r);
    return status;
}

TEST(groups_that_were_merged_are_noted)
{
    assert_ranks_ok(2, load_merged, NULL);
}

/* ---- files that are not what was written ---- */

static int bad_writes;

/* Says that all was written, and changes a byte of the header. */
static ssize_t write_another_byte(int file, const void *data, size_t count, off_t offset)
{
    if (offset > 30 || count < 40 || !is_victim(file))
        return pwrite(file, data, count, offset);
    unsigned char *copy = aligned_alloc(4096, (count + 4095) / 4096 * 4096);
    memcpy(copy, data, count);
    copy[30 - offset] ^= 1;
    const ssize_t written = pwrite(file, copy, count, offset);
    free(copy);
    bad_writes++;
    return written;
}

static cz_status lose_nothing(small *s, cz_group *group, void *context)
{
    const bool later = *(bool *)context;
    CZ_TRY(small_open(s, group, folder, 1, 1));
    CZ_TRY(small_step(s));
    CZ_TRY(small_save(s, 1, false));
    const small_values saved = s->values;
    CZ_TRY(small_step(s));
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0)
        cz__system_used.write = write_another_byte;
    CZ_TRY(cz_barrier(group, NULL));
    CZ_TRY(small_expect(save_and_wait(s, 2, later), ONE(CZ_ERR_FORMAT), victim, "damaged"));
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0)
        cz__system_used = cz__system_own;
    CZ_TRY(want_entries(s, folder, 1));
    CZ_TRY(small_load(s, NULL, &saved, 1));
    CZ_TRY(small_step(s));
    return save_and_wait(s, 2, later);
}
BODY(lose_nothing)

TEST(generations_are_removed_only_after_the_new_one_was_found_whole)
{
    static const char *const victims[] = {"rank-00001-of-00003.safetensors",
                                          "rank-00002-of-00003.json", "common.safetensors",
                                          "index.json"};
    for (int v = 0; v < 4; v++)
        for (int later = 0; later < 2; later++) {
            victim = victims[v];
            bad_writes = 0;
            assert_ranks_ok(3, lose_nothing_body, &((bool){later}));
            assert_true(bad_writes > 0);
            remove_folder(folder);
            assert_int_equal(mkdir(folder, 0777), 0);
        }
}

static cz_status export_badly(small *s, cz_group *group, void *context)
{
    char path[SMALL_PATH];
    snprintf(path, sizeof path, "%s/model", folder);
    CZ_TRY(small_open(s, group, folder, 1, 1));
    CZ_TRY(cz_checkpoint_export(s->checkpoint, path, NULL));
    const small_values exported = s->values;
    CZ_TRY(small_step(s));
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0)
        cz__system_used.write = write_another_byte;
    CZ_TRY(cz_barrier(group, NULL));
    CZ_TRY(small_expect(cz_checkpoint_export(s->checkpoint, path, NULL), ONE(CZ_ERR_FORMAT),
                        "header", "nothing is replaced"));
    CZ_TRY(cz_checkpoint_import(s->checkpoint, path, NULL, NULL));
    return want(memcmp(&exported, &s->values, sizeof exported) == 0, "what was exported first");
}
BODY(export_badly)

TEST(an_export_is_replaced_only_after_the_new_one_was_found_whole)
{
    victim = "model.czero-unfinished";
    bad_writes = 0;
    assert_ranks_ok(2, export_badly_body, NULL);
    assert_true(bad_writes > 0);
}

/* ---- one sentence ---- */

static ssize_t refuse_write(int file, const void *data, size_t count, off_t offset)
{
    if (!is_victim(file))
        return pwrite(file, data, count, offset);
    errno = ENOSPC;
    return -1;
}

static cz_status fail_save(small *s, cz_group *group, void *context)
{
    trial *t = context;
    CZ_TRY(small_open(s, group, folder, 1, 1));
    const cz_status status = save_and_wait(s, 1, t->export);
    snprintf(t->sentences[cz_group_rank(group)], SENTENCE, "%s",
             status == CZ_OK ? "CZ_OK" : cz_last_error());
    return small_expect(status, ONE(CZ_ERR_IO), "rank 1: ", victim);
}
BODY(fail_save)

TEST(a_failed_save_has_one_sentence_on_all_ranks)
{
    static char name[64];
    for (int w = 0; w < 3; w++)
        for (int later = 0; later < 2; later++) {
            trial t = {.export = later};
            snprintf(name, sizeof name, "rank-00001-of-%05d.safetensors", several[w]);
            victim = name;
            cz__system_used.write = refuse_write;
            assert_ranks_ok(several[w], fail_save_body, &t);
            for (int r = 1; r < several[w]; r++)
                assert_string_equal(t.sentences[r], t.sentences[0]);
        }
}

/* ---- which path ---- */

static cz_status save_into(small *s, cz_group *group, const char *path, const char *word)
{
    CZ_TRY(small_open(s, group, path, 1, 2));
    CZ_TRY(small_expect(small_save(s, 1, false), ONE(CZ_ERR_IO), word, path));
    char export[2 * SMALL_PATH];
    snprintf(export, sizeof export, "%s/model", path);
    CZ_TRY(small_expect(cz_checkpoint_export(s->checkpoint, export, NULL), ONE(CZ_ERR_IO), word,
                        path));
    small_close(s);
    return CZ_OK;
}

static cz_status save_nowhere(small *s, cz_group *group, void *context)
{
    char path[2 * SMALL_PATH], word[2 * SMALL_PATH];
    snprintf(path, sizeof path, "%s/missing/below", folder);
    snprintf(word, sizeof word, "there is no folder %s/missing", folder);
    CZ_TRY(save_into(s, group, path, word));
    snprintf(word, sizeof word, "%s/file is no folder", folder);
    snprintf(path, sizeof path, "%s/file", folder);
    if (cz_group_rank(group) == 0)
        fclose(fopen(path, "w"));
    CZ_TRY(cz_barrier(group, NULL));
    CZ_TRY(save_into(s, group, path, word));
    snprintf(path, sizeof path, "%s/file/below", folder);
    return save_into(s, group, path, word);
}
BODY(save_nowhere)

TEST(a_path_that_is_refused_says_which_part_of_it)
{
    assert_ranks_ok(2, save_nowhere_body, NULL);
}

static cz_status load_nothing(small *s, cz_group *group, void *context)
{
    char left[2 * SMALL_PATH];
    snprintf(left, sizeof left, "%s/00000007-step-3", folder);
    if (cz_group_rank(group) == 0)
        mkdir(left, 0777);
    CZ_TRY(cz_barrier(group, NULL));
    CZ_TRY(small_open(s, group, folder, 1, 2));
    CZ_TRY(small_expect(cz_checkpoint_load(s->checkpoint, NULL, NULL), ONE(CZ_ERR_STATE), left,
                        "never completed"));
    return want(strstr(cz_checkpoint_notes(s->checkpoint), left) != NULL, "the path in the notes");
}
BODY(load_nothing)

TEST(notes_on_incomplete_generations_have_their_paths)
{
    assert_ranks_ok(2, load_nothing_body, NULL);
}
