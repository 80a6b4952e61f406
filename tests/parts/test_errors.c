/* SPDX-License-Identifier: MIT */
/* What parts refuse: each error that their headers name, on the ranks that shall see it, and a step
 * afterwards as if nothing had been asked. */
#include <math.h>

#include "czero/ddp.h"
#include "czero/hooks.h"
#include "czero/zero.h"
#include "group/group_test.h"
#include "support/joinables.h"
#include "support/training.h"

enum { RANKS = 3, PARTS = 8, PARAMS = 3, LARGEST = 50, MORE = 5 };
static const int64_t sizes[PARAMS] = {LARGEST, 0, 7};
static const cz_test_training layout = {
    .param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32, .flat = false};

/* Of a batch; some tests have as many as ranks. */
static int part_count = PARTS;

typedef struct subject {
    cz_group *group;
    cz_test_memory memory;
    float more[MORE], more_grad[MORE]; /* of parameters that a test adds */
    uint16_t half[MORE], half_grad[MORE];
    cz_parts *parts;
    cz_ddp *ddp;
    cz_zero *zero;
    double expected; /* what has been subtracted from every value so far */
} subject;

static void clear(subject *s)
{
    cz_zero_destroy(&s->zero);
    cz_ddp_destroy(&s->ddp);
    cz_parts_destroy(&s->parts);
    cz_test_memory_destroy(&s->memory);
}

static cz_parts_options options_of(int count)
{
    return (cz_parts_options){sizeof(cz_parts_options), count, 0};
}

typedef enum making { PLAIN, WITH_DDP, PARTS_ONLY } making;

static cz_status create(subject *s, cz_group *group, making kind)
{
    const cz_parts_options parts = options_of(part_count);
    cz_ddp_options ddp = CZ_DDP_OPTIONS_INIT;
    cz_zero_options zero = CZ_ZERO_OPTIONS_INIT;
    *s = (subject){.group = group};
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    CZ_TRY(cz_parts_create(&s->parts, group, s->memory.model, &parts));
    if (kind == PARTS_ONLY)
        return CZ_OK;
    ddp.parts = zero.parts = s->parts;
    ddp.find_unused = 1;
    if (kind == WITH_DDP)
        CZ_TRY(cz_ddp_create(&s->ddp, group, s->memory.model, &ddp));
    zero.ddp = s->ddp;
    return cz_zero_create(&s->zero, group, s->memory.model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}),
                          &zero);
}

/* The gradient of part k is k + 1 everywhere, or a multiple of it whose thirds are whole
 * numbers. */
static double gradient_of(int part)
{
    return part_count == RANKS ? RANKS * (part + 1) : part + 1;
}

static void set_gradients(subject *s, int part)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            cz_test_store(s->memory.grads[p], CZ_F32, i, gradient_of(part));
}

static cz_status mark_all(subject *s)
{
    for (int p = 0; p < PARAMS; p++)
        CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
    return CZ_OK;
}

static cz_status run_part(subject *s, int part)
{
    set_gradients(s, part);
    if (!s->ddp)
        return cz_parts_add(s->parts);
    CZ_TRY(cz_ddp_begin(s->ddp, cz_parts_is_last(s->parts)));
    CZ_TRY(mark_all(s));
    return cz_ddp_finish(s->ddp);
}

static cz_status run_parts(subject *s)
{
    for (int i = 0, part; (part = cz_parts_own(s->parts, i)) >= 0; i++)
        CZ_TRY(run_part(s, part));
    return CZ_OK;
}

static cz_status compare(const subject *s)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++) {
            const double is = cz_test_load(s->memory.values[p], CZ_F32, i);
            const double wanted = (double)i / 64 - s->expected;
            CHECK(is == wanted, "element %" PRId64 " of parameter %d is %g, wanted %g", i, p, is,
                  wanted);
        }
    return CZ_OK;
}

/* A step as it has to be: of 8 parts (1 + … + 8) / 8 = 4.5. */
static cz_status step(subject *s)
{
    CZ_TRY(run_parts(s));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    s->expected += gradient_of(part_count) / 2;
    return compare(s);
}

