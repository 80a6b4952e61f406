/* SPDX-License-Identifier: MIT */
/* Sharded steps over values and gradients of several types: the same bits as an unsharded optimizer
 * that is given the mean of the gradients in f32, for any world size, partition and way of data. */
#include <math.h>
#include <string.h>

#include "czero/shared.h"
#include "czero/zero.h"
#include "group/group_test.h"
#include "tensor/model.h"

enum { PARAMS = 8, MOST = 20011, STEPS = 4, SLICE = 80128 };

typedef struct kind {
    int64_t count;
    cz_dtype value, gradient;
} kind;

static const kind several[PARAMS] = {
    {37, CZ_BF16, CZ_BF16},  {MOST, CZ_BF16, CZ_BF16}, {129, CZ_F32, CZ_F32},
    {1000, CZ_BF16, CZ_F32}, {65, CZ_F16, CZ_F16},     {3001, CZ_F32, CZ_BF16},
    {1, CZ_F16, CZ_BF16},    {700, CZ_BF16, CZ_BF16},
};
static const kind one[PARAMS] = {
    {37, CZ_BF16, CZ_BF16}, {MOST, CZ_BF16, CZ_BF16}, {129, CZ_BF16, CZ_BF16},
    {5, CZ_BF16, CZ_BF16},  {65, CZ_BF16, CZ_BF16},   {301, CZ_BF16, CZ_BF16},
    {1, CZ_BF16, CZ_BF16},  {700, CZ_BF16, CZ_BF16},
};

/* What is tried; zeros: the usual. */
typedef struct trial {
    const kind *kinds;
    const cz_rule *(*rule)(void);
    cz_partition partition;
    cz_gradients gradients;
    cz_master master;
    cz_dtype state_dtype;
    int threads;
    double max_norm;
    bool skips; /* non-finite gradients, of which there are some */
    bool reshards;
    bool passes; /* of a data-parallel model, with this overlap */
    cz_overlap overlap;
    cz_loss_scale loss_scale; /* size 0: none */
    bool views;               /* values are moved into buckets */
    bool shared;              /* they are in memory that ranks share */
    bool several;             /* groups with rules of their own, some with partial sums */
    bool averages;            /* of values, of another kind in one of the groups */
} trial;

/* A model; `grads` are what steps read. */
typedef struct side {
    cz_model *model;
    cz_loss_scale loss_scale;
    void *values[PARAMS], *grads[PARAMS];
    bool misplaced; /* a value was moved to where its type cannot be */
    cz_shared *shared;
    char *memory; /* of values that ranks share; NULL: each has its own */
    bool reads;   /* and another rank writes the first ones */
} side;

static double number(uint64_t seed, int64_t i)
{
    const uint64_t word = mix(seed * 1000003 + (uint64_t)i);
    return ((double)(word >> 11) * 0x1p-52 - 1) * (double)(1 << (word & 7)) * 0x1p-4;
}

static void put(cz_dtype dtype, void *to, int64_t i, double value)
{
    if (dtype == CZ_F32)
        ((float *)to)[i] = (float)value;
    else
        ((uint16_t *)to)[i] =
            dtype == CZ_F16 ? cz__f16_from_f32((float)value) : cz__bf16_from_f32((float)value);
}

static float get(cz_dtype dtype, const void *from, int64_t i)
{
    if (dtype == CZ_F32)
        return ((const float *)from)[i];
    const uint16_t half = ((const uint16_t *)from)[i];
    return dtype == CZ_F16 ? cz__f32_from_f16(half) : cz__f32_from_bf16(half);
}

static void *some(int64_t count)
{
    void *memory = calloc((size_t)count + 16, sizeof(float));
    if (!memory)
        abort();
    return memory;
}

static cz_status open_side(side *s, const kind *kinds, bool wide)
{
    CZ_TRY(cz_model_create(&s->model));
    for (int p = 0; p < PARAMS; p++) {
        const cz_dtype gradient = wide ? CZ_F32 : kinds[p].gradient;
        char name[16];
        s->values[p] = s->memory ? s->memory + p * SLICE : some(kinds[p].count);
        s->grads[p] = some(kinds[p].count);
        for (int64_t i = 0; i < kinds[p].count && !s->reads; i++)
            put(kinds[p].value, s->values[p], i, number(77 + (uint64_t)p, i));
        const cz_tensor value = {s->values[p], kinds[p].value, CZ_DENSE, 1, {kinds[p].count}, NULL};
        const cz_tensor grad = {s->grads[p], gradient, CZ_DENSE, 1, {kinds[p].count}, NULL};
        snprintf(name, sizeof name, "p%d", p);
        CZ_TRY(cz_model_add_tensor(s->model, name, &value, &grad));
    }
    return CZ_OK;
}

