/* SPDX-License-Identifier: MIT */
/* A program as a user's: grown.sh compiles it with structs that are shorter and longer than the
 * library's. Whatever it has the library fill is followed by bytes that must stay as they are. */
#include <czero/backend.h>
#include <czero/czero.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMS = 2, COUNT = 8, GUARD = 128 };

/* A struct that the library fills, from its _INIT on, and what lies behind it. */
#define GUARDED(type, name, init)                                                                  \
    struct {                                                                                       \
        type it;                                                                                   \
        unsigned char guard[GUARD];                                                                \
    } name = {init, {0}};                                                                          \
    memset(name.guard, 0xa5, GUARD)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return cz_fail(CZ_ERR_STATE, "line %d: %s", __LINE__, #condition);                     \
    } while (0)

static bool is_left_alone(const unsigned char *guard)
{
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != 0xa5)
            return false;
    return true;
}

#define CHECK_GUARD(name) CHECK(is_left_alone((name).guard))

/* ---- a rule whose specs are elements of arrays ---- */

static const cz_hyper_spec hypers[] = {{.name = "lr", .initial = 1, .minimum = 0, .maximum = 10},
                                       {.name = "speed", .initial = 2, .minimum = 0, .maximum = 10},
                                       {.name = "more", .initial = 3, .minimum = 0, .maximum = 10}};
static const cz_slot_spec slots[] = {{.name = "first", .kind = CZ_SLOT_ELEMENT, .initial = 5},
                                     {.name = "second", .kind = CZ_SLOT_ELEMENT, .initial = 7}};

static unsigned both(const double *values)
{
    (void)values;
    return 3;
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    (void)flags;
    coefficients[0] = step->hypers[0] * step->hypers[1] * step->hypers[2];
}

static void update(void *queue, int64_t count, void *param, const void *grad, void *const *in_use,
                   const double *coefficients, unsigned flags)
{
    float *p = param;
    const float *g = grad, *first = in_use[0], *second = in_use[1];
    (void)queue, (void)flags;
    for (int64_t i = 0; i < count; i++)
        p[i] -= (float)coefficients[0] * g[i] + first[i] + second[i];
}

static cz_update_kernel find_kernel(const cz_device *device, cz_dtype param, cz_dtype grad,
                                    cz_dtype state, void *context)
{
    (void)device, (void)param, (void)grad, (void)state, (void)context;
    return update;
}

static const cz_rule rule = {.abi = CZ_RULE_ABI,
                             .size = sizeof(cz_rule),
                             .name = "own",
                             .hyper_size = sizeof(cz_hyper_spec),
                             .slot_size = sizeof(cz_slot_spec),
                             .hyper_count = 3,
                             .hypers = hypers,
                             .slot_count = 2,
                             .slots = slots,
                             .slots_used = both,
                             .prepare = prepare,
                             .find_kernel = find_kernel};

/* ---- */

typedef struct memory {
    float values[PARAMS][COUNT], gradients[PARAMS][COUNT];
    cz_model *model;
} memory;

static cz_status make(memory *m)
{
    static const char *const names[PARAMS] = {"first", "second"};
    memset(m, 0, sizeof *m);
    CZ_TRY(cz_model_create(&m->model));
    for (int p = 0; p < PARAMS; p++) {
        for (int i = 0; i < COUNT; i++)
            m->gradients[p][i] = 1;
        CZ_TRY(cz_model_add(m->model, names[p], m->values[p], m->gradients[p], CZ_F32, 1,
                            (int64_t[]){COUNT}));
    }
    return CZ_OK;
}

/* Elements of arrays are found where they are: groups, specs. */
static cz_status step_alone(cz_group *group)
{
    static const int64_t members[PARAMS] = {0, 1};
    cz_param_group groups[PARAMS] = {CZ_PARAM_GROUP_INIT, CZ_PARAM_GROUP_INIT};
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    cz_step_options step = CZ_STEP_OPTIONS_INIT;
    GUARDED(cz_step_result, result, CZ_STEP_RESULT_INIT);
    cz_optim *optim;
    memory m;
    (void)group;
    CZ_TRY(make(&m));
    for (int p = 0; p < PARAMS; p++) {
        groups[p].params = &members[p];
        groups[p].param_count = 1;
    }
    options.groups = groups;
    options.group_count = PARAMS;
    step.max_norm = 1e30;
    CZ_TRY(cz_optim_create(&optim, m.model, &rule, NULL, &options));
    CZ_TRY(cz_optim_step(optim, &step, &result.it));
    CHECK(result.it.norm == sqrt(PARAMS * COUNT));
    CHECK(m.values[1][COUNT - 1] == -(1.0f * 2 * 3 + 5 + 7));
    CHECK_GUARD(result);
    cz_optim_destroy(&optim);
    cz_model_destroy(&m.model);
    return CZ_OK;
}

