/* SPDX-License-Identifier: MIT */
/* cz_launch() several times in one process of a job: launches WHAT, under mpirun. */
#include <mpi.h>

#include <czero/czero.h>

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static int processes;

static cz_status add_up(cz_group *world, void *context)
{
    int one = 1;
    CZ_TRY(cz_all_reduce(world, &one, 1, CZ_I32, CZ_SUM, NULL));
    CHECK(one == processes, "%d of %d ranks", one, processes);
    return CZ_OK;
}

static cz_status refuse(cz_group *world, void *context)
{
    return cz_fail(CZ_ERR_ARGUMENT, "as it was told");
}

static void launch_again_and_again(void)
{
    for (int i = 0; i < 3; i++)
        CHECK(cz_launch(add_up, NULL, NULL) == CZ_OK, "%s", cz_last_error());
    CHECK(cz_launch(refuse, NULL, NULL) == CZ_ERR_ARGUMENT, "%s", cz_last_error());
    CHECK(cz_launch(add_up, NULL, NULL) == CZ_OK, "%s", cz_last_error());
}

/* A child, as a loader of data is, that ends with exit(): at once, and not as a process of the job. */
static cz_status fork_one(cz_group *world, void *context)
{
    const int ways = 3;
    CZ_TRY(add_up(world, NULL));
    for (int way = 0; way < ways; way++) {
        int how = 0;
        pid_t ended = 0;
        const pid_t child = fork();
        if (child == 0) {
            int one = 1;
            const cz_status status = cz_all_reduce(world, &one, 1, CZ_I32, CZ_SUM, NULL);
            if (way == 1)
                cz_group_destroy(&world);
            if (way == 2 && cz_launch(add_up, NULL, NULL) != CZ_ERR_STATE)
                _exit(2);
            exit(status == CZ_ERR_STATE ? 0 : 3);
        }
        for (int i = 0; i < 1000 && (ended = waitpid(child, &how, WNOHANG)) == 0; i++)
            usleep(10000);
        CHECK(ended == child && WIFEXITED(how) && WEXITSTATUS(how) == 0, "way %d: %d", way, how);
    }
    return add_up(world, NULL);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    int finalised = 0, level;
    processes = atoi(size ? size : getenv("PMI_SIZE"));
    const bool own = strcmp(what, "own") == 0; /* the program's own MPI */
    if (own)
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    if (strcmp(what, "forks") == 0)
        CHECK(cz_launch(fork_one, NULL, NULL) == CZ_OK, "%s", cz_last_error());
    else
        launch_again_and_again();
    MPI_Finalized(&finalised);
    CHECK(!finalised, "not the library's to do yet");
    if (own)
        MPI_Finalize();
    printf("all launches are done\n");
    return 0;
}
