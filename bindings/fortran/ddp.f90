! SPDX-License-Identifier: MIT
! Data-parallel models: gradients are reduced while the backward pass goes on: czero/ddp.h, and
! hooks by name: czero/hooks.h. From its mark to the end of the pass a gradient is the library's,
! which other threads read and write: it is to be ASYNCHRONOUS there (docs/fortran.md).
module czero_ddp
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int64, real64
    use czero_group, only: cz_group
    use czero_join, only: cz_joinable, new_joinable
    use czero_parts, only: cz_parts
    use czero_support
    use czero_tensor, only: cz_model
    implicit none
    private
    public :: cz_ddp, cz_ddp_create, cz_ddp_destroy, cz_ddp_set_weight, cz_ddp_begin
    public :: cz_ddp_mark_ready, cz_ddp_set_uses, cz_ddp_finish, cz_ddp_abandon, cz_ddp_set_passes
    public :: cz_ddp_get_info, cz_ddp_register_hook_by_name, cz_ddp_joinable

    type :: cz_ddp
        type(c_ptr) :: handle = c_null_ptr
    end type

    type, bind(C) :: ddp_options
        integer(c_size_t) :: size = 0
        integer(c_size_t) :: bucket_bytes = 0
        integer(c_size_t) :: first_bucket_bytes = 0
        integer(c_int32_t) :: find_unused = 0
        integer(c_int32_t) :: keep_buckets = 0
        integer(c_int32_t) :: keep_values = 0
        integer(c_int32_t) :: keep_buffers = 0
        integer(c_int32_t) :: all_reduce = 0
        integer(c_int32_t) :: static_graph = 0
        type(c_ptr) :: parts = c_null_ptr
    end type

    type, bind(C) :: ddp_info
        integer(c_size_t) :: size = 0
        type(c_ptr) :: model = c_null_ptr
        type(c_ptr) :: hook = c_null_ptr
        integer(c_int64_t) :: passes = 0
        integer(c_int32_t) :: bucket_count = 0
        integer(c_int32_t) :: rebuilt = 0
    end type

    interface
        integer(c_int) function c_create(out, group, model, options) bind(C, name='cz_ddp_create')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: group, model
            type(ddp_options), intent(in) :: options
        end function
        subroutine c_destroy(ddp) bind(C, name='cz_ddp_destroy')
            import
            type(c_ptr), intent(inout) :: ddp
        end subroutine
        integer(c_int) function c_set_weight(ddp, weight) bind(C, name='cz_ddp_set_weight')
            import
            type(c_ptr), value :: ddp
            real(c_double), value :: weight
        end function
        integer(c_int) function c_begin(ddp, sync) bind(C, name='cz_ddp_begin')
            import
            type(c_ptr), value :: ddp
            logical(c_bool), value :: sync
        end function
        integer(c_int) function c_mark_ready(ddp, param) bind(C, name='cz_ddp_mark_ready')
            import
            type(c_ptr), value :: ddp
            integer(c_int64_t), value :: param
        end function
        integer(c_int) function c_set_uses(ddp, param, uses) bind(C, name='cz_ddp_set_uses')
            import
            type(c_ptr), value :: ddp
            integer(c_int64_t), value :: param
            integer(c_int), value :: uses
        end function
        integer(c_int) function c_finish(ddp) bind(C, name='cz_ddp_finish')
            import
            type(c_ptr), value :: ddp
        end function
        integer(c_int) function c_abandon(ddp) bind(C, name='cz_ddp_abandon')
            import
            type(c_ptr), value :: ddp
        end function
        integer(c_int) function c_set_passes(ddp, passes) bind(C, name='cz_ddp_set_passes')
            import
            type(c_ptr), value :: ddp
            integer(c_int64_t), value :: passes
        end function
        integer(c_int) function c_get_info(ddp, info) bind(C, name='cz_ddp_get_info')
            import
            type(c_ptr), value :: ddp
            type(ddp_info), intent(inout) :: info
        end function
        integer(c_int) function c_register_hook_by_name(ddp, name, state) &
            bind(C, name='cz_ddp_register_hook_by_name')
            import
            type(c_ptr), value :: ddp, state
            character(kind=c_char), intent(in) :: name(*)
        end function
        integer(c_int) function c_joinable(ddp, out) bind(C, name='cz_ddp_joinable')
            import
            type(c_ptr), value :: ddp
            type(cz_joinable), intent(inout) :: out
        end function
    end interface