/* A device's table that ends before what it may leave out. */
static cz_status step_on_own_device(cz_group *group)
{
    cz_device device;
    cz_model *model;
    cz_optim *optim;
    float values[COUNT] = {0}, gradients[COUNT];
    (void)group;
    memcpy(&device, cz_device_cpu(), sizeof device);
    device.size = sizeof device;
    cz_tensor value = {.data = values, .dtype = CZ_F32, .dimensions = 1, .shape = {COUNT}};
    value.device = &device;
    cz_tensor gradient = value;
    gradient.data = gradients;
    for (int i = 0; i < COUNT; i++)
        gradients[i] = 1;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add_tensor(model, "value", &value, &gradient));
    CZ_TRY(cz_optim_create(&optim, model, &rule, NULL, NULL));
    CZ_TRY(cz_optim_step(optim, NULL, NULL));
    CHECK(values[COUNT - 1] == -(1.0f * 2 * 3 + 5 + 7));
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
    return CZ_OK;
}

/* ---- a backend of one rank ---- */

static int left;

static void start(void *endpoint, void (*notify)(void *context), void *context)
{
    (void)endpoint, (void)notify, (void)context;
}

static cz_status post(void *endpoint, cz_transfer *transfer)
{
    (void)endpoint, (void)transfer;
    return cz_fail(CZ_ERR_INTERNAL, "a message of one rank");
}

static cz_status test(void *endpoint, cz_transfer *transfer, bool *done)
{
    (void)done;
    return post(endpoint, transfer);
}

static bool withdraw(void *endpoint, cz_transfer *transfer)
{
    (void)endpoint, (void)transfer;
    return true;
}

static void break_group(void *endpoint, uint64_t sequence, cz_status status, const char *sentence)
{
    (void)endpoint, (void)sequence, (void)status, (void)sentence;
}

static cz_status broken(void *endpoint, uint64_t *sequence, char *sentence, size_t bytes)
{
    (void)endpoint, (void)sequence, (void)sentence, (void)bytes;
    return CZ_OK;
}

static void announce(void *endpoint, uint64_t begun)
{
    (void)endpoint, (void)begun;
}

static uint64_t announced(void *endpoint, int rank)
{
    (void)endpoint, (void)rank;
    return 0;
}

static void leave(void *endpoint, const char *why)
{
    (void)why;
    ++*(int *)endpoint;
}

static const cz_backend backend = {.abi = CZ_BACKEND_ABI,
                                   .size = sizeof(cz_backend),
                                   .name = "alone",
                                   .start = start,
                                   .post_send = post,
                                   .post_receive = post,
                                   .test = test,
                                   .withdraw = withdraw,
                                   .break_group = break_group,
                                   .broken = broken,
                                   .announce = announce,
                                   .announced = announced,
                                   .leave = leave};

static cz_status reduce_alone(void)
{
    cz_group *group;
    const cz_operation_options options = cz_operation_label("loss");
    float sum = 3;
    CZ_TRY(cz_group_create_custom(&group, 0, 1, &backend, &left, NULL));
    CZ_TRY(cz_all_reduce(group, &sum, 1, CZ_F32, CZ_SUM, &options));
    CHECK(sum == 3);
    cz_group_destroy(&group);
    CHECK(left == 1);
    return CZ_OK;
}

/* ---- */

