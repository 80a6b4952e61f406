/* SPDX-License-Identifier: MIT */
/* Parameter groups that come in one by one before there is state: shards are made once for all of
 * them, when somebody asks for them. What anybody can see is as if all had been there from the
 * start. */
#include "zero/bucket.h"
#include "zero/cases.h"
#include "zero/zero.h"
#include "optim/optim.h"
#include "shard/shard.h"

enum { PARAMS = 24, MANY = 600 };

static cz_status add_each(cz_zero *zero, int64_t first, int64_t last)
{
    for (int64_t p = first; p <= last; p++) {
        const cz_hyper hypers[] = {{"lr", 1.0 / (double)(p + 8)}, {NULL, 0}};
        const cz_param_group one = {sizeof one, &p, 1, hypers};
        CZ_TRY(cz_zero_add_param_group(zero, &one));
    }
    return CZ_OK;
}

/* ---- as from the start ---- */

typedef struct both {
    int64_t sizes[PARAMS];
    cz_test_memory memories[2];
    cz_zero *zeros[2]; /* with all groups from the start, and one after the other */
} both;

static cz_status create_both(both *b, cz_group *group, cz_partition partition, const cz_rule *rule)
{
    int64_t members[PARAMS];
    cz_hyper hypers[PARAMS][2];
    cz_param_group groups[PARAMS];
    for (int64_t p = 0; p < PARAMS; p++) {
        b->sizes[p] = (p * 37) % 50;
        members[p] = p;
        hypers[p][0] = (cz_hyper){"lr", 1.0 / (double)(p + 8)};
        hypers[p][1] = (cz_hyper){NULL, 0};
        groups[p] = (cz_param_group){sizeof groups[p], &members[p], 1, hypers[p]};
    }
    const cz_test_training layout = {
        .param_count = PARAMS, .sizes = b->sizes, .dtype = CZ_F32, .steps = 1};
    for (int k = 0; k < 2; k++) {
        cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
        options.partition = partition;
        options.groups = groups;
        options.group_count = k == 0 ? PARAMS : 2;
        CZ_TRY(cz_test_memory_create(&b->memories[k], &layout));
        CZ_TRY(cz_zero_create(&b->zeros[k], group, b->memories[k].model, rule, NULL, &options));
    }
    return add_each(b->zeros[1], 2, PARAMS - 1);
}

static void destroy_both(both *b)
{
    for (int k = 0; k < 2; k++) {
        cz_zero_destroy(&b->zeros[k]);
        cz_test_memory_destroy(&b->memories[k]);
    }
}

static cz_status compare_maps(const both *b)
{
    const cz_shard_map *maps[] = {cz_test_shard_map(b->zeros[0]), cz_test_shard_map(b->zeros[1])};
    for (int64_t p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < b->sizes[p]; i++) {
            cz_span spans[2];
            for (int k = 0; k < 2; k++)
                CHECK(cz__shard_map_locate(maps[k], p, i, &spans[k]), "element %d of %d", (int)i,
                      (int)p);
            CHECK(spans[0].rank == spans[1].rank && spans[0].end == spans[1].end,
                  "element %d of parameter %d is elsewhere", (int)i, (int)p);
        }
    return CZ_OK;
}

static cz_status compare_homes(const both *b)
{
    for (int64_t p = 0; p < PARAMS; p++)
        CHECK(cz__shard_map_home(cz_test_shard_map(b->zeros[0]), p) ==
                  cz__shard_map_home(cz_test_shard_map(b->zeros[1]), p),
              "home of %d", (int)p);
    return CZ_OK;
}

static cz_status compare_bytes(const both *b)
{
    cz_zero_info infos[2] = {CZ_ZERO_INFO_INIT, CZ_ZERO_INFO_INIT};
    for (int k = 0; k < 2; k++)
        CZ_TRY(cz_zero_get_info(b->zeros[k], &infos[k]));
    CHECK(infos[0].state_bytes == infos[1].state_bytes, "state bytes");
    return CZ_OK;
}

