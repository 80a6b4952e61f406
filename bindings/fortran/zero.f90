! SPDX-License-Identifier: MIT
! The sharded optimizer: czero/zero.h. Values and gradients are those of the model, in the program's
! arrays, which a step changes.
module czero_zero
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int64, real64
    use czero_ddp, only: cz_ddp
    use czero_group, only: cz_group
    use czero_join, only: cz_joinable, new_joinable
    use czero_optim
    use czero_parts, only: cz_parts
    use czero_state, only: cz_state_dict
    use czero_support
    use czero_tensor, only: cz_model
    implicit none
    private
    public :: cz_zero, cz_zero_create, cz_zero_destroy, cz_zero_step, cz_zero_set_overlap
    public :: cz_zero_zero_grad, cz_zero_wait_param, cz_zero_broadcast_parameters
    public :: cz_zero_check_replicas, cz_zero_add_param_group, cz_zero_local_optim, cz_zero_get_info
    public :: cz_zero_consolidate_state_dict, cz_zero_state_dict, cz_zero_load_state_dict
    public :: cz_zero_fingerprint, cz_zero_joinable, cz_zero_set_weight, cz_zero_evaluate

    integer, parameter, public :: CZ_PARTITION_ELEMENTS = 0, CZ_PARTITION_GREEDY = 1, &
        CZ_PARTITION_GIVEN = 2, CZ_PARTITION_BUCKETS = 3, CZ_PARTITION_BUCKET_PIECES = 4
    integer, parameter, public :: CZ_GRADIENTS_LOCAL = 0, CZ_GRADIENTS_REDUCED = 1, &
        CZ_GRADIENTS_SUM = 2
    integer, parameter, public :: CZ_OVERLAP_NONE = 0, CZ_OVERLAP_INTERLEAVED = 1, &
        CZ_OVERLAP_STEP = 2
    integer, parameter, public :: CZ_ALL_RANKS = -1

    type :: cz_zero
        type(c_ptr) :: handle = c_null_ptr
    end type

    type, bind(C) :: zero_options
        integer(c_size_t) :: size = 0
        integer(c_int) :: partition = 0
        integer(c_int) :: gradients = 0
        type(c_ptr) :: groups = c_null_ptr
        integer(c_int64_t) :: group_count = 0
        type(c_ptr) :: owners = c_null_ptr
        integer(c_int64_t) :: owner_count = 0
        integer(c_int32_t) :: parameters_as_bucket_view = 0
        integer(c_int) :: overlap = 0
        type(c_funptr) :: moved = c_null_funptr
        type(c_ptr) :: moved_context = c_null_ptr
        type(c_ptr) :: ddp = c_null_ptr
        integer(c_int32_t) :: overlap_gather = 0
        integer(c_int32_t) :: threads = 0
        type(c_ptr) :: parts = c_null_ptr
        integer(c_int) :: master = 0
        integer(c_int) :: state_dtype = 0
        integer(c_int64_t) :: seed = 0
        type(c_ptr) :: average = c_null_ptr
        integer(c_int64_t) :: u8_from = 0
    end type

    type, bind(C) :: zero_info
        integer(c_size_t) :: size = 0
        type(c_ptr) :: group = c_null_ptr
        type(c_ptr) :: model = c_null_ptr
        type(c_ptr) :: ddp = c_null_ptr
        type(c_ptr) :: device = c_null_ptr
        integer(c_int) :: partition = 0
        integer(c_int) :: gradients = 0
        integer(c_int) :: overlap = 0
        integer(c_int) :: overlap_status = 0
        integer(c_int64_t) :: group_count = 0
        integer(c_int64_t) :: skip_count = 0
        integer(c_size_t) :: state_bytes = 0
        type(c_ptr) :: shard_map = c_null_ptr
    end type

    interface
        integer(c_int) function c_create(out, group, model, rule, hypers, options) &
            bind(C, name='cz_zero_create')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: group, model, rule, hypers
            type(zero_options), intent(in) :: options
        end function
        subroutine c_destroy(zero) bind(C, name='cz_zero_destroy')
            import
            type(c_ptr), intent(inout) :: zero
        end subroutine
        integer(c_int) function c_step(zero, options, outcome) bind(C, name='cz_zero_step')
            import
            type(c_ptr), value :: zero, options
            type(step_result), intent(inout) :: outcome
        end function
        integer(c_int) function c_set_overlap(zero, overlap, options) &
            bind(C, name='cz_zero_set_overlap')
            import
            type(c_ptr), value :: zero, options
            integer(c_int), value :: overlap
        end function
        integer(c_int) function c_evaluate(zero, evaluated) bind(C, name='cz_zero_evaluate')
            import
            type(c_ptr), value :: zero
            logical(c_bool), value :: evaluated
        end function
        integer(c_int) function c_set_weight(zero, weight) bind(C, name='cz_zero_set_weight')
            import
            type(c_ptr), value :: zero
            real(c_double), value :: weight
        end function
        integer(c_int) function c_zero_grad(optim, to_none) bind(C, name='cz_optim_zero_grad')
            import
            type(c_ptr), value :: optim
            logical(c_bool), value :: to_none
        end function
        integer(c_int) function c_wait_param(zero, param) bind(C, name='cz_zero_wait_param')
            import
            type(c_ptr), value :: zero
            integer(c_int64_t), value :: param
        end function
        integer(c_int) function c_broadcast_parameters(zero, root) &
            bind(C, name='cz_zero_broadcast_parameters')
            import
            type(c_ptr), value :: zero
            integer(c_int), value :: root
        end function
        integer(c_int) function c_check_replicas(zero) bind(C, name='cz_zero_check_replicas')
            import
            type(c_ptr), value :: zero
        end function
        integer(c_int) function c_add_param_group(zero, group) &
            bind(C, name='cz_zero_add_param_group')
            import
            type(c_ptr), value :: zero, group
        end function
        type(c_ptr) function c_local_optim(zero) bind(C, name='cz_zero_local_optim')
            import
            type(c_ptr), value :: zero
        end function
        integer(c_int) function c_get_info(zero, info) bind(C, name='cz_zero_get_info')
            import
            type(c_ptr), value :: zero
            type(zero_info), intent(inout) :: info
        end function
        integer(c_int) function c_consolidate(zero, to) &
            bind(C, name='cz_zero_consolidate_state_dict')
            import
            type(c_ptr), value :: zero
            integer(c_int), value :: to
        end function
        integer(c_int) function c_state_dict(zero, out) bind(C, name='cz_zero_state_dict')
            import
            type(c_ptr), value :: zero
            type(c_ptr), intent(out) :: out
        end function
        integer(c_int) function c_load_state_dict(zero, dict) &
            bind(C, name='cz_zero_load_state_dict')
            import
            type(c_ptr), value :: zero, dict
        end function
        integer(c_int) function c_fingerprint(zero, words) bind(C, name='cz_zero_fingerprint')
            import
            type(c_ptr), value :: zero
            integer(c_int64_t), intent(inout) :: words(2)
        end function
        integer(c_int) function c_joinable(zero, out) bind(C, name='cz_zero_joinable')
            import
            type(c_ptr), value :: zero
            type(cz_joinable), intent(inout) :: out
        end function
    end interface