/* Each body makes a subject of its own. */
#define BODY(name)                                                                                 \
    RANK_BODY(name, subject, clear, group)                                                         \
    TEST(name)                                                                                     \
    {                                                                                              \
        assert_ranks_ok(RANKS, name##_body, NULL);                                                 \
    }

/* ---- creation ---- */

static cz_status refuse(subject *s, const cz_parts_options *options, cz_status status,
                        const char *sentence)
{
    cz_parts *parts = s->parts;
    CZ_TRY(expect(cz_parts_create(&parts, s->group, s->memory.model, options), status, sentence));
    CHECK(!parts, "parts in spite of: %s", sentence);
    return CZ_OK;
}

static cz_status what_makes_no_parts_is_refused_on_all_ranks(subject *s, cz_group *group)
{
    const int rank = cz_group_rank(group);
    cz_parts_options options = options_of(PARTS);
    cz_parts *parts;
    s->group = group;
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    CZ_TRY(expect(cz_parts_create(&parts, NULL, s->memory.model, &options), CZ_ERR_ARGUMENT,
                  "group is NULL"));
    CZ_TRY(expect(cz_parts_create(rank == 1 ? NULL : &parts, group, s->memory.model, &options),
                  CZ_ERR_ARGUMENT, "rank 1: parts: out is NULL"));
    CZ_TRY(expect(cz_parts_create(&parts, group, rank == 2 ? NULL : s->memory.model, &options),
                  CZ_ERR_ARGUMENT, "rank 2: parts: model is NULL"));
    CZ_TRY(refuse(s, NULL, CZ_ERR_ARGUMENT, "count is 0, wanted 1 to 4096"));
    options.count = 4097;
    CZ_TRY(refuse(s, &options, CZ_ERR_ARGUMENT, "count is 4097, wanted 1 to 4096"));
    options.count = -1;
    CZ_TRY(refuse(s, &options, CZ_ERR_ARGUMENT, "count is -1"));
    options.count = RANKS - 1;
    CZ_TRY(refuse(s, &options, CZ_ERR_ARGUMENT,
                  "option count is 2, wanted at least 3, one for each rank"));
    options.count = rank == 1 ? PARTS + 1 : PARTS;
    CZ_TRY(refuse(s, &options, CZ_ERR_MISMATCH, "count"));
    options = options_of(PARTS);
    options.reserved = 1;
    CZ_TRY(refuse(s, &options, CZ_ERR_UNSUPPORTED, "reserved is 1, wanted 0"));
    const int64_t two = 2;
    return cz_model_add(s->memory.model, "one more: it was not frozen", s->memory.values[0],
                        s->memory.grads[0], CZ_F32, 1, &two);
}
BODY(what_makes_no_parts_is_refused_on_all_ranks)

static cz_status try_type(cz_group *group, cz_dtype dtype, bool trains, const char *sentence)
{
    double value[2] = {0}, grad[2] = {0};
    const int64_t two = 2;
    const cz_parts_options options = options_of(PARTS);
    cz_model *model;
    cz_parts *parts = NULL;
    CZ_TRY(cz_model_create(&model));
    cz_status status = cz_model_add(model, "w", value, trains ? grad : NULL, dtype, 1, &two);
    THEN(cz_model_set_requires_grad(model, 0, trains));
    THEN(expect(cz_parts_create(&parts, group, model, &options),
                sentence ? CZ_ERR_UNSUPPORTED : CZ_OK, sentence));
    cz_parts_destroy(&parts);
    cz_model_destroy(&model);
    return status;
}

static cz_status types_that_sums_do_not_have_are_refused(subject *s, cz_group *group)
{
    CZ_TRY(try_type(group, CZ_F16, true, "trainable parameter 0 'w' is f16, wanted f32 or f64"));
    CZ_TRY(try_type(group, CZ_BF16, true, "trainable parameter 0 'w' is bf16, wanted f32 or f64"));
    CZ_TRY(try_type(group, CZ_F16, false, NULL));
    CZ_TRY(try_type(group, CZ_F64, true, NULL));
    return CZ_OK;
}
BODY(types_that_sums_do_not_have_are_refused)

static cz_status make_on_rank(cz_group *group, void *arg)
{
    const char *sentence = arg;
    subject s = {.group = group};
    const cz_parts_options options = options_of(31); /* 11 on a rank: 3 sums */
    cz_parts *parts = NULL;
    cz_status status = cz_test_memory_create(&s.memory, &layout);
    THEN(expect(cz_parts_create(&parts, group, s.memory.model, &options),
                sentence ? CZ_ERR_UNSUPPORTED : CZ_OK, sentence));
    cz_parts_destroy(&parts);
    clear(&s);
    return status;
}

TEST(segments_have_a_line_of_the_cache_for_each_sum_of_a_rank)
{
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    outcome outcomes[MANY_RANKS];
    options.segment_bytes = 128;
    run_ranks(RANKS, &options, make_on_rank,
              (void *)"option segment_bytes of the group is 128, wanted at least 192 for 31 parts",
              outcomes);
    assert_all_ok(RANKS, outcomes, "too small");
    options.segment_bytes = 192;
    run_ranks(RANKS, &options, make_on_rank, NULL, outcomes);
    assert_all_ok(RANKS, outcomes, "large enough");
}

/* ---- adding ---- */

static cz_status calls_without_parts_say_so(subject *s, cz_group *group)
{
    cz_parts_info info = CZ_PARTS_INFO_INIT;
    double number = 1;
    cz_parts *none = NULL;
    CZ_TRY(create(s, group, PLAIN));
    cz_parts_destroy(NULL);
    cz_parts_destroy(&none);
    CHECK(cz_parts_own(NULL, 0) == -1 && cz_parts_own(s->parts, -1) == -1 &&
              cz_parts_own(s->parts, PARTS) == -1 && !cz_parts_is_last(NULL),
          "of no parts");
    CZ_TRY(expect(cz_parts_add(NULL), CZ_ERR_ARGUMENT, "parts add: parts is NULL"));
    CZ_TRY(expect(cz_parts_restart(NULL), CZ_ERR_ARGUMENT, "parts restart: parts is NULL"));
    CZ_TRY(expect(cz_parts_set_weights(NULL, &number), CZ_ERR_ARGUMENT, "parts is NULL"));
    CZ_TRY(expect(cz_parts_mean(NULL, &number, 1, &number), CZ_ERR_ARGUMENT, "parts is NULL"));
    CZ_TRY(expect(cz_parts_get_info(NULL, &info), CZ_ERR_ARGUMENT, "parts is NULL"));
    CZ_TRY(expect(cz_parts_get_info(s->parts, NULL), CZ_ERR_ARGUMENT, "info is NULL"));
    info.size = 0;
    CZ_TRY(expect(cz_parts_get_info(s->parts, &info), CZ_ERR_ARGUMENT, "size"));
    info.size = sizeof info;
    CZ_TRY(cz_parts_get_info(s->parts, &info));
    CHECK(info.count == PARTS && info.own_count == (cz_group_rank(group) < 2 ? 3 : 2) &&
              info.added == 0 && info.group == group && info.model == s->memory.model &&
              info.kept_bytes == (LARGEST + 7) * sizeof(float),
          "info: %d of %d parts, %zu bytes", info.own_count, info.count, info.kept_bytes);
    return step(s);
}
BODY(calls_without_parts_say_so)

static cz_status more_parts_than_a_rank_has_are_not_added(subject *s, cz_group *group)
{
    CZ_TRY(create(s, group, PLAIN));
    CZ_TRY(run_parts(s));
    CZ_TRY(expect(cz_parts_add(s->parts), CZ_ERR_STATE,
                  cz_group_rank(group) < 2
                      ? "all 3 parts of this rank were added; a step comes next"
                      : "all 2 parts of this rank were added"));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    s->expected = 4.5;
    CZ_TRY(compare(s));
    return step(s);
}
BODY(more_parts_than_a_rank_has_are_not_added)

/* All ranks hear of the one that lacks a part, and may go on: with the missing one, or anew. */
static cz_status a_step_waits_for_every_part(subject *s, cz_group *group)
{
    const int rank = cz_group_rank(group);
    CZ_TRY(create(s, group, PLAIN));
    CZ_TRY(run_part(s, cz_parts_own(s->parts, 0)));
    CZ_TRY(run_part(s, cz_parts_own(s->parts, 1)));
    if (rank == 0)
        CZ_TRY(run_part(s, cz_parts_own(s->parts, 2)));
    CZ_TRY(expect(cz_zero_step(s->zero, NULL, NULL), CZ_ERR_STATE,
                  "rank 1: zero step: 2 of 3 parts of this rank were added"));
    CZ_TRY(compare(s));
    if (rank == 1)
        CZ_TRY(run_part(s, cz_parts_own(s->parts, 2)));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    s->expected += 4.5;
    CZ_TRY(compare(s));
    CZ_TRY(expect(cz_zero_step(s->zero, NULL, NULL), CZ_ERR_STATE,
                  "0 of 3 parts of this rank were added"));
    CZ_TRY(run_part(s, 100));
    CZ_TRY(cz_parts_restart(s->parts));
    return step(s);
}
BODY(a_step_waits_for_every_part)

/* One rank is in the middle of a step; the others are not. */
static cz_status state_stays_in_the_middle_of_a_step(subject *s, cz_group *group, making kind)
{
    static const char why[] = "rank 1: zero: 1 of 3 parts of this rank were added; the step comes "
                              "first, or cz_parts_restart()";
    cz_state_dict *state;
    uint64_t print[2];
    CZ_TRY(create(s, group, kind));
    CZ_TRY(step(s));
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, CZ_ALL_RANKS));
    CZ_TRY(cz_zero_state_dict(s->zero, &state));
    if (cz_group_rank(group) == 1)
        CZ_TRY(run_part(s, cz_parts_own(s->parts, 0)));
    const cz_status loaded = expect(cz_zero_load_state_dict(s->zero, state), CZ_ERR_STATE, why);
    cz_state_dict_destroy(&state);
    CZ_TRY(loaded);
    CZ_TRY(expect(cz_zero_reshard(s->zero, CZ_PARTITION_GREEDY, NULL, 0), CZ_ERR_STATE, why));
    CZ_TRY(expect(cz_zero_consolidate_state_dict(s->zero, 0), CZ_ERR_STATE, why));
    CZ_TRY(expect(cz_zero_fingerprint(s->zero, print), CZ_ERR_STATE, why));
    CZ_TRY(cz_parts_restart(s->parts));
    CZ_TRY(cz_zero_reshard(s->zero, CZ_PARTITION_GREEDY, NULL, 0));
    return step(s);
}

