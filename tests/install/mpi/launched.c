/* The same by cz_launch(), which knows of MPI by name only. */
#include <czero/czero.h>

static cz_status each_rank(cz_group *world, void *context)
{
    float sum = 1;
    CZ_TRY(cz_all_reduce(world, &sum, 1, CZ_F32, CZ_SUM, NULL));
    if (cz_group_rank(world) == 0)
        printf("sum %g\n", sum);
    return CZ_OK;
}

int main(void)
{
    CZ_CHECK(cz_launch(each_rank, NULL, NULL));
    return 0;
}
