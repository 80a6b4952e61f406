! A program in Fortran links: the group of MPI_COMM_WORLD, without a header.
program main
    use iso_c_binding
    use mpi
    implicit none
    interface
        function world_of(group, initialise, options) bind(C, name="cz_plugin_mpi_world")
            import
            integer(c_int) :: world_of
            type(c_ptr) :: group
            logical(c_bool), value :: initialise
            type(c_ptr), value :: options
        end function
        function size_of(group) bind(C, name="cz_group_size")
            import
            integer(c_int) :: size_of
            type(c_ptr), value :: group
        end function
        function rank_of(group) bind(C, name="cz_group_rank")
            import
            integer(c_int) :: rank_of
            type(c_ptr), value :: group
        end function
        subroutine leave(group) bind(C, name="cz_group_destroy")
            import
            type(c_ptr) :: group
        end subroutine
    end interface
    type(c_ptr) :: world
    integer :: level, failed
    call MPI_Init_thread(MPI_THREAD_MULTIPLE, level, failed)
    if (world_of(world, .false._c_bool, c_null_ptr) /= 0) stop 1
    if (rank_of(world) == 0) print '(a,i0)', 'sum ', size_of(world)
    call leave(world)
    call MPI_Finalize(failed)
end program
