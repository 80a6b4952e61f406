! SPDX-License-Identifier: MIT
! State dictionaries, for what a program saves beside model and optimizer: czero/state.h. Values
! are copied in and out.
module czero_state
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
    use czero_support
    implicit none
    private
    public :: cz_state_dict, cz_state_dict_create, cz_state_dict_destroy, cz_state_dict_has
    public :: cz_state_dict_set_integer, cz_state_dict_set_real, cz_state_dict_set_text
    public :: cz_state_dict_set_tensor, cz_state_dict_set_dict
    public :: cz_state_dict_get_integer, cz_state_dict_get_real, cz_state_dict_get_text
    public :: cz_state_dict_get_tensor, cz_state_dict_get_dict

    type :: cz_state_dict
        type(c_ptr) :: handle = c_null_ptr
    end type

    ! cz_state_dict_set_integer(dict, key, value [, status] [, message]), and
    ! cz_state_dict_get_integer likewise
    interface cz_state_dict_set_integer
        procedure set_i32, set_i64
    end interface
    interface cz_state_dict_get_integer
        procedure get_i32, get_i64
    end interface

    ! cz_state_dict_set_tensor(dict, key, array [, status] [, message])
    interface cz_state_dict_set_tensor
        procedure set_tensor_r32, set_tensor_r64, set_tensor_i32, set_tensor_i64
    end interface

    ! cz_state_dict_get_tensor(dict, key, array [, status] [, message]): `array` has its type
    ! and shape.
    interface cz_state_dict_get_tensor
        procedure get_tensor_r32, get_tensor_r64, get_tensor_i32, get_tensor_i64
    end interface

    interface
        integer(c_int) function c_create(out) bind(C, name='cz_state_dict_create')
            import
            type(c_ptr), intent(out) :: out
        end function
        subroutine c_destroy(dict) bind(C, name='cz_state_dict_destroy')
            import
            type(c_ptr), intent(inout) :: dict
        end subroutine
        integer(c_int) function c_kind(dict, key) bind(C, name='cz_state_dict_kind')
            import
            type(c_ptr), value :: dict
            character(kind=c_char), intent(in) :: key(*)
        end function
        integer(c_int) function c_set_integer(dict, key, number) &
            bind(C, name='cz_state_dict_set_integer')
            import
            type(c_ptr), value :: dict
            character(kind=c_char), intent(in) :: key(*)
            integer(c_int64_t), value :: number
        end function
        integer(c_int) function c_set_real(dict, key, number) bind(C, name='cz_state_dict_set_real')
            import
            type(c_ptr), value :: dict
            character(kind=c_char), intent(in) :: key(*)
            real(c_double), value :: number
        end function
        integer(c_int) function c_set_text(dict, key, text) bind(C, name='cz_state_dict_set_text')
            import
            type(c_ptr), value :: dict
            character(kind=c_char), intent(in) :: key(*), text(*)
        end function
        integer(c_int) function c_set_tensor(dict, key, tensor) &
            bind(C, name='cz_state_dict_set_tensor')
            import
            type(c_ptr), value :: dict
            character(kind=c_char), intent(in) :: key(*)
            type(cz_tensor), intent(in) :: tensor
        end function
        integer(c_int) function c_set_dict(dict, key, source) bind(C, name='cz_state_dict_set_dict')
            import
            type(c_ptr), value :: dict, source
            character(kind=c_char), intent(in) :: key(*)
        end function
        integer(c_int) function c_get_integer(dict, key, number) &
            bind(C, name='cz_state_dict_get_integer')
            import
            type(c_ptr), value :: dict
            character(kind=c_char), intent(in) :: key(*)
            integer(c_int64_t), intent(inout) :: number
        end function
        integer(c_int) function c_get_real(dict, key, number) bind(C, name='cz_state_dict_get_real')
            import
            type(c_ptr), value :: dict
            character(kind=c_char), intent(in) :: key(*)
            real(c_double), intent(inout) :: number
        end function
        integer(c_int) function c_get_text(dict, key, text) bind(C, name='cz_state_dict_get_text')
            import
            type(c_ptr), value :: dict
            character(kind=c_char), intent(in) :: key(*)
            type(c_ptr), intent(inout) :: text
        end function
        integer(c_int) function c_get_tensor(dict, key, tensor) &
            bind(C, name='cz_state_dict_get_tensor')
            import
            type(c_ptr), value :: dict
            character(kind=c_char), intent(in) :: key(*)
            type(cz_tensor), intent(inout) :: tensor
        end function
        integer(c_int) function c_get_dict(dict, key, child) bind(C, name='cz_state_dict_get_dict')
            import
            type(c_ptr), value :: dict
            character(kind=c_char), intent(in) :: key(*)
            type(c_ptr), intent(inout) :: child
        end function
        subroutine c_memcpy(to, from, bytes) bind(C, name='memcpy')
            import
            type(c_ptr), value :: to, from
            integer(c_size_t), value :: bytes
        end subroutine
    end interface

