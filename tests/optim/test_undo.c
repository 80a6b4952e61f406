/* SPDX-License-Identifier: MIT */
/* Steps made while gradients come, before their norm is known: the bits of whole steps that were
 * clipped or skipped, and everything as it was where a step is taken back. */
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/half.h"
#include "czero/in_backward.h"
#include "optim/object.h"
#include "support/cz_test.h"

enum { PARAMS = 7, LARGEST = 100001, STEPS = 6, FROZEN = 4, LONER = 5 };
/* Longer than what threads take at a time, and than what goes through a cache together. */
static const int64_t sizes[PARAMS] = {5000, 0, LARGEST, 70000, 33, 64, 1};
static const int64_t order[PARAMS] = {6, 3, 1, 2, 5, 4, 0}; /* of a backward pass */

typedef struct trial {
    const char *rule;
    cz_dtype dtype, state_dtype;
    cz_master master;
    int threads, background;
    uint64_t undo_bytes;
} trial;

typedef struct subject {
    char *values[PARAMS], *gradients[PARAMS];
    cz_model *model;
    cz_optim *optim;
    cz_in_backward *in_backward;
    int released[PARAMS];
} subject;

/* ---- made ---- */

static void store(void *array, cz_dtype dtype, int64_t i, double value)
{
    if (dtype == CZ_F64)
        ((double *)array)[i] = value;
    else if (dtype == CZ_F32)
        ((float *)array)[i] = (float)value;
    else
        ((uint16_t *)array)[i] =
            dtype == CZ_BF16 ? cz__bf16_from_f32((float)value) : cz__f16_from_f32((float)value);
}

/* In [-1, 1). */
static double number(int64_t param, int64_t step, int64_t i)
{
    const uint32_t mixed = (uint32_t)(param * 31 + step + 2) * 2246822519u + (uint32_t)i;
    return (double)((mixed * 2654435761u ^ mixed * 40503u) >> 8) / (1 << 23) - 1;
}

/* Parameters [first, end) of the list, in one group of all, or of all but LONER. */
static void create_some(subject *s, const trial *t, int first, int end, bool has_loner)
{
    static const int64_t members[] = {0, 1, 2, 3, 4, 6};
    cz_param_group group = CZ_PARAM_GROUP_INIT;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    *s = (subject){0};
    assert_ok(cz_model_create(&s->model));
    for (int p = first; p < end; p++) {
        const size_t bytes = (size_t)sizes[p] * cz_dtype_size(t->dtype);
        char name[24];
        snprintf(name, sizeof name, "p%d", p);
        s->values[p] = malloc(bytes + 1);
        s->gradients[p] = malloc(bytes + 1);
        for (int64_t i = 0; i < sizes[p]; i++)
            store(s->values[p], t->dtype, i, number(p, -1, i));
        assert_ok(
            cz_model_add(s->model, name, s->values[p], s->gradients[p], t->dtype, 1, &sizes[p]));
    }
    group.params = members;
    group.param_count = 6;
    options.groups = has_loner ? &group : NULL;
    options.group_count = has_loner;
    options.threads = t->threads;
    options.state_dtype = t->state_dtype;
    options.master = t->master;
    assert_ok(cz_optim_create(&s->optim, s->model, cz_rule_find(t->rule), CZ_HYPERS({"lr", 0.0625}),
                              &options));
}

static void released(int64_t param, void *gradient, void *context)
{
    subject *s = context;
    assert_ptr_equal(gradient, s->gradients[param]);
    s->released[param]++;
}

static void make_in_backward(subject *s, const trial *t)
{
    cz_in_backward_options options = CZ_IN_BACKWARD_OPTIONS_INIT;
    options.released = released;
    options.context = s;
    options.background = t->background;
    options.undo = 1;
    options.undo_bytes = t->undo_bytes;
    assert_ok(cz_in_backward_create(&s->in_backward, &s->optim, 1, &options));
}

