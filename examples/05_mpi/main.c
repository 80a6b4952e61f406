/* SPDX-License-Identifier: MIT */
/* The MLP of 03_mnist in a program that uses MPI itself: it initialises MPI, makes a group of its own
 * communicator, and finalises MPI in the end. The weights have the same bits as with thread ranks.
 *
 *     mpirun -n 3 05_mpi [STEPS]
 */
#include <stdlib.h>

#include "czero/mpi.h"
#include "mnist.h"

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided); /* less works as well */
    task t = {.steps = argc > 1 ? atoi(argv[1]) : 1000};
    cz_group *group;
    CZ_CHECK(task_read(&t));
    CZ_CHECK(cz_group_create_mpi(&group, MPI_COMM_WORLD, NULL, NULL));
    CZ_CHECK(train(group, &t));
    cz_group_destroy(&group);
    task_free(&t);
    MPI_Finalize();
    return 0;
}