static cz_status compare_parts(const both *b)
{
    for (int k = 0; k < 2; k++)
        CHECK(cz__optim_group_count(cz_zero_local_optim(b->zeros[k])) == PARAMS, "groups");
    CHECK(cz__optim_state_bytes(cz_zero_local_optim(b->zeros[0])) ==
              cz__optim_state_bytes(cz_zero_local_optim(b->zeros[1])),
          "state bytes of the local optimizer");
    return CZ_OK;
}

static cz_status compare_buckets(const both *b)
{
    void *data[2];
    int64_t counts[2];
    for (int k = 0; k < 2; k++)
        find_bucket(b->zeros[k], cz_device_cpu(), 0, &data[k], &counts[k]);
    CHECK(counts[0] == counts[1], "the first piece has %d and %d elements", (int)counts[0],
          (int)counts[1]);
    return CZ_OK;
}

static cz_status compare_dicts(const both *b)
{
    cz_state_dict *dicts[2] = {NULL};
    cz_status status = CZ_OK;
    for (int k = 0; status == CZ_OK && k < 2; k++) {
        status = cz_zero_consolidate_state_dict(b->zeros[k], CZ_ALL_RANKS);
        THEN(cz_zero_state_dict(b->zeros[k], &dicts[k]));
    }
    if (status == CZ_OK && !cz_state_dict_equal(dicts[0], dicts[1]))
        status = cz_fail(CZ_ERR_STATE, "dictionaries differ");
    cz_state_dict_destroy(&dicts[0]);
    cz_state_dict_destroy(&dicts[1]);
    return status;
}

static cz_status nothing_first(const both *b)
{
    (void)b;
    return CZ_OK;
}

/* The first one finds shards that wait. */
static cz_status (*const looks[])(const both *) = {nothing_first, compare_maps,  compare_homes,
                                                   compare_bytes, compare_parts, compare_buckets,
                                                   compare_dicts};
enum { LOOKS = sizeof looks / sizeof *looks };

static cz_status step_both(both *b, int rank, int step)
{
    for (int k = 0; k < 2; k++) {
        for (int64_t p = 0; p < PARAMS; p++)
            for (int64_t i = 0; i < b->sizes[p]; i++)
                cz_test_store(b->memories[k].grads[p], CZ_F32, i, cz_test_gradient(rank, step, i));
        CZ_TRY(cz_zero_step(b->zeros[k], NULL, NULL));
    }
    for (int64_t p = 0; p < PARAMS; p++)
        CHECK(memcmp(b->memories[0].values[p], b->memories[1].values[p],
                     (size_t)b->sizes[p] * sizeof(float)) == 0,
              "parameter %d has other bits", (int)p);
    return CZ_OK;
}

static cz_status compare_both(both *b, cz_group *group, int first)
{
    CZ_TRY(looks[first](b));
    for (int step = 0; step < 2; step++) {
        CZ_TRY(step_both(b, cz_group_rank(group), step));
        for (int k = 0; k < LOOKS; k++)
            CZ_TRY(looks[k](b));
    }
    return CZ_OK;
}

static cz_status as_from_the_start(cz_group *group, void *arg)
{
    (void)arg;
    const cz_rule *const rules[] = {cz_rule_adam(), cz_rule_adagrad(), cz_rule_nadam()};
    cz_status status = CZ_OK;
    for (int way = 0; status == CZ_OK && way < 2 * 3 * LOOKS; way++) {
        both b = {0};
        status = create_both(&b, group, way % 2 ? CZ_PARTITION_GREEDY : CZ_PARTITION_ELEMENTS,
                             rules[way / 2 % 3]);
        THEN(compare_both(&b, group, way / 6));
        destroy_both(&b);
    }
    return status;
}

TEST(groups_that_come_one_by_one_are_as_those_from_the_start)
{
    (void)state;
    for (int world = 1; world <= 3; world++)
        expect_ok(world, 0, as_from_the_start, NULL);
}

