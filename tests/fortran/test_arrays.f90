! SPDX-License-Identifier: MIT
! Arrays of every rank and type become parameters, gradients and buffers, and what the library
! cannot keep the address of is refused with a sentence.
program test_arrays
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
    use czero
    use check_module
    implicit none
    type :: net
        real(real32) :: w(2, 3)
        real(real32), allocatable :: x(:)
    end type
    character(300) :: why
    integer :: status
    call every_rank_in_r32()
    call every_rank_in_r64()
    call parts_of_things()
    call what_is_refused()
    call flat_blocks()
    call views_of_flat_blocks()
    call buffers()
    call gradients_that_move()
    call names_and_numbers()
    call ended()

contains

    ! Fortran's first index is C's last one.
    subroutine has_shape(model, number, wanted, dtype, words)
        type(cz_model), intent(in) :: model
        integer, intent(in) :: number, wanted(:), dtype
        character(*), intent(in) :: words
        integer(int64) :: shape(8)
        integer :: n, found
        n = in_c_shape(model%handle, int(number, int64), shape, found)
        call check(n == size(wanted), words//': dimensions')
        call check(all(shape(:max(n, 0)) == wanted), words//': shape')
        call check(found == dtype, words//': type')
    end subroutine

    subroutine every_rank_in_r32()
        real(real32), target :: v0, v1(2), v2(2, 3), v3(2, 3, 4), v4(2, 3, 4, 5), v5(1, 1, 1, 1, 2)
        real(real32), target :: g0, g1(2), g2(2, 3), g3(2, 3, 4), g4(2, 3, 4, 5), g5(1, 1, 1, 1, 2)
        real(real32), target :: none(0)
        type(cz_model) :: model
        integer :: param
        integer(int64) :: elements
        call cz_model_create(model)
        call cz_model_add(model, 'v0', v0, g0)
        call cz_model_add(model, 'v1', v1, g1)
        call cz_model_add(model, 'v2', v2, g2)
        call cz_model_add(model, 'v3', v3, g3)
        call cz_model_add(model, 'v4', v4, g4, param)
        call cz_model_add(model, 'v5', v5, g5)
        call cz_model_add(model, 'none', none, none)
        call check(param == 4, 'the number of v4')
        call has_shape(model, 0, [integer ::], 1, 'v0')
        call has_shape(model, 1, [2], 1, 'v1')
        call has_shape(model, 2, [3, 2], 1, 'v2')
        call has_shape(model, 3, [4, 3, 2], 1, 'v3')
        call has_shape(model, 4, [5, 4, 3, 2], 1, 'v4')
        call has_shape(model, 5, [2, 1, 1, 1, 1], 1, 'v5')
        call cz_model_get_info(model, element_count=elements, param_count=param)
        call check(elements == 1 + 2 + 6 + 24 + 120 + 2 .and. param == 7, 'elements')
        g3 = 7
        call cz_model_zero_grad(model)
        call check(all(g3 == 0), 'gradients are where they are')
        call cz_model_destroy(model)
        call cz_model_destroy(model) ! an empty one
    end subroutine

    subroutine every_rank_in_r64()
        real(real64), target :: v0, v1(2), v2(2, 3), v3(2, 3, 4), v4(2, 3, 4, 5)
        real(real64), target :: g0, g1(2), g2(2, 3), g3(2, 3, 4), g4(2, 3, 4, 5)
        type(cz_model) :: model
        call cz_model_create(model)
        call cz_model_add(model, 'v0', v0, g0)
        call cz_model_add(model, 'v1', v1, g1)
        call cz_model_add(model, 'v2', v2, g2)
        call cz_model_add(model, 'v3', v3, g3)
        call cz_model_add(model, 'v4', v4, g4)
        call has_shape(model, 0, [integer ::], 2, 'v0')
        call has_shape(model, 1, [2], 2, 'v1')
        call has_shape(model, 2, [3, 2], 2, 'v2')
        call has_shape(model, 3, [4, 3, 2], 2, 'v3')
        call has_shape(model, 4, [5, 4, 3, 2], 2, 'v4')
        g4 = 7
        call cz_model_zero_grad(model)
        call check(all(g4 == 0), 'gradients are where they are')
        call cz_model_destroy(model)
    end subroutine

    ! Components, allocatables with any bounds, pointers, and sections without gaps.
    subroutine parts_of_things()
        type(net), target :: values, gradients
        real(real32), allocatable, target :: block(:, :), block_gradient(:, :)
        real(real32), pointer :: there(:), there_gradient(:)
        type(cz_model) :: model
        allocate (values%x(5), gradients%x(5))
        allocate (block(0:3, -1:1), block_gradient(4, 3), there(9), there_gradient(9))
        call cz_model_create(model)
        call cz_model_add(model, 'w', values%w, gradients%w)
        call cz_model_add(model, 'x', values%x, gradients%x)
        call cz_model_add(model, 'column', block(:, 0), block_gradient(:, 2))
        call cz_model_add(model, 'columns', block(:, 1:1), block_gradient(:, 3:3))
        call cz_model_add(model, 'there', there(2:4), there_gradient(2:4))
        call has_shape(model, 0, [3, 2], 1, 'w')
        call has_shape(model, 1, [5], 1, 'x')
        call has_shape(model, 2, [4], 1, 'column')
        call has_shape(model, 3, [1, 4], 1, 'columns')
        call has_shape(model, 4, [3], 1, 'there')
        block_gradient = 1
        there_gradient = 1
        call cz_model_zero_grad(model)
        call check(all(block_gradient(:, 2) == 0) .and. all(block_gradient(:, 1) == 1), 'a column')
        call check(all(there_gradient == [1, 0, 0, 0, 1, 1, 1, 1, 1]), 'what is there')
        call cz_model_destroy(model)
        deallocate (there, there_gradient)
    end subroutine

    subroutine what_is_refused()
        real(real32), target :: a(4, 4), g(4, 4)
        real(real64), target :: d(6)
        real(real32), allocatable, target :: nowhere(:)
        real(real32), pointer :: nothing(:)
        real(real32), target :: nine(1, 1, 1, 1, 1, 1, 1, 1, 1)
        type(cz_model) :: model
        integer :: params
        nothing => null()
        call cz_model_create(model)
        call cz_model_add(model, 'a', a(2, :), status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, "model: the value of 'a' is not contiguous")
        call cz_model_add(model, 'a', a(:, 2), g(2, :), status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, "model: the gradient of 'a' is not contiguous")
        call cz_model_add(model, 'd', d(::2), status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, "model: the value of 'd' is not contiguous")
        call cz_model_add(model, 'a', nowhere, status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'not allocated')
        call cz_model_add(model, 'a', nothing, status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'a pointer without a target')
        call cz_model_add(model, 'a', a, nothing, status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, "the gradient of 'a' is a pointer without")
        call cz_model_add(model, 'nine', nine, status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'more than 8 dimensions')
        call cz_model_add(model, 'a', a, g(:, :2), params, status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'a')
        call check(params == -1, 'no number')
        call cz_model_add(model, '', a, status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'name')
        call cz_model_get_info(model, params)
        call check(params == 0, 'nothing was added')
        call cz_model_add(model, 'a', a)
        call cz_model_add(model, 'a  ', g, status=status, message=why) ! blanks do not count
        call expect(status, CZ_ERR_ARGUMENT, why, '"a" is taken')
        call cz_model_destroy(model)
    end subroutine

    subroutine flat_blocks()
        real(real32), target :: values(10), grads(10)
        real(real64), target :: wide(4)
        type(cz_model) :: model
        integer :: params
        call cz_model_create(model)
        call cz_model_add_flat(model, values, grads, [3_int64, 0_int64, 7_int64], &
            ['first ', 'empty ', 'second'])
        call cz_model_get_info(model, params)
        call check(params == 3 .and. cz_model_find(model, 'second') == 2, 'three in a block')
        call has_shape(model, 2, [7], 1, 'second')
        call cz_model_add_flat(model, wide, sizes=[4_int64])
        call check(cz_model_find(model, '3') == 3, 'a name that is a number')
        call cz_model_add_flat(model, values, grads, [3_int64, 3_int64], status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, '10 values, the sizes add up to 6')
        call cz_model_add_flat(model, values, grads(:4), [10_int64], status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, '10 values and gradients for 4')
        call cz_model_add_flat(model, values, sizes=[10_int64], names=['x', 'y'], status=status, &
            message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, '2 names for 1 parameters')
        call cz_model_add_flat(model, values(::2), sizes=[5_int64], status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'not contiguous')
        call cz_model_add_flat(model, wide, wide(4:1:-1), [4_int64], status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'gradients is not contiguous')
        call cz_model_destroy(model)
    end subroutine

    subroutine views_of_flat_blocks()
        real(real32), target :: values(16), grads(16)
        real(real64), target :: wide(3)
        type(cz_model) :: model
        type(cz_optim) :: optim
        type(cz_view) :: empty
        character(5), parameter :: names(0:5) = [character(5) :: 'w', 'h.0.b', 'h.1.b', 'none', &
            's', 'last']
        integer :: i
        call cz_model_create(model)
        call cz_model_add_views(model, values, grads, [cz_view('w  ', [2, 3]), &
            cz_view('h.*.b', [4], 2), cz_view('none', [0]), cz_view('s', [integer ::]), &
            cz_view('last', [1, 1, 1])])
        do i = 0, 5
            call check(cz_model_find(model, names(i)) == i, 'the name of a view')
        end do
        call has_shape(model, 0, [3, 2], 1, 'w')
        call has_shape(model, 2, [4], 1, 'h.1.b')
        call has_shape(model, 4, [integer ::], 1, 's')
        ! They lie in the block.
        call cz_optim_create(optim, model, 'sgd', [cz_hyper('lr', 1)])
        values = 0
        grads = [(real(i, real32), i = 1, 16)]
        call cz_optim_step(optim)
        call check(all(values == -grads), 'a step of a block')
        call cz_optim_destroy(optim)
        call cz_model_add_views(model, wide, views=[cz_view('wide', [3])])
        call has_shape(model, 6, [3], 2, 'wide')

        call cz_model_add_views(model, values, views=[cz_view('x', [2, 7])], status=status, &
            message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, '16 values, the views add up to 14')
        call cz_model_add_views(model, values, grads(:4), [cz_view('x.*', [4], 4)], status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, '16 values and gradients for 4')
        call cz_model_add_views(model, values, views=[cz_view('x', [4], 4)], status=status, &
            message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, '"x"')
        call cz_model_add_views(model, values, views=[cz_view('x', [2, 2, 2, 2, 1, 1, 1, 1, 1])], &
            status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, '9 dimensions')
        call cz_model_add_views(model, values, views=[cz_view('x', [-4, -4])], status=status, &
            message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'bad shape')
        call cz_model_add_views(model, values, views=[empty], status=status, message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'no name')
        call cz_model_add_views(model, values(::2), views=[cz_view('x', [8])], status=status, &
            message=why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'not contiguous')
        call cz_model_destroy(model)
    end subroutine

    subroutine buffers()
        real(real32), target :: r32(3)
        real(real64), target :: r64(2, 3)
        integer(int32), target :: i32
        integer(int64), target :: i64(4, 1)
        type(cz_model) :: model
        integer :: count
        call cz_model_create(model)
        call cz_model_add_buffer(model, 'r32', r32)
        call cz_model_add_buffer(model, 'r64', r64)
        call cz_model_add_buffer(model, 'i32', i32)
        call cz_model_add_buffer(model, 'i64', i64)
        call cz_model_get_info(model, buffer_count=count)
        call check(count == 4, 'four buffers')
        call has_shape(model, -1, [3], 1, 'r32')
        call has_shape(model, -2, [3, 2], 2, 'r64')
        call has_shape(model, -3, [integer ::], 5, 'i32')
        call has_shape(model, -4, [1, 4], 6, 'i64')
        call cz_model_add_buffer(model, 'i64', i64, status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'i64')
        call cz_model_add_buffer(model, 'r64 rows', r64(1, :), status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'not contiguous')
        call cz_model_add_buffer(model, 'r32 rows', r32(::2), status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'not contiguous')
        call cz_model_add_buffer(model, 'i64 rows', i64(::2, 1), status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'not contiguous')
        call cz_model_destroy(model)
    end subroutine

    subroutine gradients_that_move()
        real(real32), target :: w(2, 3), g(2, 3), other(2, 3), turned(3, 2)
        real(real64), target :: w64(4), g64(4)
        type(cz_model) :: model
        type(cz_optim) :: optim
        call cz_model_create(model)
        call cz_model_add(model, 'w', w, g)
        call cz_optim_create(optim, model, 'sgd', [cz_hyper('lr', 1)])
        w = 0
        g = 1
        other = 2
        call cz_optim_step(optim)
        call cz_model_set_gradient(model, 0, other)
        call cz_optim_step(optim)
        call check(all(w == -3), 'a gradient elsewhere')
        call cz_model_set_gradient(model, 0)
        call cz_optim_step(optim, status=status, message=why)
        call expect(status, CZ_ERR_STATE, why, 'gradient')
        call cz_model_set_gradient(model, 0, turned, status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, "gradient of 'w' has another type or shape")
        call cz_model_set_gradient(model, 0, g64, status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, "gradient of 'w' has another type or shape")
        call cz_model_set_gradient(model, 1, g, status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'parameter 1')
        call cz_optim_destroy(optim)
        call cz_model_destroy(model)
        call cz_model_create(model)
        call cz_model_add(model, 'w', w64)
        call cz_optim_create(optim, model, 'sgd', [cz_hyper('lr', 1)])
        w64 = 0
        g64 = 1
        call cz_model_set_gradient(model, 0, g64)
        call cz_optim_step(optim)
        call check(all(w64 == -1), 'a gradient where there was none')
        call cz_model_set_requires_grad(model, 0, .false.)
        call cz_optim_step(optim, allow_no_gradients=.true.)
        call check(all(w64 == -1), 'a frozen parameter')
        call cz_optim_destroy(optim)
        call cz_model_destroy(model)
    end subroutine

    subroutine names_and_numbers()
        real(real32), target :: a, b
        type(cz_model) :: model
        call cz_model_create(model)
        call cz_model_add(model, 'a', a)
        call cz_model_add(model, 'b', b)
        call check(cz_model_find(model, 'b') == 1, 'b is 1')
        call check(cz_model_find(model, 'c') == -1, 'there is no c')
        call cz_model_set_requires_grad(model, 2, .false., status, why)
        call expect(status, CZ_ERR_ARGUMENT, why, 'parameter 2')
        call cz_model_destroy(model)
    end subroutine
end program
