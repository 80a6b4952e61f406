! SPDX-License-Identifier: MIT
! Learning-rate schedulers: czero/sched.h. With a sharded optimizer `optim` is
! cz_zero_local_optim(zero).
module czero_sched
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: real64
    use czero_group, only: cz_group
    use czero_optim, only: cz_optim, cz_optim_get_info
    use czero_state, only: cz_state_dict
    use czero_support
    implicit none
    private
    public :: cz_sched, cz_sched_function, cz_sched_destroy
    public :: cz_sched_create_step, cz_sched_create_multi_step, cz_sched_create_exponential
    public :: cz_sched_create_constant, cz_sched_create_linear, cz_sched_create_polynomial
    public :: cz_sched_create_cosine, cz_sched_create_warm_restarts, cz_sched_create_lambda
    public :: cz_sched_create_multiplicative, cz_sched_create_one_cycle, cz_sched_create_cyclic
    public :: cz_sched_create_plateau, cz_sched_create_sequential, cz_sched_create_chained
    public :: cz_sched_step, cz_sched_step_to, cz_sched_step_metric, cz_sched_last_lr
    public :: cz_sched_state_dict, cz_sched_load_state_dict

    integer, parameter, public :: CZ_SCHED_TRIANGULAR = 0, CZ_SCHED_TRIANGULAR2 = 1, &
        CZ_SCHED_EXP_RANGE = 2

    type :: cz_sched
        type(c_ptr) :: handle = c_null_ptr
    end type

    abstract interface
        ! What a parameter group's rate is multiplied by in an epoch. A procedure of a module:
        ! `context`, which is NULL here, is how C hands over what a procedure needs.
        real(c_double) function cz_sched_function(epoch, param_group, context) bind(C)
            import
            integer(c_int64_t), value :: epoch, param_group
            type(c_ptr), value :: context
        end function
    end interface

    type, bind(C) :: sched_options
        integer(c_size_t) :: size = 0
        integer(c_int64_t) :: first_epoch = 0
    end type

    type, bind(C) :: sched_one_cycle_options
        integer(c_size_t) :: size = 0
        integer(c_int64_t) :: first_epoch = 0
        real(c_double) :: pct_start = 0
        real(c_double) :: base_momentum = 0
        real(c_double) :: max_momentum = 0
        real(c_double) :: div_factor = 0
        real(c_double) :: final_div_factor = 0
        type(c_ptr) :: max_lrs = c_null_ptr
        integer(c_int32_t) :: linear = 0
        integer(c_int32_t) :: three_phase = 0
        integer(c_int32_t) :: fixed_momentum = 0
        integer(c_int32_t) :: reserved = 0
    end type

    type, bind(C) :: sched_cyclic_options
        integer(c_size_t) :: size = 0
        integer(c_int64_t) :: first_epoch = 0
        integer(c_int64_t) :: step_size_up = 0
        integer(c_int64_t) :: step_size_down = 0
        real(c_double) :: gamma = 0
        real(c_double) :: base_momentum = 0
        real(c_double) :: max_momentum = 0
        type(c_ptr) :: base_lrs = c_null_ptr
        type(c_ptr) :: max_lrs = c_null_ptr
        integer(c_int) :: mode = 0
        integer(c_int32_t) :: fixed_momentum = 0
    end type

    type, bind(C) :: sched_plateau_options
        integer(c_size_t) :: size = 0
        real(c_double) :: factor = 0
        integer(c_int64_t) :: patience = 0
        real(c_double) :: threshold = 0
        integer(c_int64_t) :: cooldown = 0
        real(c_double) :: min_lr = 0
        real(c_double) :: eps = 0
        type(c_ptr) :: min_lrs = c_null_ptr
        integer(c_int32_t) :: maximize = 0
        integer(c_int32_t) :: absolute = 0
        type(c_ptr) :: group = c_null_ptr
        integer(c_int) :: agree = 0
        integer(c_int32_t) :: reserved = 0
    end type

    interface
        integer(c_int) function c_step(out, optim, step_size, gamma, options) &
            bind(C, name='cz_sched_create_step')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: optim
            integer(c_int64_t), value :: step_size
            real(c_double), value :: gamma
            type(sched_options), intent(in) :: options
        end function
        integer(c_int) function c_multi_step(out, optim, milestones, count, gamma, options) &
            bind(C, name='cz_sched_create_multi_step')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: optim
            integer(c_int64_t), intent(in) :: milestones(*)
            integer(c_int64_t), value :: count
            real(c_double), value :: gamma
            type(sched_options), intent(in) :: options
        end function
        integer(c_int) function c_exponential(out, optim, gamma, options) &
            bind(C, name='cz_sched_create_exponential')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: optim
            real(c_double), value :: gamma
            type(sched_options), intent(in) :: options
        end function
        integer(c_int) function c_constant(out, optim, factor, total_iters, options) &
            bind(C, name='cz_sched_create_constant')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: optim
            real(c_double), value :: factor
            integer(c_int64_t), value :: total_iters
            type(sched_options), intent(in) :: options
        end function
        integer(c_int) function c_linear(out, optim, start_factor, end_factor, total_iters, &
            options) bind(C, name='cz_sched_create_linear')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: optim
            real(c_double), value :: start_factor, end_factor
            integer(c_int64_t), value :: total_iters
            type(sched_options), intent(in) :: options
        end function
        integer(c_int) function c_polynomial(out, optim, total_iters, power, options) &
            bind(C, name='cz_sched_create_polynomial')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: optim
            integer(c_int64_t), value :: total_iters
            real(c_double), value :: power
            type(sched_options), intent(in) :: options
        end function
        integer(c_int) function c_cosine(out, optim, t_max, eta_min, options) &
            bind(C, name='cz_sched_create_cosine')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: optim
            integer(c_int64_t), value :: t_max
            real(c_double), value :: eta_min
            type(sched_options), intent(in) :: options
        end function
        integer(c_int) function c_warm_restarts(out, optim, t_0, t_mult, eta_min, options) &
            bind(C, name='cz_sched_create_warm_restarts')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: optim
            integer(c_int64_t), value :: t_0, t_mult
            real(c_double), value :: eta_min
            type(sched_options), intent(in) :: options
        end function
        integer(c_int) function c_lambda(out, optim, function, context, options) &
            bind(C, name='cz_sched_create_lambda')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: optim, context
            type(c_funptr), value :: function
            type(sched_options), intent(in) :: options
        end function
        integer(c_int) function c_multiplicative(out, optim, function, context, options) &
            bind(C, name='cz_sched_create_multiplicative')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: optim, context
            type(c_funptr), value :: function
            type(sched_options), intent(in) :: options
        end function
        integer(c_int) function c_one_cycle(out, optim, max_lr, total_steps, options) &
            bind(C, name='cz_sched_create_one_cycle')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: optim
            real(c_double), value :: max_lr
            integer(c_int64_t), value :: total_steps
            type(sched_one_cycle_options), intent(in) :: options
        end function
        integer(c_int) function c_cyclic(out, optim, base_lr, max_lr, options) &
            bind(C, name='cz_sched_create_cyclic')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: optim
            real(c_double), value :: base_lr, max_lr
            type(sched_cyclic_options), intent(in) :: options
        end function
        integer(c_int) function c_plateau(out, optim, options) &
            bind(C, name='cz_sched_create_plateau')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: optim
            type(sched_plateau_options), intent(in) :: options
        end function
        integer(c_int) function c_sequential(out, members, count, milestones) &
            bind(C, name='cz_sched_create_sequential')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), intent(inout) :: members(*)
            integer(c_int64_t), value :: count
            integer(c_int64_t), intent(in) :: milestones(*)
        end function
        integer(c_int) function c_chained(out, members, count) &
            bind(C, name='cz_sched_create_chained')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), intent(inout) :: members(*)
            integer(c_int64_t), value :: count
        end function
        subroutine c_destroy(sched) bind(C, name='cz_sched_destroy')
            import
            type(c_ptr), intent(inout) :: sched
        end subroutine
        integer(c_int) function c_sched_step(sched) bind(C, name='cz_sched_step')
            import
            type(c_ptr), value :: sched
        end function
        integer(c_int) function c_sched_step_to(sched, epoch) bind(C, name='cz_sched_step_to')
            import
            type(c_ptr), value :: sched
            real(c_double), value :: epoch
        end function
        integer(c_int) function c_sched_step_metric(sched, metric) &
            bind(C, name='cz_sched_step_metric')
            import
            type(c_ptr), value :: sched
            real(c_double), value :: metric
        end function
        real(c_double) function c_last_lr(sched, param_group) bind(C, name='cz_sched_last_lr')
            import
            type(c_ptr), value :: sched
            integer(c_int64_t), value :: param_group
        end function
        integer(c_int) function c_state_dict(sched, out) bind(C, name='cz_sched_state_dict')
            import
            type(c_ptr), value :: sched
            type(c_ptr), intent(out) :: out
        end function
        integer(c_int) function c_load_state_dict(sched, dict) &
            bind(C, name='cz_sched_load_state_dict')
            import
            type(c_ptr), value :: sched, dict
        end function
    end interface