static void close_side(side *s)
{
    cz_model_destroy(&s->model);
    for (int p = 0; p < PARAMS; p++) {
        if (!s->memory)
            free(s->values[p]);
        free(s->grads[p]);
    }
    cz_shared_destroy(&s->shared);
}

static cz_status share(side *s, cz_group *group)
{
    void *memory = NULL;
    CZ_TRY(cz_shared_create(&s->shared, group, (size_t)PARAMS * SLICE, &memory));
    s->memory = memory;
    s->reads = cz_group_rank(group) > 0;
    return CZ_OK;
}

static void moved(int64_t param, void *value, void *context)
{
    side *s = context;
    const size_t size = cz_dtype_size(cz__model_value(s->model, param)->dtype);
    s->misplaced = s->misplaced || (uintptr_t)value % size != 0;
    s->values[param] = value;
}

/* Some ranks have none of parameter 2; nobody has one of parameter 7 in step 1. */
static bool has_gradient(const trial *t, int rank, int step, int p)
{
    if (t->passes)
        return true;
    return p == 2 ? rank % 2 == 0 : !(p == 7 && step == 1);
}

static float gradient(const trial *t, int rank, int step, int p, int64_t i)
{
    double value = number((uint64_t)((rank * 31 + step) * PARAMS + p), i);
    float bits[1];
    if (t->skips && step == 2 && rank == 0 && p == 1 && i == MOST - 1)
        value = INFINITY;
    put(t->kinds[p].gradient, bits, 0, value);
    return has_gradient(t, rank, step, p) ? get(t->kinds[p].gradient, bits, 0) : 0;
}

static float tree(const trial *t, int first, int count, int step, int p, int64_t i)
{
    int left = 1;
    if (count == 1)
        return gradient(t, first, step, p, i);
    while (2 * left < count)
        left *= 2;
    const float a = tree(t, first, left, step, p, i);
    return a + tree(t, first + left, count - left, step, p, i);
}

static cz_status set_gradients(const trial *t, side *mine, side *whole, const cz_group *group,
                               int step)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    for (int p = 0; p < PARAMS; p++) {
        bool any = false;
        for (int r = 0; r < size; r++)
            any = any || has_gradient(t, r, step, p);
        for (int64_t i = 0; i < t->kinds[p].count; i++) {
            const float sum = tree(t, 0, size, step, p, i);
            put(t->kinds[p].gradient, mine->grads[p], i,
                gradient(t, rank, step, p, i) * mine->loss_scale.scale);
            ((float *)whole->grads[p])[i] =
                t->gradients == CZ_GRADIENTS_SUM ? sum : sum / (float)size;
        }
        CZ_TRY(cz_model_set_gradient(mine->model, p,
                                     has_gradient(t, rank, step, p) ? mine->grads[p] : NULL));
        CZ_TRY(cz_model_set_gradient(whole->model, p, any ? whole->grads[p] : NULL));
    }
    return CZ_OK;
}

static cz_status compare_values(const trial *t, const side *mine, const side *whole, int step)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < t->kinds[p].count; i++) {
            const float a = get(t->kinds[p].value, mine->values[p], i),
                        b = get(t->kinds[p].value, whole->values[p], i);
            CHECK(memcmp(&a, &b, sizeof a) == 0, "step %d, parameter %d, element %d: %g, wanted %g",
                  step, p, (int)i, (double)a, (double)b);
        }
    return CZ_OK;
}

static cz_status compare_state(cz_zero *zero, const cz_optim *optim)
{
    uint64_t mine[2], whole[2];
    CZ_TRY(cz_zero_fingerprint(zero, mine));
    CZ_TRY(cz_optim_fingerprint(optim, whole));
    CHECK(memcmp(mine, whole, sizeof mine) == 0, "states differ");
    return CZ_OK;
}

static cz_status run_pass(cz_ddp *ddp)
{
    CZ_TRY(cz_ddp_begin(ddp, true));
    for (int p = PARAMS - 1; p >= 0; p--)
        CZ_TRY(cz_ddp_mark_ready(ddp, p));
    return cz_ddp_finish(ddp);
}

