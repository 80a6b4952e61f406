/* SPDX-License-Identifier: MIT */
/* How jobs end: ranks that leave, stop, die; MPI that ends before its groups; and what a group
 * costs that nobody uses. endings LEVEL WHAT, under mpirun, two ranks or more. */
#include "mpi/mpi_test.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>

static const level *at;

static cz_group *create(double warn, double timeout)
{
    cz_group *group;
    cz_mpi_options mpi = CZ_MPI_OPTIONS_INIT;
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    mpi.serialized_is_ours = at->ours;
    options.warn_seconds = warn;
    options.timeout_seconds = timeout;
    OK(cz_group_create_mpi(&group, MPI_COMM_WORLD, &mpi, &options));
    return group;
}

static cz_status all_reduce(cz_group *group)
{
    static float data[20000];
    for (int i = 0; i < 20000; i++)
        data[i] = 1;
    CZ_TRY(cz_all_reduce(group, data, 20000, CZ_F32, CZ_SUM, CZ_LABEL("data")));
    CHECK(data[19999] == (float)world_size, "%g", (double)data[19999]);
    return CZ_OK;
}

static void expect(cz_status got, cz_status wanted, const char *text)
{
    CHECK(got == wanted && strstr(cz_last_error(), text), "%s: %s, not %s: …%s…",
          cz_status_name(got), cz_last_error(), cz_status_name(wanted), text);
}

/* The last rank is done and goes, while the others go on. */
static void end_early(void)
{
    char text[64];
    cz_group *group = create(30, 60);
    snprintf(text, sizeof text, "rank %d left the group", world_size - 1);
    OK(all_reduce(group));
    if (my_rank < world_size - 1) {
        const double begun = now();
        cz_status status;
        while ((status = all_reduce(group)) == CZ_OK)
            ;
        expect(status, CZ_ERR_PEER, text);
        CHECK(now() - begun < 10, "it took %.1f s", now() - begun);
    }
    cz_group_destroy(&group);
}

/* As before, but it forgets to destroy the group; here that is MPI_Finalize's. */
static void end_finalized(void)
{
    cz_group *group = create(30, 60);
    OK(all_reduce(group));
    if (my_rank < world_size - 1)
        expect(all_reduce(group), CZ_ERR_PEER, "(it called MPI_Finalize)");
    MPI_Finalize();
    const cz_status status = all_reduce(group);
    CHECK(status != CZ_OK, "an operation after MPI_Finalize");
    cz_group_destroy(&group);
}

/* With an operation under way. */
static void end_in_flight(void)
{
    float data = 1;
    cz_work *work;
    cz_group *group = create(30, 60);
    OK(all_reduce(group));
    if (my_rank == 0)
        OK(cz_all_reduce(group, &data, 1, CZ_F32, CZ_SUM, CZ_START("never", &work)));
    MPI_Finalize();
    if (my_rank == 0) {
        const cz_status status = cz_work_wait(work);
        CHECK(status == CZ_ERR_STATE || status == CZ_ERR_PEER, "%s", cz_last_error());
        cz_work_destroy(&work);
    }
    cz_group_destroy(&group);
}

/* The last rank is killed; mpirun ends the job. */
static void end_killed(void)
{
    cz_group *group = create(30, 60);
    for (int i = 0; i < 50; i++)
        OK(all_reduce(group));
    if (my_rank == world_size - 1)
        raise(SIGKILL);
    while (all_reduce(group) == CZ_OK)
        ;
    pause();
}

/* The last rank is stopped; the others name it, then wake it up, and it learns of it. */
static void end_stopped(void)
{
    char text[64];
    int64_t pid = getpid(), pids[64];
    cz_group *group = create(0.3, 1.5);
    OK(cz_all_gather(group, &pid, pids, 1, CZ_I64, NULL));
    snprintf(text, sizeof text, "rank %d did not come within 1.5 s", world_size - 1);
    if (my_rank == world_size - 1)
        raise(SIGSTOP);
    expect(all_reduce(group), CZ_ERR_TIMEOUT, text);
    if (my_rank == 0) {
        usleep(500000); /* the others have the same */
        kill((pid_t)pids[world_size - 1], SIGCONT);
    }
    cz_group_destroy(&group);
}