static cz_status state_is_left_alone_between_parts(subject *s, cz_group *group)
{
    return state_stays_in_the_middle_of_a_step(s, group, PLAIN);
}
BODY(state_is_left_alone_between_parts)

static cz_status state_is_left_alone_between_passes(subject *s, cz_group *group)
{
    return state_stays_in_the_middle_of_a_step(s, group, WITH_DDP);
}
BODY(state_is_left_alone_between_passes)

static cz_status a_step_takes_no_other_gradients(subject *s, cz_group *group)
{
    CZ_TRY(create(s, group, PLAIN));
    const cz_step_options given = {
        .size = sizeof given, .gradients = s->memory.grads, .gradient_count = PARAMS};
    CZ_TRY(run_parts(s));
    CZ_TRY(expect(
        cz_zero_step(s->zero, &given, NULL), CZ_ERR_ARGUMENT,
        "with parts the gradients are those that were added; option gradients has to be NULL"));
    CZ_TRY(cz_model_set_gradient(s->memory.model, 2, NULL));
    CZ_TRY(expect(cz_zero_step(s->zero, NULL, NULL), CZ_ERR_STATE,
                  "parameter 2 'p2' is somewhere else since the last part was added"));
    CZ_TRY(cz_model_set_gradient(s->memory.model, 2, s->memory.grads[2]));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    s->expected = 4.5;
    CZ_TRY(compare(s));
    return step(s);
}
BODY(a_step_takes_no_other_gradients)

/* ---- weights and means ---- */

static cz_status try_weights(subject *s, double wrong, const char *sentence)
{
    double weights[3] = {1, 1, 1};
    if (cz_group_rank(s->group) == 1)
        weights[2] = wrong;
    return expect(cz_parts_set_weights(s->parts, weights), CZ_ERR_ARGUMENT, sentence);
}

static cz_status weights_that_are_none_are_refused_on_all_ranks(subject *s, cz_group *group)
{
    const double enormous[3] = {1e308, 1e308, 1e308}, alike[3] = {2, 2, 2};
    const int rank = cz_group_rank(group);
    CZ_TRY(create(s, group, PLAIN));
    CZ_TRY(try_weights(s, -1, "rank 1: parts set_weights: that of part 7 is -1, wanted 0 or more"));
    CZ_TRY(try_weights(s, NAN, "rank 1: parts set_weights: that of part 7 is"));
    CZ_TRY(try_weights(s, INFINITY, "rank 1: parts set_weights: that of part 7 is inf"));
    CZ_TRY(expect(cz_parts_set_weights(s->parts, enormous), CZ_ERR_ARGUMENT,
                  "those of all parts sum up to inf"));
    CZ_TRY(expect(cz_parts_set_weights(s->parts, rank == 2 ? NULL : alike), CZ_ERR_MISMATCH,
                  "the list of weights is NULL on rank 2, given on rank 0"));
    CZ_TRY(step(s));
    set_gradients(s, cz_parts_own(s->parts, 0));
    if (rank == 1)
        CZ_TRY(cz_parts_add(s->parts));
    CZ_TRY(expect(cz_parts_set_weights(s->parts, alike), CZ_ERR_STATE,
                  "rank 1: parts set_weights: 1 of 3 parts of the step were added already"));
    CZ_TRY(cz_parts_restart(s->parts));
    CZ_TRY(cz_parts_set_weights(s->parts, alike));
    return step(s);
}
BODY(weights_that_are_none_are_refused_on_all_ranks)

static cz_status means_of_nothing_are_refused_on_all_ranks(subject *s, cz_group *group)
{
    const int rank = cz_group_rank(group);
    double values[6] = {1, 1, 1, 1, 1, 1}, means[2];
    CZ_TRY(create(s, group, PLAIN));
    CZ_TRY(expect(cz_parts_mean(s->parts, rank == 1 ? NULL : values, 1, means), CZ_ERR_ARGUMENT,
                  "rank 1: parts mean: values is NULL"));
    CZ_TRY(expect(cz_parts_mean(s->parts, values, 1, rank == 2 ? NULL : means), CZ_ERR_ARGUMENT,
                  "rank 2: parts mean: means is NULL"));
    CZ_TRY(expect(cz_parts_mean(s->parts, values, 0, means), CZ_ERR_ARGUMENT, "count is 0"));
    CZ_TRY(expect(cz_parts_mean(s->parts, values, 65537, means), CZ_ERR_ARGUMENT,
                  "count is 65537, wanted 1 to 65536"));
    CZ_TRY(expect(cz_parts_mean(s->parts, values, rank == 1 ? 2 : 1, means), CZ_ERR_MISMATCH,
                  "count is 2 on rank 1, 1 on rank 0"));
    CZ_TRY(cz_parts_mean(s->parts, values, 2, means));
    CHECK(means[0] == 1 && means[1] == 1, "means %g and %g", means[0], means[1]);
    return step(s);
}
BODY(means_of_nothing_are_refused_on_all_ranks)

/* ---- with a data-parallel model ---- */

static cz_status passes_of_a_ddp_add_the_parts(subject *s, cz_group *group)
{
    const double weights[3] = {1, 1, 1};
    CZ_TRY(create(s, group, WITH_DDP));
    CZ_TRY(expect(cz_parts_add(s->parts), CZ_ERR_STATE, "passes of a ddp add these parts"));
    CZ_TRY(expect(cz_ddp_begin(s->ddp, true), CZ_ERR_STATE,
                  "sync is true, and the part that comes next is not this rank's last"));
    CZ_TRY(cz_ddp_begin(s->ddp, false));
    CZ_TRY(expect(cz_parts_restart(s->parts), CZ_ERR_STATE, "a pass of a ddp is under way"));
    set_gradients(s, 50);
    CZ_TRY(mark_all(s));
    CZ_TRY(cz_ddp_abandon(s->ddp)); /* the part was not added */
    CZ_TRY(run_part(s, 60));
    CZ_TRY(cz_parts_restart(s->parts));
    CZ_TRY(step(s));
    for (int i = 0; !cz_parts_is_last(s->parts); i++)
        CZ_TRY(run_part(s, cz_parts_own(s->parts, i)));
    CZ_TRY(expect(cz_ddp_begin(s->ddp, false), CZ_ERR_STATE,
                  "sync is false, and the part that comes next is this rank's last"));
    CZ_TRY(expect(cz_parts_set_weights(s->parts, weights), CZ_ERR_STATE, "were added already"));
    CZ_TRY(cz_parts_restart(s->parts));
    return step(s);
}
BODY(passes_of_a_ddp_add_the_parts)

