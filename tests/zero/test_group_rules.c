/* SPDX-License-Identifier: MIT */
/* Parameter groups with rules of their own in one sharded optimizer: kernels of one pass and of
 * two, whole tensors, scalars, state from the beginning, in any company. */
#include "czero/ddp.h"
#include "support/passes.h"
#include "zero/saved.h"

static const int worlds[] = {1, 2, 3, 5, 7};
enum { WORLDS = sizeof worlds / sizeof *worlds, PARAMS = 9 };
static const int64_t sizes[PARAMS] = {7, 64, 0, 129, 17, 1, 1000, 33, 300};

/* ---- a rule over whole tensors, with a slot, a scalar and scratch memory ---- */

static const cz_slot_spec whole_slots[] = {{"step", CZ_SLOT_SCALAR, 0, NULL},
                                           {"least", CZ_SLOT_SCALAR, 3, NULL},
                                           {"sum", CZ_SLOT_ELEMENT, 0.5, NULL}};

static unsigned all_slots(const double *values)
{
    return 7;
}

static void prepare_whole(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    step->scalars[0] = step->scalars[0] < (double)step->step ? step->scalars[0] : 1;
    coefficients[0] = step->scalars[0] / (double)(step->step + 1);
}

static size_t one_row(const cz_tensor *param, void *context)
{
    return (size_t)cz_tensor_count(param) * sizeof(float);
}

/* Each element moves by what it is away from the one before it, on a ring. */
static void update_whole(const cz_tensor_update *update)
{
    const int64_t count = cz_tensor_count(update->param);
    float *p = update->param->data, *row = update->scratch, *sum = update->slots[0];
    const float *g = update->grad;
    for (int64_t i = 0; i < count; i++)
        row[i] = p[i] - p[(i + count - 1) % count] + g[i];
    for (int64_t i = 0; i < count; i++) {
        sum[i] += row[i];
        p[i] -= (float)update->coefficients[0] * 0.125F * sum[i];
    }
}

static const cz_rule whole_rule = {
    .abi = CZ_RULE_ABI,
    .size = sizeof(cz_rule),
    .name = "ring",
    .slot_size = sizeof *whole_slots,
    .slot_count = 3,
    .slots = whole_slots,
    .slots_used = all_slots,
    .prepare = prepare_whole,
    .update_tensor = update_whole,
    .scratch_bytes = one_row,
};

/* ---- which rules ---- */

static const int64_t firsts[] = {0, 3, 6}, seconds[] = {1, 2, 4}, thirds[] = {5, 8, 7};

/* The optimizer's rule, and those of three groups; "": the optimizer's, "ring": the one above. */
typedef struct company {
    const char *rule;
    const char *of[3];
} company;

static const company companies[] = {
    {"adamw", {"sgd", "", "lion"}},
    {"lion", {"", "adamw", ""}},
    {"adamw", {"lamb", "sgd", "adam_mini"}}, /* one pass and two */
    {"sgd", {"adagrad", "nadam", "radam"}},  /* state at create, a scalar; nobody's own */
    {"adam", {"ring", "", "lars"}},          /* whole tensors beside others */
    {"ring", {"ademamix", "", "adam_mini"}}, /* more slots and scalars than the optimizer's */
    {"schedule_free_adamw", {"", "rprop", "sgd"}},
    {"adadelta", {"sgd", "sgd", "ring"}},
};
enum { COMPANIES = sizeof companies / sizeof *companies };

static const cz_rule *find(const char *name)
{
    return strcmp(name, "ring") == 0 ? &whole_rule : cz_rule_find(name);
}

/* What has no default. */
static const cz_hyper *values_of(const char *rule)
{
    static const cz_hyper values[] = {{"lr", 0.01}, {"momentum", 0.5}, {NULL, 0}};
    return strcmp(rule, "sgd") == 0 || strcmp(rule, "lars") == 0 ? values : NULL;
}

static void form(const company *c, cz_param_group groups[3])
{
    const int64_t *const members[] = {firsts, seconds, thirds};
    for (int g = 0; g < 3; g++) {
        groups[g] = (cz_param_group)CZ_PARAM_GROUP_INIT;
        groups[g].params = members[g];
        groups[g].param_count = 3;
        groups[g].rule = *c->of[g] ? find(c->of[g]) : NULL;
        groups[g].hypers = values_of(c->of[g]);
    }
}

static cz_test_training training_of(const company *c, cz_param_group groups[3])
{
    form(c, groups);
    return (cz_test_training){.param_count = PARAMS,
                              .sizes = sizes,
                              .dtype = CZ_F32,
                              .rule = find(c->rule),
                              .hypers = values_of(c->rule),
                              .groups = groups,
                              .group_count = 3,
                              .steps = 4};
}