/* ---- what a group costs ---- */

/* Deterministic, in place of a clock: a walk over everything has tables of everything. */
static cz_status costs_its_own(cz_group *group, void *arg)
{
    (void)arg;
    int64_t sizes[MANY], large = 0;
    for (int64_t p = 0; p < MANY; p++)
        sizes[p] = 3;
    const cz_test_training layout = {.param_count = MANY, .sizes = sizes, .dtype = CZ_F32};
    const cz_param_group first = {sizeof first, (int64_t[]){0}, 1, NULL};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_test_memory memory;
    cz_zero *zero = NULL;
    options.groups = &first;
    options.group_count = 1;
    CZ_TRY(cz_test_memory_create(&memory, &layout));
    cz_status status = cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, &options);
    for (int64_t p = 1; status == CZ_OK && p < MANY; p++) {
        const int64_t held = cz_test_allocation_bytes();
        cz_test_allocation_reset_peak();
        status = add_each(zero, p, p);
        large += cz_test_allocation_peak() - held > 2048;
    }
    if (status == CZ_OK &&
        large > 12) /* the list of groups grows ten times, addresses are listed once */
        status = cz_fail(CZ_ERR_STATE, "%d of %d additions allocate more than 2048 bytes",
                         (int)large, MANY);
    THEN(cz_zero_step(zero, NULL, NULL));
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

TEST(adding_a_group_takes_memory_for_that_group_alone)
{
    (void)state;
    expect_ok(1, 0, costs_its_own, NULL);
}

/* ---- what is refused ---- */

static cz_status refuse_differences(cz_zero *zero, bool odd)
{
    const cz_param_group three = {sizeof three, (int64_t[]){3}, 1, NULL};
    const cz_param_group four = {sizeof four, (int64_t[]){4}, 1, NULL};
    const cz_param_group other = {sizeof other, (int64_t[]){3}, 1, CZ_HYPERS({"lr", 0.25})};
    CZ_TRY(expect(cz_zero_add_param_group(zero, odd ? &four : &three), CZ_ERR_MISMATCH,
                  "a member of parameter group 3 is parameter"));
    CZ_TRY(expect(cz_zero_add_param_group(zero, odd ? &other : &three), CZ_ERR_MISMATCH,
                  "lr of parameter group 3 is 0."));
    CZ_TRY(cz_optim_set_hyper(cz_zero_local_optim(zero), 1, "lr", odd ? 0.5 : 0.125));
    CZ_TRY(expect(cz_zero_add_param_group(zero, &three), CZ_ERR_MISMATCH,
                  "lr of parameter group 1 is 0."));
    CZ_TRY(cz_optim_set_hyper(cz_zero_local_optim(zero), 1, "lr", 0.5));
    CZ_TRY(cz_model_set_requires_grad(cz__zero_model(zero), 2, odd));
    CZ_TRY(expect(cz_zero_add_param_group(zero, &three), CZ_ERR_MISMATCH, "frozen"));
    CZ_TRY(cz_model_set_requires_grad(cz__zero_model(zero), 2, true));
    if (odd)
        CZ_TRY(cz_optim_add_hyper(cz_zero_local_optim(zero), 0, "mine", 1));
    CZ_TRY(expect(cz_zero_add_param_group(zero, &three), CZ_ERR_MISMATCH,
                  "the number of hyper-parameters of parameter group 0"));
    if (!odd)
        CZ_TRY(cz_optim_add_hyper(cz_zero_local_optim(zero), 0, "mine", 1));
    return cz__zero_group_count(zero) == 3 ? cz_zero_add_param_group(zero, &three)
                                           : cz_fail(CZ_ERR_STATE, "a group was added");
}