static cz_status a_pass_that_is_abandoned_ends_the_step(subject *s, cz_group *group)
{
    CZ_TRY(create(s, group, WITH_DDP));
    for (int i = 0; !cz_parts_is_last(s->parts); i++)
        CZ_TRY(run_part(s, cz_parts_own(s->parts, i)));
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    set_gradients(s, 70);
    CZ_TRY(mark_all(s));
    const cz_status status =
        cz_group_rank(group) == 1 ? cz_ddp_abandon(s->ddp) : cz_ddp_finish(s->ddp);
    if (cz_group_rank(group) != 1)
        CZ_TRY(expect(status, CZ_ERR_STATE, "rank 1: ddp: the pass was abandoned"));
    CZ_TRY(expect(cz_zero_step(s->zero, NULL, NULL), CZ_ERR_STATE, "has not reduced gradients"));
    CZ_TRY(compare(s));
    return step(s);
}
BODY(a_pass_that_is_abandoned_ends_the_step)

static cz_status what_depends_on_ranks_is_refused(subject *s, cz_group *group)
{
    CZ_TRY(create(s, group, WITH_DDP));
    CZ_TRY(expect(cz_ddp_set_weight(s->ddp, 2), CZ_ERR_UNSUPPORTED, "see cz_parts_set_weights()"));
    static const char *const hooks[] = {"all_reduce", "fp16_compress", "powersgd",
                                        "quantize_per_tensor"};
    for (size_t k = 0; k < sizeof hooks / sizeof *hooks; k++) {
        const cz_status status = cz_ddp_register_hook_by_name(s->ddp, hooks[k], NULL);
        CHECK(status == CZ_ERR_UNSUPPORTED, "%s: %s: %s", hooks[k], cz_status_name(status),
              cz_last_error());
        CHECK(strstr(cz_last_error(), "the result of a hook depends on the ranks"), "%s",
              cz_last_error());
    }
    return step(s);
}
BODY(what_depends_on_ranks_is_refused)

/* ---- options parts ---- */

static cz_status try_zero(subject *s, const cz_zero_options *options, const char *sentence)
{
    cz_zero *zero = NULL;
    return expect(cz_zero_create(&zero, s->group, s->memory.model, cz_rule_sgd(),
                                 CZ_HYPERS({"lr", 1}), options),
                  CZ_ERR_ARGUMENT, sentence);
}

static cz_status try_options(subject *s, subject *other, subject *without)
{
    cz_zero_options zero = CZ_ZERO_OPTIONS_INIT;
    cz_ddp_options ddp = CZ_DDP_OPTIONS_INIT;
    cz_ddp *none;
    zero.parts = other->parts;
    CZ_TRY(try_zero(s, &zero, "zero: option parts is over another model"));
    ddp.parts = other->parts;
    CZ_TRY(expect(cz_ddp_create(&none, s->group, s->memory.model, &ddp), CZ_ERR_ARGUMENT,
                  "ddp: option parts is over another model"));
    zero.parts = s->parts;
    zero.gradients = CZ_GRADIENTS_REDUCED;
    CZ_TRY(try_zero(s, &zero, "zero: option parts, and gradients that are reduced"));
    zero.gradients = CZ_GRADIENTS_LOCAL;
    CZ_TRY(cz_ddp_create(&without->ddp, s->group, s->memory.model, NULL));
    zero.ddp = without->ddp;
    CZ_TRY(try_zero(s, &zero, "zero: option ddp was made without parts"));
    cz_ddp_destroy(&without->ddp);
    CZ_TRY(cz_parts_create(&without->parts, s->group, s->memory.model,
                           &(cz_parts_options){sizeof(cz_parts_options), PARTS, 0}));
    ddp.parts = without->parts;
    CZ_TRY(cz_ddp_create(&without->ddp, s->group, s->memory.model, &ddp));
    zero.ddp = without->ddp;
    CZ_TRY(try_zero(s, &zero, "zero: option ddp was made with other parts"));
    zero.ddp = NULL;
    zero.parts = without->parts;
    cz_zero *second;
    CZ_TRY(expect(cz_zero_create(&second, s->group, s->memory.model, cz_rule_sgd(),
                                 CZ_HYPERS({"lr", 1}), &zero),
                  CZ_ERR_STATE, "is used by a ddp already: give an optimizer option ddp, too"));
    cz_ddp_destroy(&without->ddp);
    cz_parts_destroy(&without->parts);
    zero.parts = cz_group_rank(s->group) == 1 ? NULL : s->parts;
    const cz_status status = cz_zero_create(&without->zero, s->group, s->memory.model,
                                            cz_rule_sgd(), CZ_HYPERS({"lr", 1}), &zero);
    return expect(status, CZ_ERR_MISMATCH, "option parts");
}

static cz_status options_take_parts_of_the_same_model_and_ranks(subject *s, cz_group *group)
{
    subject other = {0}, without = {0};
    cz_group *reversed = NULL;
    cz_status status = create(s, group, PARTS_ONLY);
    THEN(create(&other, group, PARTS_ONLY));
    THEN(try_options(s, &other, &without));
    clear(&without);
    clear(&other);
    THEN(cz_group_split(group, 0, -cz_group_rank(group), &reversed));
    cz_ddp *none;
    cz_ddp_options ddp = CZ_DDP_OPTIONS_INIT;
    ddp.parts = s->parts;
    THEN(expect(cz_ddp_create(&none, reversed, s->memory.model, &ddp), CZ_ERR_ARGUMENT,
                "ddp: option parts: this is rank 0 of 3 there, rank 2 of 3 here"));
    cz_group_destroy(&reversed);
    return status;
}
BODY(options_take_parts_of_the_same_model_and_ranks)

static cz_status step_with_new_optimizer(subject *s)
{
    cz_zero_options zero = CZ_ZERO_OPTIONS_INIT;
    zero.parts = s->parts;
    CZ_TRY(cz_zero_create(&s->zero, s->group, s->memory.model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}),
                          &zero));
    return step(s);
}

static cz_status parts_are_free_again_without_their_ddp(subject *s, cz_group *group)
{
    CZ_TRY(create(s, group, WITH_DDP));
    CZ_TRY(step(s));
    CZ_TRY(run_part(s, 30));
    cz_zero_destroy(&s->zero);
    cz_ddp_destroy(&s->ddp);
    return step_with_new_optimizer(s);
}
BODY(parts_are_free_again_without_their_ddp)

/* ---- joins ---- */

static cz_status try_division(subject *s, const cz_joinable *joinables, int count,
                              cz_join_divide divide, const char *who)
{
    cz_join *join = NULL;
    cz_join_options options = CZ_JOIN_OPTIONS_INIT;
    options.divide = divide;
    CZ_TRY(expect(cz_join_begin(&join, s->group, joinables, count, &options), CZ_ERR_UNSUPPORTED,
                  "option divide of the join has to be CZ_JOIN_BY_WORLD"));
    CHECK(strstr(cz_last_error(), who), "%s", cz_last_error());
    return CZ_OK;
}