/* As PyTorch's GradScaler.update(). */
static void adapt(cz_loss_scale *s, bool overflows)
{
    if (s->interval == 0)
        return;
    s->scale *= overflows ? s->backoff : 1;
    s->good_steps = overflows ? 0 : s->good_steps + 1;
    if (s->good_steps == s->interval) {
        s->scale *= s->growth;
        s->good_steps = 0;
    }
}

static cz_status step_both(const trial *t, side *own, cz_ddp *ddp, cz_zero *zero, cz_optim *optim)
{
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    cz_step_result mine = CZ_STEP_RESULT_INIT, whole = CZ_STEP_RESULT_INIT;
    cz_loss_scale wanted = {0};
    options.max_norm = t->max_norm;
    options.skip_nonfinite = t->skips;
    if (t->loss_scale.size > 0) {
        wanted = own->loss_scale;
        options.loss_scale = &own->loss_scale;
        options.skip_nonfinite = wanted.interval == 0 && t->skips;
    }
    if (t->overlap)
        CZ_TRY(cz_zero_set_overlap(zero, t->overlap, &options));
    if (ddp)
        CZ_TRY(run_pass(ddp));
    CZ_TRY(cz_zero_step(zero, t->overlap ? NULL : &options, &mine));
    options.loss_scale = NULL;
    options.skip_nonfinite = t->skips;
    CZ_TRY(cz_optim_step(optim, &options, &whole));
    if (t->loss_scale.size > 0) {
        adapt(&wanted, whole.skipped);
        CHECK(own->loss_scale.scale == wanted.scale &&
                  own->loss_scale.good_steps == wanted.good_steps,
              "loss scale %g after %d good steps, wanted %g after %d", own->loss_scale.scale,
              (int)own->loss_scale.good_steps, wanted.scale, (int)wanted.good_steps);
    }
    CHECK(memcmp(&mine.norm, &whole.norm, sizeof mine.norm) == 0 || mine.norm != mine.norm,
          "norm %.17g, wanted %.17g", mine.norm, whole.norm);
    CHECK(mine.skipped == whole.skipped, "skipped: %d", mine.skipped);
    return CZ_OK;
}

/* State goes through a dictionary to another unsharded optimizer. */
static cz_status check_dictionary(const trial *t, cz_zero *zero, const cz_optim *optim)
{
    cz_state_dict *dict = NULL, *whole = NULL;
    CZ_TRY(cz_zero_consolidate_state_dict(zero, CZ_ALL_RANKS));
    cz_status status = cz_zero_state_dict(zero, &dict);
    THEN(cz_optim_state_dict(optim, &whole));
    if (status == CZ_OK && !cz_state_dict_equal(dict, whole))
        status = cz_fail(CZ_ERR_INTERNAL, "dictionaries differ");
    THEN(cz_zero_load_state_dict(zero, whole));
    cz_state_dict_destroy(&dict);
    cz_state_dict_destroy(&whole);
    return status;
}

/* Averages are evaluated, and training goes on from the values that were. */
static cz_status evaluate_both(const trial *t, const side *mine, const side *whole, cz_zero *zero,
                               cz_optim *optim, int step)
{
    CZ_TRY(cz_zero_evaluate(zero, true));
    CZ_TRY(cz_optim_evaluate(optim, true));
    CZ_TRY(compare_values(t, mine, whole, step));
    CZ_TRY(cz_zero_evaluate(zero, false));
    CZ_TRY(cz_optim_evaluate(optim, false));
    return compare_values(t, mine, whole, step);
}

static cz_status train(const trial *t, cz_group *group, side *mine, side *whole, cz_ddp *ddp,
                       cz_zero *zero, cz_optim *optim)
{
    for (int step = 0; step < STEPS; step++) {
        CZ_TRY(set_gradients(t, mine, whole, group, step));
        CZ_TRY(step_both(t, mine, ddp, zero, optim));
        CZ_TRY(compare_values(t, mine, whole, step));
        if (t->averages)
            CZ_TRY(evaluate_both(t, mine, whole, zero, optim, step));
        if (t->reshards && step == 1) {
            CZ_TRY(cz_zero_reshard(zero, CZ_PARTITION_GREEDY, NULL, 0));
            CZ_TRY(check_dictionary(t, zero, optim));
        }
        if (t->reshards && step == 2)
            CZ_TRY(cz_zero_reshard(zero, CZ_PARTITION_ELEMENTS, NULL, 0));
        CZ_TRY(compare_state(zero, optim));
    }
    return CZ_OK;
}

