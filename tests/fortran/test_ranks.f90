! SPDX-License-Identifier: MIT
! Under mpirun: collectives of arrays, data-parallel passes, parts, uneven inputs, and errors that
! all ranks learn of; on communicators that the program has, of either module of MPI.
program test_ranks
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
    use mpi_f08
    use czero
    use czero_mpi
    use check_module
    implicit none
    type(cz_group) :: group
    type(MPI_Comm) :: pair
    integer :: level, rank, ranks, status
    integer :: length
    character(300) :: why
    character(MPI_MAX_LIBRARY_VERSION_STRING) :: library

    call cz_group_create_mpi(group, MPI_COMM_WORLD%MPI_VAL, status=status, message=why)
    call expect(status, CZ_ERR_STATE, why, 'MPI is not initialised')
    call MPI_Init_thread(MPI_THREAD_MULTIPLE, level)
    call cz_group_create_mpi(group, MPI_COMM_NULL%MPI_VAL, status=status, message=why)
    call expect(status, CZ_ERR_ARGUMENT, why, 'MPI_COMM_NULL')
    call MPI_Get_library_version(library, length)
    if (index(library, 'Open MPI') > 0) then ! MPICH ends the program
        call cz_group_create_mpi(group, 123456, status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'comm is 123456, which is no communicator')
    end if
    call cz_group_create_mpi(group, MPI_COMM_WORLD%MPI_VAL, abort_on_break=.true., &
        timeout_seconds=60d0, warn_seconds=30d0, checked=.true.)
    rank = cz_group_rank(group)
    ranks = cz_group_size(group)
    call check(ranks > 1 .and. cz_mpi_carrier(group) .eqv. level == MPI_THREAD_MULTIPLE, &
        'a carrier')
    call collectives()
    call sub_groups()
    call on_one_machine()
    call passes()
    call steps_that_weigh_and_add_up()
    call in_parts()
    call uneven_inputs()
    call check(cz_group_sent_bytes(group) > 0, 'something was sent')
    call cz_group_destroy(group)
    call MPI_Finalize()
    call ended()

