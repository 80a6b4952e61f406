! SPDX-License-Identifier: MIT
! A training in Fortran has the bits of one in C with the same numbers, on any number of ranks:
! every rule, both types, partitions, parameter groups, clipping, and passes of a data-parallel
! model.
program test_same_bits
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int64, real32, real64
    use mpi
    use czero
    use czero_mpi
    use check_module
    implicit none
    type(cz_group) :: group
    integer :: level, failed
    call MPI_Init_thread(MPI_THREAD_MULTIPLE, level, failed)
    call cz_group_create_mpi(group, MPI_COMM_WORLD)

    call in_r32('sgd')
    call in_r32('sgd', 'momentum', 0.9d0)
    call in_r32('adam', 'amsgrad', 1d0)
    call in_r32('adamw', 'weight_decay', 0.1d0, with_groups=.true.)
    call in_r32('adamw', partition=CZ_PARTITION_GREEDY, max_norm=0.5d0)
    call in_r32('adamax')
    call in_r32('adadelta')
    call in_r32('adagrad', 'lr_decay', 0.1d0)
    call in_r32('rmsprop', 'centered', 1d0)
    call in_r32('rprop')
    call in_r32('nadam', with_ddp=.true.)
    call in_r32('radam', with_groups=.true., with_ddp=.true., overlap=CZ_OVERLAP_INTERLEAVED)
    call in_r64('sgd', 'nesterov', 0d0)
    call in_r64('adam', max_norm=0.5d0)
    call in_r64('adamw', 'eps', 1d-6, partition=CZ_PARTITION_GREEDY, with_groups=.true.)

    call cz_group_destroy(group)
    call MPI_Finalize(failed)
    call ended()

