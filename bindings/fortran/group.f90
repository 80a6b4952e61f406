! SPDX-License-Identifier: MIT
! Process groups and collective operations: czero/group.h. All operations here are blocking, so
! arrays may be sections of any kind (the compiler then makes a copy for the call), and no TARGETs.
module czero_group
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
    use czero_support
    implicit none
    private
    public :: cz_group, cz_group_create_self, cz_group_create_world, cz_group_destroy, cz_group_rank
    public :: cz_group_size, cz_group_split, cz_group_sent_bytes, cz_all_reduce, cz_broadcast
    public :: cz_all_gather, cz_reduce_scatter, cz_barrier, cz_progress
    public :: cz_group_local_rank, cz_group_local_size, cz_group_local_cores
    public :: group_options, make_group_options ! for czero_mpi

    integer, parameter, public :: CZ_SUM = 1, CZ_AVERAGE = 2, CZ_MAX = 3, CZ_MIN = 4, &
        CZ_PRODUCT = 5, CZ_AND = 6, CZ_OR = 7

    type :: cz_group
        type(c_ptr) :: handle = c_null_ptr
    end type

    ! cz_all_reduce(group, buffer, reduction [, status] [, message])
    interface cz_all_reduce
        procedure all_reduce_r32, all_reduce_r64, all_reduce_i32, all_reduce_i64
    end interface

    ! cz_broadcast(group, buffer, root [, status] [, message])
    interface cz_broadcast
        procedure broadcast_r32, broadcast_r64, broadcast_i32, broadcast_i64
    end interface

    ! cz_all_gather(group, input, output [, status] [, message]): as many elements in `output`
    ! as all ranks have in `input`; rank 0's come first.
    interface cz_all_gather
        procedure all_gather_r32, all_gather_r64, all_gather_i32, all_gather_i64
    end interface

    ! cz_reduce_scatter(group, input, output, reduction [, status] [, message])
    interface cz_reduce_scatter
        procedure reduce_scatter_r32, reduce_scatter_r64, reduce_scatter_i32, reduce_scatter_i64
    end interface

    type, bind(C) :: group_options
        integer(c_size_t) :: size = 0
        real(c_double) :: timeout_seconds = 0
        real(c_double) :: warn_seconds = 0
        integer(c_size_t) :: segment_bytes = 0
        integer(c_int32_t) :: checked = 0
        integer(c_int32_t) :: reserved = 0
    end type

    type, bind(C) :: group_info
        integer(c_size_t) :: size = 0
        type(c_ptr) :: backend = c_null_ptr
        integer(c_int32_t) :: ordered_sums = 0
        integer(c_int32_t) :: reserved = 0
        integer(c_int64_t) :: sent_bytes = 0
        integer(c_int64_t) :: header_bytes = 0
        integer(c_int64_t) :: messages = 0
        integer(c_int64_t) :: native = 0
        integer(c_int32_t) :: local_rank = -1
        integer(c_int32_t) :: local_size = 0
    end type

    interface
        integer(c_int) function c_group_create_world(out, backend, initialise, options) &
            bind(C, name='cz_group_create_world')
            import
            type(c_ptr), intent(out) :: out
            character(kind=c_char), intent(in) :: backend(*)
            logical(c_bool), value :: initialise
            type(group_options), intent(in) :: options
        end function
        subroutine c_group_destroy(group) bind(C, name='cz_group_destroy')
            import
            type(c_ptr), intent(inout) :: group
        end subroutine
        pure integer(c_int) function c_group_rank(group) bind(C, name='cz_group_rank')
            import
            type(c_ptr), value :: group
        end function
        pure integer(c_int) function c_group_size(group) bind(C, name='cz_group_size')
            import
            type(c_ptr), value :: group
        end function
        integer(c_int) function c_group_local_cores(group, cores) &
            bind(C, name='cz_group_local_cores')
            import
            type(c_ptr), value :: group
            integer(c_int), intent(inout) :: cores
        end function
        integer(c_int) function c_group_split(group, color, key, out) bind(C, name='cz_group_split')
            import
            type(c_ptr), value :: group
            integer(c_int), value :: color, key
            type(c_ptr), intent(out) :: out
        end function
        integer(c_int) function c_group_get_info(group, info) bind(C, name='cz_group_get_info')
            import
            type(c_ptr), value :: group
            type(group_info), intent(inout) :: info
        end function
        integer(c_int) function c_progress(group) bind(C, name='cz_progress')
            import
            type(c_ptr), value :: group
        end function
        integer(c_int) function c_all_reduce(group, buffer, count, dtype, reduction, options) &
            bind(C, name='cz_all_reduce')
            import
            type(c_ptr), value :: group, buffer, options
            integer(c_int64_t), value :: count
            integer(c_int), value :: dtype, reduction
        end function
        integer(c_int) function c_broadcast(group, buffer, count, dtype, root, options) &
            bind(C, name='cz_broadcast')
            import
            type(c_ptr), value :: group, buffer, options
            integer(c_int64_t), value :: count
            integer(c_int), value :: dtype, root
        end function
        integer(c_int) function c_all_gather(group, input, output, count, dtype, options) &
            bind(C, name='cz_all_gather')
            import
            type(c_ptr), value :: group, input, output, options
            integer(c_int64_t), value :: count
            integer(c_int), value :: dtype
        end function
        integer(c_int) function c_reduce_scatter(group, input, output, count, dtype, reduction, &
            options) bind(C, name='cz_reduce_scatter')
            import
            type(c_ptr), value :: group, input, output, options
            integer(c_int64_t), value :: count
            integer(c_int), value :: dtype, reduction
        end function
        integer(c_int) function c_barrier(group, options) bind(C, name='cz_barrier')
            import
            type(c_ptr), value :: group, options
        end function
    end interface

