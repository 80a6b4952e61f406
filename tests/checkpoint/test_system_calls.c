/* SPDX-License-Identifier: MIT */
/* Calls of the system fail in turn, once or for good, with one error after the other, in saves,
 * loads, exports and imports: CZ_ERR_IO or CZ_ERR_MEMORY on all ranks with one sentence, or success
 * with the right values; what was there before is still there, nothing is left open, and the next
 * call works. Here every so many-th, in the nightly test every one. */
#include "checkpoint/small.h"
#include "support/system_calls.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

#ifndef STRIDE
#define STRIDE 13
#endif

static const int errors[] = {EIO, ENOSPC, EACCES, EMFILE, EINTR, CZ_TEST_SHORT, ENOMEM, EDQUOT};
enum { EXPORTED_FILES = 8 }; /* of several: seven with elements and an index */
enum { ERRORS = sizeof errors / sizeof *errors };

static char folder[FOLDER_BYTES];

/* Nobody else is at these files, and all ranks share them: a sentence that says otherwise takes a
 * call that failed for an answer. */
static bool guesses(const char *sentence)
{
    static const char *const causes[] = {"another program", "ranks share",
                                         "is not of this generation", "is no checkpoint's"};
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
        if (strstr(sentence, causes[i]))
            return true;
    return false;
}

static atomic_bool warning_guesses;

static void listen(cz_log_level level, const char *line, void *context)
{
    if (guesses(line))
        atomic_store(&warning_guesses, true);
}

static int set_up(void **state)
{
    cz_log_set_sink(listen, NULL);
    make_quick_folder(folder);
    return 0;
}

static int tear_down(void **state)
{
    remove_folder(folder);
    return 0;
}

typedef enum kind { SAVE, SAVE_LATER, LOAD, ONE_FILE, SEVERAL_FILES, TORCH_FILE, IMPORT } kind;

typedef struct trial {
    kind kind;
    pthread_barrier_t all; /* allocates nothing, opens nothing */
    atomic_bool failed;    /* a call, in this turn */
    char path[SMALL_PATH];
    cz_test_holdings before;
    int stay; /* files that could not be removed, each of which was said: on rank 0 */
} trial;

static bool is_save(const trial *t)
{
    return t->kind == SAVE || t->kind == SAVE_LATER;
}

static bool is_export(const trial *t)
{
    return t->kind == ONE_FILE || t->kind == SEVERAL_FILES || t->kind == TORCH_FILE;
}

/* The call that is tried; what it saves is of that step. */
static cz_status make_call(small *s, const trial *t, int64_t step)
{
    cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
    if (t->kind == SAVE)
        return small_save(s, step, false);
    if (t->kind == SAVE_LATER) {
        CZ_TRY(small_save(s, step, true));
        return cz_checkpoint_wait(s->checkpoint);
    }
    if (t->kind == LOAD)
        return cz_checkpoint_load(s->checkpoint, NULL, NULL);
    if (t->kind == IMPORT)
        return cz_checkpoint_import(s->checkpoint, t->path, NULL, NULL);
    options.step = step;
    options.max_file_bytes = t->kind == SEVERAL_FILES ? 64 : 0;
    return cz_checkpoint_export(s->checkpoint, t->path, &options);
}

/* What is there when no call fails. */
static cz_status read_back(small *s, const trial *t, cz_load_result *result)
{
    if (is_save(t) || t->kind == LOAD)
        return cz_checkpoint_load(s->checkpoint, NULL, result);
    return cz_checkpoint_import(s->checkpoint, t->path, NULL, result);
}

/* The same status and sentence on all ranks. */
static cz_status compare_outcomes(small *s, cz_status status, const char *sentence)
{
    char all[3 * 256];
    char mine[256] = "";
    snprintf(mine, sizeof mine, "%s: %s", cz_status_name(status), sentence);
    CZ_TRY(cz_all_gather(s->group, mine, all, sizeof mine, CZ_U8, NULL));
    for (int r = 0; r < cz_group_size(s->group); r++)
        if (strcmp(all + 256 * r, mine) != 0)
            return cz_fail(CZ_ERR_STATE, "ranks differ: \"%.100s\" and \"%.100s\"", mine,
                           all + 256 * r);
    return CZ_OK;
}