contains

    type(sched_options) function beginning(first_epoch) result(options)
        integer, intent(in), optional :: first_epoch
        options%size = c_sizeof(options)
        if (present(first_epoch)) options%first_epoch = first_epoch
    end function

    ! base gamma**floor(t / step_size)
    subroutine cz_sched_create_step(sched, optim, step_size, gamma, first_epoch, status, message)
        type(cz_sched), intent(out) :: sched
        type(cz_optim), intent(in) :: optim
        integer, intent(in) :: step_size
        real(real64), intent(in) :: gamma
        integer, intent(in), optional :: first_epoch
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_step(sched%handle, optim%handle, int(step_size, c_int64_t), gamma, &
            beginning(first_epoch)), status, message)
    end subroutine

    ! base gamma**n where n milestones are t or less
    subroutine cz_sched_create_multi_step(sched, optim, milestones, gamma, first_epoch, status, &
            message)
        type(cz_sched), intent(out) :: sched
        type(cz_optim), intent(in) :: optim
        integer, intent(in) :: milestones(:)
        real(real64), intent(in) :: gamma
        integer, intent(in), optional :: first_epoch
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_multi_step(sched%handle, optim%handle, int(milestones, c_int64_t), &
            size(milestones, kind=c_int64_t), gamma, beginning(first_epoch)), status, message)
    end subroutine

    ! base gamma**t
    subroutine cz_sched_create_exponential(sched, optim, gamma, first_epoch, status, message)
        type(cz_sched), intent(out) :: sched
        type(cz_optim), intent(in) :: optim
        real(real64), intent(in) :: gamma
        integer, intent(in), optional :: first_epoch
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_exponential(sched%handle, optim%handle, gamma, beginning(first_epoch)), &
            status, message)
    end subroutine

    ! base factor while t < total_iters, then base
    subroutine cz_sched_create_constant(sched, optim, factor, total_iters, first_epoch, status, &
            message)
        type(cz_sched), intent(out) :: sched
        type(cz_optim), intent(in) :: optim
        real(real64), intent(in) :: factor
        integer, intent(in) :: total_iters
        integer, intent(in), optional :: first_epoch
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_constant(sched%handle, optim%handle, factor, int(total_iters, c_int64_t), &
            beginning(first_epoch)), status, message)
    end subroutine

    ! base times a factor from start_factor to end_factor, in equal steps
    subroutine cz_sched_create_linear(sched, optim, start_factor, end_factor, total_iters, &
            first_epoch, status, message)
        type(cz_sched), intent(out) :: sched
        type(cz_optim), intent(in) :: optim
        real(real64), intent(in) :: start_factor, end_factor
        integer, intent(in) :: total_iters
        integer, intent(in), optional :: first_epoch
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_linear(sched%handle, optim%handle, start_factor, end_factor, &
            int(total_iters, c_int64_t), beginning(first_epoch)), status, message)
    end subroutine

    ! base (1 - t / total_iters)**power
    subroutine cz_sched_create_polynomial(sched, optim, total_iters, power, first_epoch, status, &
            message)
        type(cz_sched), intent(out) :: sched
        type(cz_optim), intent(in) :: optim
        integer, intent(in) :: total_iters
        real(real64), intent(in) :: power
        integer, intent(in), optional :: first_epoch
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_polynomial(sched%handle, optim%handle, int(total_iters, c_int64_t), power, &
            beginning(first_epoch)), status, message)
    end subroutine

    ! Down from base to eta_min along a cosine, and up again.
    subroutine cz_sched_create_cosine(sched, optim, t_max, eta_min, first_epoch, status, message)
        type(cz_sched), intent(out) :: sched
        type(cz_optim), intent(in) :: optim
        integer, intent(in) :: t_max
        real(real64), intent(in) :: eta_min
        integer, intent(in), optional :: first_epoch
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_cosine(sched%handle, optim%handle, int(t_max, c_int64_t), eta_min, &
            beginning(first_epoch)), status, message)
    end subroutine

    ! The same from base again after t_0 epochs, then after t_mult times as many each time.
    subroutine cz_sched_create_warm_restarts(sched, optim, t_0, t_mult, eta_min, first_epoch, &
            status, message)
        type(cz_sched), intent(out) :: sched
        type(cz_optim), intent(in) :: optim
        integer, intent(in) :: t_0, t_mult
        real(real64), intent(in) :: eta_min
        integer, intent(in), optional :: first_epoch
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_warm_restarts(sched%handle, optim%handle, int(t_0, c_int64_t), int(t_mult, &
            c_int64_t), eta_min, beginning(first_epoch)), status, message)
    end subroutine

    ! base function(t)
    subroutine cz_sched_create_lambda(sched, optim, function, first_epoch, status, message)
        type(cz_sched), intent(out) :: sched
        type(cz_optim), intent(in) :: optim
        procedure(cz_sched_function) :: function
        integer, intent(in), optional :: first_epoch
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_lambda(sched%handle, optim%handle, c_funloc(function), c_null_ptr, &
            beginning(first_epoch)), status, message)
    end subroutine

    ! base function(1) function(2) ... function(t)
    subroutine cz_sched_create_multiplicative(sched, optim, function, first_epoch, status, message)
        type(cz_sched), intent(out) :: sched
        type(cz_optim), intent(in) :: optim
        procedure(cz_sched_function) :: function
        integer, intent(in), optional :: first_epoch
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_multiplicative(sched%handle, optim%handle, c_funloc(function), c_null_ptr, &
            beginning(first_epoch)), status, message)
    end subroutine

    ! One cycle of total_steps epochs. What is not given is as in PyTorch.
    subroutine cz_sched_create_one_cycle(sched, optim, max_lr, total_steps, pct_start, &
            base_momentum, max_momentum, div_factor, final_div_factor, max_lrs, linear, &
            three_phase, fixed_momentum, first_epoch, status, message)
        type(cz_sched), intent(out) :: sched
        type(cz_optim), intent(in) :: optim
        real(real64), intent(in) :: max_lr
        integer, intent(in) :: total_steps
        real(real64), intent(in), optional :: pct_start, base_momentum, max_momentum, div_factor, &
            final_div_factor
        real(real64), intent(in), optional, target, contiguous :: max_lrs(:)
        logical, intent(in), optional :: linear, three_phase, fixed_momentum
        integer, intent(in), optional :: first_epoch
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(sched_one_cycle_options) :: options
        integer(c_int) :: code
        options%size = c_sizeof(options)
        if (present(first_epoch)) options%first_epoch = first_epoch
        if (present(pct_start)) options%pct_start = pct_start
        if (present(base_momentum)) options%base_momentum = base_momentum
        if (present(max_momentum)) options%max_momentum = max_momentum
        if (present(div_factor)) options%div_factor = div_factor
        if (present(final_div_factor)) options%final_div_factor = final_div_factor
        if (present(max_lrs)) options%max_lrs = c_loc(max_lrs)
        options%linear = to_flag(linear)
        options%three_phase = to_flag(three_phase)
        options%fixed_momentum = to_flag(fixed_momentum)
        code = one_for_each_group(optim, 'one_cycle scheduler: max_lrs', max_lrs)
        if (code == 0) code = c_one_cycle(sched%handle, optim%handle, max_lr, &
            int(total_steps, c_int64_t), options)
        call finish(code, status, message)
    end subroutine

    ! Up from base_lr to max_lr and down again, for ever. `mode`: CZ_SCHED_TRIANGULAR, which is the
    ! default, CZ_SCHED_TRIANGULAR2 or CZ_SCHED_EXP_RANGE.
    subroutine cz_sched_create_cyclic(sched, optim, base_lr, max_lr, step_size_up, step_size_down, &
            gamma, base_momentum, max_momentum, base_lrs, max_lrs, mode, fixed_momentum, &
            first_epoch, status, message)
        type(cz_sched), intent(out) :: sched
        type(cz_optim), intent(in) :: optim
        real(real64), intent(in) :: base_lr, max_lr
        integer, intent(in), optional :: step_size_up, step_size_down
        real(real64), intent(in), optional :: gamma, base_momentum, max_momentum
        real(real64), intent(in), optional, target, contiguous :: base_lrs(:), max_lrs(:)
        integer, intent(in), optional :: mode
        logical, intent(in), optional :: fixed_momentum
        integer, intent(in), optional :: first_epoch
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(sched_cyclic_options) :: options
        integer(c_int) :: code
        options%size = c_sizeof(options)
        if (present(first_epoch)) options%first_epoch = first_epoch
        if (present(step_size_up)) options%step_size_up = step_size_up
        if (present(step_size_down)) options%step_size_down = step_size_down
        if (present(gamma)) options%gamma = gamma
        if (present(base_momentum)) options%base_momentum = base_momentum
        if (present(max_momentum)) options%max_momentum = max_momentum
        if (present(base_lrs)) options%base_lrs = c_loc(base_lrs)
        if (present(max_lrs)) options%max_lrs = c_loc(max_lrs)
        if (present(mode)) options%mode = mode
        options%fixed_momentum = to_flag(fixed_momentum)
        code = one_for_each_group(optim, 'cyclic scheduler: base_lrs', base_lrs)
        if (code == 0) code = one_for_each_group(optim, 'cyclic scheduler: max_lrs', max_lrs)
        if (code == 0) code = c_cyclic(sched%handle, optim%handle, base_lr, max_lr, options)
        call finish(code, status, message)
    end subroutine

    ! Told of a metric by cz_sched_step_metric(). With a group its ranks agree on one.
    subroutine cz_sched_create_plateau(sched, optim, factor, patience, threshold, cooldown, &
            min_lr, eps, min_lrs, maximize, absolute, group, agree, status, message)
        type(cz_sched), intent(out) :: sched
        type(cz_optim), intent(in) :: optim
        real(real64), intent(in), optional :: factor
        integer, intent(in), optional :: patience
        real(real64), intent(in), optional :: threshold
        integer, intent(in), optional :: cooldown
        real(real64), intent(in), optional :: min_lr, eps
        real(real64), intent(in), optional, target, contiguous :: min_lrs(:)
        logical, intent(in), optional :: maximize, absolute
        type(cz_group), intent(in), optional :: group
        integer, intent(in), optional :: agree
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(sched_plateau_options) :: options
        integer(c_int) :: code
        options%size = c_sizeof(options)
        if (present(factor)) options%factor = factor
        if (present(patience)) options%patience = patience
        if (present(threshold)) options%threshold = threshold
        if (present(cooldown)) options%cooldown = cooldown
        if (present(min_lr)) options%min_lr = min_lr
        if (present(eps)) options%eps = eps
        if (present(min_lrs)) options%min_lrs = c_loc(min_lrs)
        options%maximize = to_flag(maximize)
        options%absolute = to_flag(absolute)
        if (present(group)) options%group = group%handle
        if (present(agree)) options%agree = agree
        code = one_for_each_group(optim, 'plateau scheduler: min_lrs', min_lrs)
        if (code == 0) code = c_plateau(sched%handle, optim%handle, options)
        call finish(code, status, message)
    end subroutine

    ! C takes it on trust that a list has an entry for each parameter group.
    integer(c_int) function one_for_each_group(optim, what, list) result(code)
        type(cz_optim), intent(in) :: optim
        character(*), intent(in) :: what
        real(real64), intent(in), optional :: list(:)
        character(80) :: numbers
        integer :: groups
        code = 0
        if (.not. present(list)) return
        call cz_optim_get_info(optim, group_count=groups, status=code)
        if (code /= 0 .or. size(list) == groups) return
        write (numbers, '(i0,a,i0)') size(list), ' entries, there are ', groups
        code = refuse(what//' has '//trim(numbers)//' parameter groups')
    end function

    ! One after the other: members(i) from epoch milestones(i - 1) on. On success they belong to the
    ! new one, and the entries are empty.
    subroutine cz_sched_create_sequential(sched, members, milestones, status, message)
        type(cz_sched), intent(out) :: sched
        type(cz_sched), intent(inout) :: members(:)
        integer, intent(in) :: milestones(:)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(c_ptr) :: handles(size(members))
        character(80) :: numbers
        integer(c_int) :: code
        integer :: i
        write (numbers, '(i0,a,i0)') size(milestones), ' milestones for ', size(members)
        if (size(milestones) /= size(members) - 1) then
            code = refuse('sched sequential: '//trim(numbers)//' members, wanted one less')
        else
            do i = 1, size(members)
                handles(i) = members(i)%handle
            end do
            code = c_sequential(sched%handle, handles, size(members, kind=c_int64_t), &
                int(milestones, c_int64_t))
            do i = 1, size(members)
                members(i)%handle = handles(i)
            end do
        end if
        call finish(code, status, message)
    end subroutine

    ! All at the same time.
    subroutine cz_sched_create_chained(sched, members, status, message)
        type(cz_sched), intent(out) :: sched
        type(cz_sched), intent(inout) :: members(:)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(c_ptr) :: handles(size(members))
        integer(c_int) :: code
        integer :: i
        do i = 1, size(members)
            handles(i) = members(i)%handle
        end do
        code = c_chained(sched%handle, handles, size(members, kind=c_int64_t))
        do i = 1, size(members)
            members(i)%handle = handles(i)
        end do
        call finish(code, status, message)
    end subroutine

    subroutine cz_sched_destroy(sched)
        type(cz_sched), intent(inout) :: sched
        call c_destroy(sched%handle)
    end subroutine

    subroutine cz_sched_step(sched, status, message)
        type(cz_sched), intent(in) :: sched
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_sched_step(sched%handle), status, message)
    end subroutine

    subroutine cz_sched_step_to(sched, epoch, status, message)
        type(cz_sched), intent(in) :: sched
        real(real64), intent(in) :: epoch
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_sched_step_to(sched%handle, epoch), status, message)
    end subroutine

    subroutine cz_sched_step_metric(sched, metric, status, message)
        type(cz_sched), intent(in) :: sched
        real(real64), intent(in) :: metric
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_sched_step_metric(sched%handle, metric), status, message)
    end subroutine

    real(real64) function cz_sched_last_lr(sched, param_group)
        type(cz_sched), intent(in) :: sched
        integer, intent(in) :: param_group
        cz_sched_last_lr = c_last_lr(sched%handle, int(param_group, c_int64_t))
    end function

    subroutine cz_sched_state_dict(sched, dict, status, message)
        type(cz_sched), intent(in) :: sched
        type(cz_state_dict), intent(out) :: dict
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_state_dict(sched%handle, dict%handle), status, message)
    end subroutine

    subroutine cz_sched_load_state_dict(sched, dict, status, message)
        type(cz_sched), intent(in) :: sched
        type(cz_state_dict), intent(in) :: dict
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_load_state_dict(sched%handle, dict%handle), status, message)
    end subroutine
end module
