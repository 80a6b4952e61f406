! SPDX-License-Identifier: MIT
! Nobody asks for the status of a call that fails.
program stops
    use, intrinsic :: iso_fortran_env, only: real32
    use czero
    implicit none
    type(cz_model) :: model
    real(real32), target :: w(4)
    call cz_model_create(model)
    call cz_model_add(model, 'w', w(::2))
    print '(a)', 'it went on'
end program