static cz_status pass_and_step(cz_group *group)
{
    cz_ddp_options buckets = CZ_DDP_OPTIONS_INIT;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_join_options rest = CZ_JOIN_OPTIONS_INIT;
    GUARDED(cz_joinable, spare, CZ_JOINABLE_INIT);
    GUARDED(cz_trace_totals, totals, CZ_TRACE_TOTALS_INIT);
    GUARDED(cz_group_info, traffic, CZ_GROUP_INFO_INIT);
    cz_joinable joinables[2] = {CZ_JOINABLE_INIT, CZ_JOINABLE_INIT};
    cz_ddp *ddp;
    cz_zero *zero;
    cz_join *join;
    memory m;
    CZ_TRY(make(&m));
    CZ_TRY(cz_ddp_create(&ddp, group, m.model, &buckets));
    options.ddp = ddp;
    CZ_TRY(cz_zero_create(&zero, group, m.model, cz_rule_find("sgd"),
                          (const cz_hyper[]){{"lr", 1}, {NULL, 0}}, &options));
    CZ_TRY(cz_ddp_joinable(ddp, &spare.it));
    CHECK_GUARD(spare);
    CZ_TRY(cz_ddp_joinable(ddp, &joinables[0]));
    CZ_TRY(cz_zero_joinable(zero, &joinables[1]));
    CZ_TRY(cz_join_begin(&join, group, joinables, 2, &rest));
    CZ_TRY(cz_ddp_begin(ddp, true));
    for (int p = 0; p < PARAMS; p++)
        CZ_TRY(cz_ddp_mark_ready(ddp, p));
    CZ_TRY(cz_ddp_finish(ddp));
    CZ_TRY(cz_zero_step(zero, NULL, NULL));
    CZ_TRY(cz_join_end(&join, CZ_OK));
    CHECK(m.values[1][COUNT - 1] == -1);
    CZ_TRY(cz_zero_trace(zero, CZ_TRACE_UPDATE, &totals.it));
    CHECK(totals.it.count == 1);
    CHECK_GUARD(totals);
    CZ_TRY(cz_group_get_info(group, &traffic.it));
    CHECK(traffic.it.messages > 0);
    CHECK_GUARD(traffic);
    cz_zero_destroy(&zero);
    cz_ddp_destroy(&ddp);
    cz_model_destroy(&m.model);
    return CZ_OK;
}

static cz_status hook_in_a_hook(cz_group *group)
{
    GUARDED(cz_hook, inner, CZ_HOOK_INIT);
    GUARDED(cz_hook_record, record, CZ_HOOK_RECORD_INIT);
    GUARDED(cz_powersgd_stats, stats, CZ_POWERSGD_STATS_INIT);
    cz_powersgd_options low_rank = CZ_POWERSGD_OPTIONS_INIT;
    cz_powersgd *powersgd;
    cz_hook_recorder recorder = CZ_HOOK_RECORDER_INIT;
    cz_ddp *ddp;
    memory m;
    CZ_TRY(make(&m));
    CZ_TRY(cz_ddp_create(&ddp, group, m.model, NULL));
    CZ_TRY(cz_powersgd_create(&powersgd, m.model, &low_rank));
    CZ_TRY(cz_hook_find(&inner.it, "powersgd", m.model, powersgd));
    CHECK_GUARD(inner);
    recorder.inner = &inner.it;
    recorder.records = &record.it;
    recorder.count = 1;
    CZ_TRY(cz_ddp_register_hook_by_name(ddp, "record", &recorder));
    CZ_TRY(cz_ddp_begin(ddp, true));
    for (int p = 0; p < PARAMS; p++)
        CZ_TRY(cz_ddp_mark_ready(ddp, p));
    CZ_TRY(cz_ddp_finish(ddp));
    CHECK(record.it.calls == 1 && record.it.elements == PARAMS * COUNT);
    CHECK_GUARD(record);
    CZ_TRY(cz_powersgd_get_stats(powersgd, &stats.it));
    CHECK(stats.it.iter == 1);
    CHECK_GUARD(stats);
    cz_ddp_destroy(&ddp);
    cz_powersgd_destroy(&powersgd);
    cz_model_destroy(&m.model);
    return CZ_OK;
}

static cz_status step_in_parts(cz_group *group)
{
    cz_parts_options options = CZ_PARTS_OPTIONS_INIT;
    GUARDED(cz_parts_info, info, CZ_PARTS_INFO_INIT);
    cz_parts *parts;
    memory m;
    CZ_TRY(make(&m));
    options.count = 2;
    CZ_TRY(cz_parts_create(&parts, group, m.model, &options));
    CZ_TRY(cz_parts_add(parts));
    CZ_TRY(cz_parts_get_info(parts, &info.it));
    CHECK(info.it.count == 2 && info.it.own_count == 1 && info.it.added == 1);
    CHECK_GUARD(info);
    cz_parts_destroy(&parts);
    cz_model_destroy(&m.model);
    return CZ_OK;
}