static void create(subject *s, const trial *t)
{
    create_some(s, t, 0, PARAMS, true);
}

static void destroy(subject *s)
{
    cz_in_backward_destroy(&s->in_backward);
    cz_optim_destroy(&s->optim);
    cz_model_destroy(&s->model);
    for (int p = 0; p < PARAMS; p++) {
        free(s->values[p]);
        free(s->gradients[p]);
    }
}

/* ---- steps ---- */

/* Small and large ones in turns, one that is not finite. */
static void fill(subject *s, const trial *t, int step)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; s->gradients[p] && i < sizes[p]; i++)
            store(s->gradients[p], t->dtype, i, number(p, step, i) * (step % 3 == 1 ? 1 : 1e-3));
    if (step == 4 && s->gradients[3])
        store(s->gradients[3], t->dtype, 65537, INFINITY);
}

static bool is_marked(int64_t param, int step)
{
    return param != 3 || step != 2;
}

static cz_step_options options_of(int step)
{
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    options.max_norm = step == 3 ? 0 : 5;
    options.skip_nonfinite = 1;
    options.norm = 1;
    return options;
}

static void freeze(const subject *s, int step)
{
    assert_ok(cz_model_set_requires_grad(s->model, FROZEN, step % 2 == 0));
}

static void mark(subject *s, int step)
{
    memset(s->released, 0, sizeof s->released);
    assert_ok(cz_in_backward_begin(s->in_backward, NULL));
    for (int k = 0; k < PARAMS; k++)
        if (s->values[order[k]] && is_marked(order[k], step))
            assert_ok(cz_in_backward_mark_ready(s->in_backward, order[k], NULL));
}

static void step_as_a_whole(subject *s, int step, cz_step_result *result)
{
    cz_step_options options = options_of(step);
    void *gradients[PARAMS];
    for (int p = 0; p < PARAMS; p++)
        gradients[p] = is_marked(p, step) ? s->gradients[p] : NULL;
    options.gradients = gradients;
    options.gradient_count = PARAMS;
    assert_ok(cz_optim_step(s->optim, &options, result));
}

static void compare(const subject *a, const subject *b, const trial *t, int step)
{
    cz_state_dict *one, *other;
    for (int p = 0; p < PARAMS; p++)
        if (memcmp(a->values[p], b->values[p], (size_t)sizes[p] * cz_dtype_size(t->dtype)))
            fail_msg("%s, step %d: parameter %d differs", t->rule, step, p);
    assert_ok(cz_optim_state_dict(a->optim, &one));
    assert_ok(cz_optim_state_dict(b->optim, &other));
    if (!cz_state_dict_equal(one, other))
        fail_msg("%s, step %d: the state differs", t->rule, step);
    cz_state_dict_destroy(&one);
    cz_state_dict_destroy(&other);
    assert_int_equal(a->optim->stepped, b->optim->stepped);
    assert_int_equal(a->optim->skip_count, b->optim->skip_count);
}

/* ---- the same bits ---- */

static void train(const trial *t)
{
    static subject ahead, whole;
    create(&ahead, t);
    create(&whole, t);
    make_in_backward(&ahead, t);
    for (int s = 0; s < STEPS; s++) {
        cz_step_result got = CZ_STEP_RESULT_INIT, wanted = CZ_STEP_RESULT_INIT;
        const cz_step_options options = options_of(s);
        fill(&ahead, t, s);
        fill(&whole, t, s);
        freeze(&ahead, s);
        freeze(&whole, s);
        mark(&ahead, s);
        assert_ok(cz_in_backward_end(ahead.in_backward, &options, &got));
        step_as_a_whole(&whole, s, &wanted);
        assert_memory_equal(&got.norm, &wanted.norm, sizeof got.norm);
        assert_int_equal(got.skipped, wanted.skipped);
        assert_int_equal(got.skipped, s == 4);
        assert_true(s == 4 || (wanted.norm > 5) == (s % 3 == 1));
        compare(&ahead, &whole, t, s);
        for (int p = 0; p < PARAMS; p++)
            assert_int_equal(ahead.released[p], is_marked(p, s));
    }
    destroy(&ahead);
    destroy(&whole);
}

