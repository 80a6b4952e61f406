! SPDX-License-Identifier: MIT
! An MPI program in Fortran that fits a small network with Adam, whose state is sharded over the
! ranks of the communicator that the program has anyway. It saves at its end and goes on from what
! is saved, on any number of ranks up to 6: a batch has 6 parts, which are dealt out to the ranks,
! so the fingerprint in the end is that of a run without a break.
!
!     mpirun -n 2 14_fortran saved 60        trains 60 steps and saves
!     mpirun -n 3 14_fortran saved 120       goes on from there to step 120
program main
    use, intrinsic :: iso_fortran_env, only: int64, real32, real64
    use mpi_f08
    use czero
    use czero_mpi
    implicit none

    integer, parameter :: hidden = 16, part_count = 6, samples = 10 ! of each part
    integer(int64), parameter :: seed = 14

    type :: net
        real(real32) :: w1(hidden, 2), b1(hidden), w2(hidden), b2
    end type
    type(net), target :: weights, gradients ! the library works on their memory from now on

    type(cz_group) :: group
    type(cz_model) :: model
    type(cz_parts) :: parts
    type(cz_zero) :: zero
    type(cz_checkpoint) :: checkpoint
    type(cz_load_result) :: saved
    real(real64) :: losses(part_count), loss
    integer(int64) :: fingerprint(2)
    character(200) :: folder, last
    integer :: level, rank, last_step, step, i, n

    folder = '14_fortran.saved'
    last_step = 60
    if (command_argument_count() > 0) call get_command_argument(1, folder)
    if (command_argument_count() > 1) then
        call get_command_argument(2, last)
        read (last, *) last_step
    end if

    call MPI_Init_thread(MPI_THREAD_MULTIPLE, level) ! less works as well
    call cz_group_create_mpi(group, MPI_COMM_WORLD%MPI_VAL)
    rank = cz_group_rank(group)
    call make_weights()
    call cz_model_create(model)
    call cz_model_add(model, 'w1', weights%w1, gradients%w1)
    call cz_model_add(model, 'b1', weights%b1, gradients%b1)
    call cz_model_add(model, 'w2', weights%w2, gradients%w2)
    call cz_model_add(model, 'b2', weights%b2, gradients%b2)
    call cz_parts_create(parts, group, model, part_count)
    call cz_zero_create(zero, group, model, 'adam', [cz_hyper('lr', 0.01d0)], parts=parts)
    call cz_checkpoint_create(checkpoint, group, folder, zero=zero)

    call cz_checkpoint_load(checkpoint, saved, missing_ok=.true.)
    n = cz_parts_own_count(parts)
    do step = max(saved%step, 0) + 1, last_step
        do i = 1, n
            call pass(cz_parts_stream(step, cz_parts_own(parts, i)), losses(i))
            call cz_parts_add(parts)
        end do
        call cz_zero_step(zero, max_norm=1d0)
        call cz_parts_mean(parts, losses(:n), loss)
        if (mod(step, 20) == 0 .and. rank == 0) print '(a,i4,a,f9.6)', 'step', step, '  loss', loss
    end do
    call cz_checkpoint_save(checkpoint, last_step)
    call cz_zero_fingerprint(zero, fingerprint)
    if (rank == 0) print '(a,2z17.16)', 'fingerprint', fingerprint

    call cz_state_dict_destroy(saved%common)
    call cz_state_dict_destroy(saved%own)
    call cz_checkpoint_destroy(checkpoint)
    call cz_zero_destroy(zero)
    call cz_parts_destroy(parts)
    call cz_model_destroy(model)
    call cz_group_destroy(group)
    call MPI_Finalize()

contains

    ! The same on all ranks: each number is a function of seed, stream and counter.
    subroutine make_weights()
        integer :: h
        do h = 1, hidden
            weights%w1(h, 1) = cz_random_normal(seed, 1_int64, int(h, int64))
            weights%w1(h, 2) = cz_random_normal(seed, 2_int64, int(h, int64))
            weights%w2(h) = cz_random_normal(seed, 3_int64, int(h, int64)) / 4
        end do
        weights%b1 = 0
        weights%b2 = 0
    end subroutine

    ! The mean loss of one part's samples and its gradients. The network is to learn
    ! f(x, y) = sin(2 x) y from points in the square from -1 to 1.
    subroutine pass(stream, loss)
        integer(int64), intent(in) :: stream
        real(real64), intent(out) :: loss
        real(real32) :: x(2), h(hidden), d(hidden), error
        integer :: k
        gradients = net(0, 0, 0, 0)
        loss = 0
        do k = 1, samples
            x(1) = 2 * cz_random_uniform(seed, stream, 2_int64 * k) - 1
            x(2) = 2 * cz_random_uniform(seed, stream, 2_int64 * k + 1) - 1
            h = tanh(matmul(weights%w1, x) + weights%b1)
            error = dot_product(weights%w2, h) + weights%b2 - sin(2 * x(1)) * x(2)
            loss = loss + error**2 / samples
            error = 2 * error / samples
            d = error * weights%w2 * (1 - h**2)
            gradients%b2 = gradients%b2 + error
            gradients%w2 = gradients%w2 + error * h
            gradients%b1 = gradients%b1 + d
            gradients%w1(:, 1) = gradients%w1(:, 1) + d * x(1)
            gradients%w1(:, 2) = gradients%w1(:, 2) + d * x(2)
        end do
    end subroutine
end program