static cz_status joins_divide_by_all_parts(subject *s, cz_group *group)
{
    CZ_TRY(create(s, group, WITH_DDP));
    const cz_joinable both[] = {cz_test_join_ddp(s->ddp), cz_test_join_zero(s->zero)};
    CZ_TRY(try_division(s, both, 2, CZ_JOIN_BY_ACTIVE, "ddp"));
    CZ_TRY(try_division(s, both, 2, CZ_JOIN_BY_WEIGHT, "ddp"));
    CZ_TRY(step(s));
    clear(s);
    CZ_TRY(create(s, group, PLAIN));
    const cz_joinable alone = cz_test_join_zero(s->zero);
    CZ_TRY(try_division(s, &alone, 1, CZ_JOIN_BY_ACTIVE, "sharded optimizer"));
    return step(s);
}
BODY(joins_divide_by_all_parts)

/* Rank r makes r + 1 steps. The parts of those that have joined are zeros. */
static cz_status run_steps(subject *s, bool half)
{
    const int rank = cz_group_rank(s->group);
    for (int k = 0; k <= rank; k++) {
        CZ_TRY(run_parts(s));
        CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    }
    if (half && rank == 0) /* its last batch was no whole one: it has joined all the same */
        CZ_TRY(run_part(s, 100));
    return CZ_OK;
}

/* Two parts for each rank, then one more for the first two; or one for each. */
static int owner_of(int part)
{
    if (part_count == RANKS)
        return part;
    return part < 2 * RANKS ? part / 2 : part - 2 * RANKS;
}

static double mean_of_rank(int rank)
{
    double sum = 0;
    for (int part = 0; part < part_count; part++)
        sum += owner_of(part) == rank ? gradient_of(part) : 0;
    return sum / part_count;
}

static cz_status run_out(subject *s, cz_group *group, making kind, bool half)
{
    cz_join *join = NULL;
    CZ_TRY(create(s, group, kind));
    for (int i = 0, part; (part = cz_parts_own(s->parts, i)) >= 0; i++)
        CHECK(owner_of(part) == cz_group_rank(group), "part %d is of rank %d", part,
              cz_group_rank(group));
    const cz_joinable both[] = {cz_test_join_zero(s->zero), kind == WITH_DDP
                                                                ? cz_test_join_ddp(s->ddp)
                                                                : (cz_joinable)CZ_JOINABLE_INIT};
    CZ_TRY(cz_join_begin(&join, group, both, kind == WITH_DDP ? 2 : 1, NULL));
    cz_status status = run_steps(s, half);
    CZ_TRY(cz_join_end(&join, status));
    for (int k = 0; k < RANKS; k++)
        for (int r = k; r < RANKS; r++)
            s->expected += mean_of_rank(r);
    CZ_TRY(compare(s));
    CZ_TRY(cz_parts_restart(s->parts));
    return step(s);
}

static cz_status ranks_that_run_out_of_inputs_add_zeros(subject *s, cz_group *group)
{
    CZ_TRY(run_out(s, group, PLAIN, false));
    clear(s);
    return run_out(s, group, WITH_DDP, false);
}
BODY(ranks_that_run_out_of_inputs_add_zeros)

TEST(ranks_that_run_out_of_inputs_add_zeros_where_each_has_one_part)
{
    part_count = RANKS;
    assert_ranks_ok(RANKS, ranks_that_run_out_of_inputs_add_zeros_body, NULL);
    part_count = PARTS;
}

static cz_status ranks_that_run_out_in_the_middle_of_a_step_add_zeros(subject *s, cz_group *group)
{
    CZ_TRY(run_out(s, group, PLAIN, true));
    clear(s);
    return run_out(s, group, WITH_DDP, true);
}
BODY(ranks_that_run_out_in_the_middle_of_a_step_add_zeros)

/* ---- what is unfrozen later ---- */

/* Sums of it are had when it comes; without memory the step begins again. */
static cz_status unfreeze(subject *s, cz_group *group, bool with_ddp)
{
    const int64_t count = MORE;
    const cz_parts_options options = options_of(PARTS);
    cz_status status = CZ_OK;
    s->group = group;
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    CZ_TRY(cz_model_add(s->memory.model, "later", s->more, s->more_grad, CZ_F32, 1, &count));
    CZ_TRY(cz_model_add(s->memory.model, "half", s->half, s->half_grad, CZ_F16, 1, &count));
    CZ_TRY(cz_model_set_requires_grad(s->memory.model, PARAMS, false));
    CZ_TRY(cz_model_set_requires_grad(s->memory.model, PARAMS + 1, false));
    CZ_TRY(cz_parts_create(&s->parts, group, s->memory.model, &options));
    if (with_ddp) {
        cz_ddp_options ddp = CZ_DDP_OPTIONS_INIT;
        ddp.parts = s->parts;
        ddp.find_unused = 1;
        CZ_TRY(cz_ddp_create(&s->ddp, group, s->memory.model, &ddp));
    }
    CZ_TRY(run_part(s, cz_parts_own(s->parts, 0)));
    CZ_TRY(cz_parts_restart(s->parts));
    CZ_TRY(cz_model_set_requires_grad(s->memory.model, PARAMS + 1, true));
    if (with_ddp) {
        CZ_TRY(cz_ddp_begin(s->ddp, false));
        CZ_TRY(cz_ddp_mark_ready(s->ddp, PARAMS + 1));
        status = cz_ddp_finish(s->ddp);
    } else {
        status = cz_parts_add(s->parts);
    }
    CZ_TRY(expect(status, CZ_ERR_UNSUPPORTED,
                  "trainable parameter 4 'half' is f16, wanted f32 or f64"));
    CZ_TRY(cz_parts_restart(s->parts));
    CZ_TRY(cz_model_set_requires_grad(s->memory.model, PARAMS + 1, false));
    CZ_TRY(cz_model_set_requires_grad(s->memory.model, PARAMS, true));
    cz_parts_info before = CZ_PARTS_INFO_INIT, after = CZ_PARTS_INFO_INIT;
    CZ_TRY(cz_parts_get_info(s->parts, &before));
    set_gradients(s, 1);
    if (with_ddp) {
        CZ_TRY(cz_ddp_begin(s->ddp, false));
        for (int p = 0; p <= PARAMS; p++)
            CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
        CZ_TRY(cz_ddp_finish(s->ddp));
    } else {
        CZ_TRY(cz_parts_add(s->parts));
    }
    CZ_TRY(cz_parts_get_info(s->parts, &after));
    CHECK(after.kept_bytes == before.kept_bytes + 5 * sizeof(float), "%zu bytes, then %zu",
          before.kept_bytes, after.kept_bytes);
    return CZ_OK;
}

static cz_status what_is_unfrozen_has_a_type_and_memory(subject *s, cz_group *group)
{
    CZ_TRY(unfreeze(s, group, false));
    clear(s);
    return unfreeze(s, group, true);
}
BODY(what_is_unfrozen_has_a_type_and_memory)