static const int64_t small[] = {0, 2, 4}, large[] = {1, 3}, rest[] = {5, 6, 7};
static const cz_moving_average mean = {
    .size = sizeof mean, .kind = CZ_MOVING_AVERAGE_MEAN, .start = 1};
static const cz_moving_average decaying = {
    .size = sizeof decaying, .kind = CZ_MOVING_AVERAGE_EMA, .decay = 0.75};

static cz_param_group groups_of(const trial *t, int number)
{
    const int64_t *const members[] = {small, large, rest};
    cz_param_group group = CZ_PARAM_GROUP_INIT;
    group.params = members[number];
    group.param_count = number == 1 ? 2 : 3;
    if (number == 1)
        group.rule = cz_rule_adam_mini();
    if (number == 1 && t->state_dtype == CZ_U8) /* it has nothing in 8 bits */
        group.state_dtype = CZ_F32;
    if (number == 2)
        group.rule = cz_rule_lion();
    if (number == 2 && t->averages)
        group.average = &mean;
    return group;
}

static cz_status each_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    const cz_rule *rule = t->rule ? t->rule() : cz_rule_adamw();
    const cz_hyper *hypers = CZ_HYPERS({"lr", 0.01});
    side mine = {.loss_scale = t->loss_scale}, whole = {NULL};
    cz_zero *zero = NULL;
    cz_optim *optim = NULL;
    int owners[PARAMS];
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_optim_options plain = CZ_OPTIM_OPTIONS_INIT;
    cz_ddp_options buckets = CZ_DDP_OPTIONS_INIT;
    buckets.bucket_bytes = buckets.first_bucket_bytes = 9000;
    options.overlap = t->overlap;
    options.partition = t->partition;
    options.gradients = t->gradients;
    options.threads = t->threads;
    options.master = plain.master = t->master;
    options.state_dtype = plain.state_dtype = t->state_dtype;
    options.seed = plain.seed = 5;
    options.u8_from = plain.u8_from = 100;
    options.average = plain.average = t->averages ? &decaying : NULL;
    const cz_param_group groups[] = {groups_of(t, 0), groups_of(t, 1), groups_of(t, 2)};
    if (t->several) {
        options.groups = plain.groups = groups;
        options.group_count = plain.group_count = 3;
    }
    for (int p = 0; p < PARAMS; p++)
        owners[p] = p * 3 % cz_group_size(group);
    if (t->partition == CZ_PARTITION_GIVEN) {
        options.owners = owners;
        options.owner_count = PARAMS;
    }
    if (t->loss_scale.size == 0)
        mine.loss_scale.scale = 1;
    if (t->views) {
        options.parameters_as_bucket_view = true;
        options.moved = moved;
        options.moved_context = &mine;
    }
    cz_status status = t->shared ? share(&mine, group) : CZ_OK;
    THEN(open_side(&mine, t->kinds, false));
    THEN(open_side(&whole, t->kinds, true));
    THEN(cz_barrier(group, NULL));
    if (t->passes)
        THEN(cz_ddp_create(&options.ddp, group, mine.model, &buckets));
    THEN(cz_zero_create(&zero, group, mine.model, rule, hypers, &options));
    THEN(cz_optim_create(&optim, whole.model, rule, hypers, &plain));
    THEN(train(t, group, &mine, &whole, options.ddp, zero, optim));
    if (status == CZ_OK && mine.misplaced)
        status = cz_fail(CZ_ERR_INTERNAL, "a value is at no multiple of its size");
    cz_zero_destroy(&zero);
    cz_ddp_destroy(&options.ddp);
    cz_optim_destroy(&optim);
    close_side(&mine);
    close_side(&whole);
    return status;
}

static void try(trial t)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    for (int k = 0; k < 2; k++) {
        t.kinds = k ? several : one;
        for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
            if (worlds[w] <= LARGEST_WORLD)
                expect_ok(worlds[w], 0, each_rank, &t);
    }
}

TEST(even_cuts)
{
    try((trial){.partition = CZ_PARTITION_ELEMENTS});
}

TEST(whole_parameters)
{
    try((trial){.partition = CZ_PARTITION_GREEDY});
    try((trial){.partition = CZ_PARTITION_GIVEN});
}

