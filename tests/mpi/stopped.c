/* SPDX-License-Identifier: MIT */
/* A job in which one rank stops (SIGSTOP) for good: stopped MOMENT RANK [LEVEL], under mpirun. It
 * ends all the same, and the others say why. "none": nobody stops, and all is well. LEVEL is what
 * MPI then gives to the library at most. */
#include <czero/czero.h>

#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ELEMENTS = 300000, STEPS = 4 };

static const char *moment;
static int my_rank, victim;
static int level = MPI_THREAD_MULTIPLE;

/* The plugin finds this one. */
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    return PMPI_Init_thread(argc, argv, required < level ? required : level, provided);
}

static int find_level(const char *word)
{
    static const struct {
        const char *word;
        int level;
    } levels[] = {{"single", MPI_THREAD_SINGLE},
                  {"funneled", MPI_THREAD_FUNNELED},
                  {"serialized", MPI_THREAD_SERIALIZED}};
    for (size_t k = 0; k < sizeof levels / sizeof *levels; k++)
        if (strcmp(levels[k].word, word) == 0)
            return levels[k].level;
    return MPI_THREAD_MULTIPLE;
}

static void now_comes(const char *what)
{
    if (my_rank == victim && strcmp(what, moment) == 0)
        raise(SIGSTOP);
}

static cz_status train(cz_group *group, void *context)
{
    static float values[ELEMENTS], gradients[ELEMENTS];
    cz_model *model;
    cz_zero *zero;
    cz_checkpoint *checkpoint;
    char folder[300];
    snprintf(folder, sizeof folder, "%s/stopped-%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
             (int)getppid());
    now_comes("create");
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "w", values, gradients, CZ_F32, 1, (int64_t[]){ELEMENTS}));
    CZ_TRY(cz_zero_create(&zero, group, model, cz_rule_adam(), NULL, NULL));
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    options.zero = zero;
    CZ_TRY(cz_checkpoint_create(&checkpoint, group, folder, &options));
    for (int step = 0; step < STEPS; step++) {
        if (step == STEPS / 2)
            now_comes("step");
        CZ_TRY(cz_zero_step(zero, NULL, NULL));
    }
    now_comes("save");
    if (strcmp(moment, "save") == 0)
        CZ_TRY(cz_checkpoint_save(checkpoint, NULL));
    now_comes("destroy");
    cz_checkpoint_destroy(&checkpoint);
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    return CZ_OK;
}

int main(int argc, char **argv)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank)
        rank = getenv("PMI_RANK");
    if (argc < 3 || argc > 4 || !rank) {
        fprintf(stderr, "usage: mpirun … %s MOMENT RANK [LEVEL]\n", argv[0]);
        return 2;
    }
    if (argc == 4)
        level = find_level(argv[3]);
    moment = argv[1];
    victim = atoi(argv[2]);
    my_rank = atoi(rank);
    now_comes("launch");
    const cz_status status = cz_launch(train, NULL, NULL);
    printf("rank %d is back with %s\n", my_rank, cz_status_name(status));
    now_comes("exit");
    return status != CZ_OK;
}
