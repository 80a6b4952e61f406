! SPDX-License-Identifier: MIT
! Random numbers without hidden state, and a sampler that deals out examples to ranks:
! czero/random.h.
module czero_random
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int64
    use czero_support
    implicit none
    private
    public :: cz_random_uniform, cz_random_normal, cz_sampler, cz_sampler_create
    public :: cz_sampler_destroy, cz_sampler_next, cz_sampler_get_info, cz_sampler_set_position

    type :: cz_sampler
        type(c_ptr) :: handle = c_null_ptr
    end type

    type, bind(C) :: sampler_options
        integer(c_size_t) :: size = 0
        integer(c_int64_t) :: sample_count = 0
        integer(c_int64_t) :: global_batch = 0
        integer(c_int) :: rank = 0
        integer(c_int) :: world_size = 0
        integer(c_int64_t) :: seed = 0
        integer(c_int32_t) :: in_order = 0
        integer(c_int32_t) :: part_count = 0
    end type

    type, bind(C) :: sampler_info
        integer(c_size_t) :: size = 0
        integer(c_int64_t) :: local_batch = 0
        integer(c_int64_t) :: position = 0
    end type

    interface
        pure subroutine c_block(seed, stream, counter, words) bind(C, name='cz_random_block')
            import
            integer(c_int64_t), value :: seed, stream, counter
            integer(c_int32_t), intent(out) :: words(4)
        end subroutine
        ! Number `counter` of a stream, a function of its arguments alone.
        pure real(c_float) function cz_random_normal(seed, stream, counter) &
            bind(C, name='cz_random_normal')
            import
            integer(c_int64_t), value :: seed, stream, counter
        end function
        integer(c_int) function c_create(out, options) bind(C, name='cz_sampler_create')
            import
            type(c_ptr), intent(out) :: out
            type(sampler_options), intent(in) :: options
        end function
        subroutine c_destroy(sampler) bind(C, name='cz_sampler_destroy')
            import
            type(c_ptr), intent(inout) :: sampler
        end subroutine
        integer(c_int) function c_next(sampler, samples, count) bind(C, name='cz_sampler_next')
            import
            type(c_ptr), value :: sampler
            integer(c_int64_t), intent(inout) :: samples(*)
            integer(c_int64_t), intent(inout) :: count
        end function
        integer(c_int) function c_get_info(sampler, info) bind(C, name='cz_sampler_get_info')
            import
            type(c_ptr), value :: sampler
            type(sampler_info), intent(inout) :: info
        end function
        integer(c_int) function c_set_position(sampler, position) &
            bind(C, name='cz_sampler_set_position')
            import
            type(c_ptr), value :: sampler
            integer(c_int64_t), value :: position
        end function
    end interface

contains

    ! Number `counter` of a stream, in [0, 1) with 24 bits.
    pure real(c_float) function cz_random_uniform(seed, stream, counter)
        integer(c_int64_t), intent(in) :: seed, stream, counter
        integer(c_int32_t) :: words(4)
        call c_block(seed, stream, counter, words)
        cz_random_uniform = real(ishft(words(1), -8), c_float) / 16777216.0_c_float
    end function

    subroutine cz_sampler_create(sampler, sample_count, global_batch, rank, world_size, seed, &
            in_order, part_count, status, message)
        type(cz_sampler), intent(out) :: sampler
        integer, intent(in) :: sample_count, global_batch
        integer, intent(in), optional :: rank, world_size
        integer(int64), intent(in), optional :: seed
        logical, intent(in), optional :: in_order
        integer, intent(in), optional :: part_count
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(sampler_options) :: options
        options%size = c_sizeof(options)
        options%sample_count = sample_count
        options%global_batch = global_batch
        if (present(rank)) options%rank = rank
        if (present(world_size)) options%world_size = world_size
        if (present(seed)) options%seed = seed
        options%in_order = to_flag(in_order)
        if (present(part_count)) options%part_count = part_count
        call finish(c_create(sampler%handle, options), status, message)
    end subroutine

    subroutine cz_sampler_destroy(sampler)
        type(cz_sampler), intent(inout) :: sampler
        call c_destroy(sampler%handle)
    end subroutine

    ! samples(:count), from 1 to sample_count: this rank's of the next global batch, or of its next
    ! part. There is room for local_batch of them (cz_sampler_get_info()).
    subroutine cz_sampler_next(sampler, samples, count, status, message)
        type(cz_sampler), intent(in) :: sampler
        integer, intent(inout) :: samples(:)
        integer, intent(out) :: count
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        integer(c_int64_t), allocatable :: here(:)
        integer(c_int64_t) :: found
        type(sampler_info) :: info
        character(80) :: numbers
        integer(c_int) :: code
        count = 0
        info%size = c_sizeof(info)
        code = c_get_info(sampler%handle, info)
        if (code == 0 .and. size(samples) < info%local_batch) then
            write (numbers, '(i0,a,i0)') size(samples), ' samples, wanted for ', info%local_batch
            code = refuse('sampler next: there is room for '//trim(numbers))
        else if (code == 0) then
            allocate (here(info%local_batch))
            code = c_next(sampler%handle, here, found)
        end if
        if (code == 0) then
            count = int(found)
            samples(:count) = int(here(:count)) + 1
        end if
        call finish(code, status, message)
    end subroutine

    ! `position` is to be saved.
    subroutine cz_sampler_get_info(sampler, local_batch, position, status, message)
        type(cz_sampler), intent(in) :: sampler
        integer, intent(out), optional :: local_batch
        integer(int64), intent(out), optional :: position
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(sampler_info) :: info
        integer(c_int) :: code
        info%size = c_sizeof(info)
        code = c_get_info(sampler%handle, info)
        if (present(local_batch)) local_batch = int(info%local_batch)
        if (present(position)) position = info%position
        call finish(code, status, message)
    end subroutine

    subroutine cz_sampler_set_position(sampler, position, status, message)
        type(cz_sampler), intent(in) :: sampler
        integer(int64), intent(in) :: position
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_set_position(sampler%handle, position), status, message)
    end subroutine
end module
