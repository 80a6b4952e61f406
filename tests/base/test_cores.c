/* SPDX-License-Identifier: MIT */
/* How many cores a rank has: affinity, control groups, and the ranks that share them. */
#include "base/kernel_threads.h"
#include "support/cz_test.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static int share(int allowed, int machine, double quota, int processes, int ranks)
{
    const cz__cores cores = {allowed, machine, quota, processes, ranks};
    return cz__cores_share(&cores);
}

TEST(cores_are_shared_among_the_ranks_of_a_machine)
{
    assert_int_equal(share(2, 2, INFINITY, 1, 0), 2);
    assert_int_equal(share(2, 2, INFINITY, 1, 1), 2);
    assert_int_equal(share(2, 2, INFINITY, 1, 2), 1);
    assert_int_equal(share(2, 2, INFINITY, 2, 0), 1);
    assert_int_equal(share(1, 8, INFINITY, 8, 0), 1);    /* each is bound to its core */
    assert_int_equal(share(32, 64, INFINITY, 32, 0), 2); /* bound to sockets */
    assert_int_equal(share(64, 64, INFINITY, 3, 0), 21);
    assert_int_equal(share(16, 16, INFINITY, 2, 3), 2);
    assert_int_equal(share(16, 16, 4, 1, 0), 4);
    assert_int_equal(share(16, 16, 0.5, 1, 0), 1);
    assert_int_equal(share(16, 16, 4.5, 2, 0), 2);
    assert_int_equal(share(2, 2, INFINITY, 7, 7), 1);
    assert_int_equal(share(1000, 1000, INFINITY, 1, 0), CZ__KERNEL_THREADS_MAX);
}

/* Cores `first` up to `last` of each rank, and what rank `mine` gets of them. */
static int apportion(const int (*bounds)[2], int count, int mine, double quota)
{
    cz__core_set sets[8] = {{{0}}};
    const cz__cores here = {.machine = 96, .quota = quota};
    for (int r = 0; r < count; r++)
        for (int core = bounds[r][0]; core <= bounds[r][1]; core++)
            sets[r].words[core / 64] |= (int64_t)(UINT64_C(1) << core % 64);
    return cz__cores_apportion(sets, count, mine, &here);
}

TEST(cores_are_shared_with_the_ranks_that_may_use_the_same_ones)
{
    static const int all[][2] = {{0, 95}, {0, 95}, {0, 95}, {0, 95}};
    static const int bound[][2] = {{0, 3}, {4, 7}, {8, 8}};
    static const int sockets[][2] = {{0, 47}, {0, 47}, {48, 95}, {48, 95}, {48, 95}};
    static const int partly[][2] = {{0, 9}, {8, 9}, {63, 64}};
    static const int thirds[][2] = {{0, 2}, {0, 2}, {0, 2}};
    static const int beyond[][2] = {{1023, 1023}, {5, 4}};
    assert_int_equal(apportion(all, 1, 0, INFINITY), 96);
    assert_int_equal(apportion(all, 4, 3, INFINITY), 24);
    assert_int_equal(apportion(all, 4, 0, 10), 2);
    assert_int_equal(apportion(all, 4, 0, 2), 1);
    assert_int_equal(apportion(bound, 3, 0, INFINITY), 4);
    assert_int_equal(apportion(bound, 3, 2, INFINITY), 1);
    assert_int_equal(apportion(sockets, 5, 1, INFINITY), 24);
    assert_int_equal(apportion(sockets, 5, 4, INFINITY), 16);
    assert_int_equal(apportion(partly, 3, 0, INFINITY), 9);
    assert_int_equal(apportion(partly, 3, 1, INFINITY), 1);
    assert_int_equal(apportion(partly, 3, 2, INFINITY), 2);
    assert_int_equal(apportion(thirds, 3, 1, INFINITY), 1);
    assert_int_equal(apportion(beyond, 2, 0, INFINITY), 1);
    assert_int_equal(apportion(beyond, 2, 1, INFINITY), 48); /* more than a set holds */
}

static void store(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void make_folder(char *path, size_t bytes, const char *parent, const char *name)
{
    snprintf(path, bytes, "%s/%s", parent, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static double quota_with(const char *root, const char *membership)
{
    char path[512];
    store(root, "membership", membership);
    snprintf(path, sizeof path, "%s/membership", root);
    return cz__cores_quota(root, path);
}

TEST(quotas)
{
    char root[] = "/tmp/cz_coresXXXXXX", outer[128], inner[192], old[128], job[192], command[160];
    assert_non_null(mkdtemp(root));
    make_folder(outer, sizeof outer, root, "outer");
    make_folder(inner, sizeof inner, outer, "inner");
    make_folder(old, sizeof old, root, "cpu");
    make_folder(job, sizeof job, old, "job");
    assert_true(isinf(quota_with(root, "0::/outer/inner\n"))); /* no files */
    store(inner, "cpu.max", "max 100000\n");
    assert_true(isinf(quota_with(root, "0::/outer/inner\n")));
    store(outer, "cpu.max", "250000 100000\n");
    assert_true(quota_with(root, "0::/outer/inner\n") == 2.5); /* the narrowest */
    store(inner, "cpu.max", "100000 100000\n");
    assert_true(quota_with(root, "0::/outer/inner\n") == 1);
    assert_true(quota_with(root, "0::/outer\n") == 2.5);
    assert_true(isinf(quota_with(root, "0::/\n")));
    assert_true(isinf(quota_with(root, "0::/../elsewhere\n")));
    store(job, "cpu.cfs_quota_us", "150000\n");
    store(job, "cpu.cfs_period_us", "50000\n");
    assert_true(quota_with(root, "7:memory:/job\n4:cpu,cpuacct:/job\n") == 3);
    store(job, "cpu.cfs_quota_us", "-1\n");
    assert_true(isinf(quota_with(root, "4:cpu:/job\n")));
    assert_true(isinf(quota_with(root, "no such line\n4:\n")));
    assert_true(isinf(cz__cores_quota(root, "/nonexistent/cgroup")));
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

static cz_status two_ranks(cz_group *group, void *arg)
{
    const cz__cores cores = cz__cores_look();
    return cores.ranks == 2 ? CZ_OK : cz_fail(CZ_ERR_STATE, "%d ranks", cores.ranks);
}

TEST(here)
{
    char why[256];
    bool is_wish;
    cpu_set_t set;
    const cz__cores cores = cz__cores_look();
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(cores.allowed, CPU_COUNT(&set));
    assert_true(cores.machine >= 1 && cores.quota > 0 && cores.ranks == 0);
    assert_ok(cz_test_run_ranks(2, two_ranks, NULL, why));
    assert_int_equal(cz__cores_look().ranks, 0);
    assert_int_equal(cz__kernel_thread_count(5, &is_wish), 5);
    assert_true(is_wish);
    unsetenv("CZERO_THREADS");
    assert_int_equal(cz__kernel_thread_count(0, &is_wish), cz__cores_share(&cores));
    assert_false(is_wish);
}
