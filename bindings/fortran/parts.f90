! SPDX-License-Identifier: MIT
! Parts of a batch, for a training whose bits are the same on any number of ranks: czero/parts.h.
module czero_parts
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int64, real64
    use czero_group, only: cz_group
    use czero_support
    use czero_tensor, only: cz_model
    implicit none
    private
    public :: cz_parts, cz_parts_create, cz_parts_destroy, cz_parts_own_count, cz_parts_own
    public :: cz_parts_is_last, cz_parts_add, cz_parts_restart, cz_parts_set_weights, cz_parts_mean
    public :: cz_parts_stream

    type :: cz_parts
        type(c_ptr) :: handle = c_null_ptr
    end type

    type, bind(C) :: parts_options
        integer(c_size_t) :: size = 0
        integer(c_int32_t) :: count = 0
        integer(c_int32_t) :: reserved = 0
    end type

    type, bind(C) :: parts_info
        integer(c_size_t) :: size = 0
        type(c_ptr) :: group = c_null_ptr
        type(c_ptr) :: model = c_null_ptr
        integer(c_int32_t) :: count = 0
        integer(c_int32_t) :: own_count = 0
        integer(c_int32_t) :: added = 0
        integer(c_int32_t) :: weightless = 0
        integer(c_size_t) :: kept_bytes = 0
    end type

    interface
        integer(c_int) function c_create(out, group, model, options) bind(C, name='cz_parts_create')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: group, model
            type(parts_options), intent(in) :: options
        end function
        subroutine c_destroy(parts) bind(C, name='cz_parts_destroy')
            import
            type(c_ptr), intent(inout) :: parts
        end subroutine
        pure integer(c_int) function c_own(parts, i) bind(C, name='cz_parts_own')
            import
            type(c_ptr), value :: parts
            integer(c_int), value :: i
        end function
        logical(c_bool) function c_is_last(parts) bind(C, name='cz_parts_is_last')
            import
            type(c_ptr), value :: parts
        end function
        integer(c_int) function c_add(parts) bind(C, name='cz_parts_add')
            import
            type(c_ptr), value :: parts
        end function
        integer(c_int) function c_restart(parts) bind(C, name='cz_parts_restart')
            import
            type(c_ptr), value :: parts
        end function
        integer(c_int) function c_set_weights(parts, weights) bind(C, name='cz_parts_set_weights')
            import
            type(c_ptr), value :: parts, weights
        end function
        integer(c_int) function c_mean(parts, values, count, means) bind(C, name='cz_parts_mean')
            import
            type(c_ptr), value :: parts, values
            integer(c_int64_t), value :: count
            real(c_double), intent(inout) :: means(*)
        end function
        integer(c_int) function c_get_info(parts, info) bind(C, name='cz_parts_get_info')
            import
            type(c_ptr), value :: parts
            type(parts_info), intent(inout) :: info
        end function
    end interface

    ! cz_parts_mean(parts, values, mean [, status] [, message]): values(i) of this rank's i-th part,
    ! or values(:, i) and as many means.
    interface cz_parts_mean
        procedure mean_of_one, mean_of_several
    end interface

