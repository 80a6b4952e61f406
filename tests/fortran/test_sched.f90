! SPDX-License-Identifier: MIT
! Schedulers set the rates, and momentum, that they set in C with the same numbers.
module functions
    use, intrinsic :: iso_c_binding
    implicit none
contains
    real(c_double) function halved(epoch, param_group, context) bind(C)
        integer(c_int64_t), value :: epoch, param_group
        type(c_ptr), value :: context
        halved = 1 / real(epoch + param_group + 1, c_double)
        if (c_associated(context)) halved = -1
    end function
end module

program test_sched
    use, intrinsic :: iso_c_binding, only: c_null_char
    use, intrinsic :: iso_fortran_env, only: real64
    use czero
    use check_module
    use functions
    implicit none
    character(14), parameter :: kinds(15) = [character(14) :: 'step', 'multi_step', 'exponential', &
        'constant', 'linear', 'polynomial', 'cosine', 'warm_restarts', 'lambda', 'multiplicative', &
        'one_cycle', 'cyclic', 'plateau', 'sequential', 'chained']
    integer, parameter :: epochs = 9
    integer :: k
    do k = 1, size(kinds)
        call sets_the_same(kinds(k))
    end do
    call goes_on_from_a_dictionary()
    call lists_have_an_entry_for_each_group()
    call ended()