TEST(a_sum_instead_of_the_mean)
{
    try((trial){.gradients = CZ_GRADIENTS_SUM, .rule = cz_rule_sgd});
}

TEST(clipping_and_skipping_by_the_norm_of_the_unrounded_mean)
{
    try((trial){.max_norm = 3});
    try((trial){.skips = true});
    try((trial){.max_norm = 2, .skips = true, .threads = 2});
}

TEST(kernel_threads)
{
    try((trial){.threads = 3});
}

TEST(rounding_by_chance)
{
    try((trial){.master = CZ_MASTER_NONE});
    try((trial){.master = CZ_MASTER_NONE, .state_dtype = CZ_BF16, .max_norm = 1});
}

TEST(state_in_8_bits)
{
    try((trial){.state_dtype = CZ_U8, .threads = 2});
    try((trial){.state_dtype = CZ_U8, .reshards = true, .max_norm = 2});
}

TEST(state_moves_to_other_shards_and_through_dictionaries)
{
    try((trial){.reshards = true});
    try((trial){.reshards = true, .state_dtype = CZ_BF16});
}

TEST(several_rules)
{
    try((trial){.several = true, .reshards = true, .max_norm = 2});
    try((trial){.several = true, .master = CZ_MASTER_NONE, .state_dtype = CZ_BF16, .threads = 3});
}

TEST(state_in_8_bits_of_several_rules_with_averages)
{
    try((trial){.several = true, .averages = true, .state_dtype = CZ_U8, .reshards = true});
    try((trial){.several = true,
                .averages = true,
                .state_dtype = CZ_U8,
                .master = CZ_MASTER_NONE,
                .threads = 2,
                .max_norm = 2});
    try((trial){.averages = true, .state_dtype = CZ_U8, .partition = CZ_PARTITION_GREEDY});
}

TEST(values_move_into_buckets)
{
    try((trial){.views = true, .reshards = true});
    try((trial){.views = true, .partition = CZ_PARTITION_GREEDY, .max_norm = 2});
}

TEST(values_in_memory_that_ranks_share)
{
    if (ranks_are("nodes"))
        return;
    try((trial){.shared = true, .reshards = true});
    try((trial){.shared = true, .master = CZ_MASTER_NONE, .partition = CZ_PARTITION_GREEDY});
}

/* ---- inside passes of a data-parallel model ---- */

/* Which wants gradients of their values' types. */
static const kind alike[PARAMS] = {
    {37, CZ_BF16, CZ_BF16}, {MOST, CZ_BF16, CZ_BF16}, {129, CZ_F32, CZ_F32},
    {1000, CZ_F16, CZ_F16}, {65, CZ_F16, CZ_F16},     {3001, CZ_F32, CZ_F32},
    {1, CZ_BF16, CZ_BF16},  {700, CZ_BF16, CZ_BF16},
};

static void try_passes(trial t)
{
    t.passes = true;
    for (int k = 0; k < 2; k++) {
        t.kinds = k ? alike : one;
        for (int world = 1; world <= 5 && world <= LARGEST_WORLD; world += 1 + (world > 2))
            expect_ok(world, 0, each_rank, &t);
    }
}

TEST(means_of_passes_are_not_rounded)
{
    try_passes((trial){.max_norm = 2, .skips = true});
    try_passes((trial){.partition = CZ_PARTITION_BUCKETS});
    try_passes((trial){.threads = 2});
}

TEST(steps_inside_passes)
{
    try_passes((trial){.overlap = CZ_OVERLAP_STEP, .max_norm = 2});
    try_passes((trial){.overlap = CZ_OVERLAP_STEP});
    try_passes((trial){.overlap = CZ_OVERLAP_INTERLEAVED});
    try_passes((trial){.overlap = CZ_OVERLAP_INTERLEAVED, .partition = CZ_PARTITION_BUCKET_PIECES});
}

TEST(state_in_8_bits_in_steps_inside_passes)
{
    try_passes((trial){.state_dtype = CZ_U8, .overlap = CZ_OVERLAP_STEP});
    try_passes((trial){.state_dtype = CZ_U8,
                       .overlap = CZ_OVERLAP_INTERLEAVED,
                       .partition = CZ_PARTITION_BUCKET_PIECES});
}

