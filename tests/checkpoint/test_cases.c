/* SPDX-License-Identifier: MIT */
/* user-reports.md, E, for checkpoints, and folders of machines. Consolidation has its cases under tests/zero/. D1, D3, D6 and
 * E5 are test_legs.c's, D8 test_differences.c's, E3 test_failures.c's. */
#include "checkpoint/saves.h"

#include <signal.h>
#include <sys/wait.h>

/* ---- E8: what is one rank's alone ---- */

static cz_status fill(cz_group *group, void *context)
{
    small s;
    cz_status status = small_open(&s, group, folder, 1, 2);
    if (status == CZ_OK)
        status = small_save(&s, 3, true);
    if (status == CZ_OK)
        status = cz_checkpoint_wait(s.checkpoint);
    small_close(&s);
    return status;
}

static cz_status read_all_own(small *s, int of)
{
    cz_state_dict *own = NULL;
    const int rank = cz_group_rank(s->group);
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    CZ_TRY(small_expect(cz_checkpoint_read_own(s->checkpoint, 0, &own), ONE(CZ_ERR_STATE), NULL,
                        NULL));
    CZ_TRY(cz_checkpoint_load(s->checkpoint, NULL, &result));
    cz_status status = want((rank < of) == small_dict_is(result.own, small_own(3, rank)) &&
                                result.world_size == of,
                            "the own dictionary");
    small_result_clear(&result);
    for (int r = 0; status == CZ_OK && r < of; r++) {
        status = cz_checkpoint_read_own(s->checkpoint, r, &own);
        if (status == CZ_OK)
            status = want(small_dict_is(own, small_own(3, r)), "that of any rank");
        cz_state_dict_destroy(&own);
    }
    CZ_TRY(status);
    CZ_TRY(small_expect(cz_checkpoint_read_own(s->checkpoint, -1, &own), ONE(CZ_ERR_ARGUMENT), NULL,
                        NULL));
    return small_expect(cz_checkpoint_read_own(s->checkpoint, of, &own), ONE(CZ_ERR_ARGUMENT), NULL,
                        NULL);
}

static cz_status own_body(cz_group *group, void *context)
{
    small s;
    cz_status status = small_open(&s, group, folder, 5, 2);
    if (status == CZ_OK)
        status = read_all_own(&s, *(const int *)context);
    small_close(&s);
    return status;
}

static void case_E8(void **state)
{
    static const int worlds[] = {1, 2, 4, 7};
    for (int from = 0; from < 4; from++) {
        EXPECT_OK(worlds[from], fill, NULL);
        for (int to = 0; to < 4; to++)
            EXPECT_OK(worlds[to], own_body, (void *)&worlds[from]);
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
    small s;
    char path[SMALL_PATH];
    machine_folder(path, context, group);
    cz_status status = small_open(&s, group, path, 1, 2);
    for (int step = 1; status == CZ_OK && step <= 4; step++) {
        status = small_step(&s);
        if (status == CZ_OK)
            status = small_save(&s, step, step % 2);
    }
    if (status == CZ_OK)
        status = cz_checkpoint_wait(s.checkpoint);
    if (cz_group_rank(group) == 0)
        kept = s.values;
    small_close(&s);
    return status;
}

static cz_status machines_load(cz_group *group, void *context)
{
    small s;
    char path[SMALL_PATH];
    machine_folder(path, context, group);
    cz_status status = small_open(&s, group, path, 9, 2);
    if (status == CZ_OK)
        status = small_step(&s);
    if (status == CZ_OK)
        status = small_remember(&s);
    if (status == CZ_OK && !((const machines *)context)->turned)
        status = small_load(&s, NULL, &kept, 4);
    else if (status == CZ_OK) {
        status = small_expect(cz_checkpoint_load(s.checkpoint, NULL, NULL), ONE(CZ_ERR_IO),
                              "rank-0000", NULL);
        if (status == CZ_OK)
            status = small_unchanged(&s);
    }
    small_close(&s);
    return status;
}

static void test_folders_of_machines(void **state)
{
    EXPECT_OK(4, machines_save, &((machines){2, false}));
    EXPECT_OK(4, machines_load, &((machines){2, false}));
    EXPECT_OK(4, machines_load, &((machines){2, true}));
}

/* ---- E1: killed in the middle of a save ---- */

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
    if (status == CZ_OK)
        status = cz_checkpoint_load(s.checkpoint, NULL, &result);
    if (status == CZ_OK && (result.step < 3 || !small_dict_is(result.common, (int)result.step)))
        status = cz_fail(CZ_ERR_STATE, "step %d is loaded", (int)result.step);
    small_result_clear(&result);
    small_close(&s);
    return status;
}

static void case_E1(void **state)
{
    EXPECT_OK(2, fill, NULL);
    for (int k = 0; k < 12; k++) {
        kill_a_job(3000 + 2711 * k);
        EXPECT_OK(1 + k % 3, loads_something, NULL);
    }
    EXPECT_OK(3, fill, NULL);
    EXPECT_OK(2, loads_something, NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(case_E8),
        TEST(test_folders_of_machines),
        TEST(case_E1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