TEST(the_bits_of_whole_steps_of_every_kind)
{
    static const char *const rules[] = {"adamw", "sgd", "nadam", "rprop", "lamb", "adam_mini"};
    for (size_t k = 0; k < (SANITIZED ? 3 : sizeof rules / sizeof *rules); k++)
        train(&(trial){.rule = rules[k], .dtype = CZ_F32, .threads = 1, .background = k % 2});
}

TEST(the_bits_of_whole_steps_of_every_type)
{
    train(&(trial){.rule = "adamw", .dtype = CZ_BF16, .threads = 1, .background = 1});
    train(&(trial){.rule = "adamw", .dtype = CZ_F16, .threads = 1});
    train(&(trial){.rule = "adamw", .dtype = CZ_F64, .threads = 1, .background = 1});
    train(&(trial){.rule = "adamw",
                   .dtype = CZ_BF16,
                   .state_dtype = CZ_BF16,
                   .master = CZ_MASTER_NONE,
                   .threads = 1,
                   .background = 1});
}

/* Codes are kept with their scales. */
TEST(the_bits_of_whole_steps_with_state_in_8_bits)
{
    train(&(trial){.rule = "adamw", .dtype = CZ_F32, .state_dtype = CZ_U8, .threads = 1});
    train(&(trial){.rule = "adamw",
                   .dtype = CZ_BF16,
                   .state_dtype = CZ_U8,
                   .threads = 3,
                   .background = 1,
                   .undo_bytes = 1 << 20});
}

TEST(the_bits_of_whole_steps_on_several_threads)
{
    for (int background = 0; background < 2; background++)
        train(&(trial){.rule = "adamw", .dtype = CZ_BF16, .threads = 3, .background = background});
}

/* Some parameters have room in the log, others wait for the norm. */
TEST(the_bits_of_whole_steps_with_a_short_log)
{
    train(&(trial){
        .rule = "adamw", .dtype = CZ_BF16, .threads = 2, .background = 1, .undo_bytes = 1 << 20});
    train(&(trial){.rule = "adamw", .dtype = CZ_F32, .threads = 1, .undo_bytes = 64});
}

/* What is out of the range of squares in f64. */
TEST(the_norm_of_tiny_and_of_huge_gradients)
{
    static const double scales[] = {1e-200, 1e200};
    const trial t = {.rule = "sgd", .dtype = CZ_F64, .threads = 1, .background = 1};
    for (int k = 0; k < 2; k++) {
        static subject ahead, whole;
        cz_step_result got = CZ_STEP_RESULT_INIT, wanted = CZ_STEP_RESULT_INIT;
        const cz_step_options options = options_of(0);
        create(&ahead, &t);
        create(&whole, &t);
        make_in_backward(&ahead, &t);
        for (int p = 0; p < PARAMS; p++)
            for (int64_t i = 0; i < sizes[p]; i++)
                store(whole.gradients[p], CZ_F64, i, number(p, 0, i) * scales[k]);
        for (int p = 0; p < PARAMS; p++)
            memcpy(ahead.gradients[p], whole.gradients[p], (size_t)sizes[p] * sizeof(double));
        mark(&ahead, 0);
        assert_ok(cz_in_backward_end(ahead.in_backward, &options, &got));
        step_as_a_whole(&whole, 0, &wanted);
        assert_memory_equal(&got.norm, &wanted.norm, sizeof got.norm);
        compare(&ahead, &whole, &t, 0);
        destroy(&ahead);
        destroy(&whole);
    }
}