/* Of parameters of all groups some ranks have none now and then, and nobody in one step. */
static bool mostly(int rank, int step, int64_t param)
{
    return param == 3 ? step > 0 : param == 4 ? rank > 0 || step > 1 : param != 8 || step != 2;
}

static cz_status unfreeze(const cz_test_subject *subject, int step)
{
    CZ_TRY(step < 3 ? cz_model_set_requires_grad(subject->model, 6, step == 2) : CZ_OK);
    return step == 1 ? cz_model_set_requires_grad(subject->model, 1, false) : CZ_OK;
}

TEST(several_rules_have_the_bits_of_one_process)
{
    char why[256];
    for (int k = 0; k < COMPANIES; k++) {
        cz_param_group groups[3];
        cz_test_training t = training_of(&companies[k], groups);
        for (int mode = 0; mode < 8; mode++)
            for (int w = 0; w < WORLDS; w++) {
                t.partition = (cz_partition)(mode & 1);
                t.gradients = (cz_gradients)(mode >> 1 & 1);
                t.has_gradient = mode & 4 ? mostly : NULL;
                t.edit = mode & 4 ? unfreeze : NULL;
                if (cz_test_train(&t, worlds[w], NULL, why) != CZ_OK)
                    fail_msg("company %d, mode %d, world size %d: %s", k, mode, worlds[w], why);
            }
    }
}

/* To other numbers of ranks, partitions and orders, clipped now and then; the last group comes
 * later, with a rule that nobody else has. */
TEST(state_of_several_rules_travels)
{
    for (int k = 0; k < COMPANIES; k++)
        for (int later = 0; later <= 3; later += 3) {
            cz_param_group groups[3];
            cz_test_training t = training_of(&companies[k], groups);
            const stage list[] = {{1 + k % 3, 2, CZ_PARTITION_ELEMENTS, 0, 0, 0},
                                  {3, 2, CZ_PARTITION_GREEDY, 64, 0.5, 0},
                                  {2, 3, CZ_PARTITION_ELEMENTS, 0, 0, 2},
                                  {5, 1, CZ_PARTITION_GIVEN, 0, 0.25, 0}};
            t.last_group_at = later;
            check_stages(NULL, &t, list, 4, NULL);
        }
}

/* ---- as two optimizers ---- */

static const int64_t even[] = {0, 2, 4, 6, 8}, odd[] = {1, 3, 5, 7};

static void set_gradients(const cz_test_memory *memory, int step)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            cz_test_store(memory->grads[p], CZ_F32, i, cz_test_gradient(p % 3, step, i));
}

static void expect_as_two(const char *first, const char *second)
{
    const cz_test_training layout = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
    const cz_hyper *rates[] = {CZ_HYPERS({"lr", 0.02}), CZ_HYPERS({"lr", 0.005})};
    cz_param_group groups[] = {CZ_PARAM_GROUP_INIT, CZ_PARAM_GROUP_INIT};
    cz_test_memory together, apart;
    cz_optim *both, *one[2];
    groups[0].params = even;
    groups[0].param_count = 5;
    groups[0].hypers = rates[0];
    groups[1].params = odd;
    groups[1].param_count = 4;
    groups[1].hypers = rates[1];
    assert_ok(cz_test_memory_create(&together, &layout));
    assert_ok(cz_test_memory_create(&apart, &layout));
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    options.group_count = 1;
    for (int k = 0; k < 2; k++) {
        options.groups = &groups[k];
        assert_ok(cz_optim_create(&one[k], apart.model, cz_rule_find(k ? second : first), rates[k],
                                  &options));
    }
    groups[1].rule = cz_rule_find(second);
    options.groups = groups;
    options.group_count = 2;
    assert_ok(cz_optim_create(&both, together.model, cz_rule_find(first), rates[0], &options));
    for (int step = 0; step < 4; step++) {
        set_gradients(&together, step);
        set_gradients(&apart, step);
        assert_ok(cz_optim_step(both, NULL, NULL));
        assert_ok(cz_optim_step(one[0], NULL, NULL));
        assert_ok(cz_optim_step(one[1], NULL, NULL));
        for (int p = 0; p < PARAMS; p++)
            assert_memory_equal(together.values[p], apart.values[p],
                                (size_t)sizes[p] * sizeof(float));
    }
    cz_optim_destroy(&both);
    cz_optim_destroy(&one[0]);
    cz_optim_destroy(&one[1]);
    cz_test_memory_destroy(&together);
    cz_test_memory_destroy(&apart);
}