TEST(shards_made_anew_between_passes)
{
    try_passes((trial){.reshards = true});
    try_passes((trial){.reshards = true, .overlap = CZ_OVERLAP_INTERLEAVED});
}

/* ---- loss scale ---- */

TEST(a_static_loss_scale_is_divided_out_before_clipping)
{
    const cz_loss_scale scale = {sizeof scale, 1024, 0, 0, 0, 0};
    try((trial){.loss_scale = scale, .max_norm = 3});
    try((trial){.loss_scale = scale, .skips = true, .threads = 2});
}

TEST(a_dynamic_loss_scale_grows_and_backs_off_as_in_a_plain_loop)
{
    const cz_loss_scale scale = {sizeof scale, 256, 2, 0.5, 2, 0};
    try((trial){.loss_scale = scale, .skips = true});
    try((trial){.loss_scale = scale, .skips = true, .max_norm = 1, .reshards = true});
    try_passes((trial){.loss_scale = scale, .skips = true, .overlap = CZ_OVERLAP_STEP});
}

static cz_status each_rank_differs(cz_group *group, void *arg)
{
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    cz_loss_scale scale = CZ_LOSS_SCALE_INIT;
    side mine = {NULL};
    cz_zero *zero = NULL;
    options.loss_scale = &scale;
    cz_status status = open_side(&mine, one, false);
    THEN(cz_zero_create(&zero, group, mine.model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.1}), NULL));
    scale.scale = 4 + cz_group_rank(group);
    THEN(expect(cz_zero_step(zero, &options, NULL), CZ_ERR_MISMATCH, "scale of loss_scale"));
    scale.scale = 0;
    THEN(expect(cz_zero_step(zero, &options, NULL), CZ_ERR_ARGUMENT, "loss_scale is 0"));
    scale.scale = 8;
    scale.growth = 0.5;
    THEN(expect(cz_zero_step(zero, &options, NULL), CZ_ERR_ARGUMENT, "growth 0.5"));
    CHECK(status != CZ_OK || scale.scale == 8, "a step that was not made has changed it");
    cz_zero_destroy(&zero);
    close_side(&mine);
    return status;
}

TEST(loss_scales_are_compared_and_checked)
{
    expect_ok(2, 0, each_rank_differs, NULL);
}

/* ---- bytes on their way ---- */

static cz_status count_bytes(cz_group *group, cz_dtype dtype, uint64_t *bytes)
{
    kind kinds[PARAMS];
    side mine = {NULL};
    cz_zero *zero = NULL;
    cz_group_info before = CZ_GROUP_INFO_INIT, after = CZ_GROUP_INFO_INIT;
    for (int p = 0; p < PARAMS; p++)
        kinds[p] = (kind){several[p].count, dtype, dtype};
    const cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_status status = open_side(&mine, kinds, false);
    THEN(cz_zero_create(&zero, group, mine.model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.1}), &options));
    THEN(cz_group_get_info(group, &before));
    THEN(cz_zero_step(zero, NULL, NULL));
    THEN(cz_group_get_info(group, &after));
    *bytes = after.sent_bytes - before.sent_bytes - (after.header_bytes - before.header_bytes);
    cz_zero_destroy(&zero);
    close_side(&mine);
    return status;
}

static cz_status each_rank_counts(cz_group *group, void *arg)
{
    const uint64_t all = 2 * sizeof(float) * (uint64_t)(cz_group_size(group) - 1);
    uint64_t wide, narrow, sums[2], elements = 0;
    for (int p = 0; p < PARAMS; p++)
        elements += (uint64_t)several[p].count;
    CZ_TRY(count_bytes(group, CZ_F32, &wide));
    CZ_TRY(count_bytes(group, CZ_BF16, &narrow));
    sums[0] = wide;
    sums[1] = narrow;
    CZ_TRY(cz_all_reduce(group, sums, 2, CZ_I64, CZ_SUM, NULL));
    CHECK(sums[0] == all * elements, "%d bytes of f32, wanted %d", (int)sums[0],
          (int)(all * elements));
    CHECK(2 * sums[1] == sums[0], "%d bytes of bf16, %d of f32", (int)sums[1], (int)sums[0]);
    return CZ_OK;
}

TEST(half_the_bytes_travel)
{
    for (int world = 1; world <= 4; world++) /* between machines partial sums are f32 */
        if (!ranks_are("nodes"))
            expect_ok(world, 0, each_rank_counts, NULL);
}
