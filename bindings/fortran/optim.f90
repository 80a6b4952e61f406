! SPDX-License-Identifier: MIT
! Update rules by name, hyper-parameters by name, parameter groups, steps, and the optimizer of one
! process: czero/rule.h and czero/optim.h.
module czero_optim
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int64, real64
    use czero_state, only: cz_state_dict
    use czero_support
    use czero_tensor, only: cz_model
    implicit none
    private
    public :: cz_hyper, cz_param_group, cz_step_result, cz_optim, cz_optim_create, cz_optim_destroy
    public :: cz_optim_step, cz_optim_zero_grad, cz_optim_get_info, cz_optim_set_hyper
    public :: cz_optim_get_hyper, cz_optim_add_hyper, cz_optim_state_dict, cz_optim_load_state_dict
    public :: cz_optim_evaluate
    ! For the modules beside this one:
    public :: find_rule, rule_in_words, hyper_list, make_hyper_list, c_param_group, group_list
    public :: make_group_list, step_options, make_step_options, step_result, take_step_result
    public :: moving_average, make_average

    integer, parameter, public :: CZ_ALL_GROUPS = -1
    integer, parameter, public :: CZ_MISSING_NONE = 0, CZ_MISSING_KEEP = 1, CZ_MISSING_REFUSE = 2

    integer, parameter :: name_length = 64 ! one more than a name may have

    ! cz_hyper('lr', 1d-3): a value by its name. Not 1e-3, which is another number: 0.001 in single
    ! precision. So reals are of double precision, and flags may be LOGICAL.
    type :: cz_hyper
        private
        character(name_length) :: name = ''
        real(real64) :: value = 0
    end type
    interface cz_hyper
        procedure hyper_real, hyper_integer, hyper_logical
    end interface

    ! cz_param_group([0, 1], [cz_hyper('weight_decay', 0)]): parameters by their numbers, and what
    ! differs from the optimizer's own list; or from the defaults of a rule of its own, rule='sgd'.
    ! `granule`: below which sharding does not cut them, a number of elements or one of the two.
    integer, parameter, public :: CZ_GRANULE_ROW = -1, CZ_GRANULE_WHOLE = -2
    type :: cz_param_group
        private
        integer(c_int64_t), allocatable :: params(:)
        type(cz_hyper), allocatable :: hypers(:)
        character(:), allocatable :: rule
        integer(c_int64_t) :: granule = 0
    end type
    interface cz_param_group
        procedure new_param_group
    end interface

    type :: cz_step_result
        ! L2, of all gradients, before they are clipped; NaN where nothing asked for it.
        real(real64) :: norm = 0
        ! Nothing was updated: option skip_nonfinite.
        logical :: skipped = .false.
    end type

    type :: cz_optim
        type(c_ptr) :: handle = c_null_ptr
    end type

    type, bind(C) :: c_hyper
        type(c_ptr) :: name = c_null_ptr
        real(c_double) :: value = 0
    end type

    type, bind(C) :: c_param_group
        integer(c_size_t) :: size = 0
        type(c_ptr) :: params = c_null_ptr
        integer(c_int64_t) :: param_count = 0
        type(c_ptr) :: hypers = c_null_ptr
        integer(c_int) :: master = 0
        integer(c_int) :: state_dtype = 0
        type(c_ptr) :: rule = c_null_ptr
        integer(c_int64_t) :: granule = 0
        type(c_ptr) :: average = c_null_ptr
    end type

    type, bind(C) :: moving_average
        integer(c_size_t) :: size = 0
        integer(c_int) :: kind = 0
        integer(c_int32_t) :: warm_up = 0
        real(c_double) :: decay = 0
        integer(c_int64_t) :: start = 0
        integer(c_int64_t) :: every = 0
    end type

    ! What C reads during a call; variables of these types have to be TARGETs.
    type :: hyper_list
        type(text_list) :: names
        type(c_hyper), allocatable :: entries(:)
        type(c_ptr) :: address = c_null_ptr
    end type
    type :: group_list
        type(cz_param_group), allocatable :: copies(:)
        type(hyper_list), allocatable :: hypers(:)
        type(c_param_group), allocatable :: entries(:)
        type(c_ptr) :: address = c_null_ptr
        integer(c_int64_t) :: count = 0
        character(:), allocatable :: unknown ! a rule that there is not
    end type
    ! In the place of such a rule: a table that the library refuses.
    integer(c_int64_t), target, save :: no_rule(2) = 0

    type, bind(C) :: step_options
        integer(c_size_t) :: size = 0
        type(c_funptr) :: closure = c_null_funptr
        type(c_ptr) :: closure_context = c_null_ptr
        type(c_ptr) :: argument = c_null_ptr
        type(c_ptr) :: gradients = c_null_ptr
        integer(c_int64_t) :: gradient_count = 0
        real(c_double) :: max_norm = 0
        integer(c_int32_t) :: skip_nonfinite = 0
        integer(c_int32_t) :: norm = 0
        integer(c_int32_t) :: allow_no_gradients = 0
        integer(c_int32_t) :: reserved = 0
        type(c_ptr) :: loss_scale = c_null_ptr
    end type

    type, bind(C) :: step_result
        integer(c_size_t) :: size = 0
        real(c_double) :: loss = 0
        real(c_double) :: norm = 0
        integer(c_int32_t) :: skipped = 0
        integer(c_int32_t) :: reserved = 0
    end type

    type, bind(C) :: optim_options
        integer(c_size_t) :: size = 0
        type(c_ptr) :: groups = c_null_ptr
        integer(c_int64_t) :: group_count = 0
        integer(c_int32_t) :: threads = 0
        integer(c_int32_t) :: reserved = 0
        integer(c_int) :: master = 0
        integer(c_int) :: state_dtype = 0
        integer(c_int64_t) :: seed = 0
        type(c_ptr) :: average = c_null_ptr
        integer(c_int64_t) :: u8_from = 0
    end type

    type, bind(C) :: optim_info
        integer(c_size_t) :: size = 0
        type(c_ptr) :: rule = c_null_ptr
        integer(c_int64_t) :: group_count = 0
        integer(c_int64_t) :: skip_count = 0
        integer(c_size_t) :: state_bytes = 0
    end type

    type, bind(C) :: optim_load_options
        integer(c_size_t) :: size = 0
        integer(c_int) :: missing = 0
        integer(c_int32_t) :: reserved = 0
    end type

    interface
        integer(c_int) function c_optim_evaluate(optim, evaluated) bind(C, name='cz_optim_evaluate')
            import
            type(c_ptr), value :: optim
            logical(c_bool), value :: evaluated
        end function
        type(c_ptr) function c_rule_find(name) bind(C, name='cz_rule_find')
            import
            character(kind=c_char), intent(in) :: name(*)
        end function
        type(c_ptr) function c_rule_name(index) bind(C, name='cz_rule_name')
            import
            integer(c_int), value :: index
        end function
        integer(c_int) function c_optim_create(out, model, rule, hypers, options) &
            bind(C, name='cz_optim_create')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: model, rule, hypers
            type(optim_options), intent(in) :: options
        end function
        subroutine c_optim_destroy(optim) bind(C, name='cz_optim_destroy')
            import
            type(c_ptr), intent(inout) :: optim
        end subroutine
        integer(c_int) function c_optim_step(optim, options, outcome) bind(C, name='cz_optim_step')
            import
            type(c_ptr), value :: optim, options
            type(step_result), intent(inout) :: outcome
        end function
        integer(c_int) function c_optim_zero_grad(optim, to_none) bind(C, name='cz_optim_zero_grad')
            import
            type(c_ptr), value :: optim
            logical(c_bool), value :: to_none
        end function
        integer(c_int) function c_optim_get_info(optim, info) bind(C, name='cz_optim_get_info')
            import
            type(c_ptr), value :: optim
            type(optim_info), intent(inout) :: info
        end function
        integer(c_int) function c_optim_set_hyper(optim, param_group, name, number) &
            bind(C, name='cz_optim_set_hyper')
            import
            type(c_ptr), value :: optim
            integer(c_int64_t), value :: param_group
            character(kind=c_char), intent(in) :: name(*)
            real(c_double), value :: number
        end function
        integer(c_int) function c_optim_get_hyper(optim, param_group, name, number) &
            bind(C, name='cz_optim_get_hyper')
            import
            type(c_ptr), value :: optim
            integer(c_int64_t), value :: param_group
            character(kind=c_char), intent(in) :: name(*)
            real(c_double), intent(inout) :: number
        end function
        integer(c_int) function c_optim_add_hyper(optim, param_group, name, number) &
            bind(C, name='cz_optim_add_hyper')
            import
            type(c_ptr), value :: optim
            integer(c_int64_t), value :: param_group
            character(kind=c_char), intent(in) :: name(*)
            real(c_double), value :: number
        end function
        integer(c_int) function c_optim_state_dict(optim, out) bind(C, name='cz_optim_state_dict')
            import
            type(c_ptr), value :: optim
            type(c_ptr), intent(out) :: out
        end function
        integer(c_int) function c_optim_load_state_dict(optim, dict, options) &
            bind(C, name='cz_optim_load_state_dict')
            import
            type(c_ptr), value :: optim, dict
            type(optim_load_options), intent(in) :: options
        end function
    end interface

