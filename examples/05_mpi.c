/* SPDX-License-Identifier: MIT */
/* An MPI program with a loop of its own. It simulates a ring of coupled chaotic cells, of which
 * each process has a part, and while it does so a small net learns to predict a cell from its
 * neighbourhood: the cells are the training data and never leave the process that has them. The net
 * is czero's business, the rest is the program's, which uses MPI as it always did.
 *
 *     mpirun -n 3 05_mpi
 */
#include <math.h>
#include <string.h>

#include "czero/czero.h"
#include "czero/mpi.h"

enum { CELLS = 240, HIDDEN = 12, STEPS = 1500, SEED = 11 };

typedef struct net {
    float w1[HIDDEN][3], b1[HIDDEN], w2[HIDDEN], b2;
} net;

static float map(float u)
{
    return 1 - 1.7f * u * u;
}

/* The squared error of the net on one cell (`u` points to it, between its neighbours), its gradient
 * times `scale` added to `g`. */
static float learn(const net *w, net *g, const float *u, float next, float scale)
{
    float hidden[HIDDEN], error = w->b2 - next;
    for (int h = 0; h < HIDDEN; h++) {
        hidden[h] = tanhf(w->b1[h] + w->w1[h][0] * u[-1] + w->w1[h][1] * u[0] + w->w1[h][2] * u[1]);
        error += w->w2[h] * hidden[h];
    }
    const float d = 2 * scale * error;
    g->b2 += d;
    for (int h = 0; h < HIDDEN; h++) {
        const float d_hidden = d * w->w2[h] * (1 - hidden[h] * hidden[h]);
        g->w2[h] += d * hidden[h];
        g->b1[h] += d_hidden;
        for (int i = 0; i < 3; i++)
            g->w1[h][i] += d_hidden * u[i - 1];
    }
    return error * error;
}

int main(int argc, char **argv)
{
    int provided, rank, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided); /* less works as well */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int begin = CELLS * rank / size, count = CELLS * (rank + 1) / size - begin;
    const int left = (rank + size - 1) % size, right = (rank + 1) % size;
    float u[CELLS + 2], next[CELLS + 2]; /* cells 1 to count; 0 and count + 1 are the neighbours' */
    for (int i = 1; i <= count; i++)
        u[i] = cz_random_uniform(SEED, 0, (uint64_t)(begin + i));

    net w, g;
    const int64_t params = sizeof w / sizeof(float);
    for (int64_t i = 0; i < params; i++)
        ((float *)&w)[i] = 0.5f * cz_random_normal(SEED, 1, (uint64_t)i);
    cz_group *group;
    cz_model *model;
    cz_zero *zero;
    CZ_CHECK(cz_group_create_mpi(&group, MPI_COMM_WORLD, NULL, NULL));
    CZ_CHECK(cz_model_create(&model));
    CZ_CHECK(cz_model_add(model, "net", &w, &g, CZ_F32, 1, &params));
    CZ_CHECK(cz_zero_create(&zero, group, model, cz_rule_adamw(), CZ_HYPERS({"lr", 0.01}), NULL));

    for (int step = 1; step <= STEPS; step++) {
        double loss = 0;
        MPI_Sendrecv(&u[count], 1, MPI_FLOAT, right, 0, &u[0], 1, MPI_FLOAT, left, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(&u[1], 1, MPI_FLOAT, left, 1, &u[count + 1], 1, MPI_FLOAT, right, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        memset(&g, 0, sizeof g);
        for (int i = 1; i <= count; i++) { /* the step takes the mean over ranks, hence size */
            next[i] = 0.8f * map(u[i]) + 0.1f * (map(u[i - 1]) + map(u[i + 1]));
            loss += learn(&w, &g, &u[i], next[i], (float)size / CELLS) / CELLS;
        }
        memcpy(&u[1], &next[1], (size_t)count * sizeof *u);
        CZ_CHECK(cz_zero_step(zero, NULL, NULL));
        MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0 && step % 250 == 0)
            printf("step %4d  loss %.9g\n", step, loss);
    }
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    cz_group_destroy(&group);
    MPI_Finalize();
    return 0;
}
