! SPDX-License-Identifier: MIT
! Rules and hyper-parameters by name, options of steps, groups, state dictionaries; sharded and not.
program test_optim
    use, intrinsic :: iso_fortran_env, only: int64, real32, real64
    use, intrinsic :: ieee_arithmetic, only: ieee_is_nan, ieee_quiet_nan, ieee_value
    use czero
    use check_module
    implicit none
    type(cz_group) :: group
    type(cz_model) :: model
    type(cz_zero) :: zero
    type(cz_optim) :: optim
    type(cz_step_result) :: result
    type(cz_state_dict) :: dict
    type(cz_shapes) :: shapes
    type(cz_plan) :: plan
    type(cz_plan_memory) :: memory
    real(real32), target :: w(4), g(4), v(3, 2), gv(3, 2)
    real(real64) :: value
    integer(int64) :: bytes, skipped, before(2), after(2)
    integer :: status, count
    character(300) :: why

    call cz_group_create_self(group, timeout_seconds=20d0)
    call check(cz_group_size(group) == 1 .and. cz_group_rank(group) == 0, 'a group of one')
    call cz_model_create(model)
    call cz_model_add(model, 'w', w, g)
    call cz_model_add(model, 'v', v, gv)
    w = 1
    v = 1
    g = 1
    gv = 1

    ! Names that there are not, values out of range: nothing is made.
    call cz_zero_create(zero, group, model, 'adamx', status=status, message=why)
    call expect(status, CZ_ERR_ARGUMENT, why, &
        "zero: there is no rule 'adamx'; there are sgd, adam, adamw,")
    call cz_zero_create(zero, group, model, 'adam', [cz_hyper('learning_rate', 1)], status=status, &
        message=why)
    call expect(status, CZ_ERR_ARGUMENT, why, "no hyper-parameter 'learning_rate' (it has lr")
    call cz_zero_create(zero, group, model, 'adam', [cz_hyper('beta1', 1.5d0)], status=status, &
        message=why)
    call expect(status, CZ_ERR_ARGUMENT, why, 'beta1 is 1.5')
    call cz_zero_create(zero, group, model, 'sgd', status=status, message=why)
    call expect(status, CZ_ERR_ARGUMENT, why, 'lr')
    call cz_zero_create(zero, group, model, 'adam', groups=[cz_param_group([0, 7])], &
        status=status, message=why)
    call expect(status, CZ_ERR_ARGUMENT, why, '7')
    call cz_zero_create(zero, group, model, 'adam', groups=[cz_param_group([0], &
        [cz_hyper('speed', 1)])], status=status, message=why)
    call expect(status, CZ_ERR_ARGUMENT, why, 'speed')
    call cz_zero_create(zero, group, model, 'adam', partition=99, status=status, message=why)
    call expect(status, CZ_ERR_ARGUMENT, why, 'partition')
    call cz_optim_create(optim, model, 'eve', status=status, message=why)
    call expect(status, CZ_ERR_ARGUMENT, why, "optim: there is no rule 'eve'; there are sgd")

    ! Owners are given, or too few of them.
    call cz_zero_create(zero, group, model, 'sgd', [cz_hyper('lr', 1)], &
        partition=CZ_PARTITION_GIVEN, owners=[0], status=status, message=why)
    call check(status == CZ_ERR_ARGUMENT, 'one owner for two: '//trim(why))
    call cz_zero_create(zero, group, model, 'sgd', [cz_hyper('lr', 1)], &
        partition=CZ_PARTITION_GIVEN, owners=[0, 0], threads=1)
    call cz_zero_get_info(zero, partition=count)
    call check(count == CZ_PARTITION_GIVEN, 'owners were given')
    call cz_zero_destroy(zero)

    ! Options of a step, and what comes of it.
    call cz_zero_create(zero, group, model, 'sgd', [cz_hyper('lr', 1), cz_hyper('momentum', 0)], &
        [cz_param_group([0]), cz_param_group([1], [cz_hyper('lr', 0.25d0)])])
    call cz_zero_step(zero, result)
    call check(all(w == 0) .and. all(v == 0.75), 'a rate for each group')
    call check(ieee_is_nan(result%norm) .and. .not. result%skipped, 'no norm was asked for')
    call cz_zero_step(zero, result, norm=.true.)
    call check(abs(result%norm - sqrt(10d0)) < 1e-12, 'the norm of ten ones')
    g = 4
    gv = 0
    call cz_zero_step(zero, result, max_norm=1d0)
    call check(result%norm == 8 .and. all(abs(w + 1.5) < 1e-6), 'clipped to a norm of 1')
    g(2) = ieee_value(1., ieee_quiet_nan)
    call cz_zero_step(zero, result, skip_nonfinite=.true.)
    call check(result%skipped .and. all(abs(w + 1.5) < 1e-6), 'skipped')
    call cz_zero_get_info(zero, count, status, skipped, bytes)
    call check(skipped == 1 .and. status == 2, 'one step was skipped, there are two groups')
    call cz_zero_step(zero, max_norm=-1d0, status=status, message=why)
    call expect(status, CZ_ERR_ARGUMENT, why, 'max_norm')
    call cz_zero_zero_grad(zero)
    call check(all(g == 0), 'zero_grad')
    call cz_zero_zero_grad(zero, .true.)
    call cz_zero_step(zero, status=status, message=why)
    call expect(status, CZ_ERR_STATE, why, 'gradient')
    call cz_zero_step(zero, allow_no_gradients=.true.)
    call cz_model_set_gradient(model, 0, g)
    call cz_model_set_gradient(model, 1, gv)

    ! Hyper-parameters while training.
    optim = cz_zero_local_optim(zero)
    call cz_optim_get_hyper(optim, 1, 'lr', value)
    call check(value == 0.25d0, 'the rate of group 1')
    call cz_optim_set_hyper(optim, CZ_ALL_GROUPS, 'lr', 0.5d0)
    call cz_optim_get_hyper(optim, 1, 'lr', value)
    call check(value == 0.5d0, 'a rate that was set')
    call cz_optim_add_hyper(optim, 0, 'my_own', 3d0)
    call cz_optim_get_hyper(optim, 0, 'my_own', value)
    call check(value == 3, 'a value of the program')
    call cz_optim_set_hyper(optim, 0, 'speed', 1d0, status, why)
    call expect(status, CZ_ERR_ARGUMENT, why, 'speed')
    call cz_optim_set_hyper(optim, 2, 'lr', 1d0, status, why)
    call expect(status, CZ_ERR_ARGUMENT, why, '2')
    call cz_optim_step(optim, status=status, message=why)
    call expect(status, CZ_ERR_STATE, why, 'sharded')
    call cz_zero_destroy(zero)

    ! A rule of a group's own, which begins with its own defaults.
    call cz_zero_create(zero, group, model, 'adam', [cz_hyper('lr', 0.5d0)], &
        [cz_param_group([0]), cz_param_group([1], [cz_hyper('weight_decay', 0)], 'lion')])
    optim = cz_zero_local_optim(zero)
    call cz_optim_get_hyper(optim, 1, 'lr', value)
    call check(value == 1d-4, 'the rate of lion')
    call cz_optim_get_hyper(optim, 0, 'lr', value)
    call check(value == 0.5d0, 'the rate of adam')
    v = 0
    gv = 1
    call cz_zero_step(zero)
    call check(all(abs(v + 1e-4) < 1e-10), 'a step of lion')
    call cz_zero_destroy(zero)
    call cz_zero_create(zero, group, model, 'adam', groups=[cz_param_group([0], rule='eve')], &
        status=status, message=why)
    call expect(status, CZ_ERR_ARGUMENT, why, "zero: there is no rule 'eve'; there are sgd")
    call cz_zero_create(zero, group, model, 'adam', groups=[cz_param_group([0])])
    call cz_zero_add_param_group(zero, cz_param_group([1], rule='eve'), status, why)
    call expect(status, CZ_ERR_ARGUMENT, why, "zero: there is no rule 'eve'; there are sgd")
    call cz_zero_destroy(zero)

    ! A group that is added, state that is handed out and taken in.
    call cz_zero_create(zero, group, model, 'adam', groups=[cz_param_group([0])])
    call cz_zero_add_param_group(zero, cz_param_group([1], [cz_hyper('lr', 0.1d0)]))
    call cz_zero_add_param_group(zero, cz_param_group([1]), status, why)
    call expect(status, CZ_ERR_ARGUMENT, why, 'group')
    g = 1
    gv = 2
    call cz_zero_step(zero)
    call cz_zero_get_info(zero, state_bytes=bytes)
    call check(bytes >= 2 * 4 * (4 + 6), 'two slots for ten elements')
    call cz_zero_state_dict(zero, dict, status, why)
    call expect(status, CZ_ERR_STATE, why, 'consolidat')
    call cz_zero_consolidate_state_dict(zero, CZ_ALL_RANKS)
    call cz_zero_state_dict(zero, dict)
    call cz_zero_fingerprint(zero, before)
    call cz_zero_step(zero)
    call cz_zero_fingerprint(zero, after)
    call check(any(before /= after), 'a step changes the fingerprint')
    call cz_zero_evaluate(zero, .true., status, why)
    call expect(status, CZ_ERR_STATE, why, 'average')
    call cz_zero_load_state_dict(zero, dict)
    call cz_zero_broadcast_parameters(zero, 0)
    call cz_zero_check_replicas(zero)
    call cz_zero_broadcast_parameters(zero, 1, status, why)
    call expect(status, CZ_ERR_ARGUMENT, why, '1')
    call cz_zero_destroy(zero)

    ! Moving averages: of the last two values, the second counts a quarter.
    call cz_zero_create(zero, group, model, 'sgd', [cz_hyper('lr', 1d0)], average_decay=0.75d0)
    w = 0
    g = 1
    call cz_zero_step(zero)
    call cz_zero_step(zero)
    call cz_zero_evaluate(zero, .true.)
    call check(all(w == -1.25), 'what is evaluated is the average')
    call cz_zero_step(zero, status=status, message=why)
    call expect(status, CZ_ERR_STATE, why, 'brings back')
    call cz_zero_evaluate(zero, .false.)
    call check(all(w == -2), 'and then the value')
    call cz_zero_destroy(zero)

    ! An optimizer without shards takes it over.
    call cz_optim_create(optim, model, 'adam', groups=[cz_param_group([0]), cz_param_group([1])], &
        threads=1)
    call cz_optim_load_state_dict(optim, dict, CZ_MISSING_REFUSE)
    call cz_optim_get_hyper(optim, 1, 'lr', value)
    call check(value == 0.1d0, 'a rate that was loaded')
    call cz_state_dict_destroy(dict)
    call cz_optim_step(optim, result, norm=.true.)
    call check(abs(result%norm - sqrt(28d0)) < 1e-12, 'the norm without shards')
    call cz_optim_state_dict(optim, dict)
    call check(cz_state_dict_has(dict, 'state'), 'its state')
    call cz_optim_get_info(optim, count, skipped, bytes)
    call check(count == 2 .and. skipped == 0 .and. bytes >= 80, 'its info')
    call cz_optim_zero_grad(optim)
    call check(all(gv == 0), 'its gradients')
    call cz_state_dict_destroy(dict)
    call cz_optim_destroy(optim)

    ! What one rank needs, and what there is of others.
    call cz_shapes_from_model(shapes, model)
    call cz_plan_create(plan, shapes, 1, 'adam', [cz_hyper('amsgrad', .true.)])
    call cz_plan_rank(plan, 0, memory)
    call check(memory%param_bytes == 40 .and. memory%gradient_bytes == 40 .and. &
        memory%state_bytes >= 120 .and. memory%training_bytes > 200, 'ten elements')
    call cz_plan_rank(plan, 1, memory, status, why)
    call expect(status, CZ_ERR_ARGUMENT, why, '1')
    call cz_plan_destroy(plan)
    call cz_plan_create(plan, shapes, 2, 'adam', [cz_hyper('speed', 1)], status=status, message=why)
    call expect(status, CZ_ERR_ARGUMENT, why, 'speed')
    call cz_shapes_destroy(shapes)

    call cz_model_destroy(model)
    call cz_group_destroy(group)
    call deals_out_samples()
    call check(cz_random_uniform(1_int64, 2_int64, 3_int64) >= 0, 'a random number')
    call check(cz_random_normal(1_int64, 2_int64, 3_int64) /= &
        cz_random_normal(1_int64, 2_int64, 4_int64), 'and others')
    call check(cz_memory_bytes(CZ_MEMORY_STATE) == 0, 'nothing is left')
    call ended()

contains

    ! Two ranks have all of them once in an epoch; one goes on where it was.
    subroutine deals_out_samples()
        type(cz_sampler) :: first, second
        integer :: samples(4), again(4), seen(10), batch, found
        integer(int64) :: position
        call cz_sampler_create(first, 10, 5, 0, 2, 9_int64)
        call cz_sampler_create(second, 10, 5, 1, 2, 9_int64)
        call cz_sampler_get_info(first, batch, position)
        call check(batch == 3 .and. position == 0, 'three of five')
        seen = 0
        do batch = 1, 2
            call cz_sampler_next(first, samples, found)
            seen(samples(:found)) = seen(samples(:found)) + 1
            call cz_sampler_next(second, samples, found)
            call check(found == 2, 'two of five')
            seen(samples(:found)) = seen(samples(:found)) + 1
        end do
        call check(all(seen == 1), 'each once')
        call cz_sampler_set_position(second, 5_int64)
        call cz_sampler_next(second, again, found)
        call check(all(samples(:2) == again(:2)), 'once more')
        call cz_sampler_next(first, samples(:2), found, status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'there is room for 2 samples, wanted for 3')
        call cz_sampler_destroy(first)
        call cz_sampler_create(first, 10, 5, in_order=.true., part_count=5)
        call cz_sampler_next(first, samples, found)
        call check(found == 1 .and. samples(1) == 1, 'the first part')
        call cz_sampler_destroy(first)
        call cz_sampler_destroy(second)
    end subroutine
end program
