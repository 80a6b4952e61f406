! SPDX-License-Identifier: MIT
! Models: parameters, gradients and buffers in arrays of the program: czero/tensor.h. The library
! keeps the addresses of these arrays, so all of them are TARGETs (docs/fortran.md).
module czero_tensor
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
    use czero_support
    implicit none
    private
    public :: cz_model, cz_model_create, cz_model_destroy, cz_model_add, cz_model_add_flat
    public :: cz_model_add_buffer, cz_model_get_info, cz_model_find, cz_model_set_requires_grad
    public :: cz_model_set_gradient, cz_model_zero_grad, cz_model_add_views, cz_view

    ! `handle`, here and in the other types: the address that procedures in C know the object by.
    type :: cz_model
        type(c_ptr) :: handle = c_null_ptr
    end type

    ! cz_model_add(model, name, value [, grad] [, param] [, status] [, message]): a parameter of any
    ! rank up to 8, or a scalar. `param` receives its number: 0, 1, … in the order of additions.
    interface cz_model_add
        procedure add_r32, add_r64
    end interface

    ! cz_model_add_flat(model, values [, grads], sizes = … [, names] [, status] [, message]): one
    ! after the other in one array.
    interface cz_model_add_flat
        procedure add_flat_r32, add_flat_r64
    end interface

    ! cz_view('wte', [channels, vocab]), cz_view('h.*.ln_1.weight', [channels], layers): what lies
    ! in a flat block, in the shape that an array of Fortran has; or such a one of each layer.
    type :: cz_view
        private
        character(kind=c_char), allocatable :: name(:)
        integer(c_int64_t), allocatable :: shape(:)
        integer(c_int64_t) :: layers = 0
    end type
    interface cz_view
        procedure new_view
    end interface

    ! cz_model_add_views(model, values [, grads], views = … [, status] [, message]): as add_flat,
    ! with names and shapes.
    interface cz_model_add_views
        procedure add_views_r32, add_views_r64
    end interface

    ! cz_model_add_buffer(model, name, value [, status] [, message])
    interface cz_model_add_buffer
        procedure add_buffer_r32, add_buffer_r64, add_buffer_i32, add_buffer_i64
    end interface

    ! cz_model_set_gradient(model, param [, grad] [, status] [, message]): without `grad` it
    ! has none.
    interface cz_model_set_gradient
        procedure set_gradient_none, set_gradient_r32, set_gradient_r64
    end interface

    type, bind(C) :: model_info
        integer(c_size_t) :: size = 0
        integer(c_int64_t) :: param_count = 0
        integer(c_int64_t) :: buffer_count = 0
        integer(c_int64_t) :: element_count = 0
    end type

    type, bind(C) :: model_param
        integer(c_size_t) :: size = 0
        type(c_ptr) :: name = c_null_ptr
        type(c_ptr) :: value = c_null_ptr
        type(c_ptr) :: gradient = c_null_ptr
        integer(c_int32_t) :: requires_grad = 0
        integer(c_int32_t) :: reserved = 0
    end type

    type, bind(C) :: c_view
        type(c_ptr) :: name = c_null_ptr
        integer(c_int64_t) :: layers = 0
        integer(c_int) :: dimensions = 0
        integer(c_int64_t) :: shape(CZ_MAX_DIMENSIONS) = 0
    end type

    interface
        integer(c_int) function c_model_create(out) bind(C, name='cz_model_create')
            import
            type(c_ptr), intent(out) :: out
        end function
        subroutine c_model_destroy(model) bind(C, name='cz_model_destroy')
            import
            type(c_ptr), intent(inout) :: model
        end subroutine
        integer(c_int) function c_model_add_tensor(model, name, value, grad) &
            bind(C, name='cz_model_add_tensor')
            import
            type(c_ptr), value :: model
            character(kind=c_char), intent(in) :: name(*)
            type(cz_tensor), intent(in) :: value
            type(cz_tensor), intent(in), optional :: grad
        end function
        integer(c_int) function c_model_add_flat(model, values, grads, dtype, count, names, sizes) &
            bind(C, name='cz_model_add_flat')
            import
            type(c_ptr), value :: model, values, grads, names
            integer(c_int), value :: dtype
            integer(c_int64_t), value :: count
            integer(c_int64_t), intent(in) :: sizes(*)
        end function
        integer(c_int) function c_model_add_views(model, values, grads, dtype, views, count) &
            bind(C, name='cz_model_add_views')
            import
            type(c_ptr), value :: model, values, grads
            integer(c_int), value :: dtype
            type(c_view), intent(in) :: views(*)
            integer(c_int64_t), value :: count
        end function
        integer(c_int) function c_model_add_buffer(model, name, value, dtype, dimensions, shape) &
            bind(C, name='cz_model_add_buffer')
            import
            type(c_ptr), value :: model, value
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int), value :: dtype, dimensions
            integer(c_int64_t), intent(in) :: shape(*)
        end function
        integer(c_int) function c_model_get_info(model, info) bind(C, name='cz_model_get_info')
            import
            type(c_ptr), value :: model
            type(model_info), intent(inout) :: info
        end function
        integer(c_int) function c_model_get_param(model, index, param) &
            bind(C, name='cz_model_get_param')
            import
            type(c_ptr), value :: model
            integer(c_int64_t), value :: index
            type(model_param), intent(inout) :: param
        end function
        integer(c_int64_t) function c_model_find(model, name) bind(C, name='cz_model_find')
            import
            type(c_ptr), value :: model
            character(kind=c_char), intent(in) :: name(*)
        end function
        integer(c_int) function c_model_set_requires_grad(model, param, requires_grad) &
            bind(C, name='cz_model_set_requires_grad')
            import
            type(c_ptr), value :: model
            integer(c_int64_t), value :: param
            logical(c_bool), value :: requires_grad
        end function
        integer(c_int) function c_model_set_gradient(model, param, grad) &
            bind(C, name='cz_model_set_gradient')
            import
            type(c_ptr), value :: model, grad
            integer(c_int64_t), value :: param
        end function
        integer(c_int) function c_model_zero_grad(model) bind(C, name='cz_model_zero_grad')
            import
            type(c_ptr), value :: model
        end function
    end interface

