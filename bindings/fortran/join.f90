! SPDX-License-Identifier: MIT
! Uneven inputs: ranks whose inputs are used up accompany the others: czero/join.h.
module czero_join
    use, intrinsic :: iso_c_binding
    use czero_group, only: cz_group
    use czero_optim, only: cz_optim
    use czero_support
    implicit none
    private
    public :: cz_join, cz_joinable, cz_join_begin, cz_join_notify, cz_join_end, cz_optim_joinable
    public :: new_joinable

    integer, parameter, public :: CZ_JOIN_BY_WORLD = 0, CZ_JOIN_BY_ACTIVE = 1, CZ_JOIN_BY_WEIGHT = 2

    type :: cz_join
        type(c_ptr) :: handle = c_null_ptr
    end type

    ! Made by cz_ddp_joinable(), cz_zero_joinable() and cz_optim_joinable().
    type, bind(C) :: cz_joinable
        private
        integer(c_size_t) :: size = 0
        type(c_ptr) :: name = c_null_ptr
        type(c_ptr) :: object = c_null_ptr
        type(c_funptr) :: enter = c_null_funptr
        type(c_funptr) :: shadow = c_null_funptr
        type(c_funptr) :: finish = c_null_funptr
        type(c_funptr) :: abandon = c_null_funptr
    end type

    type, bind(C) :: join_options
        integer(c_size_t) :: size = 0
        integer(c_int) :: divide = 0
        integer(c_int32_t) :: end_early = 0
        integer(c_int32_t) :: disabled = 0
        type(c_ptr) :: step = c_null_ptr
    end type

    interface
        integer(c_int) function c_begin(out, group, joinables, count, options) &
            bind(C, name='cz_join_begin')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: group
            type(cz_joinable), intent(in) :: joinables(*)
            integer(c_int), value :: count
            type(join_options), intent(in) :: options
        end function
        integer(c_int) function c_notify(join, number) bind(C, name='cz_join_notify')
            import
            type(c_ptr), value :: join
            integer(c_int), value :: number
        end function
        integer(c_int) function c_end(join, body) bind(C, name='cz_join_end')
            import
            type(c_ptr), intent(inout) :: join
            integer(c_int), value :: body
        end function
        integer(c_int) function c_optim_joinable(optim, out) bind(C, name='cz_optim_joinable')
            import
            type(c_ptr), value :: optim
            type(cz_joinable), intent(inout) :: out
        end function
    end interface

contains

    type(cz_joinable) function new_joinable() result(fresh)
        fresh%size = c_sizeof(fresh)
    end function

    ! `divide`: CZ_JOIN_BY_WORLD, which is the default, CZ_JOIN_BY_ACTIVE or CZ_JOIN_BY_WEIGHT.
    ! `max_norm` and `skip_nonfinite`: what steps of a joined rank do, as the others' do.
    subroutine cz_join_begin(join, group, joinables, divide, end_early, disabled, max_norm, &
            skip_nonfinite, norm, status, message)
        use, intrinsic :: iso_fortran_env, only: real64
        use czero_optim, only: step_options, make_step_options
        type(cz_join), intent(out) :: join
        type(cz_group), intent(in) :: group
        type(cz_joinable), intent(in) :: joinables(:)
        integer, intent(in), optional :: divide
        logical, intent(in), optional :: end_early, disabled
        real(real64), intent(in), optional :: max_norm
        logical, intent(in), optional :: skip_nonfinite, norm
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(join_options) :: options
        type(step_options), target :: step
        options%size = c_sizeof(options)
        if (present(divide)) options%divide = divide
        options%end_early = to_flag(end_early)
        options%disabled = to_flag(disabled)
        options%step = make_step_options(step, max_norm, skip_nonfinite, norm)
        call finish(c_begin(join%handle, group%handle, joinables, size(joinables), options), &
            status, message)
    end subroutine

    ! Before the collective operations of an optimizer that is not sharded; `number` is its place in
    ! the array of joinables, from 1 on.
    subroutine cz_join_notify(join, number, status, message)
        type(cz_join), intent(in) :: join
        integer, intent(in) :: number
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_notify(join%handle, number - 1), status, message)
    end subroutine

    ! `body`: the status with which this rank's loop ended; it may be the variable that is `status`.
    subroutine cz_join_end(join, body, status, message)
        type(cz_join), intent(inout) :: join
        integer, value :: body
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_end(join%handle, body), status, message)
    end subroutine

    subroutine cz_optim_joinable(optim, joinable, status, message)
        type(cz_optim), intent(in) :: optim
        type(cz_joinable), intent(out) :: joinable
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        joinable = new_joinable()
        call finish(c_optim_joinable(optim%handle, joinable), status, message)
    end subroutine
end module