static cz_status check_status(const trial *t, cz_status status, const char *sentence)
{
    if (status != CZ_OK && !atomic_load(&t->failed))
        return cz_fail(CZ_ERR_STATE, "no call failed: %.180s", sentence);
    if (status != CZ_OK && status != CZ_ERR_IO && status != CZ_ERR_MEMORY)
        return cz_fail(CZ_ERR_STATE, "%s: %.200s", cz_status_name(status), sentence);
    if (guesses(sentence) || atomic_load(&warning_guesses))
        return cz_fail(CZ_ERR_STATE, "a cause is guessed, here or in a warning: %.180s", sentence);
    return CZ_OK;
}

/* Values of step n: `n` steps from the start. What is on the medium is of `step` on success, of
 * `last` otherwise. */
static cz_status check_what_is_there(small *s, const trial *t, const small_values *present,
                                     const small_values *last, int64_t step, int64_t last_step)
{
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    CZ_TRY(read_back(s, t, &result));
    const int64_t got = result.step;
    small_result_clear(&result);
    if (got != step && got != last_step)
        return cz_fail(CZ_ERR_STATE, "step %d is there, wanted %d or %d", (int)got, (int)step,
                       (int)last_step);
    if (memcmp(&s->values, got == step ? present : last, sizeof *present) != 0)
        return cz_fail(CZ_ERR_STATE, "other values than those of step %d", (int)got);
    return CZ_OK;
}

/* Entries of a folder with that in their names. */
static int entries(const char *path, const char *part)
{
    int count = 0;
    DIR *directory = opendir(path);
    for (struct dirent *e = directory ? readdir(directory) : NULL; e; e = readdir(directory))
        count += strstr(e->d_name, part) != NULL;
    if (directory)
        closedir(directory);
    return count;
}

/* Of an export there are names for a thousand files that stay: where every call fails in turn it
 * begins with an empty folder now and then. */
static void make_room(trial *t)
{
    const int many = 200;
    if (t->kind != SEVERAL_FILES || t->stay < many)
        return;
    remove_folder(t->path);
    t->stay = 0;
}

/* A save or export in which nothing fails removes what those before it could not, and is the
 * newest. */
static cz_status write_undisturbed(small *s, trial *t, int64_t *step, small_values *last)
{
    if (cz_group_rank(s->group) == 0)
        make_room(t);
    CZ_TRY(cz_barrier(s->group, NULL));
    CZ_TRY(small_step(s));
    CZ_TRY(make_call(s, t, ++*step));
    *last = s->values;
    CZ_TRY(cz_barrier(s->group, NULL));
    const int generations = entries(folder, "-step-");
    const int files = t->kind == SEVERAL_FILES ? entries(t->path, "model") : EXPORTED_FILES;
    CZ_TRY(cz_barrier(s->group, NULL));
    if (generations != 1)
        return cz_fail(CZ_ERR_STATE, "%d generations are left, wanted 1", generations);
    return files <= EXPORTED_FILES + t->stay || cz_group_rank(s->group) != 0
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "%d files are left, wanted %d", files, EXPORTED_FILES);
}

