/* The same in C++. */
#include <czero/mpi.hpp>

int main(int argc, char **argv)
{
    int level;
    float sum = 1;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    {
        czero::group world = czero::create_mpi(MPI_COMM_WORLD);
        world.all_reduce(sum, CZ_SUM);
        if (world.rank() == 0)
            std::printf("sum %g\n", static_cast<double>(sum));
    }
    return MPI_Finalize();
}
