! An all-reduce over the communicator that the program has.
program main
    use mpi
    use czero
    use czero_mpi
    implicit none
    type(cz_group) :: group
    real :: sum = 1
    integer :: level, failed
    call MPI_Init_thread(MPI_THREAD_MULTIPLE, level, failed)
    call cz_group_create_mpi(group, MPI_COMM_WORLD)
    call cz_all_reduce(group, sum, CZ_SUM)
    if (cz_group_rank(group) == 0) print '(a,i0)', 'sum ', nint(sum)
    call cz_group_destroy(group)
    call MPI_Finalize(failed)
end program
