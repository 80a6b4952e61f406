/* SPDX-License-Identifier: MIT */
/* Checkpoints in unlucky moments, and folders of machines. Resumed trainings are in
 * test_cases_saved.c, what is sent and held in test_cases_bytes.c; consolidation in memory is under
 * tests/zero/. */
#include "checkpoint/saves.h"

#include <signal.h>
#include <sys/wait.h>

/* ---- what is one rank's alone ---- */

static cz_status fill(cz_group *group, void *context)
{
    small s;
    cz_status status = small_open(&s, group, folder, 1, 2);
    THEN(small_save(&s, 3, true));
    THEN(cz_checkpoint_wait(s.checkpoint));
    small_close(&s);
    return status;
}

static cz_status read_all_own(small *s, int of)
{
    cz_state_dict *own = NULL;
    const int rank = cz_group_rank(s->group);
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    CZ_TRY(small_expect(cz_checkpoint_fetch_own(s->checkpoint, 0, &own), ONE(CZ_ERR_STATE), NULL,
                        NULL));
    CZ_TRY(cz_checkpoint_load(s->checkpoint, NULL, &result));
    cz_status status = want((rank < of) == small_dict_is(result.own, small_own(3, rank)) &&
                                result.world_size == of,
                            "the own dictionary");
    small_result_clear(&result);
    for (int r = 0; status == CZ_OK && r < of; r++) {
        status = cz_checkpoint_fetch_own(s->checkpoint, r, &own);
        THEN(want(small_dict_is(own, small_own(3, r)), "that of any rank"));
        cz_state_dict_destroy(&own);
    }
    CZ_TRY(status);
    return small_expect(cz_checkpoint_fetch_own(s->checkpoint, of, &own), ONE(CZ_ERR_ARGUMENT),
                        NULL, NULL);
}

static cz_status own_body(cz_group *group, void *context)
{
    small s;
    cz_status status = small_open(&s, group, folder, 5, 2);
    THEN(read_all_own(&s, *(const int *)context));
    small_close(&s);
    return status;
}

EACH_TEST(set_up, tear_down)

TEST(what_is_one_ranks_alone_returns_to_that_rank)
{
    static const int worlds[] = {1, 2, 4, 7};
    for (int from = 0; from < 4; from++) {
        assert_ranks_ok(worlds[from], fill, NULL);
        for (int to = 0; to < 4; to++)
            assert_ranks_ok(worlds[to], own_body, (void *)&worlds[from]);
    }
}

/* ---- folders of machines ---- */

/* Ranks `rank / per` have a folder together. `turned`: they have those of the others. */
typedef struct machines {
    int per;
    bool turned;
} machines;

static small_values kept;

static void machine_folder(char path[SMALL_PATH], const machines *m, cz_group *group)
{
    const int last = (cz_group_size(group) - 1) / m->per, machine = cz_group_rank(group) / m->per;
    snprintf(path, SMALL_PATH, "%s/machine%d", folder, m->turned ? last - machine : machine);
}

static cz_status machines_save(cz_group *group, void *context)
{
    char path[SMALL_PATH];
    machine_folder(path, context, group);
    return small_save_four(group, path, &kept);
}

/* Each rank asks for another one, wherever its part is; one of them for none. */
static cz_status fetch_own(small *s, int of)
{
    const int rank = cz_group_rank(s->group);
    cz_state_dict *own = NULL;
    for (int k = -1; k < of; k++) {
        const int from = (rank + k + 1) % (of + 1) - 1;
        CZ_TRY(cz_checkpoint_fetch_own(s->checkpoint, from, &own));
        const bool same = from < 0 ? own == NULL : small_dict_is(own, small_own(4, from));
        cz_state_dict_destroy(&own);
        CZ_TRY(want(same, "the dictionary of any rank"));
    }
    CZ_TRY(small_expect(cz_checkpoint_fetch_own(s->checkpoint, rank == 1 ? of : 0, &own),
                        ONE(CZ_ERR_ARGUMENT), "rank 1: ", NULL));
    CZ_TRY(small_expect(cz_checkpoint_fetch_own(s->checkpoint, 0, rank == 1 ? NULL : &own),
                        ONE(CZ_ERR_ARGUMENT), "out is NULL", NULL));
    return want(!own, "no dictionary after an error");
}

