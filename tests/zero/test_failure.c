/* SPDX-License-Identifier: MIT */
/* Memory that is out on one rank, and ranks that leave: an error on all, no leak, no hang. */
#include <stdatomic.h>
#include <string.h>

#include "support/cz_test.h"
#include "support/training.h"

enum { WORLD = 3 };

/* ---- allocations that fail on one thread, so on one rank ---- */

static _Thread_local int64_t until_failure;
static atomic_llong held;

static void *allocate(size_t bytes, size_t alignment, void *context)
{
    if (until_failure > 0 && --until_failure == 0)
        return NULL;
    atomic_fetch_add(&held, 1);
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void release(void *memory, size_t bytes, void *context)
{
    atomic_fetch_sub(&held, 1);
    free(memory);
}

/* ---- bodies ---- */

static const int64_t sizes[] = {40, 0, 1, 100, 3, 250};
enum { PARAMS = sizeof sizes / sizeof *sizes };
static const cz_test_training small = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};

typedef struct failure_plan {
    int odd_rank;
    bool mismatch; /* all but rank 0 freeze a parameter: the slow path of create */
    cz_partition partition;
    const cz_rule *rule;
    int64_t failures; /* what rank `odd_rank` went through */
} failure_plan;

static cz_status wrong(cz_status got)
{
    return cz_fail(CZ_ERR_STATE, "got %s: %s", cz_status_name(got),
                   got == CZ_OK ? "" : cz_last_error());
}

static cz_status create(cz_zero **zero, cz_group *group, cz_model *model, const failure_plan *plan)
{
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.partition = plan->partition;
    return cz_zero_create(zero, group, model, plan->rule, NULL, &options);
}

typedef struct subject {
    cz_test_memory memory;
    cz_zero *zero;
} subject;

static void clear(subject *s)
{
    cz_zero_destroy(&s->zero);
    cz_test_memory_destroy(&s->memory);
}

/* Fail the first allocation of create on one rank, then the second, … until it goes through. */
static cz_status create_until_it_works(subject *s, cz_group *group, failure_plan *plan)
{
    const bool odd = cz_group_rank(group) == plan->odd_rank;
    const cz_status wanted = plan->mismatch ? CZ_ERR_MISMATCH : CZ_OK;
    cz_status status = CZ_ERR_MEMORY;
    CZ_TRY(cz_test_memory_create(&s->memory, &small));
    if (plan->mismatch && cz_group_rank(group) > 0)
        CZ_TRY(cz_model_set_requires_grad(s->memory.model, 2, false));
    CZ_TRY(cz_barrier(group, NULL)); /* the group's own memory for an operation */
    for (int64_t n = 1; status != wanted; n++) {
        until_failure = odd ? n : 0;
        status = create(&s->zero, group, s->memory.model, plan);
        until_failure = 0;
        if (status != wanted && (status != CZ_ERR_MEMORY || s->zero))
            return wrong(status);
        if (odd)
            plan->failures = n;
    }
    return plan->mismatch ? CZ_OK : cz_zero_step(s->zero, NULL, NULL);
}

RANK_BODY(create_until_it_works, subject, clear, group, context)

static void run(cz_rank_main body, void *context)
{
    const long long before = atomic_load(&held);
    assert_ranks_ok(WORLD, body, context);
    assert_int_equal(atomic_load(&held), before);
}

TEST(memory_is_out_in_create)
{
    for (int mode = 0; mode < 8; mode++)
        for (int odd = 0; odd < WORLD; odd++) {
            failure_plan plan = {odd, mode % 2,
                                 mode & 2 ? CZ_PARTITION_GREEDY : CZ_PARTITION_ELEMENTS,
                                 mode & 4 ? cz_test_probe_rule() : cz_rule_adam(), 0};
            run(create_until_it_works_body, &plan);
            assert_true(plan.failures > 20);
        }
}

/* A step that needs memory: state of what was unfrozen, the gradient that this rank has not. */
static cz_status step_until_it_works(subject *s, cz_group *group, failure_plan *plan)
{
    const bool odd = cz_group_rank(group) == plan->odd_rank;
    cz_status status = CZ_ERR_MEMORY;
    CZ_TRY(cz_test_memory_create(&s->memory, &small));
    CZ_TRY(cz_model_set_requires_grad(s->memory.model, 5, false));
    CZ_TRY(create(&s->zero, group, s->memory.model, plan));
    CZ_TRY(cz_model_set_requires_grad(s->memory.model, 5, true));
    for (int64_t p = 0; odd && p < PARAMS; p++)
        CZ_TRY(cz_model_set_gradient(s->memory.model, p, NULL));
    for (int64_t n = 1; status != CZ_OK; n++) {
        until_failure = odd ? n : 0;
        status = cz_zero_step(s->zero, NULL, NULL);
        until_failure = 0;
        if (status != CZ_OK && status != CZ_ERR_MEMORY)
            return wrong(status);
        if (status != CZ_OK && cz_test_load(s->memory.values[5], CZ_F32, 9) != 9.0 / 64)
            return cz_fail(CZ_ERR_STATE, "a failed step changed a parameter");
        if (odd)
            plan->failures = n;
    }
    return CZ_OK;
}

