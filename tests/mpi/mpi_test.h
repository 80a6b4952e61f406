/* SPDX-License-Identifier: MIT */
/* What the programs under mpirun share: thread levels by name, and checks that end the whole
 * job. */
#ifndef CZ_MPI_TEST_H
#define CZ_MPI_TEST_H

#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "czero/mpi.h"

static int my_rank, world_size;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d of %d, %s:%d: %s: ", my_rank, world_size, __FILE__, __LINE__, \
                    #condition);                                                                   \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK((call) == CZ_OK, "%s", cz_last_error())

typedef struct level {
    const char *name;
    int mpi;
    int ours;     /* serialized_is_ours */
    bool carrier; /* is there to be one? */
} level;

/* MPI_Init_thread at the level that argv[1] names. */
static inline const level *begin(int argc, char **argv)
{
    static const level levels[] = {
        {"single", MPI_THREAD_SINGLE, 0, false},
        {"funneled", MPI_THREAD_FUNNELED, 0, false},
        {"serialized", MPI_THREAD_SERIALIZED, 0, false},
        {"ours", MPI_THREAD_SERIALIZED, 1, true},
        {"multiple", MPI_THREAD_MULTIPLE, 0, true},
    };
    for (size_t i = 0; argc > 1 && i < sizeof levels / sizeof *levels; i++) {
        if (strcmp(argv[1], levels[i].name) != 0)
            continue;
        int provided;
        MPI_Init_thread(&argc, &argv, levels[i].mpi, &provided);
        MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
        MPI_Comm_size(MPI_COMM_WORLD, &world_size);
        if (provided == levels[i].mpi)
            return &levels[i];
        if (my_rank == 0)
            printf("skipped: MPI gives thread level %d instead of %s\n", provided, argv[1]);
        MPI_Finalize();
        exit(77);
    }
    fprintf(stderr, "usage: %s single|funneled|serialized|ours|multiple …\n", argv[0]);
    exit(2);
}

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* What rank r has at i: with digits that an addition rounds away. */
static inline float value(int r, int64_t i)
{
    const uint32_t bits = (uint32_t)(i * 2654435761u) ^ (uint32_t)(r + 1) * 40503u * 65537u;
    return (float)(bits % 100003) / 7.0f - 5000.0f;
}

static inline float tree_sum(int first, int count, int64_t i)
{
    int left = 1;
    if (count == 1)
        return value(first, i);
    while (2 * left < count)
        left *= 2;
    return tree_sum(first, left, i) + tree_sum(first + left, count - left, i);
}

#endif
