! SPDX-License-Identifier: MIT
! What the tests of the Fortran modules share: checks that are counted, and the same things done in
! C, by in_c.c.
module check_module
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit, int32, int64, real32, real64
    use czero
    implicit none
    private
    public :: check, expect, ended, in_c_shape, in_c_train, in_c_rates

    integer :: failures = 0, checks = 0

    interface
        ! The shape, in C's order, of a parameter, or -1 - number of a buffer; returns dimensions.
        integer(c_int) function in_c_shape(model, number, shape, dtype) bind(C)
            import
            type(c_ptr), value :: model
            integer(c_int64_t), value :: number
            integer(c_int64_t), intent(out) :: shape(8)
            integer(c_int), intent(out) :: dtype
        end function
        ! The training of test_same_bits.f90.
        integer(c_int) function in_c_train(group, rule, name, number, partition, max_norm, &
            with_groups, dtype, steps, a, b, fingerprint) bind(C)
            import
            type(c_ptr), value :: group
            character(kind=c_char), intent(in) :: rule(*), name(*)
            real(c_double), value :: number, max_norm
            integer(c_int), value :: partition, with_groups, dtype, steps
            type(c_ptr), value :: a, b
            integer(c_int64_t), intent(out) :: fingerprint(2)
        end function
        ! What a scheduler of that kind sets in `count` epochs.
        integer(c_int) function in_c_rates(kind, rates, count) bind(C)
            import
            character(kind=c_char), intent(in) :: kind(*)
            integer(c_int), value :: count
            real(c_double), intent(out) :: rates(count)
        end function
    end interface

contains

    subroutine check(holds, words)
        logical, intent(in) :: holds
        character(*), intent(in) :: words
        checks = checks + 1
        if (holds) return
        failures = failures + 1
        write (error_unit, '(2a)') 'failed: ', words
    end subroutine

    ! A call returned this status, and the sentence has these words in it.
    subroutine expect(status, wanted, message, words)
        integer, intent(in) :: status, wanted
        character(*), intent(in) :: message, words
        call check(status == wanted .and. index(message, words) > 0 .and. message /= '', &
            cz_status_name(wanted)//" with '"//words//"': "//cz_status_name(status)//", '"// &
            trim(message)//"'")
    end subroutine

    subroutine ended()
        write (*, '(i0,a)') checks, ' checks'
        if (failures > 0) error stop 1
    end subroutine
end module
