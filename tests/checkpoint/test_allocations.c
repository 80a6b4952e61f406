/* SPDX-License-Identifier: MIT */
/* Allocations fail in turn, the library's and those of JSON, in saves and loads: CZ_ERR_MEMORY on
 * all ranks, nothing published, nothing changed, nothing taken for damage or for missing; the next
 * call works. Here every seventh one, other ones for each kind of call; in the nightly test every
 * one. */
#include <dirent.h>

#include "checkpoint/small.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#ifndef STRIDE
#define STRIDE 7
#endif

static char folder[FOLDER_BYTES];

/* ---- failures ---- */

static atomic_long json_until_failure;
static atomic_bool json_failed;

static void *json_malloc(size_t bytes)
{
    if (atomic_fetch_sub(&json_until_failure, 1) == 1) {
        atomic_store(&json_failed, true);
        return NULL;
    }
    return malloc(bytes);
}

static void arm(bool json, int64_t n)
{
    atomic_store(&json_failed, false);
    atomic_store(&json_until_failure, json ? n : 0);
    cz_test_fail_allocation(json ? 0 : n);
}

static bool disarm(void)
{
    const bool failed = cz_test_allocation_reset();
    atomic_store(&json_until_failure, 0);
    return failed || atomic_load(&json_failed);
}

static int set_up(void **state)
{
    cz_log_set_sink(small_quiet, NULL);
    json_set_alloc_funcs(json_malloc, free);
    make_quick_folder(folder);
    return 0;
}

static int tear_down(void **state)
{
    json_set_alloc_funcs(malloc, free);
    remove_folder(folder);
    return 0;
}

/* ---- one call after the other ---- */

typedef enum call { SAVE, SAVE_LATER, LOAD, FALL_BACK, PERMISSIVE, READ_OWN } call;

typedef struct trial {
    call call;
    bool json;
    atomic_bool failed;    /* in this turn */
    pthread_barrier_t all; /* allocates nothing */
} trial;

static cz_status make_call(small *s, const trial *t, const cz_save_options *save)
{
    cz_load_options options = CZ_LOAD_OPTIONS_INIT;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    cz_state_dict *own = NULL;
    cz_status status;
    options.fall_back = t->call == FALL_BACK;
    options.permissive = t->call == PERMISSIVE;
    if (t->call == SAVE || t->call == SAVE_LATER) {
        CZ_TRY(t->call == SAVE ? cz_checkpoint_save(s->checkpoint, save)
                               : cz_checkpoint_save_async(s->checkpoint, save));
        return cz_checkpoint_wait(s->checkpoint);
    }
    if (t->call == READ_OWN) {
        status = cz_checkpoint_fetch_own(s->checkpoint, 0, &own);
        cz_state_dict_destroy(&own);
        return status;
    }
    status = cz_checkpoint_load(s->checkpoint, &options, &result);
    if (status == CZ_OK && result.step != save->step - 1)
        status = cz_fail(CZ_ERR_STATE, "step %d was loaded, wanted %d: %.100s", (int)result.step,
                         (int)save->step - 1, cz_checkpoint_notes(s->checkpoint));
    small_result_clear(&result);
    return status;
}

static int generations(void)
{
    int count = 0;
    struct dirent *entry;
    DIR *directory = opendir(folder);
    while (directory && (entry = readdir(directory)))
        count += strstr(entry->d_name, "-step-") != NULL;
    if (directory)
        closedir(directory);
    return count;
}

static cz_status check_outcome(small *s, trial *t, cz_status status, const char *sentence,
                               int before)
{
    const bool saves = t->call == SAVE || t->call == SAVE_LATER;
    /* jansson cuts texts off that it reads where it has no memory for all of them, and does not say
     * so; a save reads what it has written */
    const bool cut_off = t->json && status == CZ_ERR_FORMAT;
    if (status != CZ_OK && status != CZ_ERR_MEMORY && !cut_off)
        return cz_fail(CZ_ERR_STATE, "%s: %.200s", cz_status_name(status), sentence);
    if (status != CZ_OK && !atomic_load(&t->failed))
        return cz_fail(CZ_ERR_STATE, "no allocation failed: %.180s", sentence);
    if (!saves && t->call != READ_OWN && status != CZ_OK)
        CZ_TRY(small_unchanged(s));
    const int now = generations();
    CZ_TRY(cz_barrier(s->group, NULL));
    if (saves && (status == CZ_OK ? now < 1 : now != before))
        return cz_fail(CZ_ERR_STATE, "%s, and %d generations after %d: %.140s",
                       cz_status_name(status), now, before, sentence);
    return CZ_OK;
}

