! SPDX-License-Identifier: MIT
! Groups on MPI: czero/mpi.h. Beside module czero, for programs that link the plugin for their MPI
! (czero::mpi, czero-mpi.pc).
module czero_mpi
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: real64
    use czero_group, only: cz_group, group_options, make_group_options
    use czero_support
    implicit none
    private
    public :: cz_group_create_mpi, cz_mpi_carrier

    type, bind(C) :: mpi_options
        integer(c_size_t) :: size = 0
        integer(c_int) :: serialized_is_ours = 0
        integer(c_int) :: abort_on_break = 0
    end type

    interface
        integer(c_int) function c_create(out, comm, mpi, options) &
            bind(C, name='cz_group_create_mpi_f')
            import
            type(c_ptr), intent(out) :: out
            integer(c_int), value :: comm
            type(mpi_options), intent(in) :: mpi
            type(group_options), intent(in) :: options
        end function
        logical(c_bool) function c_carrier(group) bind(C, name='cz_mpi_carrier')
            import
            type(c_ptr), value :: group
        end function
    end interface

contains

    ! A group of the ranks of a communicator: MPI_COMM_WORLD of `use mpi`, and of `use mpi_f08`
    ! MPI_COMM_WORLD%MPI_VAL.
    subroutine cz_group_create_mpi(group, comm, serialized_is_ours, abort_on_break, &
            timeout_seconds, warn_seconds, segment_bytes, checked, status, message)
        type(cz_group), intent(out) :: group
        integer, intent(in) :: comm
        logical, intent(in), optional :: serialized_is_ours, abort_on_break
        real(real64), intent(in), optional :: timeout_seconds, warn_seconds
        integer, intent(in), optional :: segment_bytes
        logical, intent(in), optional :: checked
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(mpi_options) :: mpi
        type(group_options) :: options
        mpi%size = c_sizeof(mpi)
        mpi%serialized_is_ours = to_flag(serialized_is_ours)
        mpi%abort_on_break = to_flag(abort_on_break)
        call make_group_options(options, timeout_seconds, warn_seconds, segment_bytes, checked)
        call finish(c_create(group%handle, int(comm, c_int), mpi, options), status, message)
    end subroutine

    ! Does a thread move this group's messages while the program computes?
    logical function cz_mpi_carrier(group)
        type(cz_group), intent(in) :: group
        cz_mpi_carrier = c_carrier(group%handle)
    end function
end module
