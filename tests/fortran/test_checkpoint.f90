! SPDX-License-Identifier: MIT
! test_checkpoint FOLDER: dictionaries with everything in them; saved, found again, exported and
! imported.
program test_checkpoint
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
    use czero
    use check_module
    implicit none
    type(cz_group) :: group
    type(cz_model) :: model
    type(cz_zero) :: zero
    type(cz_checkpoint) :: checkpoint
    type(cz_state_dict) :: common, own, child
    type(cz_load_result) :: result
    real(real32), target :: w(3, 2), g(3, 2), mean(2)
    real(real32) :: values(3, 2), buffered(2)
    real(real64) :: d(2, 2, 1), number, copy(2, 2, 1)
    integer(int32) :: small, list(3)
    integer(int64) :: large, longs(2)
    integer :: status
    character(:), allocatable :: text
    character(400) :: why, folder
    call get_command_argument(1, folder)
    d = reshape([1d0, 2d0, 3d0, 4d0], [2, 2, 1])

    call cz_state_dict_create(common)
    call cz_state_dict_set_integer(common, 'small', 7)
    call cz_state_dict_set_integer(common, 'large', 2_int64**40)
    call cz_state_dict_set_real(common, 'pi', 3.25d0)
    call cz_state_dict_set_text(common, 'text', 'words and more  ')
    call cz_state_dict_set_tensor(common, 'd', d)
    call cz_state_dict_set_tensor(common, 'scalar', 4.5)
    call cz_state_dict_set_tensor(common, 'list', [1, 2, 3])
    call cz_state_dict_set_tensor(common, 'longs', [1_int64, 2_int64**50])
    call cz_state_dict_create(child)
    call cz_state_dict_set_tensor(child, 'row', d(1, :, 1)) ! a copy is made, so gaps do not matter
    call cz_state_dict_set_dict(common, 'child', child)
    call cz_state_dict_destroy(child)
    call has_everything(common)
    call cz_state_dict_get_integer(common, 'large', small, status, why)
    call expect(status, CZ_ERR_ARGUMENT, why, "'large' is too large for an integer of 32 bits")
    call cz_state_dict_get_integer(common, 'nothing', small, status, why)
    call expect(status, CZ_ERR_ARGUMENT, why, 'nothing')
    call cz_state_dict_get_integer(common, 'text', large, status, why)
    call expect(status, CZ_ERR_ARGUMENT, why, 'text')
    call cz_state_dict_get_tensor(common, 'd', copy(:, :, 1), status, why)
    call expect(status, CZ_ERR_ARGUMENT, why, "'d' has another type or shape")
    call cz_state_dict_get_tensor(common, 'd', values, status, why)
    call expect(status, CZ_ERR_ARGUMENT, why, "'d' has another type or shape")
    call cz_state_dict_set_integer(common, '', 1, status, why)
    call expect(status, CZ_ERR_ARGUMENT, why, 'key')

    call cz_group_create_self(group)
    call cz_model_create(model)
    call cz_model_add(model, 'w', w, g)
    call cz_model_add_buffer(model, 'mean', mean)
    call cz_zero_create(zero, group, model, 'adam')
    call cz_checkpoint_create(checkpoint, group, folder, zero=zero, keep=1)
    call cz_checkpoint_load(checkpoint, status=status, message=why)
    call expect(status, CZ_ERR_STATE, why, 'no complete')
    call cz_checkpoint_load(checkpoint, result, missing_ok=.true.)
    call check(result%step == -1, 'there is nothing yet')
    w = 1
    g = 1
    mean = 5
    call cz_zero_step(zero)
    call cz_state_dict_create(own)
    call cz_state_dict_set_integer(own, 'mine', 11)
    call cz_checkpoint_save(checkpoint, 3, common, own)
    values = w
    buffered = mean
    call cz_checkpoint_export(checkpoint, trim(folder)//'.safetensors', 3, common)
    call cz_checkpoint_export(checkpoint, trim(folder)//'.values.safetensors', &
        parameters_only=.true.)
    call cz_checkpoint_save(checkpoint, -1, status=status, message=why)
    call expect(status, CZ_ERR_ARGUMENT, why, 'step')

    w = 0
    mean = 0
    call cz_checkpoint_load(checkpoint, result)
    call check(result%step == 3 .and. result%generation == 1 .and. result%world_size == 1, 'step 3')
    call check(all(w == values) .and. all(mean == buffered), 'values are as they were')
    call has_everything(result%common)
    call cz_state_dict_get_integer(result%own, 'mine', small)
    call check(small == 11, 'what is this rank''s')
    call cz_state_dict_destroy(result%common)
    call cz_state_dict_destroy(result%own)

    call cz_zero_step(zero)
    call cz_checkpoint_save_async(checkpoint, 4)
    call cz_checkpoint_wait(checkpoint)
    call cz_checkpoint_load(checkpoint, step=3, status=status, message=why)
    call expect(status, CZ_ERR_STATE, why, '3') ! only one is kept
    call cz_checkpoint_load(checkpoint, result, step=4, fall_back=.true., convert=.true.)
    call check(result%step == 4, 'step 4')
    call cz_state_dict_destroy(result%common)
    call cz_state_dict_destroy(result%own)

    call cz_checkpoint_import(checkpoint, trim(folder)//'.safetensors', result)
    call check(result%step == 3 .and. all(w == values), 'what was exported')
    call has_everything(result%common)
    call cz_state_dict_destroy(result%common)
    w = 0
    call cz_checkpoint_import(checkpoint, trim(folder)//'.values.safetensors', permissive=.true.)
    call check(all(w == values), 'values alone')
    call cz_checkpoint_import(checkpoint, trim(folder)//'.missing', status=status, message=why)
    call expect(status, CZ_ERR_IO, why, '.missing')
    call cz_checkpoint_destroy(checkpoint)

    ! Another model: nothing is changed, and all differences are said.
    call cz_zero_destroy(zero)
    call cz_model_destroy(model)
    call cz_model_create(model)
    call cz_model_add(model, 'w', w(:, 1), g(:, 1))
    call cz_checkpoint_create(checkpoint, group, folder, model)
    call cz_checkpoint_load(checkpoint, status=status, message=why)
    call expect(status, CZ_ERR_ARGUMENT, why, 'w')
    call check(index(cz_last_error(), 'mean') > 0, 'all of them: '//cz_last_error())
    call check(cz_checkpoint_notes(checkpoint) == '', 'no notes')
    call cz_checkpoint_destroy(checkpoint)
    call cz_checkpoint_create(checkpoint, group, folder, status=status, message=why)
    call expect(status, CZ_ERR_ARGUMENT, why, 'model')
    call cz_state_dict_destroy(common)
    call cz_state_dict_destroy(own)
    call cz_model_destroy(model)
    call cz_group_destroy(group)
    call check(cz_memory_bytes(CZ_MEMORY_STATE_DICT) == 0, 'nothing is left')
    call ended()

contains

    subroutine has_everything(dict)
        type(cz_state_dict), intent(in) :: dict
        real(real64) :: row(2)
        real(real32) :: scalar
        call cz_state_dict_get_integer(dict, 'small', small)
        call cz_state_dict_get_integer(dict, 'large', large)
        call check(small == 7 .and. large == 2_int64**40, 'integers')
        call cz_state_dict_get_integer(dict, 'small', large)
        call check(large == 7, 'a small one in a large one')
        call cz_state_dict_get_real(dict, 'pi', number)
        call cz_state_dict_get_text(dict, 'text', text)
        call check(number == 3.25d0 .and. text == 'words and more' .and. len(text) == 14, 'a text')
        call cz_state_dict_get_tensor(dict, 'd', copy)
        call check(all(copy == d), 'an array of rank 3')
        call cz_state_dict_get_tensor(dict, 'scalar', scalar)
        call cz_state_dict_get_tensor(dict, 'list', list)
        call cz_state_dict_get_tensor(dict, 'longs', longs)
        call check(scalar == 4.5 .and. all(list == [1, 2, 3]) .and. longs(2) == 2_int64**50, &
            'others')
        call cz_state_dict_get_dict(dict, 'child', child)
        call cz_state_dict_get_tensor(child, 'row', row)
        call check(all(row == [1, 3]), 'a row, in a dictionary in the dictionary')
        call check(cz_state_dict_has(dict, 'pi') .and. .not. cz_state_dict_has(dict, 'row'), 'keys')
    end subroutine
end program
