/* SPDX-License-Identifier: MIT */
/* A model on two devices of one type: state and buckets are had where the parameter is; the bits
 * are those of one device; a device of another type is refused. */
#include <stdatomic.h>
#include <string.h>

#include "support/cz_test.h"
#include "support/training.h"
#include "zero/bucket.h"
#include "support/spans.h"

enum { PARAMS = 5 };
static const int64_t sizes[PARAMS] = {33, 7, 64, 0, 100};
static const cz_test_training layout = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};

/* Two devices that count what they give. */
static atomic_llong held[2];

static cz_status allocate_0(cz_memory_kind kind, size_t bytes, void **out)
{
    atomic_fetch_add(&held[0], 1);
    return cz_device_cpu()->allocate(kind, bytes, out);
}
static void release_0(void *memory)
{
    if (memory)
        atomic_fetch_sub(&held[0], 1);
    cz_device_cpu()->release(memory);
}
static cz_status allocate_1(cz_memory_kind kind, size_t bytes, void **out)
{
    atomic_fetch_add(&held[1], 1);
    return cz_device_cpu()->allocate(kind, bytes, out);
}
static void release_1(void *memory)
{
    if (memory)
        atomic_fetch_sub(&held[1], 1);
    cz_device_cpu()->release(memory);
}

static cz_device devices[2], other_type;

static void make_devices(void)
{
    devices[0] = devices[1] = other_type = *cz_device_cpu();
    devices[0].allocate = allocate_0;
    devices[0].release = release_0;
    devices[1].allocate = allocate_1;
    devices[1].release = release_1;
    other_type.name = "other";
}

/* Even parameters on the first, odd ones on the second. */
static cz_status add_params(cz_model *model, const cz_test_memory *memory, const cz_device *last)
{
    for (int p = 0; p < PARAMS; p++) {
        char name[24];
        cz_tensor value = {memory->values[p], CZ_F32, CZ_DENSE, 1, {sizes[p]}, &devices[p % 2]};
        if (p == PARAMS - 1 && last)
            value.device = last;
        cz_tensor grad = value;
        grad.data = memory->grads[p];
        snprintf(name, sizeof name, "p%d", p);
        CZ_TRY(cz_model_add_tensor(model, name, &value, &grad));
    }
    return CZ_OK;
}

static void moved(int64_t param, void *value, void *context)
{
    ((void **)context)[param] = value;
}

typedef struct subject {
    cz_test_memory memory;
    cz_model *model;
    cz_zero *zero;
    void *values[PARAMS];
} subject;

static void clear(subject *s)
{
    cz_zero_destroy(&s->zero);
    cz_model_destroy(&s->model);
    cz_test_memory_destroy(&s->memory);
}

static cz_status create(subject *s, cz_group *group, cz_partition partition, bool two, bool views)
{
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.partition = partition;
    options.parameters_as_bucket_view = views;
    options.moved = moved;
    options.moved_context = s->values;
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    memcpy(s->values, s->memory.values, sizeof s->values);
    if (two) {
        CZ_TRY(cz_model_create(&s->model));
        CZ_TRY(add_params(s->model, &s->memory, NULL));
    }
    return cz_zero_create(&s->zero, group, two ? s->model : s->memory.model, cz_rule_adam(), NULL,
                          &options);
}

static cz_status train(subject *s, cz_group *group)
{
    for (int step = 0; step < 4; step++) {
        for (int p = 0; p < PARAMS; p++)
            for (int64_t i = 0; i < sizes[p]; i++)
                cz_test_store(s->memory.grads[p], CZ_F32, i,
                              cz_test_gradient(cz_group_rank(group), step, i + p));
        CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
        if (step == 1)
            CZ_TRY(cz_zero_reshard(s->zero, CZ_PARTITION_GREEDY, NULL, 0));
    }
    return CZ_OK;
}

static cz_status same_bits(subject *one, subject *two, cz_group *group, const int *flags)
{
    const cz_partition partition = (cz_partition)flags[0];
    const bool views = flags[1];
    cz_state_dict *first = NULL, *second = NULL;
    CZ_TRY(create(one, group, partition, false, false));
    CZ_TRY(create(two, group, partition, true, views));
    CZ_TRY(train(one, group));
    CZ_TRY(train(two, group));
    for (int p = 0; p < PARAMS; p++)
        if (memcmp(one->values[p], two->values[p], (size_t)sizes[p] * sizeof(float)) != 0)
            return cz_fail(CZ_ERR_STATE, "parameter %d differs", p);
    for (int r = 0, total = 0; views && r < cz_group_size(group); r++, total = 0) {
        for (int d = 0; d < 2; d++) {
            void *data;
            int64_t count;
            find_bucket(two->zero, &devices[d], r, &data, &count);
            total += (int)count;
        }
        if (total != cz_test_owned(cz_test_shard_map(two->zero), r))
            return cz_fail(CZ_ERR_STATE, "the buckets of rank %d have %d elements", r, total);
    }
    CZ_TRY(cz_zero_consolidate_state_dict(one->zero, CZ_ALL_RANKS));
    CZ_TRY(cz_zero_consolidate_state_dict(two->zero, CZ_ALL_RANKS));
    CZ_TRY(cz_zero_state_dict(one->zero, &first));
    CZ_TRY(cz_zero_state_dict(two->zero, &second));
    const bool same = cz_state_dict_equal(first, second);
    cz_status status = cz_zero_load_state_dict(two->zero, first);
    cz_state_dict_destroy(&first);
    cz_state_dict_destroy(&second);
    if (status == CZ_OK && !same)
        status = cz_fail(CZ_ERR_STATE, "the dictionaries differ");
    return status;
}

static cz_status same_bits_body(cz_group *group, void *context)
{
    subject one = {0}, two = {0};
    const cz_status status = same_bits(&one, &two, group, context);
    clear(&one);
    clear(&two);
    return status;
}

TEST(two_devices_of_one_type)
{
    for (int world = 1; world <= 5; world++)
        for (int k = 0; k < 4; k++)
            assert_ranks_ok(world, same_bits_body, (int[]){k / 2, k % 2});
    assert_int_equal(held[0], 0); /* given back where it was had */
    assert_int_equal(held[1], 0);
}

static cz_status other_body(cz_group *group, void *context)
{
    subject s = {0};
    CZ_TRY(cz_test_memory_create(&s.memory, &layout));
    CZ_TRY(cz_model_create(&s.model));
    CZ_TRY(add_params(s.model, &s.memory, &other_type));
    cz_status status = cz_zero_create(&s.zero, group, s.model, cz_rule_adam(), NULL, NULL);
    const bool right = status == CZ_ERR_UNSUPPORTED && strstr(cz_last_error(), "device other");
    clear(&s);
    return right ? CZ_OK : cz_fail(CZ_ERR_STATE, "got %s", cz_status_name(status));
}

TEST(another_type)
{
    assert_ranks_ok(2, other_body, NULL);
}

int main(void)
{
    make_devices();
    return cz_test_run(NULL, NULL);
}