contains

    subroutine collectives()
        real(real32) :: r32(2, 3), all_r32(2, 3 * ranks), of_r32(3)
        real(real64) :: r64, all_r64(ranks), grid(4, 4)
        integer(int32) :: i32(5), all_i32(5, ranks), of_i32(5)
        integer(int64) :: i64(2), all_i64(2, ranks), of_i64(2)
        real(real64) :: d(ranks), of_d
        integer :: i
        r32 = real(rank + 1, real32)
        call cz_all_reduce(group, r32, CZ_SUM)
        call check(all(r32 == ranks * (ranks + 1) / 2), 'a sum')
        r64 = rank
        call cz_all_reduce(group, r64, CZ_AVERAGE)
        call check(r64 == (ranks - 1) / 2d0, 'a mean of scalars')
        i32 = rank
        call cz_all_reduce(group, i32, CZ_MAX)
        call check(all(i32 == ranks - 1), 'a maximum')
        i64 = 2_int64**(40 + rank)
        call cz_all_reduce(group, i64, CZ_OR)
        call check(all(i64 == 2_int64**(40 + ranks) - 2_int64**40), 'bits')
        grid = rank
        call cz_all_reduce(group, grid(2, :), CZ_SUM) ! a section with gaps
        call check(all(grid(2, :) == ranks * (ranks - 1) / 2) .and. all(grid(3, :) == rank), &
            'a row')

        r32 = rank
        call cz_broadcast(group, r32, ranks - 1)
        r64 = rank
        call cz_broadcast(group, r64, 0)
        i32 = rank
        call cz_broadcast(group, i32, 1)
        i64 = rank
        call cz_broadcast(group, i64(2), 1)
        call check(all(r32 == ranks - 1) .and. r64 == 0 .and. all(i32 == 1) .and. i64(2) == 1 &
            .and. i64(1) == rank, 'broadcasts')

        r32 = rank
        call cz_all_gather(group, r32, all_r32)
        call cz_all_gather(group, real(rank, real64), all_r64)
        i32 = rank
        call cz_all_gather(group, i32, all_i32)
        i64 = rank
        call cz_all_gather(group, i64, all_i64)
        do i = 0, ranks - 1
            call check(all(all_r32(:, 3 * i + 1:3 * i + 3) == i) .and. all_r64(i + 1) == i .and. &
                all(all_i32(:, i + 1) == i) .and. all(all_i64(:, i + 1) == i), 'what was gathered')
        end do

        all_i32 = rank
        call cz_reduce_scatter(group, all_i32, of_i32, CZ_SUM)
        all_i64 = 1
        call cz_reduce_scatter(group, all_i64, of_i64, CZ_SUM)
        all_r32 = 1
        d = [(real(i, real64), i = 1, ranks)]
        call cz_reduce_scatter(group, d, of_d, CZ_SUM)
        call check(all(of_i32 == ranks * (ranks - 1) / 2) .and. all(of_i64 == ranks) .and. &
            of_d == (rank + 1) * ranks, 'what was scattered')
        call cz_barrier(group)
        call cz_progress(group)

        ! One rank is wrong, and all know it.
        i = 3 * ranks
        if (rank == 1) i = i - 1
        call cz_all_gather(group, r32, all_r32(:, :i), status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'all_gather')
        if (rank == 1) call check(index(why, 'times as many, a block for each rank') > 0, trim(why))
        call cz_reduce_scatter(group, all_r32, of_r32(:2 + mod(rank, 2)), CZ_SUM, status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'reduce_scatter')
        call cz_all_reduce(group, of_r32(:2 + mod(rank, 2)), CZ_SUM, status, why)
        call expect(status, CZ_ERR_MISMATCH, why, 'all_reduce')
        call cz_all_reduce(group, of_r32, CZ_AND, status, why)
        call expect(status, CZ_ERR_UNSUPPORTED, why, 'all_reduce')
        call cz_broadcast(group, of_r32, ranks, status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'broadcast')
        r64 = 1
        call cz_all_reduce(group, r64, CZ_SUM)
        call check(r64 == ranks, 'and the group goes on')
    end subroutine

    subroutine sub_groups()
        type(cz_group) :: part, small
        integer :: sum
        call cz_group_split(group, min(rank, 1), -rank, part)
        call check(cz_group_size(part) == merge(1, ranks - 1, rank == 0), 'rank 0 and the others')
        call check(cz_group_rank(part) == merge(0, ranks - 1 - rank, rank == 0), &
            'from last to first')
        sum = 1
        call cz_all_reduce(part, sum, CZ_SUM)
        call check(sum == cz_group_size(part), 'a sum of the part')
        call cz_group_destroy(part)
        call MPI_Comm_split(MPI_COMM_WORLD, min(rank, 1), rank, pair)
        call cz_group_create_mpi(small, pair%MPI_VAL)
        call check(cz_group_size(small) == merge(1, ranks - 1, rank == 0), &
            'a communicator''s ranks')
        call cz_group_destroy(small)
        call MPI_Comm_free(pair)
    end subroutine

    subroutine on_one_machine()
        integer :: cores
        call check(cz_group_local_rank(group) == rank .and. cz_group_local_size(group) == ranks, &
            'all on this machine')
        call cz_group_local_cores(group, cores)
        call check(cores >= 1, 'a core for each')
    end subroutine

    subroutine steps_that_weigh_and_add_up()
        real(real64), target :: w(3), g(3)
        type(cz_model) :: model
        type(cz_zero) :: zero
        integer :: r
        call cz_model_create(model)
        call cz_model_add(model, 'w', w, g)
        w = 0
        call cz_zero_create(zero, group, model, 'sgd', [cz_hyper('lr', 1)])
        call cz_zero_set_weight(zero, -1d0, status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'weight')
        call cz_zero_set_weight(zero, 2d0 * rank)
        g = rank + 5
        call cz_zero_step(zero)
        call check(all(abs(w + sum([(r * (r + 5d0), r = 0, ranks - 1)]) / &
            sum([(r, r = 0, ranks - 1)])) < 1d-12), 'a mean by weights, of a step')
        call cz_zero_destroy(zero)
        w = 0
        call cz_zero_create(zero, group, model, 'sgd', [cz_hyper('lr', 1)], &
            gradients=CZ_GRADIENTS_SUM)
        call cz_zero_set_weight(zero, 1d0, status, why)
        call expect(status, CZ_ERR_UNSUPPORTED, why, 'weight')
        g = rank + 1
        call cz_zero_step(zero)
        call check(all(w == -ranks * (ranks + 1) / 2), 'a sum')
        call cz_zero_destroy(zero)
        call cz_model_destroy(model)
    end subroutine

    subroutine passes()
        real(real32), target :: w(4), v(2, 2)
        real(real32), target, asynchronous :: gw(4), gv(2, 2)
        type(cz_model) :: model
        type(cz_ddp) :: ddp
        type(cz_zero) :: zero
        type(cz_step_result) :: result
        integer(int64) :: count
        integer :: buckets
        logical :: rebuilt
        call cz_model_create(model)
        call cz_model_add(model, 'w', w, gw)
        call cz_model_add(model, 'v', v, gv)
        w = rank
        v = rank
        call cz_ddp_create(ddp, group, model, first_bucket_bytes=4, bucket_bytes=4, &
            find_unused=.true., all_reduce=.true.)
        call check(all(w == 0) .and. all(v == 0), 'values of rank 0')
        call cz_ddp_get_info(ddp, count, buckets, rebuilt)
        call check(count == 0 .and. buckets == 2 .and. .not. rebuilt, 'two buckets')
        ! Twice without synchronising, once with: sums of three passes, and their mean.
        gw = 0
        gv = 0
        do buckets = 1, 3
            call cz_ddp_begin(ddp, buckets == 3)
            gw = gw + rank
            call cz_ddp_mark_ready(ddp, 0)
            call cz_ddp_finish(ddp)
            if (buckets < 3) call check(all(gw == buckets * rank), 'no_sync')
        end do
        call check(all(gw == 3 * (ranks - 1) / 2.) .and. all(gv == 0), 'their mean')
        call cz_ddp_get_info(ddp, count)
        call check(count == 1, 'one pass has synchronised')
        ! Weights.
        call cz_ddp_set_weight(ddp, real(rank, real64))
        call cz_ddp_begin(ddp, .true.)
        gw = 1
        call cz_ddp_mark_ready(ddp, 0)
        call cz_ddp_finish(ddp)
        call check(all(abs(gw - 1) < 1e-6), 'a mean by weights')
        call cz_ddp_mark_ready(ddp, 0, status, why)
        call expect(status, CZ_ERR_STATE, why, 'mark_ready')
        call cz_ddp_begin(ddp, .true.)
        call cz_ddp_mark_ready(ddp, 2, status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'parameter 2')
        call cz_ddp_begin(ddp, .true., status, why)
        call expect(status, CZ_ERR_STATE, why, 'begin')
        ! A rank whose data are bad.
        if (rank == 1) then
            call cz_ddp_abandon(ddp)
        else
            call cz_ddp_finish(ddp, status, why)
            call expect(status, CZ_ERR_STATE, why, 'rank 1')
        end if
        call cz_ddp_set_passes(ddp, 5_int64, status, why)
        call expect(status, CZ_ERR_STATE, why, 'pass')
        call cz_ddp_destroy(ddp)

        ! Steps inside the pass; tied weights; a hook by name.
        call cz_ddp_create(ddp, group, model, keep_buckets=.true., keep_values=.true., &
            keep_buffers=.true., all_reduce=.true.)
        call cz_ddp_set_passes(ddp, 5_int64)
        call cz_ddp_set_uses(ddp, 1, 2)
        call cz_ddp_register_hook_by_name(ddp, 'no_such_hook', status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'no_such_hook')
        call cz_ddp_register_hook_by_name(ddp, 'fp16_compress')
        call cz_zero_create(zero, group, model, 'sgd', [cz_hyper('lr', 1)], ddp=ddp, &
            overlap=CZ_OVERLAP_STEP)
        call cz_zero_set_overlap(zero, CZ_OVERLAP_STEP, norm=.true.)
        call cz_ddp_begin(ddp, .true.)
        gw = rank
        gv = 1
        call cz_ddp_mark_ready(ddp, 1)
        call cz_ddp_mark_ready(ddp, 1)
        call cz_ddp_mark_ready(ddp, 0)
        call cz_ddp_finish(ddp)
        call check(all(w == -(ranks - 1) / 2.) .and. all(v == -1), 'a step inside the pass')
        call cz_zero_step(zero, result)
        call check(abs(result%norm - sqrt((ranks - 1)**2 + 4d0)) < 1e-6, 'its norm')
        call cz_zero_step(zero, max_norm=1d0, status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'option')
        call cz_zero_destroy(zero)
        call cz_ddp_destroy(ddp)

        ! Values arrive while the next pass has begun.
        call cz_ddp_create(ddp, group, model, static_graph=.true.)
        call cz_zero_create(zero, group, model, 'sgd', [cz_hyper('lr', 1)], ddp=ddp, &
            overlap=CZ_OVERLAP_INTERLEAVED, overlap_gather=.true.)
        w = 0
        call cz_ddp_begin(ddp, .true.)
        gw = 1
        gv = 1
        call cz_ddp_mark_ready(ddp, 1)
        call cz_ddp_mark_ready(ddp, 0)
        call cz_ddp_finish(ddp)
        call cz_zero_wait_param(zero, 0)
        call check(all(w == -1), 'a value that was waited for')
        call cz_zero_wait_param(zero, 9, status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'parameter 9')
        call cz_zero_destroy(zero)
        call cz_ddp_destroy(ddp)
        call cz_model_destroy(model)
    end subroutine

    subroutine in_parts()
        real(real64), target :: w(3), g(3)
        type(cz_model) :: model
        type(cz_parts) :: parts
        type(cz_zero) :: zero
        real(real64) :: mean, means(2)
        real(real64), allocatable :: numbers(:), rows(:, :)
        integer :: i, n, total
        call cz_model_create(model)
        call cz_model_add(model, 'w', w, g)
        call cz_parts_create(parts, group, model, ranks - 1, status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'parts')
        call cz_parts_create(parts, group, model, 7)
        n = cz_parts_own_count(parts)
        total = n
        call cz_all_reduce(group, total, CZ_SUM)
        call check(total == 7 .and. cz_parts_own(parts, n) >= 0, 'seven parts')
        call check(cz_parts_own(parts, n + 1) == -1 .and. (rank > 0 .or. &
            cz_parts_own(parts, 1) == 0), 'from the first to the last')
        call cz_zero_create(zero, group, model, 'sgd', [cz_hyper('lr', 1)], parts=parts)
        numbers = [(real(cz_parts_own(parts, i), real64), i = 1, n)]
        w = 0
        do i = 1, n
            call check(cz_parts_is_last(parts) .eqv. i == n, 'the last one')
            g = numbers(i)
            call cz_parts_add(parts)
        end do
        call cz_parts_add(parts, status, why)
        call expect(status, CZ_ERR_STATE, why, 'parts')
        call cz_zero_step(zero)
        call check(all(w == -3), 'the mean of 0 to 6')
        call cz_parts_mean(parts, numbers, mean)
        allocate (rows(2, n))
        rows(1, :) = numbers
        rows(2, :) = 2
        call cz_parts_mean(parts, rows, means)
        call check(mean == 3 .and. all(means == [3, 2]), 'means')
        call cz_parts_set_weights(parts, numbers)
        call cz_parts_mean(parts, numbers, mean)
        call check(abs(mean - 91 / 21d0) < 1e-12, 'a mean by weights')
        call cz_parts_set_weights(parts)
        call cz_parts_mean(parts, numbers, mean)
        call check(mean == 3, 'without weights')
        ! One rank has too few numbers.
        i = n
        if (rank == 1) i = n - 1
        call cz_parts_set_weights(parts, numbers(:i), status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'parts')
        if (rank == 1) call check(index(why, 'wanted one for each part of this rank') > 0, &
            trim(why))
        call cz_parts_mean(parts, numbers(:i), mean, status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'parts')
        call cz_parts_mean(parts, rows, means(:merge(1, 2, rank == 1)), status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'parts')
        g = 1
        call cz_parts_add(parts)
        call cz_parts_restart(parts)
        call check(cz_parts_stream(3, 4) /= cz_parts_stream(3, 5), 'streams')
        call cz_zero_destroy(zero)
        call cz_parts_destroy(parts)
        call cz_model_destroy(model)
    end subroutine

    ! Rank r has r + 1 batches; by active ranks, the mean is that of the ranks that still have some.
    subroutine uneven_inputs()
        real(real32), target :: w(5)
        real(real32), target, asynchronous :: g(5)
        type(cz_model) :: model
        type(cz_ddp) :: ddp
        type(cz_zero) :: zero
        type(cz_join) :: join
        type(cz_joinable) :: both(2)
        integer :: batch
        call cz_model_create(model)
        call cz_model_add(model, 'w', w, g)
        w = 0
        call cz_ddp_create(ddp, group, model)
        call cz_zero_create(zero, group, model, 'sgd', [cz_hyper('lr', 1)], ddp=ddp)
        call cz_ddp_joinable(ddp, both(1))
        call cz_zero_joinable(zero, both(2))
        call cz_join_begin(join, group, both, divide=CZ_JOIN_BY_ACTIVE)
        do batch = 1, rank + 1
            call cz_ddp_begin(ddp, .true.)
            g = 2
            call cz_ddp_mark_ready(ddp, 0)
            call cz_ddp_finish(ddp)
            call cz_zero_step(zero)
        end do
        call cz_join_end(join, CZ_OK)
        call check(all(abs(w + 2 * ranks) < 1e-6), 'as many steps as the longest')
        call cz_zero_check_replicas(zero)

        ! A loop that fails on one rank ends on all.
        call cz_join_begin(join, group, both, max_norm=1d0)
        status = CZ_OK
        if (rank == 1) status = CZ_ERR_IO
        call cz_join_end(join, status, status, why)
        call check(status == CZ_ERR_IO, 'the status of rank 1')
        call cz_join_begin(join, group, both(:0), status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'join')
        call cz_zero_destroy(zero)
        call cz_ddp_destroy(ddp)
        call cz_model_destroy(model)
    end subroutine
end program
