/* SPDX-License-Identifier: MIT */
/* A job for tests/multihost/chaos.sh to strike at: collectives and sharded steps in a loop, every
 * result compared with what it must be. chaos LEVEL FOLDER, under mpirun. Each rank writes
 * FOLDER/rank.N:
 *
 *     pid 123        ready         round 17
 *     error: …       what an operation returned      destroyed    its objects
 *     wrong: …       an operation returned CZ_OK and other values
 *
 * After an error it waits to be killed. SIGUSR1: it returns from main. SIGUSR2: it calls
 * exit(0). */
#include "mpi/mpi_test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>

#include "czero/zero.h"

enum { LARGEST = 200003, PARAMS = 3, ELEMENTS = 20000 };

static float data[LARGEST], other[LARGEST];
static int log_file;
static volatile sig_atomic_t told;

static void note(const char *format, ...) CZ_PRINTF(1, 2);

static void note(const char *format, ...)
{
    char line[600];
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    const size_t end = length < (int)sizeof line - 1 ? (size_t)length : sizeof line - 2;
    line[end] = '\n';
    CHECK(write(log_file, line, end + 1) > 0, "cannot write");
}

static void remember(int signal_number)
{
    told = signal_number;
}

static void wait_for_the_end(void)
{
    for (;;)
        pause();
}

#define RIGHT(condition, what, i)                                                                  \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            note("wrong: %s, element %d", what, (int)(i));                                         \
            wait_for_the_end();                                                                    \
        }                                                                                          \
    } while (0)

/* ---- collectives ---- */

static cz_status sums(cz_group *group, int round)
{
    static const int64_t counts[] = {1, 1000, LARGEST, 30000};
    const int64_t count = counts[round % 4], part = count / world_size;
    cz_work *work;
    for (int64_t i = 0; i < count; i++)
        data[i] = other[i] = value(my_rank, i + round);
    CZ_TRY(cz_all_reduce(group, data, count, CZ_F32, CZ_SUM, CZ_START("sums", &work)));
    cz_status status = cz_reduce_scatter(group, other, other + my_rank * part, part, CZ_F32,
                                         CZ_AVERAGE, CZ_LABEL("slices"));
    const cz_status first = cz_work_wait(work);
    cz_work_destroy(&work);
    CZ_TRY(first);
    for (int64_t i = 0; i < count; i += 7)
        RIGHT(data[i] == tree_sum(0, world_size, i + round), "all_reduce", i);
    CZ_TRY(status);
    for (int64_t i = my_rank * part; i < (my_rank + 1) * part; i += 7)
        RIGHT(other[i] == tree_sum(0, world_size, i + round) / (float)world_size, "reduce_scatter",
              i);
    return CZ_OK;
}

static cz_status moves(cz_group *group, int round)
{
    int64_t mine = 1000 * round + my_rank, all[64];
    CZ_TRY(cz_all_gather(group, &mine, all, 1, CZ_I64, NULL));
    for (int r = 0; r < world_size; r++)
        RIGHT(all[r] == 1000 * round + r, "all_gather", r);
    CZ_TRY(cz_broadcast(group, &mine, 1, CZ_I64, round % world_size, NULL));
    RIGHT(mine == 1000 * round + round % world_size, "broadcast", 0);
    return cz_barrier(group, NULL);
}

/* ---- steps, beside those of one unsharded process ---- */

typedef struct trainer {
    float values[PARAMS * ELEMENTS], grads[PARAMS * ELEMENTS];
    cz_model *model;
    cz_zero *zero;
} trainer;

static trainer sharded, whole;

static void make_trainer(trainer *t, cz_group *group)
{
    const int64_t sizes[PARAMS] = {ELEMENTS + 5, ELEMENTS, ELEMENTS - 5};
    OK(cz_model_create(&t->model));
    OK(cz_model_add_flat(t->model, t->values, t->grads, CZ_F32, PARAMS, NULL, sizes));
    OK(cz_zero_create(&t->zero, group, t->model, cz_rule_adamw(), CZ_HYPERS({"lr", 0.01}), NULL));
}

static void destroy_trainer(trainer *t)
{
    cz_zero_destroy(&t->zero);
    cz_model_destroy(&t->model);
}

static cz_status step(int round)
{
    for (int i = 0; i < PARAMS * ELEMENTS; i++) {
        sharded.grads[i] = value(my_rank, i + round);
        whole.grads[i] = tree_sum(0, world_size, i + round) / (float)world_size;
    }
    CZ_TRY(cz_zero_step(sharded.zero, NULL, NULL));
    OK(cz_zero_step(whole.zero, NULL, NULL));
    for (int i = 0; i < PARAMS * ELEMENTS; i++)
        RIGHT(sharded.values[i] == whole.values[i], "step", i);
    return CZ_OK;
}

/* ---- the job ---- */

static cz_status one_round(cz_group *group, int round)
{
    CZ_TRY(sums(group, round));
    CZ_TRY(moves(group, round));
    return round % 4 ? CZ_OK : step(round);
}

static void open_log(const char *folder)
{
    char name[400];
    snprintf(name, sizeof name, "%s/rank.%d", folder, my_rank);
    log_file = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
    CHECK(log_file >= 0, "%s", name);
    note("pid %d", (int)getpid());
}

/* Until it is told to leave, or an operation fails. */
static cz_status work_on(cz_group *group)
{
    double noted = 0;
    for (int round = 1; !told; round++) {
        CZ_TRY(one_round(group, round));
        if (now() - noted < 0.1)
            continue;
        noted = now();
        note("round %d", round);
    }
    return CZ_OK;
}

int main(int argc, char **argv)
{
    cz_group *group, *alone;
    const level *at = begin(argc, argv);
    const cz_mpi_options mpi = {sizeof mpi, at->ours, 0};
    CHECK(argc == 3, "no folder");
    open_log(argv[2]);
    signal(SIGUSR1, remember);
    signal(SIGUSR2, remember);
    OK(cz_group_create_mpi(&group, MPI_COMM_WORLD, &mpi, NULL));
    OK(cz_group_create_self(&alone, NULL));
    make_trainer(&sharded, group);
    make_trainer(&whole, alone);
    OK(one_round(group, 0));
    note("ready");
    const cz_status status = work_on(group);
    if (status != CZ_OK)
        note("error: %s: %s", cz_status_name(status), cz_last_error());
    if (told == SIGUSR2)
        exit(0);
    destroy_trainer(&sharded);
    destroy_trainer(&whole);
    cz_group_destroy(&alone);
    cz_group_destroy(&group);
    note("destroyed");
    if (status != CZ_OK)
        wait_for_the_end();
    MPI_Finalize();
    return 0;
}
