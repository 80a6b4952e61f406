/* SPDX-License-Identifier: MIT */
/* cz_launch() several times in one process of a job: launches WHAT, under mpirun. */
#include <czero/czero.h>
#include <czero/mpi.h>

#include <dirent.h>
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

/* A child, as a loader of data is, that ends with exit(): at once, and not as a process of the
 * job. */
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

static int count_threads(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    CHECK(folder, "no /proc");
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* A program that may have one thread: MPI's own apart, it stays so, whatever is asked for. */
static void work_alone(const char *folder)
{
    enum { ELEMENTS = 4 << 20 };
    float *values = calloc(ELEMENTS, sizeof *values), *gradients = calloc(ELEMENTS, sizeof *values);
    cz_group *group;
    cz_model *model;
    cz_optim *optim;
    cz_checkpoint *checkpoint;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    cz_checkpoint_options saved = CZ_CHECKPOINT_OPTIONS_INIT;
    const int before = count_threads();
    options.threads = 4;
    setenv("CZERO_FLIGHT_RECORDER", folder, 1);
    CHECK(cz_group_create_mpi(&group, MPI_COMM_WORLD, NULL, NULL) == CZ_OK, "%s", cz_last_error());
    CHECK(cz_model_create(&model) == CZ_OK, "%s", cz_last_error());
    CHECK(cz_model_add(model, "w", values, gradients, CZ_F32, 1, (int64_t[]){ELEMENTS}) == CZ_OK,
          "%s", cz_last_error());
    CHECK(cz_optim_create(&optim, model, cz_rule_adam(), NULL, &options) == CZ_OK, "%s",
          cz_last_error());
    CHECK(cz_optim_step(optim, NULL, NULL) == CZ_OK, "%s", cz_last_error());
    saved.model = model;
    CHECK(cz_checkpoint_create(&checkpoint, group, folder, &saved) == CZ_OK, "%s", cz_last_error());
    CHECK(cz_checkpoint_save_async(checkpoint, NULL) == CZ_OK, "%s", cz_last_error());
    CHECK(count_threads() == before, "%d threads, %d before", count_threads(), before);
    CHECK(cz_checkpoint_wait(checkpoint) == CZ_OK, "%s", cz_last_error());
    cz_checkpoint_destroy(&checkpoint);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
    cz_group_destroy(&group);
    free(values);
    free(gradients);
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
    if (strcmp(what, "single") == 0) {
        char folder[400];
        MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &level);
        snprintf(folder, sizeof folder, "%s/single-%d",
                 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getppid());
        if (level == MPI_THREAD_SINGLE)
            work_alone(folder);
        MPI_Finalize();
        return 0;
    }
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