contains

    subroutine cz_ddp_create(ddp, group, model, bucket_bytes, first_bucket_bytes, find_unused, &
            keep_buckets, keep_values, keep_buffers, all_reduce, static_graph, parts, status, &
            message)
        type(cz_ddp), intent(out) :: ddp
        type(cz_group), intent(in) :: group
        type(cz_model), intent(in) :: model
        integer, intent(in), optional :: bucket_bytes, first_bucket_bytes
        logical, intent(in), optional :: find_unused, keep_buckets, keep_values, keep_buffers, &
            all_reduce, static_graph
        type(cz_parts), intent(in), optional :: parts
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(ddp_options) :: options
        options%size = c_sizeof(options)
        if (present(bucket_bytes)) options%bucket_bytes = bucket_bytes
        if (present(first_bucket_bytes)) options%first_bucket_bytes = first_bucket_bytes
        options%find_unused = to_flag(find_unused)
        options%keep_buckets = to_flag(keep_buckets)
        options%keep_values = to_flag(keep_values)
        options%keep_buffers = to_flag(keep_buffers)
        options%all_reduce = to_flag(all_reduce)
        options%static_graph = to_flag(static_graph)
        if (present(parts)) options%parts = parts%handle
        call finish(c_create(ddp%handle, group%handle, model%handle, options), status, message)
    end subroutine

    subroutine cz_ddp_destroy(ddp)
        type(cz_ddp), intent(inout) :: ddp
        call c_destroy(ddp%handle)
    end subroutine

    subroutine cz_ddp_set_weight(ddp, weight, status, message)
        type(cz_ddp), intent(in) :: ddp
        real(real64), intent(in) :: weight
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_set_weight(ddp%handle, weight), status, message)
    end subroutine

    ! `sync` .false.: gradients are only added up, nothing is reduced (PyTorch's no_sync).
    subroutine cz_ddp_begin(ddp, sync, status, message)
        type(cz_ddp), intent(in) :: ddp
        logical, intent(in) :: sync
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_begin(ddp%handle, logical(sync, c_bool)), status, message)
    end subroutine

    subroutine cz_ddp_mark_ready(ddp, param, status, message)
        type(cz_ddp), intent(in) :: ddp
        integer, intent(in) :: param
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_mark_ready(ddp%handle, int(param, c_int64_t)), status, message)
    end subroutine

    subroutine cz_ddp_set_uses(ddp, param, uses, status, message)
        type(cz_ddp), intent(in) :: ddp
        integer, intent(in) :: param, uses
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_set_uses(ddp%handle, int(param, c_int64_t), uses), status, message)
    end subroutine

    subroutine cz_ddp_finish(ddp, status, message)
        type(cz_ddp), intent(in) :: ddp
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_finish(ddp%handle), status, message)
    end subroutine

    subroutine cz_ddp_abandon(ddp, status, message)
        type(cz_ddp), intent(in) :: ddp
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_abandon(ddp%handle), status, message)
    end subroutine

    subroutine cz_ddp_set_passes(ddp, passes, status, message)
        type(cz_ddp), intent(in) :: ddp
        integer(int64), intent(in) :: passes
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_set_passes(ddp%handle, passes), status, message)
    end subroutine

    subroutine cz_ddp_get_info(ddp, passes, bucket_count, rebuilt, status, message)
        type(cz_ddp), intent(in) :: ddp
        integer(int64), intent(out), optional :: passes
        integer, intent(out), optional :: bucket_count
        logical, intent(out), optional :: rebuilt
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(ddp_info) :: info
        integer(c_int) :: code
        info%size = c_sizeof(info)
        code = c_get_info(ddp%handle, info)
        if (present(passes)) passes = info%passes
        if (present(bucket_count)) bucket_count = info%bucket_count
        if (present(rebuilt)) rebuilt = info%rebuilt /= 0
        call finish(code, status, message)
    end subroutine

    ! 'fp16_compress', 'quantize_per_tensor' and others of czero/hooks.h that need no state.
    subroutine cz_ddp_register_hook_by_name(ddp, name, status, message)
        type(cz_ddp), intent(in) :: ddp
        character(*), intent(in) :: name
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_register_hook_by_name(ddp%handle, to_c(name), c_null_ptr), status, message)
    end subroutine

    subroutine cz_ddp_joinable(ddp, joinable, status, message)
        type(cz_ddp), intent(in) :: ddp
        type(cz_joinable), intent(out) :: joinable
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        joinable = new_joinable()
        call finish(c_joinable(ddp%handle, joinable), status, message)
    end subroutine
end module