contains

    elemental type(cz_hyper) function hyper_real(name, value) result(hyper)
        character(*), intent(in) :: name
        real(real64), intent(in) :: value
        hyper%name = name
        hyper%value = value
    end function

    elemental type(cz_hyper) function hyper_integer(name, value) result(hyper)
        character(*), intent(in) :: name
        integer, intent(in) :: value
        hyper%name = name
        hyper%value = value
    end function

    elemental type(cz_hyper) function hyper_logical(name, value) result(hyper)
        character(*), intent(in) :: name
        logical, intent(in) :: value
        hyper%name = name
        hyper%value = merge(1, 0, value)
    end function

    type(cz_param_group) function new_param_group(params, hypers, rule, granule) result(group)
        integer, intent(in) :: params(:)
        type(cz_hyper), intent(in), optional :: hypers(:)
        character(*), intent(in), optional :: rule
        integer, intent(in), optional :: granule
        allocate (group%params(size(params)))
        group%params(:) = params
        if (present(hypers)) allocate (group%hypers, source=hypers)
        if (present(rule)) group%rule = rule
        if (present(granule)) group%granule = granule
    end function

    type(c_ptr) function find_rule(name)
        character(*), intent(in) :: name
        find_rule = c_rule_find(to_c(name))
    end function

    ! A rule that is not there is NULL in C, of which all ranks learn in a call that is collective.
    ! Here the sentence has its name, and those that there are.
    integer(c_int) function rule_in_words(code, what, rule, groups)
        integer(c_int), intent(in) :: code
        character(*), intent(in) :: what
        character(*), intent(in), optional :: rule
        type(group_list), intent(in), optional :: groups
        character(:), allocatable :: names, missing
        integer(c_int) :: i
        rule_in_words = code
        if (code == CZ_ERR_ARGUMENT .and. present(rule)) then
            if (.not. c_associated(find_rule(rule))) missing = rule
        end if
        if (code == CZ_ERR_UNSUPPORTED .and. present(groups)) then
            if (allocated(groups%unknown)) missing = groups%unknown
        end if
        if (.not. allocated(missing)) return
        names = to_fortran(c_rule_name(0_c_int))
        i = 1
        do while (c_associated(c_rule_name(i)))
            names = names//', '//to_fortran(c_rule_name(i))
            i = i + 1
        end do
        rule_in_words = refuse(what//": there is no rule '"//trim(missing)//"'; there are "//names)
    end function

    subroutine make_hyper_list(list, hypers)
        type(hyper_list), target, intent(out) :: list
        type(cz_hyper), intent(in), optional :: hypers(:)
        integer :: i
        if (.not. present(hypers)) return
        call make_text_list(list%names, hypers%name)
        allocate (list%entries(size(hypers) + 1))
        do i = 1, size(hypers)
            list%entries(i)%name = list%names%addresses(i)
            list%entries(i)%value = hypers(i)%value
        end do
        list%address = c_loc(list%entries)
    end subroutine

    subroutine make_group_list(list, groups)
        type(group_list), target, intent(out) :: list
        type(cz_param_group), intent(in), optional :: groups(:)
        integer :: i
        if (.not. present(groups)) return
        allocate (list%copies, source=groups)
        allocate (list%hypers(size(groups)), list%entries(size(groups)))
        do i = 1, size(groups)
            list%entries(i)%size = c_sizeof(list%entries(i))
            list%entries(i)%granule = list%copies(i)%granule
            if (allocated(list%copies(i)%params)) then
                list%entries(i)%param_count = size(list%copies(i)%params)
                if (list%entries(i)%param_count > 0) &
                    list%entries(i)%params = c_loc(list%copies(i)%params)
            end if
            if (allocated(list%copies(i)%hypers)) then
                call make_hyper_list(list%hypers(i), list%copies(i)%hypers)
                list%entries(i)%hypers = list%hypers(i)%address
            end if
            if (allocated(list%copies(i)%rule)) then
                list%entries(i)%rule = find_rule(list%copies(i)%rule)
                if (c_associated(list%entries(i)%rule)) cycle
                list%entries(i)%rule = c_loc(no_rule)
                list%unknown = list%copies(i)%rule
            end if
        end do
        list%count = size(groups)
        if (list%count > 0) list%address = c_loc(list%entries)
    end subroutine

    ! Without any option the address is NULL, which is what an optimizer that steps inside passes
    ! wants.
    type(c_ptr) function make_step_options(options, max_norm, skip_nonfinite, norm, &
            allow_no_gradients) result(address)
        type(step_options), target, intent(out) :: options
        real(real64), intent(in), optional :: max_norm
        logical, intent(in), optional :: skip_nonfinite, norm, allow_no_gradients
        options%size = c_sizeof(options)
        if (present(max_norm)) options%max_norm = max_norm
        options%skip_nonfinite = to_flag(skip_nonfinite)
        options%norm = to_flag(norm)
        options%allow_no_gradients = to_flag(allow_no_gradients)
        address = c_null_ptr
        if (present(max_norm) .or. present(skip_nonfinite) .or. present(norm) .or. &
            present(allow_no_gradients)) address = c_loc(options)
    end function

    ! An exponential moving average; NULL where none is wanted.
    type(c_ptr) function make_average(average, decay) result(address)
        type(moving_average), target, intent(out) :: average
        real(real64), intent(in), optional :: decay
        address = c_null_ptr
        if (.not. present(decay)) return
        average%size = c_sizeof(average)
        average%kind = 1 ! CZ_MOVING_AVERAGE_EMA
        average%decay = decay
        address = c_loc(average)
    end function

    subroutine take_step_result(outcome, result)
        type(step_result), intent(in) :: outcome
        type(cz_step_result), intent(inout), optional :: result
        if (.not. present(result)) return
        result%norm = outcome%norm
        result%skipped = outcome%skipped /= 0
    end subroutine

    ! `average_decay`: of an exponential moving average of values; see cz_optim_evaluate.
    subroutine cz_optim_create(optim, model, rule, hypers, groups, threads, average_decay, &
            status, message)
        type(cz_optim), intent(out) :: optim
        type(cz_model), intent(in) :: model
        character(*), intent(in) :: rule
        type(cz_hyper), intent(in), optional :: hypers(:)
        type(cz_param_group), intent(in), optional :: groups(:)
        integer, intent(in), optional :: threads
        real(real64), intent(in), optional :: average_decay
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(hyper_list), target :: list
        type(group_list), target :: all_groups
        type(moving_average), target :: average
        type(optim_options) :: options
        call make_hyper_list(list, hypers)
        call make_group_list(all_groups, groups)
        options%size = c_sizeof(options)
        options%groups = all_groups%address
        options%group_count = all_groups%count
        if (present(threads)) options%threads = threads
        options%average = make_average(average, average_decay)
        call finish(rule_in_words(c_optim_create(optim%handle, model%handle, find_rule(rule), &
            list%address, options), 'optim', rule, all_groups), status, message)
    end subroutine

    ! What is evaluated in the place of what trains, and with .false. back.
    subroutine cz_optim_evaluate(optim, evaluated, status, message)
        type(cz_optim), intent(in) :: optim
        logical, intent(in) :: evaluated
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_optim_evaluate(optim%handle, logical(evaluated, c_bool)), status, message)
    end subroutine

    subroutine cz_optim_destroy(optim)
        type(cz_optim), intent(inout) :: optim
        call c_optim_destroy(optim%handle)
    end subroutine

    subroutine cz_optim_step(optim, result, max_norm, skip_nonfinite, norm, allow_no_gradients, &
            status, message)
        type(cz_optim), intent(in) :: optim
        type(cz_step_result), intent(inout), optional :: result
        real(real64), intent(in), optional :: max_norm
        logical, intent(in), optional :: skip_nonfinite, norm, allow_no_gradients
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(step_options), target :: options
        type(step_result) :: outcome
        integer(c_int) :: code
        outcome%size = c_sizeof(outcome)
        code = c_optim_step(optim%handle, make_step_options(options, max_norm, skip_nonfinite, &
            norm, allow_no_gradients), outcome)
        call take_step_result(outcome, result)
        call finish(code, status, message)
    end subroutine

    subroutine cz_optim_zero_grad(optim, to_none, status, message)
        type(cz_optim), intent(in) :: optim
        logical, intent(in), optional :: to_none
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_optim_zero_grad(optim%handle, logical(to_flag(to_none) /= 0, c_bool)), &
            status, message)
    end subroutine

    subroutine cz_optim_get_info(optim, group_count, skip_count, state_bytes, status, message)
        type(cz_optim), intent(in) :: optim
        integer, intent(out), optional :: group_count
        integer(int64), intent(out), optional :: skip_count, state_bytes
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(optim_info) :: info
        integer(c_int) :: code
        info%size = c_sizeof(info)
        code = c_optim_get_info(optim%handle, info)
        if (present(group_count)) group_count = int(info%group_count)
        if (present(skip_count)) skip_count = info%skip_count
        if (present(state_bytes)) state_bytes = info%state_bytes
        call finish(code, status, message)
    end subroutine

    ! Of a parameter group, 0, 1, …, or of CZ_ALL_GROUPS; from the next step on.
    subroutine cz_optim_set_hyper(optim, param_group, name, value, status, message)
        type(cz_optim), intent(in) :: optim
        integer, intent(in) :: param_group
        character(*), intent(in) :: name
        real(real64), intent(in) :: value
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_optim_set_hyper(optim%handle, int(param_group, c_int64_t), to_c(name), &
            value), status, message)
    end subroutine

    subroutine cz_optim_get_hyper(optim, param_group, name, value, status, message)
        type(cz_optim), intent(in) :: optim
        integer, intent(in) :: param_group
        character(*), intent(in) :: name
        real(real64), intent(inout) :: value
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_optim_get_hyper(optim%handle, int(param_group, c_int64_t), to_c(name), &
            value), status, message)
    end subroutine

    ! A value that the rule does not know, which is kept and saved with the group.
    subroutine cz_optim_add_hyper(optim, param_group, name, value, status, message)
        type(cz_optim), intent(in) :: optim
        integer, intent(in) :: param_group
        character(*), intent(in) :: name
        real(real64), intent(in) :: value
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_optim_add_hyper(optim%handle, int(param_group, c_int64_t), to_c(name), &
            value), status, message)
    end subroutine

    subroutine cz_optim_state_dict(optim, dict, status, message)
        type(cz_optim), intent(in) :: optim
        type(cz_state_dict), intent(out) :: dict
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_optim_state_dict(optim%handle, dict%handle), status, message)
    end subroutine

    ! `missing`: CZ_MISSING_NONE, which is the default, CZ_MISSING_KEEP or CZ_MISSING_REFUSE.
    subroutine cz_optim_load_state_dict(optim, dict, missing, status, message)
        type(cz_optim), intent(in) :: optim
        type(cz_state_dict), intent(in) :: dict
        integer, intent(in), optional :: missing
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(optim_load_options) :: options
        options%size = c_sizeof(options)
        if (present(missing)) options%missing = missing
        call finish(c_optim_load_state_dict(optim%handle, dict%handle, options), status, message)
    end subroutine
end module