static cz_status turn(small *s, trial *t, int64_t n, int64_t *step, small_values *last)
{
    char sentence[200];
    const bool writes = is_save(t) || is_export(t);
    const int error = errors[n / STRIDE % ERRORS];
    if (writes)
        CZ_TRY(small_step(s));
    const small_values present = s->values;
    const int64_t next = writes ? *step + 1 : *step;
    CZ_TRY(cz_barrier(s->group, NULL));
    pthread_barrier_wait(&t->all);
    if (cz_group_rank(s->group) == 0) {
        t->before = cz_test_holdings_now();
        /* what was interrupted once is tried again, and works */
        cz_test_fail_system_call(n, error, error != EINTR && n / STRIDE / ERRORS % 2);
    }
    pthread_barrier_wait(&t->all);
    cz_status status = make_call(s, t, next);
    snprintf(sentence, sizeof sentence, "%s", status == CZ_OK ? "" : cz_last_error());
    pthread_barrier_wait(&t->all);
    if (cz_group_rank(s->group) == 0) {
        const char *note = is_export(t) ? cz_checkpoint_notes(s->checkpoint) : "";
        for (note = strstr(note, " stays: "); note; note = strstr(note + 1, " stays: "))
            t->stay++;
        atomic_store(&t->failed, cz_test_system_call_reset());
    }
    pthread_barrier_wait(&t->all);
    const cz_test_holdings now = cz_test_holdings_now();
    pthread_barrier_wait(&t->all); /* nobody opens anything meanwhile */
    cz_status checked = check_status(t, status, sentence);
    if (checked == CZ_OK && now.files > t->before.files + 3 * cz_group_size(s->group))
        checked = cz_fail(CZ_ERR_STATE, "%d files are open, %d were", now.files, t->before.files);
    if (checked == CZ_OK)
        checked = compare_outcomes(s, status, sentence);
    if (checked == CZ_OK)
        checked = check_what_is_there(s, t, &present, last, next, *step);
    if (checked != CZ_OK)
        return cz_fail(checked, "call %d, %s, error %d, step %d: %.230s", (int)n,
                       cz_test_system_call_failed(), error, (int)next, cz_last_error());
    *last = s->values; /* whichever it is that is there now */
    *step = memcmp(&present, last, sizeof present) == 0 ? next : *step;
    return writes ? write_undisturbed(s, t, step, last) : CZ_OK;
}

static cz_status body(cz_group *group, void *context)
{
    trial *t = context;
    small s;
    int64_t step = 1;
    cz_status status = small_open(&s, group, folder, 1, 1);
    THEN(small_step(&s));
    small_values last = s.values;
    THEN(small_save(&s, 1, false));
    if (status == CZ_OK && !is_save(t) && t->kind != LOAD) {
        cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
        options.step = 1;
        options.max_file_bytes = t->kind == SEVERAL_FILES ? 64 : 0;
        status = cz_checkpoint_export(s.checkpoint, t->path, &options);
    }
    for (int64_t n = 1 + ((int)t->kind + cz_group_size(group)) % STRIDE; status == CZ_OK;
         n += STRIDE) {
        status = turn(&s, t, n, &step, &last);
        if (status != CZ_OK || !atomic_load(&t->failed))
            break;
    }
    small_close(&s);
    return status;
}

static void run(kind which, const char *name)
{
    for (int world = 1; world <= 3; world++) {
        trial t = {.kind = which};
        char why[256];
        snprintf(t.path, sizeof t.path, "%s/%s", folder, name);
        pthread_barrier_init(&t.all, NULL, (unsigned)world);
        const cz_test_holdings before = cz_test_holdings_now();
        if (cz_test_run_ranks(world, body, &t, why) != CZ_OK)
            fail_msg("%s, world size %d: %s", name, world, why);
        pthread_barrier_destroy(&t.all);
        const cz_test_holdings after = cz_test_holdings_now();
        assert_int_equal(after.files, before.files);
        assert_int_equal(after.threads, before.threads);
        assert_int_equal(cz_test_allocations_held(), 0);
        remove_folder(folder);
        make_quick_folder(folder);
    }
}

EACH_TEST(set_up, tear_down)

TEST(a_save_keeps_the_generation_before_whatever_call_fails)
{
    run(SAVE, "save");
}

TEST(a_save_in_the_background_keeps_the_generation_before)
{
    run(SAVE_LATER, "save");
}

TEST(a_load_says_which_call_failed_and_the_next_works)
{
    run(LOAD, "load");
}

TEST(an_export_is_the_old_file_or_the_new_one)
{
    run(ONE_FILE, "model.safetensors");
}

TEST(an_export_of_several_files_is_the_old_one_or_the_new_one)
{
    run(SEVERAL_FILES, "model");
}

TEST(an_export_for_torch_is_the_old_file_or_the_new_one)
{
    run(TORCH_FILE, "model.pt");
}

TEST(an_import_says_which_call_failed_and_the_next_works)
{
    run(IMPORT, "model.safetensors");
    run(IMPORT, "model.pt");
}