contains

    subroutine make_group_options(options, timeout_seconds, warn_seconds, segment_bytes, checked)
        type(group_options), intent(out) :: options
        real(real64), intent(in), optional :: timeout_seconds, warn_seconds
        integer, intent(in), optional :: segment_bytes
        logical, intent(in), optional :: checked
        options%size = c_sizeof(options)
        if (present(timeout_seconds)) options%timeout_seconds = timeout_seconds
        if (present(warn_seconds)) options%warn_seconds = warn_seconds
        if (present(segment_bytes)) options%segment_bytes = segment_bytes
        options%checked = to_flag(checked)
    end subroutine

    ! A group of this process alone.
    subroutine cz_group_create_self(group, timeout_seconds, warn_seconds, segment_bytes, checked, &
            status, message)
        type(cz_group), intent(out) :: group
        real(real64), intent(in), optional :: timeout_seconds, warn_seconds
        integer, intent(in), optional :: segment_bytes
        logical, intent(in), optional :: checked
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call cz_group_create_world(group, 'self', .false., timeout_seconds, warn_seconds, &
            segment_bytes, checked, status, message)
    end subroutine

    ! All processes of the job, on the backend 'mpi' or 'self'. A program that has a communicator
    ! gives that to cz_group_create_mpi(), of the module czero_mpi.
    subroutine cz_group_create_world(group, backend, initialise, timeout_seconds, warn_seconds, &
            segment_bytes, checked, status, message)
        type(cz_group), intent(out) :: group
        character(*), intent(in) :: backend
        logical, intent(in) :: initialise
        real(real64), intent(in), optional :: timeout_seconds, warn_seconds
        integer, intent(in), optional :: segment_bytes
        logical, intent(in), optional :: checked
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(group_options) :: options
        call make_group_options(options, timeout_seconds, warn_seconds, segment_bytes, checked)
        call finish(c_group_create_world(group%handle, to_c(backend), logical(initialise, c_bool), &
            options), status, message)
    end subroutine

    subroutine cz_group_destroy(group)
        type(cz_group), intent(inout) :: group
        call c_group_destroy(group%handle)
    end subroutine

    pure integer function cz_group_rank(group)
        type(cz_group), intent(in) :: group
        cz_group_rank = c_group_rank(group%handle)
    end function

    pure integer function cz_group_size(group)
        type(cz_group), intent(in) :: group
        cz_group_size = c_group_size(group%handle)
    end function

    ! What the group says of itself; as fresh, with -1 bytes sent, if there is no such group.
    type(group_info) function get_info(group)
        type(cz_group), intent(in) :: group
        type(group_info) :: info
        info%size = c_sizeof(info)
        if (c_group_get_info(group%handle, info) /= 0) info%sent_bytes = -1
        get_info = info
    end function

    ! Among the ranks that are on the same machine.
    integer function cz_group_local_rank(group)
        type(cz_group), intent(in) :: group
        type(group_info) :: info
        info = get_info(group)
        cz_group_local_rank = info%local_rank
    end function

    integer function cz_group_local_size(group)
        type(cz_group), intent(in) :: group
        type(group_info) :: info
        info = get_info(group)
        cz_group_local_size = info%local_size
    end function

    ! How many threads this rank may run, call omp_set_num_threads(cores). Collective.
    subroutine cz_group_local_cores(group, cores, status, message)
        type(cz_group), intent(in) :: group
        integer, intent(out) :: cores
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        cores = 0
        call finish(c_group_local_cores(group%handle, cores), status, message)
    end subroutine

    subroutine cz_group_split(group, color, key, out, status, message)
        type(cz_group), intent(in) :: group
        integer, intent(in) :: color, key
        type(cz_group), intent(out) :: out
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_group_split(group%handle, color, key, out%handle), status, message)
    end subroutine

    ! Bytes that this rank has sent, headers included (sent_bytes of cz_group_get_info()); -1: there
    ! is no such group.
    integer(int64) function cz_group_sent_bytes(group)
        type(cz_group), intent(in) :: group
        type(group_info) :: info
        info = get_info(group)
        cz_group_sent_bytes = info%sent_bytes
    end function

    subroutine cz_progress(group, status, message)
        type(cz_group), intent(in) :: group
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_progress(group%handle), status, message)
    end subroutine

    subroutine cz_barrier(group, status, message)
        type(cz_group), intent(in) :: group
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_barrier(group%handle, c_null_ptr), status, message)
    end subroutine

    subroutine all_reduce_r32(group, buffer, reduction, status, message)
        type(cz_group), intent(in) :: group
        real(real32), contiguous, target, intent(inout) :: buffer(..)
        integer, intent(in) :: reduction
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_all_reduce(group%handle, c_loc(buffer), size(buffer, kind=c_int64_t), &
            CZ_F32, reduction, c_null_ptr), status, message)
    end subroutine

    subroutine all_reduce_r64(group, buffer, reduction, status, message)
        type(cz_group), intent(in) :: group
        real(real64), contiguous, target, intent(inout) :: buffer(..)
        integer, intent(in) :: reduction
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_all_reduce(group%handle, c_loc(buffer), size(buffer, kind=c_int64_t), &
            CZ_F64, reduction, c_null_ptr), status, message)
    end subroutine

    subroutine all_reduce_i32(group, buffer, reduction, status, message)
        type(cz_group), intent(in) :: group
        integer(int32), contiguous, target, intent(inout) :: buffer(..)
        integer, intent(in) :: reduction
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_all_reduce(group%handle, c_loc(buffer), size(buffer, kind=c_int64_t), &
            CZ_I32, reduction, c_null_ptr), status, message)
    end subroutine

    subroutine all_reduce_i64(group, buffer, reduction, status, message)
        type(cz_group), intent(in) :: group
        integer(int64), contiguous, target, intent(inout) :: buffer(..)
        integer, intent(in) :: reduction
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_all_reduce(group%handle, c_loc(buffer), size(buffer, kind=c_int64_t), &
            CZ_I64, reduction, c_null_ptr), status, message)
    end subroutine

    subroutine broadcast_r32(group, buffer, root, status, message)
        type(cz_group), intent(in) :: group
        real(real32), contiguous, target, intent(inout) :: buffer(..)
        integer, intent(in) :: root
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_broadcast(group%handle, c_loc(buffer), size(buffer, kind=c_int64_t), &
            CZ_F32, root, c_null_ptr), status, message)
    end subroutine

    subroutine broadcast_r64(group, buffer, root, status, message)
        type(cz_group), intent(in) :: group
        real(real64), contiguous, target, intent(inout) :: buffer(..)
        integer, intent(in) :: root
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_broadcast(group%handle, c_loc(buffer), size(buffer, kind=c_int64_t), &
            CZ_F64, root, c_null_ptr), status, message)
    end subroutine

    subroutine broadcast_i32(group, buffer, root, status, message)
        type(cz_group), intent(in) :: group
        integer(int32), contiguous, target, intent(inout) :: buffer(..)
        integer, intent(in) :: root
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_broadcast(group%handle, c_loc(buffer), size(buffer, kind=c_int64_t), &
            CZ_I32, root, c_null_ptr), status, message)
    end subroutine

    subroutine broadcast_i64(group, buffer, root, status, message)
        type(cz_group), intent(in) :: group
        integer(int64), contiguous, target, intent(inout) :: buffer(..)
        integer, intent(in) :: root
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_broadcast(group%handle, c_loc(buffer), size(buffer, kind=c_int64_t), &
            CZ_I64, root, c_null_ptr), status, message)
    end subroutine

    subroutine all_gather_r32(group, input, output, status, message)
        type(cz_group), intent(in) :: group
        real(real32), contiguous, target, intent(in) :: input(..)
        real(real32), contiguous, target, intent(inout) :: output(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        integer(c_int64_t) :: block, whole
        block = size(input, kind=c_int64_t)
        whole = size(output, kind=c_int64_t)
        call finish(in_words(c_all_gather(group%handle, c_loc(input), c_loc(output), &
            count_of(group, block, whole), CZ_F32, c_null_ptr), 'all_gather', group, block, &
            whole), status, message)
    end subroutine

    subroutine all_gather_r64(group, input, output, status, message)
        type(cz_group), intent(in) :: group
        real(real64), contiguous, target, intent(in) :: input(..)
        real(real64), contiguous, target, intent(inout) :: output(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        integer(c_int64_t) :: block, whole
        block = size(input, kind=c_int64_t)
        whole = size(output, kind=c_int64_t)
        call finish(in_words(c_all_gather(group%handle, c_loc(input), c_loc(output), &
            count_of(group, block, whole), CZ_F64, c_null_ptr), 'all_gather', group, block, &
            whole), status, message)
    end subroutine

    subroutine all_gather_i32(group, input, output, status, message)
        type(cz_group), intent(in) :: group
        integer(int32), contiguous, target, intent(in) :: input(..)
        integer(int32), contiguous, target, intent(inout) :: output(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        integer(c_int64_t) :: block, whole
        block = size(input, kind=c_int64_t)
        whole = size(output, kind=c_int64_t)
        call finish(in_words(c_all_gather(group%handle, c_loc(input), c_loc(output), &
            count_of(group, block, whole), CZ_I32, c_null_ptr), 'all_gather', group, block, &
            whole), status, message)
    end subroutine

    subroutine all_gather_i64(group, input, output, status, message)
        type(cz_group), intent(in) :: group
        integer(int64), contiguous, target, intent(in) :: input(..)
        integer(int64), contiguous, target, intent(inout) :: output(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        integer(c_int64_t) :: block, whole
        block = size(input, kind=c_int64_t)
        whole = size(output, kind=c_int64_t)
        call finish(in_words(c_all_gather(group%handle, c_loc(input), c_loc(output), &
            count_of(group, block, whole), CZ_I64, c_null_ptr), 'all_gather', group, block, &
            whole), status, message)
    end subroutine

    subroutine reduce_scatter_r32(group, input, output, reduction, status, message)
        type(cz_group), intent(in) :: group
        real(real32), contiguous, target, intent(in) :: input(..)
        real(real32), contiguous, target, intent(inout) :: output(..)
        integer, intent(in) :: reduction
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        integer(c_int64_t) :: block, whole
        block = size(output, kind=c_int64_t)
        whole = size(input, kind=c_int64_t)
        call finish(in_words(c_reduce_scatter(group%handle, c_loc(input), c_loc(output), &
            count_of(group, block, whole), CZ_F32, reduction, c_null_ptr), 'reduce_scatter', &
            group, block, whole), status, message)
    end subroutine

    subroutine reduce_scatter_r64(group, input, output, reduction, status, message)
        type(cz_group), intent(in) :: group
        real(real64), contiguous, target, intent(in) :: input(..)
        real(real64), contiguous, target, intent(inout) :: output(..)
        integer, intent(in) :: reduction
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        integer(c_int64_t) :: block, whole
        block = size(output, kind=c_int64_t)
        whole = size(input, kind=c_int64_t)
        call finish(in_words(c_reduce_scatter(group%handle, c_loc(input), c_loc(output), &
            count_of(group, block, whole), CZ_F64, reduction, c_null_ptr), 'reduce_scatter', &
            group, block, whole), status, message)
    end subroutine

    subroutine reduce_scatter_i32(group, input, output, reduction, status, message)
        type(cz_group), intent(in) :: group
        integer(int32), contiguous, target, intent(in) :: input(..)
        integer(int32), contiguous, target, intent(inout) :: output(..)
        integer, intent(in) :: reduction
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        integer(c_int64_t) :: block, whole
        block = size(output, kind=c_int64_t)
        whole = size(input, kind=c_int64_t)
        call finish(in_words(c_reduce_scatter(group%handle, c_loc(input), c_loc(output), &
            count_of(group, block, whole), CZ_I32, reduction, c_null_ptr), 'reduce_scatter', &
            group, block, whole), status, message)
    end subroutine

    subroutine reduce_scatter_i64(group, input, output, reduction, status, message)
        type(cz_group), intent(in) :: group
        integer(int64), contiguous, target, intent(in) :: input(..)
        integer(int64), contiguous, target, intent(inout) :: output(..)
        integer, intent(in) :: reduction
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        integer(c_int64_t) :: block, whole
        block = size(output, kind=c_int64_t)
        whole = size(input, kind=c_int64_t)
        call finish(in_words(c_reduce_scatter(group%handle, c_loc(input), c_loc(output), &
            count_of(group, block, whole), CZ_I64, reduction, c_null_ptr), 'reduce_scatter', &
            group, block, whole), status, message)
    end subroutine

    ! What C is given as a count: `block`, or -1 where the whole is not that for each rank. All
    ! ranks then learn of it.
    integer(c_int64_t) function count_of(group, block, whole)
        type(cz_group), intent(in) :: group
        integer(c_int64_t), intent(in) :: block, whole
        count_of = block
        if (whole /= block * c_group_size(group%handle)) count_of = -1
    end function

    ! The sentence on the rank that has arrays of wrong sizes.
    integer(c_int) function in_words(code, name, group, block, whole)
        integer(c_int), intent(in) :: code
        character(*), intent(in) :: name
        type(cz_group), intent(in) :: group
        integer(c_int64_t), intent(in) :: block, whole
        character(160) :: words
        in_words = code
        if (code /= CZ_ERR_ARGUMENT .or. .not. c_associated(group%handle)) return
        if (count_of(group, block, whole) >= 0) return
        write (words, '(2a,3(i0,a))') name, ': one array has ', whole, ' elements, the other ', &
            block, '; wanted ', c_group_size(group%handle), ' times as many, a block for each rank'
        in_words = refuse(trim(words))
    end function
end module