/* A pass whose part could not be added has marked nothing for those that follow. */
static cz_status a_pass_that_fails_has_marked_nothing(subject *s, cz_group *group)
{
    const int64_t count = MORE;
    const cz_parts_options options = options_of(PARTS);
    cz_ddp_options ddp = CZ_DDP_OPTIONS_INIT;
    s->group = group;
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    CZ_TRY(cz_model_add(s->memory.model, "half", s->half, s->half_grad, CZ_F16, 1, &count));
    CZ_TRY(cz_model_add(s->memory.model, "last", s->more, s->more_grad, CZ_F32, 1, &count));
    CZ_TRY(cz_model_set_requires_grad(s->memory.model, PARAMS, false));
    CZ_TRY(cz_parts_create(&s->parts, group, s->memory.model, &options));
    ddp.parts = s->parts;
    ddp.find_unused = 1;
    CZ_TRY(cz_ddp_create(&s->ddp, group, s->memory.model, &ddp));
    CZ_TRY(cz_model_set_requires_grad(s->memory.model, PARAMS, true));
    s->more_grad[0] = 9;
    CZ_TRY(cz_ddp_begin(s->ddp, false));
    CZ_TRY(cz_ddp_mark_ready(s->ddp, PARAMS));
    CZ_TRY(cz_ddp_mark_ready(s->ddp, PARAMS + 1));
    CZ_TRY(expect(cz_ddp_finish(s->ddp), CZ_ERR_UNSUPPORTED, "'half' is f16"));
    CZ_TRY(cz_parts_restart(s->parts));
    CZ_TRY(cz_model_set_requires_grad(s->memory.model, PARAMS, false));
    CZ_TRY(run_parts(s));
    CHECK(cz_test_load(s->memory.grads[0], CZ_F32, 0) == 4.5, "the mean is %g",
          cz_test_load(s->memory.grads[0], CZ_F32, 0));
    CHECK(s->more_grad[0] == 9, "a gradient that no part has is %g", (double)s->more_grad[0]);
    return CZ_OK;
}

BODY(a_pass_that_fails_has_marked_nothing)

/* ---- without memory ---- */

/* The n-th allocation fails from here on, whichever rank makes it. */
static cz_status create_somehow(cz_group *group, void *arg)
{
    subject s = {.group = group};
    const cz_parts_options options = options_of(PARTS);
    cz_status status = cz_test_memory_create(&s.memory, &layout);
    THEN(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0)
        cz_test_fail_allocation(*(const int64_t *)arg);
    THEN(cz_barrier(group, NULL));
    THEN(cz_parts_create(&s.parts, group, s.memory.model, &options));
    clear(&s);
    return status;
}

TEST(without_memory_no_rank_has_parts_and_nothing_is_left)
{
    const int64_t held = cz_test_allocations_held();
    bool failed = true;
    for (int64_t n = 1; failed; n++) {
        outcome outcomes[MANY_RANKS];
        cz_group_options options = CZ_GROUP_OPTIONS_INIT;
        options.timeout_seconds = 60;
        run_ranks(RANKS, &options, create_somehow, &n, outcomes);
        failed = cz_test_allocation_reset();
        assert_int_equal(cz_test_allocations_held(), held);
        for (int r = 0; r < RANKS; r++)
            if (outcomes[r].status != (failed ? CZ_ERR_MEMORY : CZ_OK))
                fail_msg("allocation %d: rank %d: %s: %s", (int)n, r,
                         cz_status_name(outcomes[r].status), outcomes[r].sentence);
    }
}

/* A sum of what was unfrozen has no memory: the step begins again. */
static cz_status add_somehow(cz_group *group, void *arg)
{
    const int64_t count = MORE;
    const cz_parts_options options = options_of(2);
    subject s = {.group = group};
    cz_status status = cz_test_memory_create(&s.memory, &layout);
    THEN(cz_model_add(s.memory.model, "later", s.more, s.more_grad, CZ_F32, 1, &count));
    THEN(cz_model_set_requires_grad(s.memory.model, PARAMS, false));
    THEN(cz_parts_create(&s.parts, group, s.memory.model, &options));
    THEN(cz_model_set_requires_grad(s.memory.model, PARAMS, true));
    if (status == CZ_OK)
        cz_test_fail_allocation(1);
    THEN(expect(cz_parts_add(s.parts), CZ_ERR_MEMORY,
                "no memory for 20 bytes of a partial sum of parameter 3 'later'"));
    const bool failed = cz_test_allocation_reset();
    THEN(failed ? CZ_OK : cz_fail(CZ_ERR_STATE, "no allocation was made"));
    THEN(cz_parts_restart(s.parts));
    THEN(cz_parts_add(s.parts));
    THEN(cz_parts_add(s.parts));
    THEN(expect(cz_parts_add(s.parts), CZ_ERR_STATE, "a step comes next"));
    clear(&s);
    return status;
}

TEST(without_memory_for_a_sum_the_step_begins_again)
{
    assert_ranks_ok(1, add_somehow, NULL);
}

/* ---- what is in the way of equal bits ---- */

/* A program that adds to the gradient instead of writing it: the second run of a part finds the
 * first one's. */
static cz_status add_gradients(int part, void *context)
{
    subject *s = context;
    for (int64_t i = 0; i < LARGEST; i++)
        ((float *)s->memory.grads[0])[i] += (float)part;
    return CZ_OK;
}

static cz_status drift(int part, void *context)
{
    subject *s = context;
    ((float *)s->memory.grads[2])[5] = (float)(s->expected += part == PARTS - 1);
    return CZ_OK;
}

static cz_status fail_in_part(int part, void *context)
{
    return cz_fail(CZ_ERR_IO, "no data of part %d", part);
}

static cz_status a_part_is_run_twice(subject *s, cz_group *group)
{
    CZ_TRY(create(s, group, PLAIN));
    const bool has_last = cz_parts_own(s->parts, cz_group_rank(group) == 1 ? 2 : 1) == PARTS - 1;
    CZ_TRY(cz_parts_check(s->parts, add_gradients, s));
    CZ_TRY(expect(cz_parts_check(s->parts, drift, s), has_last ? CZ_ERR_MISMATCH : CZ_OK,
                  has_last ? "the gradient of parameter 2 'p2' in part 7 is not the same when the "
                             "part is run again, first in element 5"
                           : NULL));
    s->expected = 0;
    CZ_TRY(expect(cz_parts_check(s->parts, fail_in_part, s), CZ_ERR_IO, "no data of part"));
    CZ_TRY(expect(cz_parts_check(s->parts, NULL, s), CZ_ERR_ARGUMENT, "run is NULL"));
    return step(s);
}
BODY(a_part_is_run_twice)

/* Of a parameter that was frozen while the step's first part was run nothing of the step before
 * counts. */
static cz_status what_was_frozen_meanwhile_has_no_old_sums(subject *s, cz_group *group)
{
    double wanted = 0;
    int own = 0;
    CZ_TRY(create(s, group, PLAIN));
    CZ_TRY(step(s));
    CZ_TRY(cz_model_set_requires_grad(s->memory.model, 0, false));
    CZ_TRY(run_part(s, cz_parts_own(s->parts, 0)));
    CZ_TRY(cz_model_set_requires_grad(s->memory.model, 0, true));
    while (cz_parts_own(s->parts, own + 1) >= 0)
        CZ_TRY(run_part(s, cz_parts_own(s->parts, ++own)));
    for (int part = 0; part < PARTS; part++)
        wanted += gradient_of(part);
    for (int r = 0; r < RANKS; r++) { /* the first parts */
        int first = r == cz_group_rank(group) ? cz_parts_own(s->parts, 0) : 0;
        CZ_TRY(cz_broadcast(group, &first, 1, CZ_I32, r, NULL));
        wanted -= gradient_of(first);
    }
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    const double is = cz_test_load(s->memory.values[0], CZ_F32, 3);
    CHECK(is == 3.0 / 64 - s->expected - wanted / PARTS, "it is %g, %g was subtracted", is,
          3.0 / 64 - s->expected - is);
    return CZ_OK;
}
BODY(what_was_frozen_meanwhile_has_no_old_sums)