static cz_status average(cz_group *group)
{
    cz_averager_level levels[2] = {CZ_AVERAGER_LEVEL_INIT, CZ_AVERAGER_LEVEL_INIT};
    cz_averager_options options = CZ_AVERAGER_OPTIONS_INIT;
    cz_averager *averager;
    int ranks;
    memory m;
    CZ_TRY(make(&m));
    levels[0].period = levels[0].ranks = 1;
    levels[1].period = 2;
    levels[1].ranks = cz_group_size(group);
    m.values[0][0] = (float)cz_group_rank(group);
    CZ_TRY(cz_averager_create_hierarchical(&averager, group, m.model, levels, 2, &options));
    CZ_TRY(cz_averager_average(averager, &ranks));
    CHECK(ranks == cz_group_size(group) && m.values[0][0] == 0.5f);
    cz_averager_destroy(&averager);
    cz_model_destroy(&m.model);
    return CZ_OK;
}

static cz_status save_and_load(cz_group *group, const char *folder)
{
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    cz_save_options save = CZ_SAVE_OPTIONS_INIT;
    cz_load_options load = CZ_LOAD_OPTIONS_INIT;
    GUARDED(cz_load_result, result, CZ_LOAD_RESULT_INIT);
    cz_checkpoint *checkpoint;
    char path[4096];
    memory m;
    CZ_TRY(make(&m));
    snprintf(path, sizeof path, "%s/saves-%zu", folder, sizeof save);
    options.model = m.model;
    CZ_TRY(cz_checkpoint_create(&checkpoint, group, path, &options));
    save.step = load.step = 3;
    const cz_status status = cz_checkpoint_save(checkpoint, &save);
    if (status == CZ_OK) {
        m.values[0][0] = 9;
        CZ_TRY(cz_checkpoint_load(checkpoint, &load, &result.it));
        CHECK(result.it.step == 3 && m.values[0][0] == 0);
        CHECK_GUARD(result);
        cz_state_dict_destroy(&result.it.common);
    }
    cz_checkpoint_destroy(&checkpoint);
    cz_model_destroy(&m.model);
    return status == CZ_ERR_UNSUPPORTED ? CZ_OK : status; /* a library without checkpoints */
}

static cz_status plan(cz_group *group)
{
    GUARDED(cz_plan_memory, needed, CZ_PLAN_MEMORY_INIT);
    cz_plan_options options = CZ_PLAN_OPTIONS_INIT;
    cz_shapes *shapes;
    cz_plan *made;
    memory m;
    (void)group;
    CZ_TRY(make(&m));
    CZ_TRY(cz_shapes_from_model(&shapes, m.model));
    options.world_size = 2;
    CZ_TRY(cz_plan_create(&made, shapes, &options));
    CZ_TRY(cz_plan_rank(made, 1, &needed.it));
    CHECK(needed.it.param_bytes == sizeof m.values);
    CHECK_GUARD(needed);
    cz_plan_destroy(&made);
    cz_shapes_destroy(&shapes);
    cz_model_destroy(&m.model);
    return CZ_OK;
}

static cz_status each_rank(cz_group *group, void *folder)
{
    CZ_TRY(step_alone(group));
    CZ_TRY(step_on_own_device(group));
    CZ_TRY(step_in_parts(group));
    CZ_TRY(pass_and_step(group));
    CZ_TRY(hook_in_a_hook(group));
    CZ_TRY(average(group));
    CZ_TRY(save_and_load(group, folder));
    return plan(group);
}

static void *allocate(size_t bytes, size_t alignment, void *context)
{
    (void)context;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void release(void *block, size_t bytes, void *context)
{
    (void)bytes, (void)context;
    free(block);
}

int main(int argc, char **argv)
{
    cz_allocator allocator = CZ_ALLOCATOR_INIT;
    cz_launch_options options = CZ_LAUNCH_OPTIONS_INIT;
    allocator.allocate = allocate;
    allocator.release = release;
    options.ranks = 2;
    CZ_CHECK(cz_set_allocator(&allocator));
    CZ_CHECK(reduce_alone());
    CZ_CHECK(cz_launch(each_rank, argc > 1 ? argv[1] : ".", &options));
#define SIZE(type) printf("%s %zu\n", #type, sizeof(type));
#include GROWN_LIST
    return 0;
}
