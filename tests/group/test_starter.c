/* SPDX-License-Identifier: MIT */
/* Who started this process, from the environment: processes that were started together are never a
 * training each. */
#include <stdlib.h>
#include <string.h>

#include "group/starter.h"
#include "support/cz_test.h"

static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE",
                                        "PMI_SIZE",
                                        "PMI_RANK",
                                        "PMIX_RANK",
                                        "PMIX_SERVER_URI2",
                                        "SLURM_PROCID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_STEP_ID",
                                        "SLURM_NTASKS",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "CZERO_BACKEND"};

/* Of all that starters set only these: "NAME=VALUE NAME=VALUE". */
static void set_only(const char *list)
{
    char copy[300];
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    snprintf(copy, sizeof copy, "%s", list);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        char *value = strchr(word, '=');
        *value = '\0';
        setenv(word, value + 1, 1);
    }
}

static void expect_job(const char *list, bool expected)
{
    bool job = !expected;
    set_only(list);
    if (cz__starter_choose(&job) != CZ_OK || job != expected)
        fail_msg("%s: %d, %s", list, job, cz_last_error());
}

static void expect_refused(const char *list, const char *part)
{
    bool job;
    set_only(list);
    assert_int_equal(cz__starter_choose(&job), CZ_ERR_STATE);
    if (!strstr(cz_last_error(), part) || !strstr(cz_last_error(), "srun --mpi=pmix"))
        fail_msg("%s: %s", list, cz_last_error());
}

TEST(starters_are_recognised)
{
    expect_job("", false);
    expect_job("OMPI_COMM_WORLD_SIZE=3", true);
    expect_job("PMI_SIZE=2 PMI_RANK=0", true);
    expect_job("PMIX_RANK=0 PMIX_SERVER_URI2=x SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4", true);
    expect_job("PMIX_RANK=0 PMIX_SERVER_URI2=x", true); /* no Slurm */
    /* mpirun inside a job of Slurm's, whose daemons srun has started */
    expect_job("OMPI_COMM_WORLD_SIZE=8 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2", true);
}

TEST(one_task_and_a_batch_script_are_no_job)
{
    expect_job("SLURM_PROCID=0 SLURM_NTASKS=4", false);
    expect_job("SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=1", false);
    expect_job("PMIX_RANK=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1", false);
    expect_job("PMI_RANK=0 PMI_SIZE=1 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1", false);
}

TEST(tasks_that_cannot_find_each_other_are_refused)
{
    expect_refused("SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4", "one of 4 tasks and without PMI");
    expect_refused("SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_NTASKS=4", "one of 4 tasks");
    expect_refused("PMIX_RANK=0 SLURM_PROCID=0 SLURM_NTASKS=4", "no server of PMIx");
    expect_job("CZERO_BACKEND=threads SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4", false);
    expect_refused("RANK=1 WORLD_SIZE=3 MASTER_ADDR=a MASTER_PORT=1", "one of 3 processes");
    expect_job("CZERO_BACKEND=threads RANK=1 WORLD_SIZE=3 MASTER_ADDR=a MASTER_PORT=1", false);
    expect_job("RANK=0 WORLD_SIZE=1 MASTER_ADDR=a MASTER_PORT=1", false);
    expect_job("RANK=1 WORLD_SIZE=3", false); /* whosever these are */
}

TEST(a_world_of_one_among_many_processes_is_refused)
{
    set_only(
        "PMI_RANK=0 PMI_SIZE=4 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4"); /* PMI-2 and another MPI */
    assert_int_equal(cz__starter_check_size(1), CZ_ERR_STATE);
    assert_non_null(strstr(cz_last_error(), "started 4 processes"));
    assert_ok(cz__starter_check_size(4));
    set_only("OMPI_COMM_WORLD_SIZE=1");
    assert_ok(cz__starter_check_size(1));
    set_only("");
    assert_ok(cz__starter_check_size(1));
}