/* ---- late ranks are named, and no others ---- */

static char first_warning[256];
static atomic_int warnings;

static void keep_first(cz_log_level severity, const char *line, void *context)
{
    if (strstr(line, " waits in ") && atomic_load(&warnings) == 0) {
        snprintf(first_warning, sizeof first_warning, "%s", line);
        atomic_store(&warnings, 1);
    }
}

/* "rank 1" or "ranks 1, 3": all odd ones */
static void name_odd_ranks(char *text, size_t bytes)
{
    size_t length = (size_t)snprintf(text, bytes, "rank%s", world_size > 3 ? "s" : "");
    for (int r = 1; r < world_size; r += 2)
        length += (size_t)snprintf(text + length, bytes - length, "%s %d", r > 1 ? "," : "", r);
}

/* Odd ranks come when the others have been warned, or do not come before the timeout. The second
 * group is for them to wait until then; so their carrier, or calls of the library, can answer
 * meanwhile. In the end it is rank 0, who tells the others what came of an operation, that comes
 * when they have given it up. */
static void end_late(void)
{
    char late[64], expected[128];
    float data = 1;
    cz_work *work;
    cz_group *warned = create(2, 60), *broken = create(30, 3), *other = create(30, 60);
    cz_group *given_up = create(30, 3);
    const bool is_late = my_rank % 2;
    name_odd_ranks(late, sizeof late);
    cz_log_set_sink(keep_first, NULL);
    for (int i = 0; i < 3; i++) {
        OK(all_reduce(warned));
        OK(all_reduce(broken));
    }
    if (!is_late) {
        OK(cz_all_reduce(warned, &data, 1, CZ_F32, CZ_SUM, CZ_START("late", &work)));
        while (atomic_load(&warnings) == 0) {
            OK(cz_progress(warned));
            usleep(1000);
        }
        snprintf(expected, sizeof expected,
                 "rank %d waits in all_reduce 'late' (operation 4) for %s, ", my_rank, late);
        CHECK(strncmp(first_warning, expected, strlen(expected)) == 0 &&
                  !strchr(first_warning + strlen(expected), ','),
              "%s, not %s", first_warning, expected);
    }
    OK(cz_barrier(other, NULL));
    if (is_late)
        OK(cz_all_reduce(warned, &data, 1, CZ_F32, CZ_SUM, CZ_START("late", &work)));
    OK(cz_work_wait(work));
    cz_work_destroy(&work);
    snprintf(expected, sizeof expected, "'data' (operation 4): %s did not come within 3 s", late);
    if (!is_late)
        expect(all_reduce(broken), CZ_ERR_TIMEOUT, expected);
    OK(cz_barrier(other, NULL));
    for (int i = 0; i < 40; i++) /* until they meet in a window, if there is one */
        OK(cz_barrier(given_up, NULL));
    if (my_rank > 0)
        expect(cz_barrier(given_up, NULL), CZ_ERR_TIMEOUT, "did not come within 3 s");
    OK(cz_barrier(other, NULL));
    if (my_rank == 0) {
        usleep(200000); /* until it has been told */
        expect(cz_barrier(given_up, NULL), CZ_ERR_TIMEOUT, "(operation 41): rank 0 did not come");
    }
    cz_group_destroy(&given_up);
    cz_group_destroy(&warned);
    cz_group_destroy(&broken);
    cz_group_destroy(&other);
}

/* At any moment, so in the middle of a transfer as well. A process of its own stops the rank and
 * wakes it up after the others have noticed. */