RANK_BODY(step_until_it_works, subject, clear, group, context)

TEST(memory_is_out_in_a_step)
{
    for (int odd = 0; odd < WORLD; odd++) {
        failure_plan plan = {odd, false, CZ_PARTITION_ELEMENTS, cz_rule_adam(), 0};
        run(step_until_it_works_body, &plan);
        assert_true(plan.failures > 3);
    }
}

/* A broadcast either goes through or changes nothing. */
static cz_status broadcast_until_it_works(subject *s, cz_group *group, failure_plan *plan)
{
    const int rank = cz_group_rank(group);
    double buffer = rank;
    cz_status status = CZ_ERR_MEMORY;
    CZ_TRY(cz_test_memory_create(&s->memory, &small));
    CZ_TRY(cz_model_add_buffer(s->memory.model, "buffer", &buffer, CZ_F64, 0, NULL));
    CZ_TRY(create(&s->zero, group, s->memory.model, plan));
    cz_test_store(s->memory.values[5], CZ_F32, 9, rank);
    for (int64_t n = 1; status != CZ_OK; n++) {
        until_failure = rank == plan->odd_rank ? n : 0;
        status = cz_zero_broadcast_parameters(s->zero, 1);
        until_failure = 0;
        if (status != CZ_OK && status != CZ_ERR_MEMORY)
            return wrong(status);
        const int wanted = status == CZ_OK ? 1 : rank;
        if (buffer != wanted || cz_test_load(s->memory.values[5], CZ_F32, 9) != wanted)
            return cz_fail(CZ_ERR_STATE, "rank %d: %g after %s", rank, buffer,
                           cz_status_name(status));
        if (rank == plan->odd_rank)
            plan->failures = n;
    }
    return CZ_OK;
}

RANK_BODY(broadcast_until_it_works, subject, clear, group, context)

TEST(memory_is_out_in_a_broadcast)
{
    for (int odd = 0; odd < WORLD; odd++) {
        failure_plan plan = {odd, false, CZ_PARTITION_ELEMENTS, cz_rule_adam(), 0};
        run(broadcast_until_it_works_body, &plan);
        assert_true(plan.failures > 5);
    }
}

/* ---- ranks that leave ---- */

typedef struct departure {
    int rank;
    int step; /* before which it leaves; -1: before create */
    const cz_rule *rule;
} departure;

static cz_status train_until_somebody_leaves(subject *s, cz_group *group, const departure *leave)
{
    const bool leaves = cz_group_rank(group) == leave->rank;
    char name[16];
    CZ_TRY(cz_test_memory_create(&s->memory, &small));
    if (leaves && leave->step < 0)
        return CZ_OK;
    cz_status status =
        create(&s->zero, group, s->memory.model, &(failure_plan){.rule = leave->rule});
    for (int step = 0; step < 4 && status == CZ_OK; step++) {
        if (leaves && step == leave->step)
            return CZ_OK;
        status = cz_zero_step(s->zero, NULL, NULL);
    }
    snprintf(name, sizeof name, "rank %d", leave->rank);
    if (status != CZ_ERR_PEER || !strstr(cz_last_error(), name))
        return wrong(status);
    return cz_zero_step(s->zero, NULL, NULL) == CZ_OK ? wrong(CZ_OK) : CZ_OK; /* broken for good */
}

RANK_BODY(train_until_somebody_leaves, subject, clear, group, context)

TEST(a_rank_leaves)
{
    for (int rank = 0; rank < WORLD; rank++)
        for (int step = -1; step <= 2; step += 3) {
            departure leave = {rank, step, cz_rule_adam()};
            run(train_until_somebody_leaves_body, &leave);
            leave.rule = cz_test_probe_rule();
            run(train_until_somebody_leaves_body, &leave);
        }
}

int main(void)
{
    const cz_allocator allocator = {sizeof(cz_allocator), allocate, release, NULL};
    CZ_CHECK(cz_set_allocator(&allocator));
    return cz_test_run(NULL, NULL);
}