static cz_status machines_load(cz_group *group, void *context)
{
    small s;
    char path[SMALL_PATH];
    cz_state_dict *own = NULL;
    machine_folder(path, context, group);
    cz_status status = small_open(&s, group, path, 9, 2);
    THEN(small_step(&s));
    THEN(small_expect(cz_checkpoint_fetch_own(s.checkpoint, 0, &own), ONE(CZ_ERR_STATE), NULL,
                      NULL));
    THEN(small_load(&s, NULL, &kept, 4));
    THEN(fetch_own(&s, 4));
    small_close(&s);
    return status;
}

TEST(folders_of_machines)
{
    assert_ranks_ok(4, machines_save, &((machines){2, false}));
    assert_ranks_ok(4, machines_load, &((machines){2, false}));
    assert_ranks_ok(4, machines_load, &((machines){2, true}));
    assert_ranks_ok(2, machines_load, &((machines){1, true}));
    assert_ranks_ok(3, machines_load, &((machines){1, false}));
}

/* ---- killed in the middle of a save ---- */

static cz_status killed_body(cz_group *group, void *context)
{
    small s;
    CZ_TRY(small_open(&s, group, folder, 2, 2));
    for (int step = 4;; step++)
        CZ_TRY(small_save(&s, step, step % 2));
}

