! SPDX-License-Identifier: MIT
! What the other modules stand on: how a call ends, texts in C and in Fortran, views on arrays. Not
! for programs: module czero hands out none of it.
module czero_support
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit, int32, int64, real32, real64
    implicit none
    private
    public :: CZ_F32, CZ_F64, CZ_I32, CZ_I64, CZ_MAX_DIMENSIONS, cz_tensor, view, finish, &
        refuse, to_c, to_fortran, to_flag, CZ_ERR_ARGUMENT, CZ_ERR_UNSUPPORTED
    public :: text_list, make_text_list, make_view

    ! As in czero/status.h, and element types, as in czero/base.h.
    integer(c_int), parameter :: CZ_ERR_ARGUMENT = 1, CZ_ERR_UNSUPPORTED = 4
    integer(c_int), parameter :: CZ_F32 = 1, CZ_F64 = 2, CZ_I32 = 5, CZ_I64 = 6

    ! As in czero/tensor.h, which promises that it never changes.
    integer, parameter :: CZ_MAX_DIMENSIONS = 8
    type, bind(C) :: cz_tensor
        type(c_ptr) :: data = c_null_ptr
        integer(c_int) :: dtype = 0
        integer(c_int) :: layout = 0
        integer(c_int) :: dimensions = 0
        integer(c_int64_t) :: shape(CZ_MAX_DIMENSIONS) = 0
        type(c_ptr) :: device = c_null_ptr
    end type

    ! Texts as C has them, an array of addresses. What it is made in has to be a TARGET.
    type :: text_list
        character(kind=c_char), allocatable :: bytes(:, :)
        type(c_ptr), allocatable :: addresses(:)
    end type

    ! view(array, what, tensor): the tensor that lies in an array, whose address the library is to
    ! keep; or why it cannot be one. Dummies that are pointers let the compiler refuse what is no
    ! TARGET, and what is the value of an expression.
    interface view
        procedure view_r32, view_r64, view_i32, view_i64
    end interface

    interface
        integer(c_int) function c_fail_text(status, text) bind(C, name='cz_fail_text')
            import
            integer(c_int), value :: status
            character(kind=c_char), intent(in) :: text(*)
        end function
        type(c_ptr) function c_last_error() bind(C, name='cz_last_error')
            import
        end function
        integer(c_size_t) function c_strlen(text) bind(C, name='strlen')
            import
            type(c_ptr), value :: text
        end function
    end interface

contains

    ! The end of a call. As with STAT= and ERRMSG=: who asks for the status goes on after a failure,
    ! and the program of who does not ends with the sentence.
    subroutine finish(code, status, message)
        integer(c_int), intent(in) :: code
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        if (present(status)) status = code
        if (code == 0) return
        if (present(message)) message = to_fortran(c_last_error())
        if (present(status)) return
        write (error_unit, '(2a)') 'czero: ', to_fortran(c_last_error())
        flush (error_unit)
        error stop 1, quiet=.true.
    end subroutine

    ! CZ_ERR_ARGUMENT, with `sentence` as the last error.
    integer(c_int) function refuse(sentence)
        character(*), intent(in) :: sentence
        refuse = c_fail_text(CZ_ERR_ARGUMENT, to_c(sentence))
    end function

    ! Names and paths without the blanks that fill a variable.
    function to_c(text) result(bytes)
        character(*), intent(in) :: text
        character(kind=c_char, len=len_trim(text) + 1) :: bytes
        bytes = trim(text)//c_null_char
    end function

    subroutine make_text_list(list, texts)
        type(text_list), target, intent(out) :: list
        character(*), intent(in) :: texts(:)
        integer :: i, k
        allocate (list%bytes(len(texts) + 1, size(texts)), list%addresses(size(texts)))
        list%bytes = c_null_char
        do i = 1, size(texts)
            do k = 1, len_trim(texts(i))
                list%bytes(k, i) = texts(i)(k:k)
            end do
            list%addresses(i) = c_loc(list%bytes(1, i))
        end do
    end subroutine

    ! A copy of a text of the library's; '' for NULL.
    function to_fortran(bytes) result(text)
        type(c_ptr), intent(in) :: bytes
        character(:), allocatable :: text
        character(kind=c_char), pointer :: from(:)
        integer :: i, length
        length = 0
        if (c_associated(bytes)) length = int(c_strlen(bytes))
        allocate (character(length) :: text)
        if (length == 0) return
        call c_f_pointer(bytes, from, [length])
        do i = 1, length
            text(i:i) = from(i)
        end do
    end function

    integer(c_int32_t) function to_flag(option)
        logical, intent(in), optional :: option
        to_flag = 0
        if (present(option)) to_flag = merge(1_c_int32_t, 0_c_int32_t, option)
    end function

    ! A Fortran array has its first index side by side in memory, a tensor its last one: so the
    ! shape is written the other way round, and nothing is moved.
    integer(c_int) function make_view(tensor, what, address, dtype, extents, no_gaps)
        type(cz_tensor), intent(out) :: tensor
        character(*), intent(in) :: what
        type(c_ptr), intent(in) :: address
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: extents(:)
        logical, intent(in) :: no_gaps
        integer :: n
        n = size(extents)
        make_view = 0
        if (.not. no_gaps) then
            make_view = refuse(what//' is not contiguous, and the library works on its '// &
                'memory: give a whole array, or a section without gaps (a(:, 2), not a(2, :))')
        else if (n > CZ_MAX_DIMENSIONS) then
            make_view = refuse(what//' has more than 8 dimensions')
        else
            tensor%data = address
            tensor%dtype = dtype
            tensor%dimensions = n
            tensor%shape(:n) = extents(n:1:-1)
        end if
    end function

    integer(c_int) function nothing_there(what)
        character(*), intent(in) :: what
        nothing_there = refuse(what//' is a pointer without a target, or not allocated')
    end function

    integer(c_int) function view_r32(array, what, tensor) result(code)
        real(real32), pointer, intent(in) :: array(..)
        character(*), intent(in) :: what
        type(cz_tensor), intent(out) :: tensor
        if (.not. associated(array)) then
            code = nothing_there(what)
        else
            code = make_view(tensor, what, c_loc(array), CZ_F32, int(shape(array), c_int64_t), &
                is_contiguous(array))
        end if
    end function

    integer(c_int) function view_r64(array, what, tensor) result(code)
        real(real64), pointer, intent(in) :: array(..)
        character(*), intent(in) :: what
        type(cz_tensor), intent(out) :: tensor
        if (.not. associated(array)) then
            code = nothing_there(what)
        else
            code = make_view(tensor, what, c_loc(array), CZ_F64, int(shape(array), c_int64_t), &
                is_contiguous(array))
        end if
    end function

    integer(c_int) function view_i32(array, what, tensor) result(code)
        integer(int32), pointer, intent(in) :: array(..)
        character(*), intent(in) :: what
        type(cz_tensor), intent(out) :: tensor
        if (.not. associated(array)) then
            code = nothing_there(what)
        else
            code = make_view(tensor, what, c_loc(array), CZ_I32, int(shape(array), c_int64_t), &
                is_contiguous(array))
        end if
    end function

    integer(c_int) function view_i64(array, what, tensor) result(code)
        integer(int64), pointer, intent(in) :: array(..)
        character(*), intent(in) :: what
        type(cz_tensor), intent(out) :: tensor
        if (.not. associated(array)) then
            code = nothing_there(what)
        else
            code = make_view(tensor, what, c_loc(array), CZ_I64, int(shape(array), c_int64_t), &
                is_contiguous(array))
        end if
    end function
end module
