! SPDX-License-Identifier: MIT
! Memory of a rank and bytes that it sends, before anything is allocated: czero/plan.h.
module czero_plan
    use, intrinsic :: iso_c_binding
    use czero_optim, only: cz_hyper, find_rule, hyper_list, make_hyper_list, rule_in_words
    use czero_support
    use czero_tensor, only: cz_model
    implicit none
    private
    public :: cz_shapes, cz_shapes_from_model, cz_shapes_read, cz_shapes_destroy
    public :: cz_plan, cz_plan_memory, cz_plan_create, cz_plan_destroy, cz_plan_rank

    integer, parameter, public :: CZ_PLAN_ALONE = -1

    type :: cz_shapes
        type(c_ptr) :: handle = c_null_ptr
    end type

    type :: cz_plan
        type(c_ptr) :: handle = c_null_ptr
    end type

    ! What one rank needs, in bytes; what each field is stands in czero/plan.h.
    type, bind(C) :: cz_plan_memory
        integer(c_size_t) :: size = 0
        integer(c_int64_t) :: param_bytes = 0, buffer_bytes = 0, gradient_bytes = 0, state_bytes = 0
        integer(c_int64_t) :: view_bytes = 0, hook_bytes = 0, staging_bytes = 0, table_bytes = 0
        integer(c_int64_t) :: training_bytes = 0
        integer(c_int64_t) :: save_bytes = 0, async_save_bytes = 0, export_bytes = 0
        integer(c_int64_t) :: consolidate_bytes = 0, consolidate_all_bytes = 0
        integer(c_int64_t) :: file_bytes = 0, sent_bytes = 0, part_bytes = 0
    end type

    type, bind(C) :: plan_options
        integer(c_size_t) :: size = 0
        integer(c_int32_t) :: world_size = 0
        integer(c_int32_t) :: unsharded = 0
        integer(c_int) :: partition = 0
        integer(c_int32_t) :: ddp = 0
        integer(c_int) :: overlap = 0
        integer(c_int32_t) :: all_reduce = 0
        integer(c_int32_t) :: views = 0
        integer(c_int) :: wire = 0
        integer(c_size_t) :: bucket_bytes = 0, first_bucket_bytes = 0, segment_bytes = 0
        type(c_ptr) :: rule = c_null_ptr
        type(c_ptr) :: hypers = c_null_ptr
        integer(c_int32_t) :: in_process = 0
        integer(c_int32_t) :: parts = 0
        integer(c_int32_t) :: average = 0
        integer(c_int32_t) :: reserved = 0
        type(c_ptr) :: groups = c_null_ptr
        integer(c_int64_t) :: group_count = 0
        integer(c_int64_t) :: granule = 0
    end type

    interface
        integer(c_int) function c_shapes_from_model(out, model) bind(C, name='cz_shapes_from_model')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: model
        end function
        integer(c_int) function c_shapes_read(out, path) bind(C, name='cz_shapes_read')
            import
            type(c_ptr), intent(out) :: out
            character(kind=c_char), intent(in) :: path(*)
        end function
        subroutine c_shapes_destroy(shapes) bind(C, name='cz_shapes_destroy')
            import
            type(c_ptr), intent(inout) :: shapes
        end subroutine
        integer(c_int) function c_create(out, shapes, options) bind(C, name='cz_plan_create')
            import
            type(c_ptr), intent(out) :: out
            type(c_ptr), value :: shapes
            type(plan_options), intent(in) :: options
        end function
        subroutine c_destroy(plan) bind(C, name='cz_plan_destroy')
            import
            type(c_ptr), intent(inout) :: plan
        end subroutine
        integer(c_int) function c_rank(plan, rank, memory) bind(C, name='cz_plan_rank')
            import
            type(c_ptr), value :: plan
            integer(c_int), value :: rank
            type(cz_plan_memory), intent(inout) :: memory
        end function
    end interface

contains

    subroutine cz_shapes_from_model(shapes, model, status, message)
        type(cz_shapes), intent(out) :: shapes
        type(cz_model), intent(in) :: model
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_shapes_from_model(shapes%handle, model%handle), status, message)
    end subroutine

    ! Of a checkpoint, a safetensors file, a list of names and sizes, ...
    subroutine cz_shapes_read(shapes, path, status, message)
        type(cz_shapes), intent(out) :: shapes
        character(*), intent(in) :: path
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_shapes_read(shapes%handle, to_c(path)), status, message)
    end subroutine

    subroutine cz_shapes_destroy(shapes)
        type(cz_shapes), intent(inout) :: shapes
        call c_shapes_destroy(shapes%handle)
    end subroutine

    subroutine cz_plan_create(plan, shapes, world_size, rule, hypers, unsharded, partition, ddp, &
            overlap, all_reduce, bucket_bytes, first_bucket_bytes, segment_bytes, parts, granule, &
            average, &
            status, message)
        type(cz_plan), intent(out) :: plan
        type(cz_shapes), intent(in) :: shapes
        integer, intent(in) :: world_size
        character(*), intent(in) :: rule
        type(cz_hyper), intent(in), optional :: hypers(:)
        logical, intent(in), optional :: unsharded
        integer, intent(in), optional :: partition
        logical, intent(in), optional :: ddp
        integer, intent(in), optional :: overlap
        logical, intent(in), optional :: all_reduce
        integer, intent(in), optional :: bucket_bytes, first_bucket_bytes, segment_bytes, parts
        integer, intent(in), optional :: granule
        logical, intent(in), optional :: average
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(hyper_list), target :: list
        type(plan_options) :: options
        integer(c_int) :: code
        call make_hyper_list(list, hypers)
        options%size = c_sizeof(options)
        options%world_size = world_size
        options%rule = find_rule(rule)
        options%hypers = list%address
        options%unsharded = to_flag(unsharded)
        if (present(partition)) options%partition = partition
        options%ddp = to_flag(ddp)
        if (present(overlap)) options%overlap = overlap
        options%all_reduce = to_flag(all_reduce)
        if (present(bucket_bytes)) options%bucket_bytes = bucket_bytes
        if (present(first_bucket_bytes)) options%first_bucket_bytes = first_bucket_bytes
        if (present(segment_bytes)) options%segment_bytes = segment_bytes
        if (present(parts)) options%parts = parts
        if (present(granule)) options%granule = granule
        options%average = to_flag(average)
        if (c_associated(options%rule)) then
            code = c_create(plan%handle, shapes%handle, options)
        else ! which would be AdamW in C
            code = rule_in_words(CZ_ERR_ARGUMENT, 'plan', rule)
        end if
        call finish(code, status, message)
    end subroutine

    subroutine cz_plan_destroy(plan)
        type(cz_plan), intent(inout) :: plan
        call c_destroy(plan%handle)
    end subroutine

    ! Of a rank, or CZ_PLAN_ALONE.
    subroutine cz_plan_rank(plan, rank, memory, status, message)
        type(cz_plan), intent(in) :: plan
        integer, intent(in) :: rank
        type(cz_plan_memory), intent(out) :: memory
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        memory%size = c_sizeof(memory)
        call finish(c_rank(plan%handle, rank, memory), status, message)
    end subroutine
end module
