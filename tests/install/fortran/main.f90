! One step of one process.
program main
    use czero
    implicit none
    real, target :: w = 1, g = 1
    type(cz_group) :: group
    type(cz_model) :: model
    type(cz_zero) :: zero
    call cz_group_create_self(group)
    call cz_model_create(model)
    call cz_model_add(model, 'w', w, g)
    call cz_zero_create(zero, group, model, 'sgd', [cz_hyper('lr', 0.25d0)])
    call cz_zero_step(zero)
    print '(f4.2)', w
    call cz_zero_destroy(zero)
    call cz_model_destroy(model)
    call cz_group_destroy(group)
end program