TEST(one_optimizer_with_two_rules_is_as_two_with_one)
{
    static const char *const pairs[][2] = {
        {"sgd", "adamw"}, {"lion", "adamw"}, {"adam_mini", "sgd"}, {"adamw", "lamb"}};
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
        expect_as_two(pairs[k][0], pairs[k][1]);
}

/* ---- inside passes ---- */

TEST(several_rules_step_inside_passes)
{
    static const int64_t eight[] = {64, 3, 1, 100, 17, 64, 250, 5};
    static const int64_t left[] = {0, 2, 4, 6}, right[] = {1, 3, 5, 7};
    static const cz_overlap overlaps[] = {CZ_OVERLAP_NONE, CZ_OVERLAP_INTERLEAVED, CZ_OVERLAP_STEP};
    char why[256];
    cz_param_group groups[] = {CZ_PARAM_GROUP_INIT, CZ_PARAM_GROUP_INIT};
    groups[0].params = left;
    groups[1].params = right;
    groups[0].param_count = groups[1].param_count = 4;
    for (int k = 0; k < 3; k++)
        for (int world = 1; world <= LARGEST_WORLD; world += 2)
            for (int buckets = 0; buckets < 2; buckets++) {
                cz_test_passes t = {.param_count = 8,
                                    .sizes = eight,
                                    .dtype = CZ_F32,
                                    .rule = cz_rule_adam(),
                                    .groups = groups,
                                    .group_count = 2,
                                    .buckets = CZ_DDP_OPTIONS_INIT};
                const cz_test_stretch stretch = {
                    world, 4, buckets ? CZ_PARTITION_BUCKET_PIECES : CZ_PARTITION_ELEMENTS,
                    overlaps[k]};
                groups[1].rule = k == 1 ? cz_rule_lion() : cz_rule_lamb();
                t.buckets.bucket_bytes = t.buckets.first_bucket_bytes = 256;
                if (cz_test_passes_on(&t, stretch, why) != CZ_OK)
                    fail_msg("overlap %d, world size %d: %s", k, world, why);
            }
}

/* ---- what is refused ---- */

typedef struct sharded {
    cz_test_memory memory;
    cz_zero *zero;
    cz_ddp *ddp;
    cz_state_dict *dict;
} sharded;

static void clear(sharded *s)
{
    cz_state_dict_destroy(&s->dict);
    cz_zero_destroy(&s->zero);
    cz_ddp_destroy(&s->ddp);
    cz_test_memory_destroy(&s->memory);
}

#define BODY(name) RANK_BODY(name, sharded, clear, group, context)

static cz_status make(sharded *s, cz_group *group, const cz_param_group *groups, int count,
                      cz_overlap overlap)
{
    const cz_test_training layout = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.groups = groups;
    options.group_count = count;
    options.overlap = overlap;
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    if (overlap) {
        for (int p = 4; p < PARAMS; p++)
            CZ_TRY(cz_model_set_requires_grad(s->memory.model, p, false));
        CZ_TRY(cz_ddp_create(&s->ddp, group, s->memory.model, NULL));
        options.ddp = s->ddp;
    }
    return cz_zero_create(&s->zero, group, s->memory.model, cz_rule_adamw(), NULL, &options);
}

static cz_status differ(sharded *s, cz_group *group, const void *context)
{
    cz_param_group groups[3];
    const bool is_odd = cz_group_rank(group) == cz_group_size(group) - 1;
    form(&(company){"adamw", {"", is_odd ? "lion" : "lamb", ""}}, groups);
    CZ_TRY(expect(make(s, group, groups, 3, CZ_OVERLAP_NONE), CZ_ERR_MISMATCH,
                  "the rule of parameter group 1 is"));
    if (!strstr(cz_last_error(), "lion") || !strstr(cz_last_error(), "lamb"))
        return cz_fail(CZ_ERR_STATE, "it says: %.200s", cz_last_error());
    clear(s);
    *s = (sharded){0};
    form(&(company){"adamw", {"", "", is_odd ? "lion" : ""}}, groups);
    CZ_TRY(make(s, group, groups, 2, CZ_OVERLAP_NONE));
    CZ_TRY(expect(cz_zero_add_param_group(s->zero, &groups[2]), CZ_ERR_MISMATCH,
                  "the rule of parameter group 2 is"));
    form(&(company){"adamw", {"", "", is_odd ? "ademamix" : "lamb"}}, groups);
    CZ_TRY(expect(cz_zero_add_param_group(s->zero, &groups[2]), CZ_ERR_MISMATCH,
                  "the rule of parameter group 2 is"));
    /* and all is as it was */
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    form(&(company){"adamw", {"", "", "lamb"}}, groups);
    CZ_TRY(cz_zero_add_param_group(s->zero, &groups[2]));
    return cz_zero_step(s->zero, NULL, NULL);
}
BODY(differ)