/* Without a thread: when a mark is back. After a step that was clipped they wait for the norm. */
TEST(updates_are_made_on_trust_unless_the_last_step_was_clipped)
{
    static subject s;
    const trial t = {.rule = "sgd", .dtype = CZ_F32, .threads = 1};
    create(&s, &t);
    make_in_backward(&s, &t);
    for (int step = 0; step < 4; step++) {
        const cz_step_options options = options_of(step);
        float before;
        memcpy(&before, s.values[0] + sizeof before, sizeof before);
        fill(&s, &t, step);
        mark(&s, step);
        assert_int_equal(memcmp(&before, s.values[0] + sizeof before, sizeof before) != 0,
                         step != 2);
        assert_int_equal(cz__optim_step_count(s.optim, 0), step + (step != 2));
        assert_ok(cz_in_backward_end(s.in_backward, &options, NULL));
        assert_int_equal(cz__optim_step_count(s.optim, 0), step + 1);
    }
    destroy(&s);
}

/* ---- everything as it was ---- */

static void expect_untouched(const trial *t, void (*end)(subject *s))
{
    static subject tried, plain;
    const cz_step_options options = options_of(0);
    create(&tried, t);
    create(&plain, t);
    make_in_backward(&tried, t);
    make_in_backward(&plain, t);
    for (int s = 0; s < 3; s++) { /* nothing is in use yet; something is */
        fill(&tried, t, s);
        fill(&plain, t, s);
        mark(&tried, s);
        end(&tried);
        compare(&tried, &plain, t, s);
        for (int p = 0; p < PARAMS; p++)
            assert_int_equal(tried.released[p], is_marked(p, s));
        mark(&tried, s);
        mark(&plain, s);
        assert_ok(cz_in_backward_end(tried.in_backward, &options, NULL));
        assert_ok(cz_in_backward_end(plain.in_backward, &options, NULL));
        compare(&tried, &plain, t, s);
    }
    destroy(&tried);
    destroy(&plain);
}

/* Somebody may have written to values since their masters were made. */
static void write_value(subject *s)
{
    ((uint16_t *)s->values[0])[17] = cz__bf16_from_f32(3);
}

static void begin_again(subject *s)
{
    assert_ok(cz_in_backward_begin(s->in_backward, NULL));
}