static void freeze_after(int microseconds)
{
    const pid_t rank = getpid();
    const pid_t child = fork();
    CHECK(child >= 0, "no process");
    if (child > 0)
        return;
    usleep((useconds_t)microseconds);
    kill(rank, SIGSTOP);
    sleep(3);
    kill(rank, SIGCONT);
    _exit(0);
}

static void end_frozen(void)
{
    char number[16];
    cz_status status;
    cz_group *group = create(0.3, 1);
    snprintf(number, sizeof number, "%d", world_size - 1);
    if (my_rank == world_size - 1)
        freeze_after((int)(getpid() * 7919L % 50000));
    while ((status = all_reduce(group)) == CZ_OK)
        ;
    if (my_rank < world_size - 1)
        expect(status, CZ_ERR_TIMEOUT, number);
    else
        CHECK(status == CZ_ERR_TIMEOUT || status == CZ_ERR_PEER, "%s", cz_last_error());
    cz_group_destroy(&group);
}

/* abort_on_break: the job ends though a rank never looks. */
static void end_aborted(void)
{
    cz_group *group;
    const cz_mpi_options mpi = {sizeof mpi, at->ours, 1};
    const cz_group_options options = {
        .size = sizeof options, .timeout_seconds = 0.5, .warn_seconds = 0.2};
    OK(cz_group_create_mpi(&group, MPI_COMM_WORLD, &mpi, &options));
    if (my_rank > 0)
        pause();
    (void)all_reduce(group);
    for (;;) { /* inline, the abort comes from calls of the library */
        (void)cz_progress(group);
        usleep(1000);
    }
}

/* The last rank does not make the group. */
static void end_absent(void)
{
    cz_group *group = NULL;
    const cz_mpi_options mpi = {sizeof mpi, at->ours, 0};
    const cz_group_options options = {.size = sizeof options, .timeout_seconds = 1};
    if (my_rank < world_size - 1)
        expect(cz_group_create_mpi(&group, MPI_COMM_WORLD, &mpi, &options), CZ_ERR_TIMEOUT,
               "not all ranks");
    else
        usleep(1500000);
    CHECK(!group, "a group");
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* Three groups that nobody uses; then rank 0 waits for the others, which sleep. */
static void end_idle(void)
{
    cz_group *groups[3];
    for (int i = 0; i < 3; i++)
        groups[i] = create(30, 60);
    OK(all_reduce(groups[0]));
    usleep(100000);
    double before = cpu_seconds();
    usleep(2000000);
    const double idle = (cpu_seconds() - before) / 2;
    before = cpu_seconds();
    if (my_rank > 0)
        usleep(2000000);
    OK(all_reduce(groups[1]));
    const double waiting = (cpu_seconds() - before) / 2;
    printf("rank %d: %.2f %% of a core idle, %.2f %% %s\n", my_rank, 100 * idle, 100 * waiting,
           my_rank ? "asleep" : "waiting");
    /* On a quiet machine 0.1 and 2 %, 20 % without a thread for MPI; who spins takes a core. */
    CHECK(idle < 0.1, "idle groups take %.1f %% of a core", 100 * idle);
    CHECK(waiting < 0.7, "waiting takes %.1f %%", 100 * waiting);
    for (int i = 0; i < 3; i++)
        cz_group_destroy(&groups[i]);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } endings[] = {{"early", end_early},   {"finalized", end_finalized}, {"flight", end_in_flight},
                   {"killed", end_killed}, {"stopped", end_stopped},     {"frozen", end_frozen},
                   {"late", end_late},     {"aborted", end_aborted},     {"absent", end_absent},
                   {"idle", end_idle}};
    at = begin(argc, argv);
    int finalized;
    for (size_t i = 0; argc > 2 && i < sizeof endings / sizeof *endings; i++)
        if (strcmp(argv[2], endings[i].name) == 0)
            endings[i].run();
    MPI_Finalized(&finalized);
    if (!finalized)
        MPI_Finalize();
    return 0;
}