contains

    subroutine cz_state_dict_create(dict, status, message)
        type(cz_state_dict), intent(out) :: dict
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_create(dict%handle), status, message)
    end subroutine

    subroutine cz_state_dict_destroy(dict)
        type(cz_state_dict), intent(inout) :: dict
        call c_destroy(dict%handle)
    end subroutine

    ! Is there something of that key?
    logical function cz_state_dict_has(dict, key)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        cz_state_dict_has = c_kind(dict%handle, to_c(key)) /= 0
    end function

    subroutine set_i32(dict, key, value, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        integer(int32), intent(in) :: value
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call set_i64(dict, key, int(value, int64), status, message)
    end subroutine

    subroutine set_i64(dict, key, value, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        integer(int64), intent(in) :: value
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_set_integer(dict%handle, to_c(key), value), status, message)
    end subroutine

    subroutine cz_state_dict_set_real(dict, key, value, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        real(real64), intent(in) :: value
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_set_real(dict%handle, to_c(key), value), status, message)
    end subroutine

    ! Without the blanks at its end.
    subroutine cz_state_dict_set_text(dict, key, value, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key, value
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_set_text(dict%handle, to_c(key), to_c(value)), status, message)
    end subroutine

    ! A copy of `value`, with all that is in it.
    subroutine cz_state_dict_set_dict(dict, key, value, status, message)
        type(cz_state_dict), intent(in) :: dict, value
        character(*), intent(in) :: key
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_set_dict(dict%handle, to_c(key), value%handle), status, message)
    end subroutine

    subroutine get_i32(dict, key, value, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        integer(int32), intent(inout) :: value
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        integer(c_int64_t) :: number
        integer(c_int) :: code
        number = value
        code = c_get_integer(dict%handle, to_c(key), number)
        if (code == 0 .and. (number > huge(value) .or. number < -huge(value) - 1_int64)) then
            code = refuse("state: '"//trim(key)//"' is too large for an integer of 32 bits")
        else if (code == 0) then
            value = int(number, int32)
        end if
        call finish(code, status, message)
    end subroutine

    subroutine get_i64(dict, key, value, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        integer(int64), intent(inout) :: value
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_get_integer(dict%handle, to_c(key), value), status, message)
    end subroutine

    subroutine cz_state_dict_get_real(dict, key, value, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        real(real64), intent(inout) :: value
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_get_real(dict%handle, to_c(key), value), status, message)
    end subroutine

    subroutine cz_state_dict_get_text(dict, key, value, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        character(:), allocatable, intent(inout) :: value
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(c_ptr) :: text
        integer(c_int) :: code
        text = c_null_ptr
        code = c_get_text(dict%handle, to_c(key), text)
        if (code == 0) value = to_fortran(text)
        call finish(code, status, message)
    end subroutine

    ! The dictionary in the dictionary itself: not to be destroyed.
    subroutine cz_state_dict_get_dict(dict, key, value, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        type(cz_state_dict), intent(out) :: value
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_get_dict(dict%handle, to_c(key), value%handle), status, message)
    end subroutine

    subroutine set_tensor_r32(dict, key, array, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        real(real32), contiguous, target, intent(in) :: array(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(set_tensor(dict, key, c_loc(array), CZ_F32, int(shape(array), c_int64_t)), &
            status, message)
    end subroutine

    subroutine set_tensor_r64(dict, key, array, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        real(real64), contiguous, target, intent(in) :: array(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(set_tensor(dict, key, c_loc(array), CZ_F64, int(shape(array), c_int64_t)), &
            status, message)
    end subroutine

    subroutine set_tensor_i32(dict, key, array, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        integer(int32), contiguous, target, intent(in) :: array(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(set_tensor(dict, key, c_loc(array), CZ_I32, int(shape(array), c_int64_t)), &
            status, message)
    end subroutine

    subroutine set_tensor_i64(dict, key, array, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        integer(int64), contiguous, target, intent(in) :: array(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(set_tensor(dict, key, c_loc(array), CZ_I64, int(shape(array), c_int64_t)), &
            status, message)
    end subroutine

    subroutine get_tensor_r32(dict, key, array, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        real(real32), contiguous, target, intent(inout) :: array(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(get_tensor(dict, key, c_loc(array), CZ_F32, int(shape(array), c_int64_t), &
            4 * size(array, kind=c_size_t)), status, message)
    end subroutine

    subroutine get_tensor_r64(dict, key, array, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        real(real64), contiguous, target, intent(inout) :: array(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(get_tensor(dict, key, c_loc(array), CZ_F64, int(shape(array), c_int64_t), &
            8 * size(array, kind=c_size_t)), status, message)
    end subroutine

    subroutine get_tensor_i32(dict, key, array, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        integer(int32), contiguous, target, intent(inout) :: array(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(get_tensor(dict, key, c_loc(array), CZ_I32, int(shape(array), c_int64_t), &
            4 * size(array, kind=c_size_t)), status, message)
    end subroutine

    subroutine get_tensor_i64(dict, key, array, status, message)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        integer(int64), contiguous, target, intent(inout) :: array(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(get_tensor(dict, key, c_loc(array), CZ_I64, int(shape(array), c_int64_t), &
            8 * size(array, kind=c_size_t)), status, message)
    end subroutine

    integer(c_int) function set_tensor(dict, key, address, dtype, extents) result(code)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        type(c_ptr), intent(in) :: address
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: extents(:)
        type(cz_tensor) :: tensor
        code = make_view(tensor, "state: '"//trim(key)//"'", address, dtype, extents, .true.)
        if (code == 0) code = c_set_tensor(dict%handle, to_c(key), tensor)
    end function

    integer(c_int) function get_tensor(dict, key, address, dtype, extents, bytes) result(code)
        type(cz_state_dict), intent(in) :: dict
        character(*), intent(in) :: key
        type(c_ptr), intent(in) :: address
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: extents(:)
        integer(c_size_t), intent(in) :: bytes
        type(cz_tensor) :: tensor, wanted
        code = make_view(wanted, "state: '"//trim(key)//"'", address, dtype, extents, .true.)
        if (code == 0) code = c_get_tensor(dict%handle, to_c(key), tensor)
        if (code /= 0) return
        if (tensor%dtype /= wanted%dtype .or. tensor%dimensions /= wanted%dimensions .or. &
            any(tensor%shape(:wanted%dimensions) /= wanted%shape(:wanted%dimensions))) then
            code = refuse("state: '"//trim(key)//"' has another type or shape than the "// &
                'array')
        else if (bytes > 0) then
            call c_memcpy(address, tensor%data, bytes)
        end if
    end function
end module