static void end_badly(subject *s)
{
    cz_step_options options = options_of(0);
    options.max_norm = -1;
    assert_int_equal(cz_in_backward_end(s->in_backward, &options, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_in_backward_end(s->in_backward, NULL, NULL), CZ_ERR_STATE);
    assert_non_null(strstr(cz_last_error(), "no step has begun"));
}

TEST(a_step_that_does_not_end_is_taken_back)
{
    for (int background = 0; background < 2; background++) {
        expect_untouched(
            &(trial){.rule = "adamw", .dtype = CZ_BF16, .threads = 2, .background = background},
            begin_again);
        expect_untouched(
            &(trial){.rule = "nadam", .dtype = CZ_F32, .threads = 1, .background = background},
            begin_again);
    }
    expect_untouched(&(trial){.rule = "lamb", .dtype = CZ_F32, .threads = 1, .background = 1},
                     begin_again);
}

TEST(a_step_that_ends_with_an_error_is_taken_back)
{
    expect_untouched(&(trial){.rule = "adamw", .dtype = CZ_BF16, .threads = 2, .background = 1},
                     end_badly);
    expect_untouched(&(trial){.rule = "sgd", .dtype = CZ_F32, .threads = 1}, end_badly);
}

TEST(values_that_the_program_wrote_come_back)
{
    static subject s, twin;
    const trial t = {.rule = "adamw", .dtype = CZ_BF16, .threads = 1};
    subject *both[] = {&s, &twin};
    for (int k = 0; k < 2; k++) {
        create(both[k], &t);
        make_in_backward(both[k], &t);
        fill(both[k], &t, 0);
        mark(both[k], 0);
        assert_ok(cz_in_backward_end(both[k]->in_backward, NULL, NULL));
        write_value(both[k]);
    }
    mark(&s, 0);
    begin_again(&s);
    compare(&s, &twin, &t, 1);
    destroy(&s);
    destroy(&twin);
}

/* ---- ranks ---- */

typedef struct deal {
    const trial *t;
    subject whole, ranks[3];
    bool differs;
} deal;

/* Parameters [rank * 3, …) of the list. */
static void first_and_end(int rank, int *first, int *end)
{
    static const int cuts[] = {0, 2, 3, PARAMS};
    *first = cuts[rank];
    *end = cuts[rank + 1];
}

static cz_status step_on_rank(cz_group *group, void *context)
{
    deal *d = context;
    subject *s = &d->ranks[cz_group_rank(group)];
    cz_in_backward_options options = CZ_IN_BACKWARD_OPTIONS_INIT;
    cz_status status = CZ_OK;
    options.background = options.undo = 1;
    options.group = group;
    CZ_TRY(cz_in_backward_create(&s->in_backward, &s->optim, 1, &options));
    for (int step = 0; step < 2 && status == CZ_OK; step++) {
        cz_step_options end = options_of(step);
        int first, last;
        first_and_end(cz_group_rank(group), &first, &last);
        status = cz_in_backward_begin(s->in_backward, NULL);
        for (int p = first; p < last; p++)
            THEN(cz_in_backward_mark_ready(s->in_backward, p - first, NULL));
        if (d->differs && cz_group_rank(group) == 1)
            end.max_norm = 6;
        THEN(cz_in_backward_end(s->in_backward, &end, NULL));
        for (int p = first; p < last && step == 0; p++)
            for (int64_t i = 0; i < sizes[p]; i++)
                store(s->gradients[p], d->t->dtype, i, number(p, 1, i));
    }
    cz_in_backward_destroy(&s->in_backward);
    return status;
}

static void run_ranks(deal *d)
{
    char why[256];
    for (int r = 0; r < 3; r++) {
        int first, end;
        first_and_end(r, &first, &end);
        create_some(&d->ranks[r], d->t, first, end, false);
        fill(&d->ranks[r], d->t, 0);
    }
    if (d->differs) {
        assert_int_equal(cz_test_run_ranks(3, step_on_rank, d, why), CZ_ERR_MISMATCH);
        assert_non_null(strstr(why, "max_norm"));
    } else {
        assert_ranks_ok(3, step_on_rank, d);
    }
}

static const char *value_on_rank(const deal *d, int param)
{
    for (int r = 0; r < 3; r++)
        if (d->ranks[r].values[param])
            return d->ranks[r].values[param];
    return NULL;
}

TEST(the_norm_is_that_of_all_ranks)
{
    static deal d;
    const trial t = {.rule = "adamw", .dtype = CZ_BF16, .threads = 1};
    for (int differs = 0; differs < 2; differs++) {
        d.t = &t;
        d.differs = differs;
        run_ranks(&d);
        create_some(&d.whole, &t, 0, PARAMS, false);
        for (int step = 0; step < 2 && !differs; step++) {
            cz_step_result result = CZ_STEP_RESULT_INIT;
            fill(&d.whole, &t, step);
            step_as_a_whole(&d.whole, step, &result);
            assert_true((result.norm > 5) == (step == 1));
        }
        for (int p = 0; p < PARAMS; p++)
            if (sizes[p] > 0)
                assert_memory_equal(value_on_rank(&d, p), d.whole.values[p],
                                    (size_t)sizes[p] * sizeof(uint16_t));
        destroy(&d.whole);
        for (int r = 0; r < 3; r++)
            destroy(&d.ranks[r]);
    }
}

/* ---- memory, refusals ---- */

TEST(memory)
{
    static subject s;
    const trial t = {.rule = "adamw", .dtype = CZ_BF16, .threads = 1, .background = 1};
    create(&s, &t);
    cz_in_backward_options options = CZ_IN_BACKWARD_OPTIONS_INIT;
    options.background = options.undo = 1;
    for (int64_t n = 1;; n++) {
        cz_test_fail_allocation(n);
        const cz_status status = cz_in_backward_create(&s.in_backward, &s.optim, 1, &options);
        if (!cz_test_allocation_reset()) {
            assert_ok(status);
            break;
        }
        assert_int_equal(status, CZ_ERR_MEMORY);
        assert_null(s.in_backward);
    }
    for (int64_t n = 1;; n++) {
        cz_test_fail_allocation(n);
        const cz_status status = cz_in_backward_begin(s.in_backward, NULL);
        if (!cz_test_allocation_reset()) {
            assert_ok(status);
            break;
        }
        assert_int_equal(status, CZ_ERR_MEMORY);
        assert_int_equal(cz_in_backward_mark_ready(s.in_backward, 0, NULL), CZ_ERR_STATE);
    }
    fill(&s, &t, 0);
    for (int step = 0; step < 3; step++) {
        const int64_t made = cz_test_allocations_made();
        const cz_step_options end = options_of(step);
        mark(&s, step);
        assert_ok(cz_in_backward_end(s.in_backward, &end, NULL));
        assert_true(step == 0 || cz_test_allocations_made() == made);
    }
    destroy(&s);
    assert_int_equal(cz_test_allocations_held(), 0);
}

TEST(what_is_refused)
{
    static subject s;
    const trial t = {.rule = "sgd", .dtype = CZ_F32, .threads = 1};
    cz_in_backward_options options = CZ_IN_BACKWARD_OPTIONS_INIT;
    cz_step_options end = CZ_STEP_OPTIONS_INIT;
    cz_optim *two[2], *second;
    create(&s, &t);
    assert_ok(cz_optim_create(&second, s.model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL));
    two[0] = s.optim;
    two[1] = second;
    options.undo = 1;
    assert_int_equal(cz_in_backward_create(&s.in_backward, two, 2, &options), CZ_ERR_UNSUPPORTED);
    options.undo_bytes = 65;
    assert_int_equal(cz_in_backward_create(&s.in_backward, two, 1, &options), CZ_ERR_ARGUMENT);
    cz_optim_destroy(&second);

    assert_ok(cz_in_backward_create(&s.in_backward, &s.optim, 1, NULL));
    assert_int_equal(cz_in_backward_end(s.in_backward, NULL, NULL), CZ_ERR_STATE);
    assert_ok(cz_in_backward_begin(s.in_backward, NULL));
    end.max_norm = 1;
    assert_int_equal(cz_in_backward_end(s.in_backward, &end, NULL), CZ_ERR_STATE);
    assert_non_null(strstr(cz_last_error(), "undo"));
    assert_ok(cz_in_backward_end(s.in_backward, NULL, NULL)); /* it had not ended */
    cz_in_backward_destroy(&s.in_backward);

    make_in_backward(&s, &t);
    cz_loss_scale scale = CZ_LOSS_SCALE_INIT;
    end.loss_scale = &scale;
    assert_ok(cz_in_backward_begin(s.in_backward, NULL));
    assert_int_equal(cz_in_backward_end(s.in_backward, &end, NULL), CZ_ERR_UNSUPPORTED);
    end.loss_scale = NULL;
    end.argument = &s;
    assert_ok(cz_in_backward_begin(s.in_backward, NULL));
    assert_int_equal(cz_in_backward_end(s.in_backward, &end, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_in_backward_end(NULL, NULL, NULL), CZ_ERR_ARGUMENT);
    destroy(&s);
}

/* Its thread is in the parent. */
TEST(a_child_is_refused_and_does_not_hang)
{
    static subject s;
    const trial t = {.rule = "sgd", .dtype = CZ_F32, .threads = 1, .background = 1};
    if (SANITIZED)
        return;
    create(&s, &t);
    make_in_backward(&s, &t);
    const pid_t child = fork();
    if (child == 0) {
        const bool right = cz_in_backward_begin(s.in_backward, NULL) == CZ_ERR_STATE;
        cz_in_backward_destroy(&s.in_backward);
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    destroy(&s);
}