/* ---- gradients between the last part and the step ---- */

static cz_status what_was_added_last_stays_where_it_is(subject *s, cz_group *group)
{
    const int rank = cz_group_rank(group);
    float elsewhere[LARGEST] = {0};
    CZ_TRY(create(s, group, PLAIN));
    CZ_TRY(run_parts(s));
    if (rank == 1)
        CZ_TRY(cz_model_set_gradient(s->memory.model, 0, elsewhere));
    CZ_TRY(expect(cz_zero_step(s->zero, NULL, NULL), CZ_ERR_STATE,
                  "rank 1: zero step: the gradient of parameter 0 'p0' is somewhere else since the "
                  "last part was added"));
    if (rank == 1)
        CZ_TRY(cz_model_set_gradient(s->memory.model, 0, s->memory.grads[0]));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    s->expected += gradient_of(part_count) / 2;
    CZ_TRY(compare(s));
    return step(s);
}
BODY(what_was_added_last_stays_where_it_is)

static cz_status what_was_added_last_is_not_cleared(cz_group *group, void *arg)
{
    subject s = {0};
    cz_status status = create(&s, group, PLAIN);
    THEN(run_parts(&s));
    THEN(cz_zero_zero_grad(s.zero, false));
    THEN(expect(cz_zero_step(s.zero, NULL, NULL), CZ_ERR_STATE, "was changed since the last part"));
    THEN(cz_parts_restart(s.parts));
    THEN(step(&s));
    clear(&s);
    return status;
}

TEST(gradients_that_are_cleared_too_early_are_found_in_checked_mode)
{
    assert_int_equal(setenv("CZERO_DEBUG", "collectives", 1), 0);
    assert_ranks_ok(RANKS, what_was_added_last_is_not_cleared, NULL);
    assert_int_equal(unsetenv("CZERO_DEBUG"), 0);
}

/* A parameter that the last part does not have may have no memory then. */
static cz_status a_gradient_of_an_earlier_part_needs_no_memory_later(subject *s, cz_group *group)
{
    double first = 0;
    CZ_TRY(create(s, group, PLAIN));
    for (int i = 0, part; (part = cz_parts_own(s->parts, i)) >= 0; i++) {
        const bool has = part == 0 || part == 3;
        CZ_TRY(cz_model_set_gradient(s->memory.model, 2, has ? s->memory.grads[2] : NULL));
        CZ_TRY(run_part(s, part));
    }
    first = gradient_of(0) + gradient_of(3);
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    const double is = cz_test_load(s->memory.values[2], CZ_F32, 3);
    CHECK(is == 3.0 / 64 - first / PARTS, "it is %g, wanted %g", is, 3.0 / 64 - first / PARTS);
    return CZ_OK;
}
BODY(a_gradient_of_an_earlier_part_needs_no_memory_later)

/* ---- marks ---- */

/* What is wrong in a part is wrong wherever the part is. */
static cz_status every_part_is_marked_as_it_has_to_be(subject *s, cz_group *group)
{
    const cz_parts_options parts = options_of(PARTS);
    cz_ddp_options ddp = CZ_DDP_OPTIONS_INIT;
    *s = (subject){.group = group};
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    CZ_TRY(cz_parts_create(&s->parts, group, s->memory.model, &parts));
    ddp.parts = s->parts;
    CZ_TRY(cz_ddp_create(&s->ddp, group, s->memory.model, &ddp));
    CZ_TRY(cz_ddp_begin(s->ddp, false));
    CZ_TRY(cz_ddp_mark_ready(s->ddp, 0));
    CZ_TRY(cz_ddp_mark_ready(s->ddp, 1));
    CZ_TRY(expect(cz_ddp_finish(s->ddp), CZ_ERR_STATE, "1 parameters were not marked ready"));
    CZ_TRY(cz_ddp_begin(s->ddp, false));
    CZ_TRY(cz_ddp_mark_ready(s->ddp, 0));
    CZ_TRY(expect(cz_ddp_mark_ready(s->ddp, 0), CZ_ERR_STATE, "was marked ready 2 times"));
    CZ_TRY(expect(cz_ddp_finish(s->ddp), CZ_ERR_STATE, "was marked ready 2 times"));
    CZ_TRY(run_parts(s));
    const double is = cz_test_load(s->memory.grads[0], CZ_F32, 7);
    CHECK(is == 4.5, "the mean is %g", is);
    return CZ_OK;
}
BODY(every_part_is_marked_as_it_has_to_be)

/* ---- weights ---- */

static cz_status weights_may_be_large(subject *s, cz_group *group)
{
    double weights[PARTS];
    CZ_TRY(create(s, group, PLAIN));
    for (int i = 0, part; (part = cz_parts_own(s->parts, i)) >= 0; i++)
        weights[i] = part == 2 ? 1e308 : 1;
    CZ_TRY(cz_parts_set_weights(s->parts, weights));
    CZ_TRY(run_parts(s));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    const double is = cz_test_load(s->memory.values[0], CZ_F32, 3);
    CHECK(fabs(is - (3.0 / 64 - gradient_of(2))) < 1e-5, "it is %g", is);
    return CZ_OK;
}
BODY(weights_may_be_large)

static cz_status gradients_are_weighed_by_one_object(subject *s, cz_group *group)
{
    const double weights[PARTS] = {1, 2, 3, 4, 5, 6, 7, 8};
    const cz_parts_options options = options_of(PARTS);
    cz_parts *other;
    CZ_TRY(create(s, group, PLAIN));
    CZ_TRY(cz_parts_create(&other, group, s->memory.model, &options));
    cz_status status = expect(cz_parts_set_weights(s->parts, weights), CZ_ERR_STATE,
                              "there are other parts over the same model");
    cz_parts_destroy(&other);
    THEN(cz_parts_set_weights(s->parts, weights));
    THEN(cz_parts_set_weights(s->parts, NULL));
    THEN(step(s));
    return status;
}
BODY(gradients_are_weighed_by_one_object)

/* Whoever uses them still has them. */
static cz_status parts_may_be_destroyed_first(subject *s, cz_group *group)
{
    CZ_TRY(create(s, group, WITH_DDP));
    CZ_TRY(step(s));
    cz_parts_destroy(&s->parts);
    return CZ_OK;
}
BODY(parts_may_be_destroyed_first)

/* ---- one object at a time ---- */

