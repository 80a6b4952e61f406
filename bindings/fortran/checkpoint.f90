! SPDX-License-Identifier: MIT
! Checkpoints in a folder, for any number of ranks: czero/checkpoint.h.
module czero_checkpoint
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int64
    use czero_group, only: cz_group
    use czero_optim, only: cz_optim
    use czero_parts, only: cz_parts
    use czero_state, only: cz_state_dict
    use czero_support
    use czero_tensor, only: cz_model
    use czero_zero, only: cz_zero
    implicit none
    private
    public :: cz_checkpoint, cz_load_result, cz_checkpoint_create, cz_checkpoint_destroy
    public :: cz_checkpoint_save, cz_checkpoint_save_async, cz_checkpoint_wait, cz_checkpoint_load
    public :: cz_checkpoint_notes, cz_checkpoint_export, cz_checkpoint_import

    integer, parameter, public :: CZ_NEWEST = -1

    type :: cz_checkpoint
        type(c_ptr) :: handle = c_null_ptr
    end type

    ! `step` is -1 where there was nothing. The dictionaries are the program's, for
    ! cz_state_dict_destroy(); `own` is empty where fewer ranks had saved.
    type :: cz_load_result
        integer :: step = -1
        integer(int64) :: generation = -1
        integer :: world_size = 0
        type(cz_state_dict) :: common
        type(cz_state_dict) :: own
    end type

    type, bind(C) :: checkpoint_options
        integer(c_size_t) :: size = 0
        type(c_ptr) :: model = c_null_ptr
        type(c_ptr) :: zero = c_null_ptr
        type(c_ptr) :: optim = c_null_ptr
        integer(c_int32_t) :: keep = 0
        integer(c_int32_t) :: reserved = 0
        type(c_ptr) :: parts = c_null_ptr
    end type

    type, bind(C) :: save_options
        integer(c_size_t) :: size = 0
        integer(c_int64_t) :: step = 0
        type(c_ptr) :: common = c_null_ptr
        type(c_ptr) :: own = c_null_ptr
    end type

    type, bind(C) :: load_options
        integer(c_size_t) :: size = 0
        integer(c_int64_t) :: step = CZ_NEWEST
        integer(c_int32_t) :: missing_ok = 0
        integer(c_int32_t) :: fall_back = 0
        integer(c_int32_t) :: permissive = 0
        integer(c_int32_t) :: convert = 0
    end type

    type, bind(C) :: load_result
        integer(c_size_t) :: size = 0
        integer(c_int64_t) :: step = -1
        integer(c_int64_t) :: generation = -1
        integer(c_int64_t) :: world_size = 0
        type(c_ptr) :: common = c_null_ptr
        type(c_ptr) :: own = c_null_ptr
    end type

    type, bind(C) :: export_options
        integer(c_size_t) :: size = 0
        integer(c_int64_t) :: step = 0
        type(c_ptr) :: common = c_null_ptr
        integer(c_int64_t) :: max_file_bytes = 0
        integer(c_int32_t) :: parameters_only = 0
        integer(c_int32_t) :: reserved = 0
    end type

    interface
        integer(c_int) function c_create(out, group, folder, options) &
            bind(C, name='cz_checkpoint_create')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: group
            character(kind=c_char), intent(in) :: folder(*)
            type(checkpoint_options), intent(in) :: options
        end function
        subroutine c_destroy(checkpoint) bind(C, name='cz_checkpoint_destroy')
            import
            type(c_ptr), intent(inout) :: checkpoint
        end subroutine
        integer(c_int) function c_save(checkpoint, options) bind(C, name='cz_checkpoint_save')
            import
            type(c_ptr), value :: checkpoint
            type(save_options), intent(in) :: options
        end function
        integer(c_int) function c_save_async(checkpoint, options) &
            bind(C, name='cz_checkpoint_save_async')
            import
            type(c_ptr), value :: checkpoint
            type(save_options), intent(in) :: options
        end function
        integer(c_int) function c_wait(checkpoint) bind(C, name='cz_checkpoint_wait')
            import
            type(c_ptr), value :: checkpoint
        end function
        integer(c_int) function c_load(checkpoint, options, outcome) &
            bind(C, name='cz_checkpoint_load')
            import
            type(c_ptr), value :: checkpoint
            type(load_options), intent(in) :: options
            type(load_result), intent(inout), optional :: outcome
        end function
        type(c_ptr) function c_notes(checkpoint) bind(C, name='cz_checkpoint_notes')
            import
            type(c_ptr), value :: checkpoint
        end function
        integer(c_int) function c_export(checkpoint, path, options) &
            bind(C, name='cz_checkpoint_export')
            import
            type(c_ptr), value :: checkpoint
            character(kind=c_char), intent(in) :: path(*)
            type(export_options), intent(in) :: options
        end function
        integer(c_int) function c_import(checkpoint, path, options, outcome) &
            bind(C, name='cz_checkpoint_import')
            import
            type(c_ptr), value :: checkpoint
            character(kind=c_char), intent(in) :: path(*)
            type(load_options), intent(in) :: options
            type(load_result), intent(inout), optional :: outcome
        end function
    end interface