TEST(another_rule_on_one_rank_is_a_mismatch_that_names_both)
{
    for (int w = 1; w < WORLDS; w++)
        expect_ok(worlds[w], 0, differ_body, NULL);
}

/* Partial sums need all of a gradient. */
static cz_status interleave(sharded *s, cz_group *group, const void *context)
{
    const int64_t trained[] = {0, 1, 2, 3}, other[] = {5};
    cz_param_group groups[] = {CZ_PARAM_GROUP_INIT, CZ_PARAM_GROUP_INIT};
    groups[0].params = trained;
    groups[0].param_count = 4;
    groups[0].rule = cz_rule_lamb();
    groups[1].params = other;
    groups[1].param_count = 1;
    groups[1].rule = cz_rule_adam_mini();
    CZ_TRY(expect(make(s, group, groups, 2, CZ_OVERLAP_INTERLEAVED), CZ_ERR_UNSUPPORTED,
                  "rule lamb has partial sums"));
    clear(s);
    *s = (sharded){0};
    groups[0].rule = NULL;
    CZ_TRY(make(s, group, groups, 1, CZ_OVERLAP_INTERLEAVED));
    return expect(cz_zero_add_param_group(s->zero, &groups[1]), CZ_ERR_UNSUPPORTED,
                  "rule adam_mini has partial sums");
}
BODY(interleave)

TEST(partial_sums_of_one_group_cannot_be_interleaved)
{
    for (int w = 0; w < WORLDS; w++)
        expect_ok(worlds[w], 0, interleave_body, NULL);
}

/* Whole tensors come with a later group: they are owned whole, others are cut as before. */
static cz_status become_whole(sharded *s, cz_group *group, const void *context)
{
    cz_param_group groups[3];
    const bool *steps = context;
    cz_span span;
    form(&(company){"adamw", {"", "lion", "ring"}}, groups);
    CZ_TRY(make(s, group, groups, 2, CZ_OVERLAP_NONE));
    if (*steps)
        CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    CZ_TRY(cz_zero_add_param_group(s->zero, &groups[2]));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    for (int k = 0; k < 3; k++) {
        const bool found = cz__shard_map_locate(cz_test_shard_map(s->zero), thirds[k], 0, &span);
        CHECK(found && span.end == sizes[thirds[k]], "parameter %d is cut", (int)thirds[k]);
    }
    return CZ_OK;
}
BODY(become_whole)

TEST(whole_tensors_come_with_a_later_group)
{
    for (int w = 0; w < WORLDS; w++) {
        expect_ok(worlds[w], 0, become_whole_body, &(bool){false});
        expect_ok(worlds[w], 0, become_whole_body, &(bool){true});
    }
}

/* ---- memory that is out ---- */

/* Each allocation fails in turn while a group comes whose rule makes tables wider. */
static void add_until_it_works(const cz_rule *rule, bool stepped)
{
    const cz_test_training layout = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
    cz_param_group one = CZ_PARAM_GROUP_INIT, wider = CZ_PARAM_GROUP_INIT;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_test_memory memory;
    cz_group *group;
    cz_zero *zero;
    uint64_t before[2], after[2];
    bool failed = true;
    one.params = firsts;
    wider.params = seconds;
    one.param_count = wider.param_count = 3;
    wider.rule = rule;
    options.groups = &one;
    options.group_count = 1;
    assert_ok(cz_group_create_threads(&group, 1, NULL));
    assert_ok(cz_test_memory_create(&memory, &layout));
    assert_ok(cz_zero_create(&zero, group, memory.model, cz_rule_adam_mini(), NULL, &options));
    if (stepped)
        assert_ok(cz_zero_step(zero, NULL, NULL));
    assert_ok(cz_zero_fingerprint(zero, before));
    for (int64_t n = 1; failed; n++) {
        cz_test_fail_allocation(n);
        const cz_status status = cz_zero_add_param_group(zero, &wider);
        failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        assert_ok(cz_zero_fingerprint(zero, after));
        assert_memory_equal(before, after, sizeof before);
    }
    assert_ok(cz_zero_step(zero, NULL, NULL));
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    cz_group_destroy(&group);
}

TEST(every_allocation_of_a_wider_rule_fails_in_turn)
{
    const cz_rule *rules[] = {cz_rule_ademamix(), cz_test_probe_rule(), &whole_rule};
    for (int k = 0; k < 3; k++)
        for (int stepped = 0; stepped < 2; stepped++)
            add_until_it_works(rules[k], stepped);
}