contains

    ! A rule by its name, 'adamw', and its hyper-parameters: [cz_hyper('lr', 1d-3), ...]. `owners`:
    ! a rank for each parameter, with CZ_PARTITION_GIVEN. `average_decay`: of an exponential moving
    ! average of values; see cz_zero_evaluate.
    subroutine cz_zero_create(zero, group, model, rule, hypers, groups, partition, owners, &
            gradients, ddp, overlap, overlap_gather, parts, threads, average_decay, status, message)
        type(cz_zero), intent(out) :: zero
        type(cz_group), intent(in) :: group
        type(cz_model), intent(in) :: model
        character(*), intent(in) :: rule
        type(cz_hyper), intent(in), optional :: hypers(:)
        type(cz_param_group), intent(in), optional :: groups(:)
        integer, intent(in), optional :: partition
        integer, intent(in), optional, target, contiguous :: owners(:)
        integer, intent(in), optional :: gradients
        type(cz_ddp), intent(in), optional :: ddp
        integer, intent(in), optional :: overlap
        logical, intent(in), optional :: overlap_gather
        type(cz_parts), intent(in), optional :: parts
        integer, intent(in), optional :: threads
        real(real64), intent(in), optional :: average_decay
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(hyper_list), target :: list
        type(group_list), target :: all_groups
        type(moving_average), target :: average
        type(zero_options) :: options
        call make_hyper_list(list, hypers)
        call make_group_list(all_groups, groups)
        options%size = c_sizeof(options)
        options%groups = all_groups%address
        options%group_count = all_groups%count
        if (present(partition)) options%partition = partition
        if (present(gradients)) options%gradients = gradients
        if (present(owners)) then
            options%owners = c_loc(owners)
            options%owner_count = size(owners)
        end if
        if (present(overlap)) options%overlap = overlap
        if (present(ddp)) options%ddp = ddp%handle
        options%overlap_gather = to_flag(overlap_gather)
        if (present(threads)) options%threads = threads
        if (present(parts)) options%parts = parts%handle
        options%average = make_average(average, average_decay)
        call finish(rule_in_words(c_create(zero%handle, group%handle, model%handle, &
            find_rule(rule), list%address, options), 'zero', rule, all_groups), status, message)
    end subroutine

    subroutine cz_zero_destroy(zero)
        type(cz_zero), intent(inout) :: zero
        call c_destroy(zero%handle)
    end subroutine

    subroutine cz_zero_step(zero, result, max_norm, skip_nonfinite, norm, allow_no_gradients, &
            status, message)
        type(cz_zero), intent(in) :: zero
        type(cz_step_result), intent(inout), optional :: result
        real(real64), intent(in), optional :: max_norm
        logical, intent(in), optional :: skip_nonfinite, norm, allow_no_gradients
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(step_options), target :: options
        type(step_result) :: outcome
        integer(c_int) :: code
        outcome%size = c_sizeof(outcome)
        code = c_step(zero%handle, make_step_options(options, max_norm, skip_nonfinite, norm, &
            allow_no_gradients), outcome)
        call take_step_result(outcome, result)
        call finish(code, status, message)
    end subroutine

    ! Where steps are made, and the options of those inside passes.
    subroutine cz_zero_set_overlap(zero, overlap, max_norm, skip_nonfinite, norm, &
            allow_no_gradients, status, message)
        type(cz_zero), intent(in) :: zero
        integer, intent(in) :: overlap
        real(real64), intent(in), optional :: max_norm
        logical, intent(in), optional :: skip_nonfinite, norm, allow_no_gradients
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(step_options), target :: options
        call finish(c_set_overlap(zero%handle, overlap, make_step_options(options, max_norm, &
            skip_nonfinite, norm, allow_no_gradients)), status, message)
    end subroutine

    ! What is evaluated in the place of what trains, on all ranks, and with .false. back.
    subroutine cz_zero_evaluate(zero, evaluated, status, message)
        type(cz_zero), intent(in) :: zero
        logical, intent(in) :: evaluated
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_evaluate(zero%handle, logical(evaluated, c_bool)), status, message)
    end subroutine

    ! Of this rank's gradients in the mean that steps make, such as the samples of its batch.
    subroutine cz_zero_set_weight(zero, weight, status, message)
        type(cz_zero), intent(in) :: zero
        real(real64), intent(in) :: weight
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_set_weight(zero%handle, weight), status, message)
    end subroutine

    subroutine cz_zero_zero_grad(zero, to_none, status, message)
        type(cz_zero), intent(in) :: zero
        logical, intent(in), optional :: to_none
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_zero_grad(c_local_optim(zero%handle), logical(to_flag(to_none) /= 0, &
            c_bool)), status, message)
    end subroutine

    subroutine cz_zero_wait_param(zero, param, status, message)
        type(cz_zero), intent(in) :: zero
        integer, intent(in) :: param
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_wait_param(zero%handle, int(param, c_int64_t)), status, message)
    end subroutine

    subroutine cz_zero_broadcast_parameters(zero, root, status, message)
        type(cz_zero), intent(in) :: zero
        integer, intent(in) :: root
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_broadcast_parameters(zero%handle, root), status, message)
    end subroutine

    subroutine cz_zero_check_replicas(zero, status, message)
        type(cz_zero), intent(in) :: zero
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_check_replicas(zero%handle), status, message)
    end subroutine

    subroutine cz_zero_add_param_group(zero, group, status, message)
        type(cz_zero), intent(in) :: zero
        type(cz_param_group), intent(in) :: group
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(group_list), target :: list
        call make_group_list(list, [group])
        call finish(rule_in_words(c_add_param_group(zero%handle, list%address), 'zero', &
            groups=list), status, message)
    end subroutine

    ! Where schedulers and the program set and read hyper-parameters, alike on every rank. It
    ! belongs to the sharded optimizer.
    type(cz_optim) function cz_zero_local_optim(zero)
        type(cz_zero), intent(in) :: zero
        cz_zero_local_optim%handle = c_local_optim(zero%handle)
    end function

    subroutine cz_zero_get_info(zero, partition, group_count, skip_count, state_bytes, status, &
        message)
        type(cz_zero), intent(in) :: zero
        integer, intent(out), optional :: partition, group_count
        integer(int64), intent(out), optional :: skip_count, state_bytes
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(zero_info) :: info
        integer(c_int) :: code
        info%size = c_sizeof(info)
        code = c_get_info(zero%handle, info)
        if (present(partition)) partition = info%partition
        if (present(group_count)) group_count = int(info%group_count)
        if (present(skip_count)) skip_count = info%skip_count
        if (present(state_bytes)) state_bytes = info%state_bytes
        call finish(code, status, message)
    end subroutine

    ! On rank `to`, or on CZ_ALL_RANKS.
    subroutine cz_zero_consolidate_state_dict(zero, to, status, message)
        type(cz_zero), intent(in) :: zero
        integer, intent(in) :: to
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_consolidate(zero%handle, to), status, message)
    end subroutine

    ! What was consolidated here; for cz_state_dict_destroy().
    subroutine cz_zero_state_dict(zero, dict, status, message)
        type(cz_zero), intent(in) :: zero
        type(cz_state_dict), intent(out) :: dict
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_state_dict(zero%handle, dict%handle), status, message)
    end subroutine

    subroutine cz_zero_load_state_dict(zero, dict, status, message)
        type(cz_zero), intent(in) :: zero
        type(cz_state_dict), intent(in) :: dict
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_load_state_dict(zero%handle, dict%handle), status, message)
    end subroutine

    ! A number of 128 bits for all values and all state, the same on any number of ranks.
    subroutine cz_zero_fingerprint(zero, fingerprint, status, message)
        type(cz_zero), intent(in) :: zero
        integer(int64), intent(inout) :: fingerprint(2)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_fingerprint(zero%handle, fingerprint), status, message)
    end subroutine

    subroutine cz_zero_joinable(zero, joinable, status, message)
        type(cz_zero), intent(in) :: zero
        type(cz_joinable), intent(out) :: joinable
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        joinable = new_joinable()
        call finish(c_joinable(zero%handle, joinable), status, message)
    end subroutine
end module
