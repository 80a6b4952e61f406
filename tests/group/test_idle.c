/* SPDX-License-Identifier: MIT */
/* A library that has nothing to do takes no core from the program: its threads sleep, they do not
 * spin. */
#include "support/cz_test.h"

#include <time.h>

#include "czero/czero.h"

enum { COUNT = 20000 };

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct idle {
    double spent; /* seconds of all cores, during one second of wall-clock time */
} idle;

/* A group, a data-parallel model and an optimizer with kernel threads have worked, and then wait
 * for the program. */
static cz_status sleep_between_steps(cz_group *group, void *context)
{
    static float memory[8][2][COUNT];
    idle *i = context;
    cz_model *model = NULL;
    cz_ddp *ddp = NULL;
    cz_zero *zero = NULL;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    const int rank = cz_group_rank(group);
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(
        cz_model_add(model, "p", memory[rank][0], memory[rank][1], CZ_F32, 1, (int64_t[]){COUNT}));
    CZ_TRY(cz_ddp_create(&ddp, group, model, NULL));
    options.ddp = ddp;
    options.threads = 2;
    CZ_TRY(cz_zero_create(&zero, group, model, cz_rule_adam(), NULL, &options));
    for (int step = 0; step < 3; step++) {
        CZ_TRY(cz_ddp_begin(ddp, true));
        CZ_TRY(cz_ddp_mark_ready(ddp, 0));
        CZ_TRY(cz_ddp_finish(ddp));
        CZ_TRY(cz_zero_step(zero, NULL, NULL));
    }
    CZ_TRY(cz_barrier(group, NULL));
    if (rank == 0) {
        const double before = processor_seconds();
        nanosleep(&(struct timespec){1, 0}, NULL);
        i->spent = processor_seconds() - before;
    } else
        nanosleep(&(struct timespec){1, 100000000}, NULL);
    cz_zero_destroy(&zero);
    cz_ddp_destroy(&ddp);
    cz_model_destroy(&model);
    return CZ_OK;
}

TEST(threads_of_the_library_sleep_while_the_program_computes)
{
    for (int world = 1; world <= 4; world++) {
        idle i = {-1};
        assert_ranks_ok(world, sleep_between_steps, &i);
        /* One thread that spins takes a whole second; threads that sleep between looks some
         * thousandths. */
        if (i.spent < 0 || i.spent > 0.03)
            fail_msg("world size %d: %.3f s of processor time in a second without work", world,
                     i.spent);
    }
}