static cz_status turn_with(small *s, trial *t, int64_t n, int64_t *step,
                           const cz_save_options *save)
{
    char sentence[256];
    CZ_TRY(small_step(s));
    CZ_TRY(small_remember(s));
    const int before = generations();
    CZ_TRY(cz_barrier(s->group, NULL));
    if (cz_group_rank(s->group) == 0)
        arm(t->json, n);
    pthread_barrier_wait(&t->all);
    const cz_status status = make_call(s, t, save);
    snprintf(sentence, sizeof sentence, "%s", status == CZ_OK ? "" : cz_last_error());
    pthread_barrier_wait(&t->all);
    if (cz_group_rank(s->group) == 0)
        atomic_store(&t->failed, disarm());
    CZ_TRY(cz_barrier(s->group, NULL));
    const cz_status checked = check_outcome(s, t, status, sentence, before);
    if (checked != CZ_OK)
        return cz_fail(checked, "allocation %d: %.220s", (int)n, cz_last_error());
    *step += (t->call == SAVE || t->call == SAVE_LATER);
    CZ_TRY(cz_barrier(s->group, NULL));
    if (t->call == SAVE || t->call == SAVE_LATER || n % 8)
        return CZ_OK;
    return cz_checkpoint_load(s->checkpoint, NULL, NULL);
}

static cz_status turn(small *s, trial *t, int64_t n, int64_t *step)
{
    cz_save_options save = CZ_SAVE_OPTIONS_INIT;
    cz_state_dict *common, *own;
    CZ_TRY(small_dict(&common, (int)*step));
    CZ_TRY(small_dict(&own, small_own(*step, cz_group_rank(s->group))));
    save.step = *step;
    save.common = common;
    save.own = own;
    const cz_status status = turn_with(s, t, n, step, &save);
    cz_state_dict_destroy(&common);
    cz_state_dict_destroy(&own);
    return status;
}

static cz_status body(cz_group *group, void *context)
{
    trial *t = context;
    small s;
    int64_t step = 1;
    cz_status status = small_open(&s, group, folder, 1, 1);
    THEN(small_save(&s, step++, false));
    for (int64_t n = 1 + ((int)t->call + 2 * t->json + cz_group_size(group)) % STRIDE;
         status == CZ_OK; n += STRIDE) {
        status = turn(&s, t, n, &step);
        if (status != CZ_OK || !atomic_load(&t->failed))
            break;
        status = cz_barrier(group, NULL);
    }
    THEN(small_save(&s, step, false));
    small_close(&s);
    return status;
}

static void run(call which)
{
    for (int json = 0; json < (which == FALL_BACK ? 1 : 2); json++)
        for (int world = 1; world <= 2; world++) {
            trial t = {.call = which, .json = json};
            char why[256];
            pthread_barrier_init(&t.all, NULL, (unsigned)world);
            if (cz_test_run_ranks(world, body, &t, why) != CZ_OK)
                fail_msg("call %d, %s, world size %d: %s", (int)which, json ? "JSON" : "library",
                         world, why);
            pthread_barrier_destroy(&t.all);
            assert_int_equal(cz_test_allocations_held(), 0);
            remove_folder(folder);
            make_quick_folder(folder);
        }
}

EACH_TEST(set_up, tear_down)

TEST(a_save_without_memory_changes_nothing)
{
    run(SAVE);
}

TEST(a_later_save_without_memory_changes_nothing)
{
    run(SAVE_LATER);
}

TEST(a_load_without_memory_changes_nothing)
{
    run(LOAD);
    run(FALL_BACK);
}

TEST(a_permissive_load_without_memory_changes_nothing)
{
    run(PERMISSIVE);
}

TEST(a_rank_s_own_part_without_memory)
{
    run(READ_OWN);
}