contains

    function hypers(name, number) result(list)
        character(*), intent(in) :: name
        real(real64), intent(in) :: number
        type(cz_hyper), allocatable :: list(:)
        if (name == '') then
            list = [cz_hyper('lr', 0.05d0)]
        else if (number == 1) then ! flags may be LOGICAL
            list = [cz_hyper('lr', 0.05d0), cz_hyper(name, .true.)]
        else
            list = [cz_hyper('lr', 0.05d0), cz_hyper(name, number)]
        end if
    end function

    subroutine in_r32(rule, name, number, partition, max_norm, with_groups, with_ddp, overlap)
        character(*), intent(in) :: rule
        character(*), intent(in), optional :: name
        real(real64), intent(in), optional :: number, max_norm
        integer, intent(in), optional :: partition, overlap
        logical, intent(in), optional :: with_groups, with_ddp
        real(real32), target :: a(3, 4), b(5), c_a(3, 4), c_b(5)
        real(real32), target, asynchronous :: ga(3, 4), gb(5)
        real(real32), parameter :: numbers(12) = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
        integer(int64) :: fingerprint(2), in_c(2)
        character(20) :: which
        type(cz_model) :: model
        type(cz_zero) :: zero
        type(cz_ddp) :: ddp
        type(cz_step_result) :: result
        real(real64) :: value, most
        logical :: grouped, passes
        integer :: cut, i, step, rank
        which = ''
        value = 0
        cut = CZ_PARTITION_ELEMENTS
        grouped = .false.
        passes = .false.
        most = 0
        if (present(name)) which = name
        if (present(number)) value = number
        if (present(partition)) cut = partition
        if (present(max_norm)) most = max_norm
        if (present(with_groups)) grouped = with_groups
        if (present(with_ddp)) passes = with_ddp
        rank = cz_group_rank(group)
        a = reshape([(i / 8._real32, i = 1, 12)], [3, 4])
        b = 1
        c_a = a
        c_b = b
        call check(in_c_train(group%handle, rule//c_null_char, trim(which)//c_null_char, value, &
            cut, most, merge(1, 0, grouped), 1, 7, c_loc(c_a), c_loc(c_b), in_c) == 0, &
                'in C: '//rule)

        call cz_model_create(model)
        call cz_model_add(model, 'a', a, ga)
        call cz_model_add(model, 'b', b, gb)
        if (passes) call cz_ddp_create(ddp, group, model, first_bucket_bytes=4)
        if (grouped .and. passes) then
            call cz_zero_create(zero, group, model, rule, hypers(which, value), &
                [cz_param_group([1], [cz_hyper('lr', 0.01d0)]), cz_param_group([0])], cut, &
                ddp=ddp, overlap=overlap)
        else if (grouped) then
            call cz_zero_create(zero, group, model, rule, hypers(which, value), &
                [cz_param_group([1], [cz_hyper('lr', 0.01d0)]), cz_param_group([0])], cut)
        else if (passes) then
            call cz_zero_create(zero, group, model, rule, hypers(which, value), ddp=ddp)
        else
            call cz_zero_create(zero, group, model, rule, hypers(which, value), partition=cut)
        end if
        do step = 1, 7
            if (passes) call cz_ddp_begin(ddp, .true.)
            ga = a * 0.3_real32 + (rank + 1) * reshape(numbers, [3, 4])
            gb = b * 0.3_real32 + (rank + 1) * numbers(:5)
            if (passes) then
                call cz_ddp_mark_ready(ddp, 1)
                call cz_ddp_mark_ready(ddp, 0)
                call cz_ddp_finish(ddp)
            end if
            if (most > 0) then
                call cz_zero_step(zero, result, max_norm=most)
                call check(result%norm > most .and. .not. result%skipped, rule//': norm')
            else
                call cz_zero_step(zero)
            end if
        end do
        call cz_zero_fingerprint(zero, fingerprint)
        call check(all(a == c_a) .and. all(b == c_b), rule//' '//trim(which)//': values in r32')
        call check(all(fingerprint == in_c), rule//' '//trim(which)//': fingerprint in r32')
        call cz_zero_check_replicas(zero)
        call cz_zero_destroy(zero)
        call cz_ddp_destroy(ddp)
        call cz_model_destroy(model)
    end subroutine

    subroutine in_r64(rule, name, number, partition, max_norm, with_groups)
        character(*), intent(in) :: rule
        character(*), intent(in), optional :: name
        real(real64), intent(in), optional :: number, max_norm
        integer, intent(in), optional :: partition
        logical, intent(in), optional :: with_groups
        real(real64), target :: a(3, 4), ga(3, 4), b(5), gb(5), c_a(3, 4), c_b(5)
        real(real64), parameter :: numbers(12) = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
        integer(int64) :: fingerprint(2), in_c(2)
        character(20) :: which
        type(cz_model) :: model
        type(cz_zero) :: zero
        real(real64) :: value, most
        logical :: grouped
        integer :: cut, i, step, rank
        which = ''
        value = 0
        most = 0
        cut = CZ_PARTITION_ELEMENTS
        grouped = .false.
        if (present(name)) which = name
        if (present(number)) value = number
        if (present(partition)) cut = partition
        if (present(max_norm)) most = max_norm
        if (present(with_groups)) grouped = with_groups
        rank = cz_group_rank(group)
        a = reshape([(i / 8._real64, i = 1, 12)], [3, 4])
        b = 1
        c_a = a
        c_b = b
        call check(in_c_train(group%handle, rule//c_null_char, trim(which)//c_null_char, value, &
            cut, most, merge(1, 0, grouped), 2, 7, c_loc(c_a), c_loc(c_b), in_c) == 0, &
                'in C: '//rule)
        call cz_model_create(model)
        call cz_model_add(model, 'a', a, ga)
        call cz_model_add(model, 'b', b, gb)
        if (grouped) then
            call cz_zero_create(zero, group, model, rule, hypers(which, value), &
                [cz_param_group([1], [cz_hyper('lr', 0.01d0)]), cz_param_group([0])], cut)
        else
            call cz_zero_create(zero, group, model, rule, hypers(which, value), partition=cut)
        end if
        do step = 1, 7
            ga = a * 0.3_real64 + (rank + 1) * reshape(numbers, [3, 4])
            gb = b * 0.3_real64 + (rank + 1) * numbers(:5)
            if (most > 0) then
                call cz_zero_step(zero, max_norm=most)
            else
                call cz_zero_step(zero)
            end if
        end do
        call cz_zero_fingerprint(zero, fingerprint)
        call check(all(a == c_a) .and. all(b == c_b), rule//' '//trim(which)//': values in r64')
        call check(all(fingerprint == in_c), rule//' '//trim(which)//': fingerprint in r64')
        call cz_zero_destroy(zero)
        call cz_model_destroy(model)
    end subroutine
end program
