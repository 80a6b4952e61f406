/* SPDX-License-Identifier: MIT */
/* The cores of a rank: what affinity and control groups allow, divided by the ranks that share it. */
#include "base/cores.h"

#include "base/open.h"
#include "base/options.h"
#include "base/plain_text.h"

#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int ranks_here; /* threads of this process */

void cz__cores_add_ranks(int ranks)
{
    atomic_fetch_add(&ranks_here, ranks);
}

int cz__cores_share(const cz__cores *cores)
{
    const int processes = cores->processes > 1 ? cores->processes : 1;
    double share = (double)cores->machine / processes;
    share = fmin(share, cores->quota / processes);
    share = fmin(share, cores->allowed); /* which mpirun may have divided already */
    share = floor(share / (cores->ranks > 1 ? cores->ranks : 1));
    return share < 1 ? 1 : share > CZ__KERNEL_THREADS_MAX ? CZ__KERNEL_THREADS_MAX : (int)share;
}

/* ---- control groups ---- */

/* Two numbers of a file, the first may be "max". INFINITY: no limit, or no such file. */
static double ratio_in(const char *path)
{
    double ratio = INFINITY;
    char quota[32];
    double period;
    FILE *file = cz__open_stream(path, "r");
    if (!file)
        return ratio;
    if (fscanf(file, "%31s %lf", quota, &period) == 2 && strcmp(quota, "max") != 0 && period > 0)
        ratio = strtod(quota, NULL) / period;
    fclose(file);
    return ratio > 0 ? ratio : INFINITY;
}

static double number_in(const char *path)
{
    double number = -1;
    FILE *file = cz__open_stream(path, "r");
    if (!file)
        return number;
    if (fscanf(file, "%lf", &number) != 1)
        number = -1;
    fclose(file);
    return number;
}

/* Version 2 has one file for both numbers, version 1 a file for each. */
static double quota_of(const char *root, const char *group, bool second)
{
    char path[PATH_MAX], other[PATH_MAX];
    if (second) {
        snprintf(path, sizeof path, "%s%s/cpu.max", root, group);
        return ratio_in(path);
    }
    snprintf(path, sizeof path, "%s/cpu%s/cpu.cfs_quota_us", root, group);
    snprintf(other, sizeof other, "%s/cpu%s/cpu.cfs_period_us", root, group);
    const double quota = number_in(path), period = number_in(other);
    return quota > 0 && period > 0 ? quota / period : INFINITY;
}

/* In a container the group's own path may not be visible: the root, tried in any case, is then its own. */
static double smallest_quota(const char *root, char *group, bool second)
{
    double smallest = quota_of(root, "", second);
    while (*group) {
        smallest = fmin(smallest, quota_of(root, group, second));
        char *end = strrchr(group, '/');
        if (!end)
            break;
        *end = '\0';
    }
    return smallest;
}

double cz__cores_quota(const char *root, const char *membership)
{
    CZ__PLAIN_TEXT;
    double smallest = INFINITY;
    char line[PATH_MAX];
    FILE *file = cz__open_stream(membership, "r");
    if (!file)
        return smallest;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers;
        if (controllers)
            group = strchr(++controllers, ':');
        if (!group)
            continue;
        *group++ = '\0';
        const bool second = *controllers == '\0';
        if (second || strcmp(controllers, "cpu") == 0 || strcmp(controllers, "cpu,cpuacct") == 0)
            smallest = fmin(smallest, smallest_quota(root, group, second));
    }
    fclose(file);
    return smallest;
}

/* ---- here ---- */

/* What the starters of Open MPI, of MPICH and of Slurm say; the last one as "4(x2),3", where machines differ. */
static int processes_here(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                        "SLURM_STEP_TASKS_PER_NODE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = cz__environment_text(names[i]);
        const int count = text ? atoi(text) : 0;
        if (count > 0)
            return count;
    }
    return 1;
}

cz__cores cz__cores_look(void)
{
    cpu_set_t set;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    cz__cores cores = {
        .machine = online > 0 ? (int)online : 1,
        .quota = cz__cores_quota("/sys/fs/cgroup", "/proc/self/cgroup"),
        .processes = processes_here(),
        .ranks = atomic_load(&ranks_here),
    };
    /* fails where the machine has more processors than the set */
    cores.allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : cores.machine;
    return cores;
}

int cz__kernel_thread_count(int option, bool *is_wish)
{
    const double wish = cz__environment_number("CZERO_THREADS", 0, CZ__KERNEL_THREADS_MAX, 0);
    const int count = option > 0 ? option : (int)wish;
    *is_wish = count > 0;
    if (count > 0)
        return count < CZ__KERNEL_THREADS_MAX ? count : CZ__KERNEL_THREADS_MAX;
    const cz__cores cores = cz__cores_look();
    return cz__cores_share(&cores);
}