static cz_status parts_have_one_user(subject *s, cz_group *group)
{
    cz_ddp_options ddp = CZ_DDP_OPTIONS_INIT;
    cz_zero_options zero = CZ_ZERO_OPTIONS_INIT;
    cz_ddp *other_ddp;
    cz_zero *other_zero;
    CZ_TRY(create(s, group, PLAIN));
    ddp.parts = zero.parts = s->parts;
    CZ_TRY(expect(cz_ddp_create(&other_ddp, group, s->memory.model, &ddp), CZ_ERR_STATE,
                  "option parts is used by a sharded optimizer already"));
    CZ_TRY(expect(cz_zero_create(&other_zero, group, s->memory.model, cz_rule_sgd(),
                                 CZ_HYPERS({"lr", 1}), &zero),
                  CZ_ERR_STATE, "option parts is used by a sharded optimizer already"));
    CZ_TRY(step(s));
    cz_zero_destroy(&s->zero);
    CZ_TRY(cz_ddp_create(&s->ddp, group, s->memory.model, &ddp));
    CZ_TRY(expect(cz_ddp_create(&other_ddp, group, s->memory.model, &ddp), CZ_ERR_STATE,
                  "option parts is used by a ddp already: give an optimizer option ddp, too"));
    zero.ddp = s->ddp;
    CZ_TRY(cz_zero_create(&s->zero, group, s->memory.model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}),
                          &zero));
    return step(s);
}
BODY(parts_have_one_user)

static cz_status weights_are_not_set_in_a_pass(subject *s, cz_group *group)
{
    const double weights[PARTS] = {1, 1, 1, 1, 1, 1, 1, 1};
    cz_parts_info info = CZ_PARTS_INFO_INIT;
    const double none[PARTS] = {0};
    CZ_TRY(create(s, group, WITH_DDP));
    CZ_TRY(cz_ddp_begin(s->ddp, false));
    CZ_TRY(expect(cz_parts_set_weights(s->parts, weights), CZ_ERR_STATE, "a pass of a ddp"));
    CZ_TRY(cz_ddp_abandon(s->ddp));
    CZ_TRY(cz_parts_set_weights(s->parts, none));
    CZ_TRY(cz_parts_get_info(s->parts, &info));
    CHECK(info.weightless == 1, "weightless is %d", info.weightless);
    CZ_TRY(cz_parts_set_weights(s->parts, weights));
    return step(s);
}
BODY(weights_are_not_set_in_a_pass)

/* ---- static graphs ---- */

static cz_status run_static(subject *s, int i, int part, int last_uses_all)
{
    set_gradients(s, part);
    CZ_TRY(cz_ddp_begin(s->ddp, cz_parts_is_last(s->parts)));
    for (int p = 0; p < PARAMS; p++)
        if (p > 0 || last_uses_all || i == 0)
            CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
    return cz_ddp_finish(s->ddp);
}

/* What one rank marks in its first part only is an error on all ranks, not a wait. */
static cz_status all_parts_have_the_static_graph(subject *s, cz_group *group)
{
    const int rank = cz_group_rank(group);
    const cz_parts_options parts = options_of(PARTS);
    cz_ddp_options ddp = CZ_DDP_OPTIONS_INIT;
    *s = (subject){.group = group};
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    CZ_TRY(cz_parts_create(&s->parts, group, s->memory.model, &parts));
    ddp.parts = s->parts;
    ddp.static_graph = 1;
    CZ_TRY(cz_ddp_create(&s->ddp, group, s->memory.model, &ddp));
    for (int good = 0; good < 3; good++) {
        cz_status status = CZ_OK;
        for (int i = 0, part; (part = cz_parts_own(s->parts, i)) >= 0; i++) {
            CZ_TRY(status);
            status = run_static(s, i, part, good || rank != 1);
        }
        CZ_TRY(expect(status, good ? CZ_OK : CZ_ERR_STATE,
                      good ? NULL : "was marked ready in an earlier part of the step"));
        const double is = cz_test_load(s->memory.grads[0], CZ_F32, 7);
        CHECK(!good || is == 4.5, "the mean is %g", is);
    }
    return CZ_OK;
}
BODY(all_parts_have_the_static_graph)

/* ---- peers ---- */

/* A rank leaves with some of its parts added: nobody waits for it. */
static cz_status leave_early(cz_group *group, void *arg)
{
    subject s = {0};
    cz_status status = create(&s, group, *(const making *)arg);
    THEN(step(&s));
    if (status == CZ_OK && cz_group_rank(group) == 1) {
        status = run_part(&s, cz_parts_own(s.parts, 0));
    } else if (status == CZ_OK) {
        status = run_parts(&s);
        if (!s.ddp && status == CZ_OK)
            status = cz_zero_step(s.zero, NULL, NULL);
        status = expect(status, CZ_ERR_PEER, "rank 1");
    }
    clear(&s);
    return status;
}

TEST(a_rank_that_leaves_with_parts_missing_is_not_waited_for)
{
    static const making kinds[] = {PLAIN, WITH_DDP};
    for (int k = 0; k < 2; k++) {
        cz_group_options options = CZ_GROUP_OPTIONS_INIT;
        outcome outcomes[MANY_RANKS];
        options.timeout_seconds = 60;
        run_ranks(RANKS, &options, leave_early, (void *)&kinds[k], outcomes);
        assert_all_ok(RANKS, outcomes, "kind %d", k);
    }
}

/* ---- parts that nothing uses ---- */

static atomic_int lines_said;

static void count_lines(cz_log_level level, const char *line, void *context)
{
    if (level == CZ_LOG_WARN && strstr(line, "option parts"))
        lines_said++;
}

/* 0: an optimizer without its parts; 1: a data-parallel model without; 2: parts alone; 3: as it
 * has to be. */
static cz_status forget(cz_group *group, void *arg)
{
    const int what = *(int *)arg;
    subject s = {.group = group};
    cz_parts_options parts = CZ_PARTS_OPTIONS_INIT;
    cz_zero_options zero = CZ_ZERO_OPTIONS_INIT;
    parts.count = 8;
    cz_status status = cz_test_memory_create(&s.memory, &layout);
    THEN(cz_parts_create(&s.parts, group, s.memory.model, &parts));
    if (what == 1)
        THEN(cz_ddp_create(&s.ddp, group, s.memory.model, NULL));
    zero.parts = what == 3 ? s.parts : NULL;
    if (what == 0 || what == 3)
        THEN(cz_zero_create(&s.zero, group, s.memory.model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}),
                            &zero));
    for (int k = 0; k < 2 && what >= 2; k++) {
        for (int i = 0; cz_parts_own(s.parts, i) >= 0; i++)
            THEN(cz_parts_add(s.parts));
        if (what == 2)
            THEN(cz_parts_restart(s.parts));
        else
            THEN(cz_zero_step(s.zero, NULL, NULL));
    }
    clear(&s);
    return status;
}

TEST(forgotten_parts_are_said)
{
    static const int said[] = {1, 1, 1, 0};
    char why[256];
    cz_log_set_sink(count_lines, NULL);
    for (int what = 0; what < 4; what++) {
        lines_said = 0;
        if (cz_test_run_ranks(RANKS, forget, &what, why) != CZ_OK)
            fail_msg("%d: %s", what, why);
        assert_int_equal(lines_said, said[what]);
    }
    cz_log_set_sink(NULL, NULL);
}