contains

    subroutine cz_parts_create(parts, group, model, count, status, message)
        type(cz_parts), intent(out) :: parts
        type(cz_group), intent(in) :: group
        type(cz_model), intent(in) :: model
        integer, intent(in) :: count
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(parts_options) :: options
        options%size = c_sizeof(options)
        options%count = count
        call finish(c_create(parts%handle, group%handle, model%handle, options), status, message)
    end subroutine

    subroutine cz_parts_destroy(parts)
        type(cz_parts), intent(inout) :: parts
        call c_destroy(parts%handle)
    end subroutine

    ! How many this rank has (own_count of cz_parts_get_info()).
    integer function cz_parts_own_count(parts)
        type(cz_parts), intent(in) :: parts
        type(parts_info) :: info
        info%size = c_sizeof(info)
        if (c_get_info(parts%handle, info) /= 0) info%own_count = 0
        cz_parts_own_count = info%own_count
    end function

    ! The number, 0 to count - 1, of this rank's i-th part, i from 1 on; -1 beyond its last.
    pure integer function cz_parts_own(parts, i)
        type(cz_parts), intent(in) :: parts
        integer, intent(in) :: i
        cz_parts_own = c_own(parts%handle, i - 1)
    end function

    logical function cz_parts_is_last(parts)
        type(cz_parts), intent(in) :: parts
        cz_parts_is_last = c_is_last(parts%handle)
    end function

    subroutine cz_parts_add(parts, status, message)
        type(cz_parts), intent(in) :: parts
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_add(parts%handle), status, message)
    end subroutine

    subroutine cz_parts_restart(parts, status, message)
        type(cz_parts), intent(in) :: parts
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_restart(parts%handle), status, message)
    end subroutine

    ! Those of this rank's parts; without `weights` they count alike.
    subroutine cz_parts_set_weights(parts, weights, status, message)
        type(cz_parts), intent(in) :: parts
        real(real64), intent(in), optional, target, contiguous :: weights(:)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        real(real64), allocatable, target :: refused(:)
        integer(c_int) :: code
        if (.not. present(weights)) then
            code = c_set_weights(parts%handle, c_null_ptr)
        else if (size(weights) == cz_parts_own_count(parts)) then
            code = c_set_weights(parts%handle, c_loc(weights))
        else ! all ranks are to learn of it
            allocate (refused(max(1, cz_parts_own_count(parts))), source=-1._real64)
            code = not_for_each(c_set_weights(parts%handle, c_loc(refused)), 'set_weights', &
                size(weights), parts)
        end if
        call finish(code, status, message)
    end subroutine

    subroutine mean_of_one(parts, values, mean, status, message)
        type(cz_parts), intent(in) :: parts
        real(real64), intent(in) :: values(:)
        real(real64), intent(inout) :: mean
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        real(real64) :: means(1)
        means = mean
        call mean_of_several(parts, reshape(values, [1, size(values)]), means, status, message)
        mean = means(1)
    end subroutine

    subroutine mean_of_several(parts, values, means, status, message)
        type(cz_parts), intent(in) :: parts
        real(real64), intent(in), target, contiguous :: values(:, :)
        real(real64), intent(inout), contiguous :: means(:)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        integer(c_int) :: code
        if (size(values, 2) /= cz_parts_own_count(parts)) then
            code = not_for_each(c_mean(parts%handle, c_null_ptr, -1_c_int64_t, means), 'mean', &
                size(values, 2), parts)
        else if (size(values, 1) /= size(means)) then
            code = c_mean(parts%handle, c_null_ptr, -1_c_int64_t, means)
            if (code == CZ_ERR_ARGUMENT) &
                code = refuse('parts mean: there are not as many means as values of a part')
        else
            code = c_mean(parts%handle, c_loc(values), size(means, kind=c_int64_t), means)
        end if
        call finish(code, status, message)
    end subroutine

    ! The sentence on the rank that has not one entry for each of its parts.
    integer(c_int) function not_for_each(code, name, count, parts)
        integer(c_int), intent(in) :: code
        character(*), intent(in) :: name
        integer, intent(in) :: count
        type(cz_parts), intent(in) :: parts
        character(100) :: words
        not_for_each = code
        if (code /= CZ_ERR_ARGUMENT .or. .not. c_associated(parts%handle)) return
        write (words, '(3a,i0,a,i0)') 'parts ', name, ': ', count, &
            ' entries, wanted one for each part of this rank: ', cz_parts_own_count(parts)
        not_for_each = refuse(trim(words))
    end function

    ! A stream for cz_random_uniform() and its like that belongs to this part of this step.
    pure integer(int64) function cz_parts_stream(step, part)
        integer, intent(in) :: step, part
        cz_parts_stream = int(step, int64) * 4096 + part
    end function
end module
