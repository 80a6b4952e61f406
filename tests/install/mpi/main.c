/* An all-reduce over the communicator that the program has. */
#include <czero/mpi.h>

int main(int argc, char **argv)
{
    int level;
    float sum = 1;
    cz_group *world;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    CZ_CHECK(cz_group_create_mpi(&world, MPI_COMM_WORLD, NULL, NULL));
    CZ_CHECK(cz_all_reduce(world, &sum, 1, CZ_F32, CZ_SUM, NULL));
    if (cz_group_rank(world) == 0)
        printf("sum %g\n", sum);
    cz_group_destroy(&world);
    return MPI_Finalize();
}