contains

    subroutine create(sched, kind, optim)
        type(cz_sched), intent(out) :: sched
        character(*), intent(in) :: kind
        type(cz_optim), intent(in) :: optim
        type(cz_sched) :: members(2)
        select case (kind)
        case ('step')
            call cz_sched_create_step(sched, optim, 3, 0.5d0)
        case ('multi_step')
            call cz_sched_create_multi_step(sched, optim, [2, 5], 0.1d0)
        case ('exponential')
            call cz_sched_create_exponential(sched, optim, 0.9d0)
        case ('constant')
            call cz_sched_create_constant(sched, optim, 0.25d0, 4)
        case ('linear')
            call cz_sched_create_linear(sched, optim, 0.1d0, 0.7d0, 6)
        case ('polynomial')
            call cz_sched_create_polynomial(sched, optim, 7, 1.5d0)
        case ('cosine')
            call cz_sched_create_cosine(sched, optim, 6, 0.001d0)
        case ('warm_restarts')
            call cz_sched_create_warm_restarts(sched, optim, 2, 3, 0.002d0)
        case ('lambda')
            call cz_sched_create_lambda(sched, optim, halved)
        case ('multiplicative')
            call cz_sched_create_multiplicative(sched, optim, halved)
        case ('one_cycle')
            call cz_sched_create_one_cycle(sched, optim, 0.5d0, 10, pct_start=0.4d0, &
                base_momentum=0.7d0, max_momentum=0.8d0, div_factor=9d0, final_div_factor=100d0, &
                max_lrs=[0.7d0], linear=.true., three_phase=.true.)
        case ('cyclic')
            call cz_sched_create_cyclic(sched, optim, 0.01d0, 0.2d0, step_size_up=2, &
                step_size_down=3, gamma=0.8d0, base_momentum=0.6d0, max_momentum=0.9d0, &
                base_lrs=[0.02d0], max_lrs=[0.3d0], mode=CZ_SCHED_EXP_RANGE)
        case ('plateau')
            call cz_sched_create_plateau(sched, optim, factor=0.3d0, patience=1, threshold=0.5d0, &
                cooldown=1, min_lrs=[0.003d0], eps=1d-9, maximize=.true., absolute=.true.)
        case default
            call cz_sched_create_linear(members(1), optim, 0.1d0, 1d0, 3)
            call cz_sched_create_exponential(members(2), optim, 0.9d0)
            if (kind == 'chained') call cz_sched_create_chained(sched, members)
            if (kind == 'sequential') call cz_sched_create_sequential(sched, members, [3])
            call cz_sched_destroy(members(1)) ! which is empty now
        end select
    end subroutine

    subroutine sets_the_same(kind)
        character(*), intent(in) :: kind
        real(real64), target :: w, g
        real(real64) :: in_c(epochs), rate, beta1
        type(cz_model) :: model
        type(cz_optim) :: optim
        type(cz_sched) :: sched
        integer :: i
        call check(in_c_rates(trim(kind)//c_null_char, in_c, epochs) == 0, trim(kind)//' in C')
        w = 1
        g = 1
        call cz_model_create(model)
        call cz_model_add(model, 'w', w, g)
        call cz_optim_create(optim, model, 'adam', [cz_hyper('lr', 0.1d0)])
        call create(sched, trim(kind), optim)
        do i = 1, epochs
            call cz_optim_step(optim)
            if (kind == 'plateau') then
                call cz_sched_step_metric(sched, real(min(i - 1, 4), real64))
            else
                call cz_sched_step(sched)
            end if
            call cz_optim_get_hyper(optim, 0, 'lr', rate)
            call cz_optim_get_hyper(optim, 0, 'beta1', beta1)
            call check(cz_sched_last_lr(sched, 0) == rate, trim(kind)//': last_lr')
            call check(rate + 1000 * beta1 == in_c(i), trim(kind)//': rate and momentum')
        end do
        call cz_sched_destroy(sched)
        call cz_optim_destroy(optim)
        call cz_model_destroy(model)
    end subroutine

    subroutine goes_on_from_a_dictionary()
        real(real64), target :: w, g
        type(cz_group) :: group
        type(cz_model) :: model
        type(cz_zero) :: zero
        type(cz_sched) :: sched, again
        type(cz_state_dict) :: dict
        character(200) :: why
        integer :: status
        w = 1
        g = 1
        call cz_group_create_self(group)
        call cz_model_create(model)
        call cz_model_add(model, 'w', w, g)
        call cz_zero_create(zero, group, model, 'sgd', [cz_hyper('lr', 1)])
        call cz_sched_create_step(sched, cz_zero_local_optim(zero), 2, 0.5d0)
        call cz_zero_step(zero)
        call cz_sched_step(sched)
        call cz_sched_state_dict(sched, dict)
        call cz_sched_step(sched)
        call check(cz_sched_last_lr(sched, 0) == 0.5d0, 'two epochs')
        call cz_sched_create_step(again, cz_zero_local_optim(zero), 9, 0.1d0)
        call cz_sched_load_state_dict(again, dict)
        call cz_sched_step(again)
        call check(cz_sched_last_lr(again, 0) == 0.25d0, 'the same from its first on')
        call cz_sched_step_to(again, 6d0)
        call check(cz_sched_last_lr(again, 0) == 0.125d0, 'six epochs')
        call cz_sched_step_metric(again, 1d0, status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'takes no metric')
        call cz_sched_destroy(again)
        call cz_sched_create_plateau(again, cz_zero_local_optim(zero), group=group, agree=CZ_MAX)
        call cz_sched_step_metric(again, 1d0)
        call cz_sched_destroy(again)
        call cz_sched_create_step(again, cz_zero_local_optim(zero), 0, 0.1d0, status=status, &
            message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'step_size')
        call cz_sched_create_exponential(again, cz_zero_local_optim(zero), 0.5d0, first_epoch=2)
        call check(cz_sched_last_lr(again, 0) > 0, 'in the middle')
        call cz_sched_destroy(again)
        call cz_sched_destroy(sched)
        call cz_state_dict_destroy(dict)
        call cz_zero_destroy(zero)
        call cz_model_destroy(model)
        call cz_group_destroy(group)
    end subroutine

    subroutine lists_have_an_entry_for_each_group()
        character(*), parameter :: wrong(2) = [' 1 entries, there are 2 parameter groups', &
            ' 3 entries, there are 2 parameter groups']
        real(real64), target :: w, v
        real(real64), parameter :: rates(3) = [0.1d0, 0.2d0, 0.3d0]
        type(cz_model) :: model
        type(cz_optim) :: optim
        type(cz_sched) :: sched
        character(200) :: why
        integer :: i, n, status
        call cz_model_create(model)
        call cz_model_add(model, 'w', w)
        call cz_model_add(model, 'v', v)
        call cz_optim_create(optim, model, 'adam', groups=[cz_param_group([0]), &
            cz_param_group([1])])
        do i = 1, 2
            n = 2 * i - 1
            call cz_sched_create_one_cycle(sched, optim, 0.5d0, 10, max_lrs=rates(:n), &
                status=status, message=why)
            call expect(status, CZ_ERR_ARGUMENT, why, 'one_cycle scheduler: max_lrs has'//wrong(i))
            call cz_sched_create_cyclic(sched, optim, 0.1d0, 0.5d0, base_lrs=rates(:n), &
                status=status, message=why)
            call expect(status, CZ_ERR_ARGUMENT, why, 'cyclic scheduler: base_lrs has'//wrong(i))
            call cz_sched_create_cyclic(sched, optim, 0.1d0, 0.5d0, max_lrs=rates(:n), &
                status=status, message=why)
            call expect(status, CZ_ERR_ARGUMENT, why, 'cyclic scheduler: max_lrs has'//wrong(i))
            call cz_sched_create_plateau(sched, optim, min_lrs=rates(:n), status=status, &
                message=why)
            call expect(status, CZ_ERR_ARGUMENT, why, 'plateau scheduler: min_lrs has'//wrong(i))
        end do
        call cz_sched_create_one_cycle(sched, optim, 0.5d0, 10, max_lrs=rates(:2), &
            div_factor=10d0)
        call check(abs(cz_sched_last_lr(sched, 0) - 0.01d0) < 1d-12 .and. &
            abs(cz_sched_last_lr(sched, 1) - 0.02d0) < 1d-12, 'a rate for each group')
        call cz_sched_destroy(sched)
        call cz_optim_destroy(optim)
        call cz_model_destroy(model)
    end subroutine
end program
