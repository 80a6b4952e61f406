! SPDX-License-Identifier: MIT
! czero for Fortran: the words of the C library, with arrays, keywords and LOGICALs. What a call
! does, needs and returns is said in include/czero/, and what is particular here in docs/fortran.md.
module czero
    use czero_base
    use czero_checkpoint
    use czero_ddp
    use czero_group, only: CZ_AND, CZ_AVERAGE, CZ_MAX, CZ_MIN, CZ_OR, CZ_PRODUCT, CZ_SUM, &
        cz_all_gather, cz_all_reduce, cz_barrier, cz_broadcast, cz_group, cz_group_create_self, &
        cz_group_create_world, cz_group_destroy, cz_group_local_cores, cz_group_local_rank, &
        cz_group_local_size, cz_group_rank, cz_group_sent_bytes, cz_group_size, &
        cz_group_split, cz_progress, cz_reduce_scatter
    use czero_join, only: CZ_JOIN_BY_ACTIVE, CZ_JOIN_BY_WEIGHT, CZ_JOIN_BY_WORLD, cz_join, &
        cz_joinable, cz_join_begin, cz_join_end, cz_join_notify, cz_optim_joinable
    use czero_optim, only: CZ_ALL_GROUPS, CZ_MISSING_KEEP, CZ_MISSING_NONE, CZ_MISSING_REFUSE, &
        cz_hyper, cz_optim, cz_optim_add_hyper, cz_optim_create, cz_optim_destroy, &
        cz_optim_evaluate, cz_optim_get_hyper, cz_optim_get_info, cz_optim_load_state_dict, &
        cz_optim_set_hyper, cz_optim_state_dict, cz_optim_step, cz_optim_zero_grad, &
        cz_param_group, cz_step_result
    use czero_parts
    use czero_plan
    use czero_random
    use czero_sched
    use czero_state
    use czero_tensor
    use czero_zero
    implicit none
    public
end module