/* A job of its own that saves until it is killed, at any moment. */
static void kill_a_job(int after_microseconds)
{
    const pid_t child = fork();
    if (child == 0) {
        cz_launch_options options = CZ_LAUNCH_OPTIONS_INIT;
        options.ranks = 2;
        (void)cz_launch(killed_body, NULL, &options);
        _exit(0);
    }
    assert_true(child > 0);
    usleep((useconds_t)after_microseconds);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static cz_status loads_something(cz_group *group, void *context)
{
    small s;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    cz_status status = small_open(&s, group, folder, 7, 2);
    THEN(cz_checkpoint_load(s.checkpoint, NULL, &result));
    if (status == CZ_OK && (result.step < 3 || !small_dict_is(result.common, (int)result.step)))
        status = cz_fail(CZ_ERR_STATE, "step %d is loaded", (int)result.step);
    small_result_clear(&result);
    small_close(&s);
    return status;
}

TEST(a_rank_killed_in_a_save_leaves_the_generation_before)
{
    assert_ranks_ok(2, fill, NULL);
    for (int k = 0; k < 12; k++) {
        kill_a_job(3000 + 2711 * k);
        assert_ranks_ok(1 + k % 3, loads_something, NULL);
    }
    assert_ranks_ok(3, fill, NULL);
    assert_ranks_ok(2, loads_something, NULL);
}

/* Killed when half of a part is on the medium: the generation before is loaded, and it is said
 * why. */
static ssize_t write_half_and_die(int file, const void *data, size_t count, off_t offset)
{
    if (!is_victim(file))
        return pwrite(file, data, count, offset);
    (void)!pwrite(file, data, count / 2, offset);
    kill(getpid(), SIGKILL);
    return -1;
}

static cz_status save_until_killed(cz_group *group, void *context)
{
    small s;
    cz_status status = small_open(&s, group, folder, 1, 2);
    THEN(small_save(&s, 1, false));
    THEN(small_step(&s));
    if (cz_group_rank(group) == 0) {
        victim = "rank-00001-of";
        cz__system_used.write = write_half_and_die;
    }
    THEN(cz_barrier(group, NULL));
    THEN(small_save(&s, 2, *(const bool *)context));
    THEN(cz_checkpoint_wait(s.checkpoint));
    small_close(&s);
    return status;
}

static cz_status loads_the_first(cz_group *group, void *context)
{
    small s, start;
    cz_status status = small_open(&start, group, folder, 1, 2);
    THEN(small_open(&s, group, folder, 7, 2));
    THEN(small_load(&s, NULL, &start.values, 1));
    THEN(want(strstr(cz_checkpoint_notes(s.checkpoint),
                     "generation 2 (step 2) was passed over: it was never completed"),
              "the reason"));
    small_close(&s);
    small_close(&start);
    return status;
}

static void kill_while_writing(bool later)
{
    int how;
    const pid_t child = fork();
    if (child == 0) {
        cz_launch_options options = CZ_LAUNCH_OPTIONS_INIT;
        options.ranks = 4;
        (void)cz_launch(save_until_killed, &later, &options);
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
}

TEST(parts_written_half_are_passed_over)
{
    for (int later = 0; later < 2; later++) {
        kill_while_writing(later);
        for (int world = 1; world <= 5; world++)
            assert_ranks_ok(world, loads_the_first, NULL);
        remove_folder(folder);
        mkdir(folder, 0777);
    }
}

/* ---- one rank saves, the others go on ---- */

static cz_status one_saves(cz_group *group, void *context)
{
    small s;
    cz_status status = small_open(&s, group, folder, 1, 2);
    THEN(cz_group_rank(group) == 0 ? small_save(&s, 1, *(const bool *)context) : small_step(&s));
    if (cz_group_rank(group) == 0)
        status = small_expect(status, ~ONE(CZ_OK), "checkpoint save", "rank");
    else
        status = small_expect(status, ~ONE(CZ_OK), "rank", NULL);
    small_close(&s);
    return status;
}

TEST(a_save_on_one_rank_only_is_an_error_on_all)
{
    for (int k = 0; k < 4; k++) {
        cz_launch_options options = CZ_LAUNCH_OPTIONS_INIT;
        bool later = k % 2;
        options.ranks = k < 2 ? 2 : 3;
        options.timeout_seconds = 2;
        if (cz_launch(one_saves, &later, &options) != CZ_OK)
            fail_msg("%d ranks: %s", options.ranks, cz_last_error());
        assert_int_equal(entries(folder), 0);
    }
}

/* ---- the moment of the call ---- */

static cz_status save_and_go_on(cz_group *group, void *context)
{
    small s;
    cz_status status = small_open(&s, group, folder, 1, 2);
    small_values *then = context;
    for (int step = 0; status == CZ_OK && step < 4; step++) {
        if (step == 1) {
            if (cz_group_rank(group) == 0)
                *then = s.values;
            status = small_save(&s, 1, true);
        }
        THEN(small_step(&s));
    }
    THEN(cz_checkpoint_wait(s.checkpoint));
    small_close(&s);
    return status;
}

/* Once more from there, and from the beginning: the state is that of the moment, too. */
static cz_status load_and_go_on(cz_group *group, void *context)
{
    small s, whole;
    cz_status status = small_open(&s, group, folder, 7, 2);
    THEN(small_open(&whole, group, folder, 1, 2));
    THEN(small_load(&s, NULL, context, 1));
    for (int step = 0; status == CZ_OK && step < 4; step++) {
        status = small_step(&whole);
        if (status == CZ_OK && step > 0)
            status = small_step(&s);
    }
    if (status == CZ_OK && memcmp(&s.values, &whole.values, sizeof s.values) != 0)
        status = cz_fail(CZ_ERR_STATE, "other values after the same steps");
    small_close(&whole);
    small_close(&s);
    return status;
}

TEST(an_asynchronous_save_has_the_values_of_its_call)
{
    static const int worlds[] = {2, 1, 3, 5, 7};
    small_values then;
    for (int k = 0; k < 5; k++) {
        assert_ranks_ok(worlds[k], save_and_go_on, &then);
        assert_ranks_ok(worlds[(k + 1) % 5], load_and_go_on, &then);
        remove_folder(folder);
        mkdir(folder, 0777);
    }
}