contains

    subroutine cz_model_create(model, status, message)
        type(cz_model), intent(out) :: model
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_model_create(model%handle), status, message)
    end subroutine

    subroutine cz_model_destroy(model)
        type(cz_model), intent(inout) :: model
        call c_model_destroy(model%handle)
    end subroutine

    subroutine add_r32(model, name, value, grad, param, status, message)
        type(cz_model), intent(in) :: model
        character(*), intent(in) :: name
        real(real32), pointer, intent(in) :: value(..)
        real(real32), pointer, intent(in), optional :: grad(..)
        integer, intent(out), optional :: param, status
        character(*), intent(inout), optional :: message
        type(cz_tensor) :: value_view, grad_view
        integer(c_int) :: code
        code = view(value, the('value', name), value_view)
        if (code == 0 .and. present(grad)) code = view(grad, the('gradient', name), grad_view)
        if (code == 0) code = add(model, name, value_view, grad_view, present(grad), param)
        call finish(code, status, message)
    end subroutine

    subroutine add_r64(model, name, value, grad, param, status, message)
        type(cz_model), intent(in) :: model
        character(*), intent(in) :: name
        real(real64), pointer, intent(in) :: value(..)
        real(real64), pointer, intent(in), optional :: grad(..)
        integer, intent(out), optional :: param, status
        character(*), intent(inout), optional :: message
        type(cz_tensor) :: value_view, grad_view
        integer(c_int) :: code
        code = view(value, the('value', name), value_view)
        if (code == 0 .and. present(grad)) code = view(grad, the('gradient', name), grad_view)
        if (code == 0) code = add(model, name, value_view, grad_view, present(grad), param)
        call finish(code, status, message)
    end subroutine

    integer(c_int) function add(model, name, value, grad, has_grad, param) result(code)
        type(cz_model), intent(in) :: model
        character(*), intent(in) :: name
        type(cz_tensor), intent(in) :: value, grad
        logical, intent(in) :: has_grad
        integer, intent(out), optional :: param
        if (has_grad) then
            code = c_model_add_tensor(model%handle, to_c(name), value, grad)
        else
            code = c_model_add_tensor(model%handle, to_c(name), value)
        end if
        if (present(param)) param = -1
        if (present(param) .and. code == 0) param = cz_model_find(model, name)
    end function

    function the(thing, name) result(words)
        character(*), intent(in) :: thing, name
        character(:), allocatable :: words
        words = "model: the "//thing//" of '"//trim(name)//"'"
    end function

    subroutine add_flat_r32(model, values, grads, sizes, names, status, message)
        type(cz_model), intent(in) :: model
        real(real32), pointer, intent(in) :: values(:)
        real(real32), pointer, intent(in), optional :: grads(:)
        integer(int64), intent(in) :: sizes(:)
        character(*), intent(in), optional :: names(:)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(cz_tensor) :: value_view, grad_view
        integer(c_int) :: code
        code = view(values, 'model: the flat block of values', value_view)
        if (code == 0 .and. present(grads)) &
            code = view(grads, 'model: the flat block of gradients', grad_view)
        if (code == 0) code = add_flat(model, value_view, grad_view, present(grads), sizes, names)
        call finish(code, status, message)
    end subroutine

    subroutine add_flat_r64(model, values, grads, sizes, names, status, message)
        type(cz_model), intent(in) :: model
        real(real64), pointer, intent(in) :: values(:)
        real(real64), pointer, intent(in), optional :: grads(:)
        integer(int64), intent(in) :: sizes(:)
        character(*), intent(in), optional :: names(:)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(cz_tensor) :: value_view, grad_view
        integer(c_int) :: code
        code = view(values, 'model: the flat block of values', value_view)
        if (code == 0 .and. present(grads)) &
            code = view(grads, 'model: the flat block of gradients', grad_view)
        if (code == 0) code = add_flat(model, value_view, grad_view, present(grads), sizes, names)
        call finish(code, status, message)
    end subroutine

    integer(c_int) function add_flat(model, values, grads, has_grads, sizes, names) result(code)
        type(cz_model), intent(in) :: model
        type(cz_tensor), intent(in) :: values, grads
        logical, intent(in) :: has_grads
        integer(int64), intent(in) :: sizes(:)
        character(*), intent(in), optional :: names(:)
        type(text_list), target :: texts
        character(80) :: numbers
        type(c_ptr) :: list
        code = have_lengths(values, grads, has_grads, sum(sizes), 'sizes')
        if (code /= 0) return
        list = c_null_ptr
        if (present(names)) then
            write (numbers, '(i0,a,i0)') size(names), ' names for ', size(sizes)
            if (size(names) /= size(sizes)) then
                code = refuse('model: the flat block has '//trim(numbers)//' parameters')
                return
            end if
            call make_text_list(texts, names)
            if (size(names) > 0) list = c_loc(texts%addresses)
        end if
        code = c_model_add_flat(model%handle, values%data, grads%data, values%dtype, &
            size(sizes, kind=c_int64_t), list, sizes)
    end function

    ! C cannot know how long the arrays are.
    integer(c_int) function have_lengths(values, grads, has_grads, wanted, summands) result(code)
        type(cz_tensor), intent(in) :: values, grads
        logical, intent(in) :: has_grads
        integer(int64), intent(in) :: wanted
        character(*), intent(in) :: summands
        character(80) :: numbers
        code = 0
        if (wanted /= values%shape(1)) then
            write (numbers, '(i0,3a,i0)') values%shape(1), ' values, the ', summands, &
                ' add up to ', wanted
            code = refuse('model: the flat block has '//trim(numbers))
        else if (has_grads .and. grads%shape(1) /= values%shape(1)) then
            write (numbers, '(i0,a,i0)') values%shape(1), ' values and gradients for ', &
                grads%shape(1)
            code = refuse('model: the flat block has '//trim(numbers))
        end if
    end function

    type(cz_view) function new_view(name, shape, layers)
        character(*), intent(in) :: name
        integer, intent(in) :: shape(:)
        integer, intent(in), optional :: layers
        integer :: i
        allocate (new_view%name(len_trim(name) + 1), new_view%shape(size(shape)))
        do i = 1, len_trim(name)
            new_view%name(i) = name(i:i)
        end do
        new_view%name(len_trim(name) + 1) = c_null_char
        new_view%shape(:) = shape
        if (present(layers)) new_view%layers = layers
    end function

    subroutine add_views_r32(model, values, grads, views, status, message)
        type(cz_model), intent(in) :: model
        real(real32), pointer, intent(in) :: values(:)
        real(real32), pointer, intent(in), optional :: grads(:)
        type(cz_view), intent(in) :: views(:)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(cz_tensor) :: value_view, grad_view
        integer(c_int) :: code
        code = view(values, 'model: the flat block of values', value_view)
        if (code == 0 .and. present(grads)) &
            code = view(grads, 'model: the flat block of gradients', grad_view)
        if (code == 0) code = add_views(model, value_view, grad_view, present(grads), views)
        call finish(code, status, message)
    end subroutine

    subroutine add_views_r64(model, values, grads, views, status, message)
        type(cz_model), intent(in) :: model
        real(real64), pointer, intent(in) :: values(:)
        real(real64), pointer, intent(in), optional :: grads(:)
        type(cz_view), intent(in) :: views(:)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(cz_tensor) :: value_view, grad_view
        integer(c_int) :: code
        code = view(values, 'model: the flat block of values', value_view)
        if (code == 0 .and. present(grads)) &
            code = view(grads, 'model: the flat block of gradients', grad_view)
        if (code == 0) code = add_views(model, value_view, grad_view, present(grads), views)
        call finish(code, status, message)
    end subroutine

    integer(c_int) function add_views(model, values, grads, has_grads, views) result(code)
        type(cz_model), intent(in) :: model
        type(cz_tensor), intent(in) :: values, grads
        logical, intent(in) :: has_grads
        type(cz_view), target, intent(in) :: views(:)
        type(c_view) :: list(size(views))
        integer(int64) :: wanted
        integer :: i, n
        wanted = 0
        do i = 1, size(views)
            if (.not. allocated(views(i)%name)) then
                code = refuse('model: a view of the flat block has no name and no shape')
                return
            end if
            wanted = wanted + product(views(i)%shape) * max(views(i)%layers, 1_int64)
            list(i)%name = c_loc(views(i)%name)
            list(i)%layers = views(i)%layers
            list(i)%dimensions = size(views(i)%shape) ! too many of them C refuses
            n = min(list(i)%dimensions, CZ_MAX_DIMENSIONS)
            list(i)%shape(:n) = views(i)%shape(n:1:-1)
        end do
        code = have_lengths(values, grads, has_grads, wanted, 'views')
        if (code == 0) code = c_model_add_views(model%handle, values%data, grads%data, &
            values%dtype, list, size(views, kind=c_int64_t))
    end function

    subroutine add_buffer_r32(model, name, value, status, message)
        type(cz_model), intent(in) :: model
        character(*), intent(in) :: name
        real(real32), pointer, intent(in) :: value(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(cz_tensor) :: tensor
        integer(c_int) :: code
        code = view(value, the('value', name), tensor)
        if (code == 0) code = add_buffer(model, name, tensor)
        call finish(code, status, message)
    end subroutine

    subroutine add_buffer_r64(model, name, value, status, message)
        type(cz_model), intent(in) :: model
        character(*), intent(in) :: name
        real(real64), pointer, intent(in) :: value(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(cz_tensor) :: tensor
        integer(c_int) :: code
        code = view(value, the('value', name), tensor)
        if (code == 0) code = add_buffer(model, name, tensor)
        call finish(code, status, message)
    end subroutine

    subroutine add_buffer_i32(model, name, value, status, message)
        type(cz_model), intent(in) :: model
        character(*), intent(in) :: name
        integer(int32), pointer, intent(in) :: value(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(cz_tensor) :: tensor
        integer(c_int) :: code
        code = view(value, the('value', name), tensor)
        if (code == 0) code = add_buffer(model, name, tensor)
        call finish(code, status, message)
    end subroutine

    subroutine add_buffer_i64(model, name, value, status, message)
        type(cz_model), intent(in) :: model
        character(*), intent(in) :: name
        integer(int64), pointer, intent(in) :: value(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(cz_tensor) :: tensor
        integer(c_int) :: code
        code = view(value, the('value', name), tensor)
        if (code == 0) code = add_buffer(model, name, tensor)
        call finish(code, status, message)
    end subroutine

    integer(c_int) function add_buffer(model, name, tensor) result(code)
        type(cz_model), intent(in) :: model
        character(*), intent(in) :: name
        type(cz_tensor), intent(in) :: tensor
        code = c_model_add_buffer(model%handle, to_c(name), tensor%data, tensor%dtype, &
            tensor%dimensions, tensor%shape)
    end function

    subroutine cz_model_get_info(model, param_count, buffer_count, element_count, status, message)
        type(cz_model), intent(in) :: model
        integer, intent(out), optional :: param_count, buffer_count
        integer(int64), intent(out), optional :: element_count
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(model_info) :: info
        integer(c_int) :: code
        info%size = c_sizeof(info)
        code = c_model_get_info(model%handle, info)
        if (present(param_count)) param_count = int(info%param_count)
        if (present(buffer_count)) buffer_count = int(info%buffer_count)
        if (present(element_count)) element_count = info%element_count
        call finish(code, status, message)
    end subroutine

    ! The number of the parameter of that name, -1 if there is none.
    integer function cz_model_find(model, name)
        type(cz_model), intent(in) :: model
        character(*), intent(in) :: name
        cz_model_find = int(c_model_find(model%handle, to_c(name)))
    end function

    subroutine cz_model_set_requires_grad(model, param, requires_grad, status, message)
        type(cz_model), intent(in) :: model
        integer, intent(in) :: param
        logical, intent(in) :: requires_grad
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_model_set_requires_grad(model%handle, int(param, c_int64_t), &
            logical(requires_grad, c_bool)), status, message)
    end subroutine

    subroutine set_gradient_none(model, param, status, message)
        type(cz_model), intent(in) :: model
        integer, intent(in) :: param
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_model_set_gradient(model%handle, int(param, c_int64_t), c_null_ptr), status, &
            message)
    end subroutine

    subroutine set_gradient_r32(model, param, grad, status, message)
        type(cz_model), intent(in) :: model
        integer, intent(in) :: param
        real(real32), pointer, intent(in) :: grad(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(cz_tensor) :: tensor
        integer(c_int) :: code
        code = view(grad, 'model: the new gradient', tensor)
        if (code == 0) code = set_gradient(model, param, tensor)
        call finish(code, status, message)
    end subroutine

    subroutine set_gradient_r64(model, param, grad, status, message)
        type(cz_model), intent(in) :: model
        integer, intent(in) :: param
        real(real64), pointer, intent(in) :: grad(..)
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        type(cz_tensor) :: tensor
        integer(c_int) :: code
        code = view(grad, 'model: the new gradient', tensor)
        if (code == 0) code = set_gradient(model, param, tensor)
        call finish(code, status, message)
    end subroutine

    ! In C the program's word is taken for type and shape; an array says what it is.
    integer(c_int) function set_gradient(model, param, grad) result(code)
        type(cz_model), intent(in) :: model
        integer, intent(in) :: param
        type(cz_tensor), intent(in) :: grad
        type(model_param) :: entry
        type(cz_tensor), pointer :: value
        entry%size = c_sizeof(entry)
        code = c_model_get_param(model%handle, int(param, c_int64_t), entry)
        if (code /= 0) return
        call c_f_pointer(entry%value, value)
        if (value%dtype /= grad%dtype .or. value%dimensions /= grad%dimensions .or. &
            any(value%shape(:grad%dimensions) /= grad%shape(:grad%dimensions))) then
            code = refuse("model: the new gradient of '"//to_fortran(entry%name)// &
                "' has another type or shape than its value")
        else
            code = c_model_set_gradient(model%handle, int(param, c_int64_t), grad%data)
        end if
    end function

    subroutine cz_model_zero_grad(model, status, message)
        type(cz_model), intent(in) :: model
        integer, intent(out), optional :: status
        character(*), intent(inout), optional :: message
        call finish(c_model_zero_grad(model%handle), status, message)
    end subroutine
end module