static cz_status refuse_overlaps(cz_zero *zero, const cz_test_memory *memory)
{
    cz_model *model = cz__zero_model(zero);
    const cz_param_group five = {sizeof five, (int64_t[]){5}, 1, NULL};
    const cz_param_group six = {sizeof six, (int64_t[]){6}, 1, NULL};
    CZ_TRY(cz_model_set_gradient(model, 5, memory->values[1]));
    CZ_TRY(expect(cz_zero_add_param_group(zero, &five), CZ_ERR_ARGUMENT,
                  "the value of parameter 1 'p1' and the gradient of parameter 5 'p5'"));
    CZ_TRY(cz_model_set_gradient(model, 5, (char *)memory->grads[2] + 8));
    CZ_TRY(cz_zero_add_param_group(zero, &five)); /* gradients are looked at by steps */
    CZ_TRY(expect(cz_zero_step(zero, NULL, NULL), CZ_ERR_ARGUMENT,
                  "the gradient of parameter 2 'p2' and the gradient of parameter 5 'p5'"));
    CZ_TRY(cz_model_set_gradient(model, 5, memory->grads[5]));
    CZ_TRY(cz_model_set_gradient(model, 6, (char *)memory->values[3] + 4));
    CZ_TRY(expect(cz_zero_add_param_group(zero, &six), CZ_ERR_ARGUMENT,
                  "the value of parameter 3 'p3' and the gradient of parameter 6 'p6'"));
    CZ_TRY(cz_model_set_gradient(model, 6, memory->grads[6]));
    CZ_TRY(cz_zero_add_param_group(zero, &six));
    return cz_zero_step(zero, NULL, NULL);
}

static cz_status refused(cz_group *group, void *arg)
{
    (void)arg;
    int64_t sizes[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    const cz_test_training layout = {.param_count = 8, .sizes = sizes, .dtype = CZ_F32};
    const cz_param_group first = {sizeof first, (int64_t[]){0}, 1, NULL};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_test_memory memory;
    cz_zero *zero = NULL;
    options.groups = &first;
    options.group_count = 1;
    CZ_TRY(cz_test_memory_create(&memory, &layout));
    cz_status status = cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, &options);
    THEN(add_each(zero, 1, 2));
    THEN(refuse_differences(zero, cz_group_rank(group) == cz_group_size(group) - 1));
    THEN(refuse_overlaps(zero, &memory));
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

TEST(groups_that_differ_or_overlap_are_refused_while_shards_wait)
{
    (void)state;
    for (int world = 2; world <= 3; world++)
        expect_ok(world, 0, refused, NULL);
}

/* ---- memory that is out ---- */

static cz_status add_and_step(cz_zero *zero, const cz_param_group *group, bool *added)
{
    if (!*added)
        CZ_TRY(cz_zero_add_param_group(zero, group));
    *added = true;
    return cz_zero_step(zero, NULL, NULL);
}

/* Each allocation fails in turn: the addition or the step is refused, and the next try goes on from
 * there. */
TEST(every_allocation_fails_in_turn)
{
    (void)state;
    int64_t sizes[3] = {9, 40, 5};
    const cz_test_training layout = {.param_count = 3, .sizes = sizes, .dtype = CZ_F32};
    const cz_param_group first = {sizeof first, (int64_t[]){0}, 1, NULL};
    const cz_param_group rest = {sizeof rest, (int64_t[]){1, 2}, 2, NULL};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.groups = &first;
    options.group_count = 1;
    bool failed = true;
    for (int64_t n = 1; failed; n++) {
        cz_test_memory memory;
        cz_group *group;
        cz_zero *zero;
        bool added = false;
        assert_ok(cz_group_create_threads(&group, 1, NULL));
        assert_ok(cz_test_memory_create(&memory, &layout));
        assert_ok(cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, &options));
        cz_test_fail_allocation(n);
        const cz_status status = add_and_step(zero, &rest, &added);
        failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        assert_int_equal(cz__zero_group_count(zero), added ? 2 : 1);
        assert_ok(add_and_step(zero, &rest, &added));
        assert_int_equal(cz__shard_map_home(cz_test_shard_map(zero), 1), 0);
        cz_zero_destroy(&zero);
        cz_test_memory_destroy(&memory);
        cz_group_destroy(&group);
    }
}