contains

    ! What is saved to, and loaded from, a folder: a model, or the sharded optimizer over it, or one
    ! that is not sharded.
    subroutine cz_checkpoint_create(checkpoint, group, folder, model, zero, optim, parts, keep, &
            status, message)
        type(cz_checkpoint), intent(out) :: checkpoint
        type(cz_group), intent(in) :: group
        character(*), intent(in) :: folder
        type(cz_model), intent(in), optional :: model
        type(cz_zero), intent(in), optional :: zero
        type(cz_optim), intent(in), optional :: optim
        type(cz_parts), intent(in), optional :: parts
        integer, intent(in), optional :: keep
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(checkpoint_options) :: options
        options%size = c_sizeof(options)
        if (present(model)) options%model = model%handle
        if (present(zero)) options%zero = zero%handle
        if (present(optim)) options%optim = optim%handle
        if (present(parts)) options%parts = parts%handle
        if (present(keep)) options%keep = keep
        call finish(c_create(checkpoint%handle, group%handle, to_c(folder), options), status, &
            message)
    end subroutine

    subroutine cz_checkpoint_destroy(checkpoint)
        type(cz_checkpoint), intent(inout) :: checkpoint
        call c_destroy(checkpoint%handle)
    end subroutine

    type(save_options) function to_be_saved(step, common, own) result(options)
        integer, intent(in) :: step
        type(cz_state_dict), intent(in), optional :: common, own
        options%size = c_sizeof(options)
        options%step = step
        if (present(common)) options%common = common%handle
        if (present(own)) options%own = own%handle
    end function

    ! `common`: what is the same on all ranks; `own`: what is this rank's alone.
    subroutine cz_checkpoint_save(checkpoint, step, common, own, status, message)
        type(cz_checkpoint), intent(in) :: checkpoint
        integer, intent(in) :: step
        type(cz_state_dict), intent(in), optional :: common, own
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_save(checkpoint%handle, to_be_saved(step, common, own)), status, message)
    end subroutine

    ! Returns as soon as there is a copy of what is saved; errors are those of cz_checkpoint_wait().
    subroutine cz_checkpoint_save_async(checkpoint, step, common, own, status, message)
        type(cz_checkpoint), intent(in) :: checkpoint
        integer, intent(in) :: step
        type(cz_state_dict), intent(in), optional :: common, own
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_save_async(checkpoint%handle, to_be_saved(step, common, own)), status, &
            message)
    end subroutine

    subroutine cz_checkpoint_wait(checkpoint, status, message)
        type(cz_checkpoint), intent(in) :: checkpoint
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_wait(checkpoint%handle), status, message)
    end subroutine

    ! The newest complete generation, or that of a step. With missing_ok there may be none:
    ! result%step is -1 then.
    subroutine cz_checkpoint_load(checkpoint, result, step, missing_ok, fall_back, permissive, &
            convert, status, message)
        type(cz_checkpoint), intent(in) :: checkpoint
        type(cz_load_result), intent(out), optional :: result
        integer, intent(in), optional :: step
        logical, intent(in), optional :: missing_ok, fall_back, permissive, convert
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(load_options) :: options
        type(load_result) :: outcome
        integer(c_int) :: code
        options%size = c_sizeof(options)
        if (present(step)) options%step = step
        options%missing_ok = to_flag(missing_ok)
        options%fall_back = to_flag(fall_back)
        options%permissive = to_flag(permissive)
        options%convert = to_flag(convert)
        if (present(result)) then
            outcome%size = c_sizeof(outcome)
            code = c_load(checkpoint%handle, options, outcome)
            result = taken(outcome)
        else
            code = c_load(checkpoint%handle, options)
        end if
        call finish(code, status, message)
    end subroutine

    type(cz_load_result) function taken(outcome) result(result)
        type(load_result), intent(in) :: outcome
        result%step = int(outcome%step)
        result%generation = outcome%generation
        result%world_size = int(outcome%world_size)
        result%common%handle = outcome%common
        result%own%handle = outcome%own
    end function

    ! What there was to say about the last load, a line each; '' if nothing.
    function cz_checkpoint_notes(checkpoint) result(lines)
        type(cz_checkpoint), intent(in) :: checkpoint
        character(:), allocatable :: lines
        lines = to_fortran(c_notes(checkpoint%handle))
    end function

    ! One file for PyTorch ('.pt'), or a safetensors file, or a folder of them.
    subroutine cz_checkpoint_export(checkpoint, path, step, common, max_file_bytes, &
            parameters_only, status, message)
        type(cz_checkpoint), intent(in) :: checkpoint
        character(*), intent(in) :: path
        integer, intent(in), optional :: step
        type(cz_state_dict), intent(in), optional :: common
        integer(int64), intent(in), optional :: max_file_bytes
        logical, intent(in), optional :: parameters_only
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(export_options) :: options
        options%size = c_sizeof(options)
        if (present(step)) options%step = step
        if (present(common)) options%common = common%handle
        if (present(max_file_bytes)) options%max_file_bytes = max_file_bytes
        options%parameters_only = to_flag(parameters_only)
        call finish(c_export(checkpoint%handle, to_c(path), options), status, message)
    end subroutine

    subroutine cz_checkpoint_import(checkpoint, path, result, permissive, convert, status, message)
        type(cz_checkpoint), intent(in) :: checkpoint
        character(*), intent(in) :: path
        type(cz_load_result), intent(out), optional :: result
        logical, intent(in), optional :: permissive, convert
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(load_options) :: options
        type(load_result) :: outcome
        integer(c_int) :: code
        options%size = c_sizeof(options)
        options%permissive = to_flag(permissive)
        options%convert = to_flag(convert)
        if (present(result)) then
            outcome%size = c_sizeof(outcome)
            code = c_import(checkpoint%handle, to_c(path), options, outcome)
            result = taken(outcome)
        else
            code = c_import(checkpoint%handle, to_c(path), options)
        end if
        call finish(code, status, message)
    end subroutine
end module
