/* SPDX-License-Identifier: MIT */
/* Steps that are warm neither allocate nor touch new pages, on one thread and on two. */
#include "optim/object.h"
#include "base/memory.h"
#include "support/cz_test.h"
#include "support/training.h"

#include <sys/resource.h>

/* Of all kinds. */
static void held(size_t bytes[CZ__MEMORY_KINDS])
{
    for (int kind = 0; kind < CZ__MEMORY_KINDS; kind++)
        bytes[kind] = cz_memory_bytes((cz_memory_kind)kind);
}

static void step(cz_optim *optim, int times)
{
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    cz_step_result result = CZ_STEP_RESULT_INIT;
    options.max_norm = 1e-3;
    for (int k = 0; k < times; k++)
        assert_ok(cz_optim_step(optim, &options, &result));
}

/* The state is large enough for pages of its own. */
static void try_threads(int threads)
{
    const int64_t sizes[] = {400000, 3, 200000};
    const cz_test_training training = {.param_count = 3, .sizes = sizes, .dtype = CZ_F32};
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    cz_test_memory memory;
    cz_optim *optim;
    struct rusage before, after;
    size_t bytes[CZ__MEMORY_KINDS];
    options.threads = threads;
    assert_ok(cz_test_memory_create(&memory, &training));
    for (int p = 0; p < 3; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            ((float *)memory.grads[p])[i] = 1;
    assert_ok(cz_optim_create(&optim, memory.model, cz_rule_adam(), NULL, &options));
    assert_int_equal(cz__optim_parts(optim), threads);
    step(optim, 2);
    cz_memory_reset_peak();
    held(bytes);
    getrusage(RUSAGE_SELF, &before);
    step(optim, 5);
    getrusage(RUSAGE_SELF, &after);
    for (int kind = 0; kind < CZ__MEMORY_KINDS; kind++)
        assert_int_equal(cz_memory_peak_bytes((cz_memory_kind)kind), bytes[kind]);
#if !SANITIZED
    /* A page of a thread's stack now and then; the state has more than 1,000. */
    assert_in_range(after.ru_minflt - before.ru_minflt, 0, 8);
#endif
    cz_optim_destroy(&optim);
    cz_test_memory_destroy(&memory);
}

TEST(warm_steps_on_one_thread_allocate_nothing)
{
    try_threads(1);
}

TEST(warm_steps_on_two_threads_allocate_nothing)
{
    try_threads(2);
}
