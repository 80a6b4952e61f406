/* SPDX-License-Identifier: MIT */
/* Parameters updated one by one, as their gradients come, against whole steps: the same bits, in
 * the memory of the largest gradient. */
#include <pthread.h>
#include <string.h>

#include "czero/in_backward.h"
#include "optim/optim.h"
#include "support/cz_test.h"
#include "support/training.h"

enum { PARAMS = 8, LARGEST = 300, STEPS = 6, OPTIMS = 2 };
static const int64_t sizes[PARAMS] = {40, 0, 3, 131, 7, LARGEST, 1, 64};
static const int64_t order[PARAMS] = {7, 2, 5, 6, 3, 0, 1, 4}; /* of a backward pass */

/* ---- two of the same: one steps as a whole ---- */

typedef struct subject {
    float values[PARAMS][LARGEST];
    cz_model *model; /* without gradient memory */
    cz_optim *optims[OPTIMS];
    int optim_count;
    cz_in_backward *in_backward;
} subject;

typedef struct trial {
    const cz_rule *rules[OPTIMS]; /* the second has parameters 2 … 5 only; NULL: there is none */
    bool gaps;                    /* unmarked ones, and frozen ones */
} trial;

/* Three groups that differ in rate; parameter 4 is in none. */
static void make_optims(subject *s, const trial *t)
{
    static const int64_t members[] = {7, 1, 0, 2, 3, 5, 6}, some[] = {2, 3, 4, 5};
    const cz_param_group groups[] = {
        {.size = sizeof(cz_param_group), .params = members, .param_count = 2, .hypers = NULL},
        {.size = sizeof(cz_param_group),
         .params = members + 2,
         .param_count = 3,
         .hypers = CZ_HYPERS({"lr", 0.25})},
        {.size = sizeof(cz_param_group),
         .params = members + 5,
         .param_count = 2,
         .hypers = CZ_HYPERS({"lr", 0.0625})}};
    const cz_param_group other = {
        .size = sizeof(cz_param_group), .params = some, .param_count = 4, .hypers = NULL};
    cz_optim_options options = {sizeof options, groups, 3, 0, 0};
    s->optim_count = t->rules[1] ? 2 : 1;
    for (int k = 0; k < s->optim_count; k++) {
        assert_ok(cz_optim_create(&s->optims[k], s->model, t->rules[k], CZ_HYPERS({"lr", 0.5}),
                                  &options));
        options = (cz_optim_options){sizeof options, &other, 1, 0, 0};
    }
}

static void create(subject *s, const trial *t)
{
    *s = (subject){0};
    assert_ok(cz_model_create(&s->model));
    for (int p = 0; p < PARAMS; p++) {
        char name[24];
        snprintf(name, sizeof name, "p%d", p);
        for (int64_t i = 0; i < sizes[p]; i++)
            s->values[p][i] = (float)i / 64;
        assert_ok(cz_model_add(s->model, name, s->values[p], NULL, CZ_F32, 1, &sizes[p]));
    }
    make_optims(s, t);
}

static void destroy(subject *s)
{
    cz_in_backward_destroy(&s->in_backward);
    for (int k = 0; k < s->optim_count; k++)
        cz_optim_destroy(&s->optims[k]);
    cz_model_destroy(&s->model);
}

static void fill(float *gradient, int64_t param, int step)
{
    cz_test_stream_f32((uint64_t)(100 * step + param + 1), sizes[param], gradient);
}

static bool is_marked(const trial *t, int64_t param, int step)
{
    return !t->gaps || (param + step) % 3 != 0;
}

static void freeze(const trial *t, const subject *s, int step)
{
    for (int64_t p = 0; t->gaps && p < PARAMS; p++)
        assert_ok(cz_model_set_requires_grad(s->model, p, (p + 2 * step) % 4 != 0));
}

static void step_as_a_whole(const trial *t, subject *s, int step)
{
    static float grads[PARAMS][LARGEST];
    for (int64_t p = 0; p < PARAMS; p++) {
        fill(grads[p], p, step);
        assert_ok(cz_model_set_gradient(s->model, p, is_marked(t, p, step) ? grads[p] : NULL));
    }
    for (int k = 0; k < s->optim_count; k++)
        assert_ok(cz_optim_step(s->optims[k], NULL, NULL));
}

static void compare(const subject *got, const subject *wanted, int step)
{
    for (int p = 0; p < PARAMS; p++)
        if (memcmp(got->values[p], wanted->values[p], sizeof got->values[p]))
            fail_msg("step %d: parameter %d differs", step, p);
    for (int k = 0; k < got->optim_count; k++) {
        cz_state_dict *a, *b;
        assert_ok(cz_optim_state_dict(got->optims[k], &a));
        assert_ok(cz_optim_state_dict(wanted->optims[k], &b));
        if (!cz_state_dict_equal(a, b))
            fail_msg("step %d: state of optimizer %d differs", step, k);
        cz_state_dict_destroy(&a);
        cz_state_dict_destroy(&b);
    }
}

/* ---- the memory of gradients ---- */

static struct {
    pthread_mutex_t lock;
    size_t now, peak;
    int64_t released[PARAMS];
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static float *gradient_of(int64_t param, int step)
{
    const size_t bytes = (size_t)sizes[param] * sizeof(float);
    float *gradient = malloc(bytes + 1);
    fill(gradient, param, step);
    pthread_mutex_lock(&memory.lock);
    memory.now += bytes;
    memory.peak = memory.now > memory.peak ? memory.now : memory.peak;
    pthread_mutex_unlock(&memory.lock);
    return gradient;
}

static void released(int64_t param, void *gradient, void *context)
{
    const size_t bytes = (size_t)sizes[param] * sizeof(float);
    pthread_mutex_lock(&memory.lock);
    memory.now -= bytes;
    memory.released[param]++;
    pthread_mutex_unlock(&memory.lock);
    memset(gradient, 0xff, bytes); /* NaN, for whoever still reads it */
    free(gradient);
}

static void make_in_backward(subject *s)
{
    const cz_in_backward_options options = {sizeof options, released, NULL};
    memory.now = memory.peak = 0;
    memset(memory.released, 0, sizeof memory.released);
    assert_ok(cz_in_backward_create(&s->in_backward, s->optims, s->optim_count, &options));
}

/* ---- the same bits ---- */

static void train(const trial *t)
{
    static subject parts, whole;
    create(&parts, t);
    create(&whole, t);
    make_in_backward(&parts);
    for (int s = 0; s < STEPS; s++) {
        freeze(t, &parts, s);
        freeze(t, &whole, s);
        assert_ok(cz_in_backward_begin(parts.in_backward, NULL));
        for (int k = 0; k < PARAMS; k++)
            if (is_marked(t, order[k], s))
                assert_ok(cz_in_backward_mark_ready(parts.in_backward, order[k],
                                                    gradient_of(order[k], s)));
        step_as_a_whole(t, &whole, s);
        compare(&parts, &whole, s);
    }
    assert_int_equal(memory.now, 0);
    assert_int_equal(memory.peak, LARGEST * sizeof(float));
    destroy(&parts);
    destroy(&whole);
}

TEST(the_bits_of_whole_steps)
{
    const cz_rule *rules[] = {cz_rule_sgd(),
                              cz_rule_adam(),
                              cz_rule_adagrad(),
                              cz_rule_nadam(),
                              cz_rule_rmsprop(),
                              cz_test_probe_rule(),
                              cz_rule_lion(),
                              cz_rule_lamb(),
                              cz_rule_ademamix(),
                              cz_rule_schedule_free_sgd(),
                              cz_rule_schedule_free_adamw(),
                              cz_rule_adam_mini()};
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
        for (int gaps = 0; gaps < 2; gaps++)
            train(&(trial){{rules[k], NULL}, gaps});
}

TEST(several_optimizers_on_a_parameter)
{
    for (int gaps = 0; gaps < 2; gaps++) {
        train(&(trial){{cz_rule_adam(), cz_rule_sgd()}, gaps});
        train(&(trial){{cz_rule_sgd(), cz_rule_adam()}, gaps});
    }
}

/* Upstream: a second optimizer's callback finds the gradient gone. Here it is released once, after
 * both. */
TEST(released_once)
{
    static subject s;
    create(&s, &(trial){{cz_rule_adam(), cz_rule_sgd()}, false});
    make_in_backward(&s);
    assert_ok(cz_model_set_requires_grad(s.model, 3, false));
    assert_ok(cz_in_backward_begin(s.in_backward, NULL));
    for (int64_t p = 0; p < PARAMS; p++) {
        assert_ok(cz_in_backward_mark_ready(s.in_backward, p, gradient_of(p, 0)));
        assert_int_equal(memory.released[p], 1); /* frozen ones, and those of no group, too */
    }
    destroy(&s);
}

/* ---- threads ---- */

typedef struct marker {
    subject *s;
    int first, step;
    cz_status status;
} marker;

static void *mark_some(void *arg)
{
    marker *m = arg;
    for (int64_t p = m->first; p < PARAMS && m->status == CZ_OK; p += 3)
        m->status = cz_in_backward_mark_ready(m->s->in_backward, p, gradient_of(p, m->step));
    return NULL;
}

TEST(several_threads_mark)
{
    static subject parts, whole;
    const trial t = {{cz_test_probe_rule(), cz_rule_adam()}, false};
    create(&parts, &t);
    create(&whole, &t);
    make_in_backward(&parts);
    for (int s = 0; s < 40; s++) {
        pthread_t threads[3];
        marker markers[3];
        assert_ok(cz_in_backward_begin(parts.in_backward, NULL));
        for (int k = 0; k < 3; k++) {
            markers[k] = (marker){&parts, k, s, CZ_OK};
            assert_int_equal(pthread_create(&threads[k], NULL, mark_some, &markers[k]), 0);
        }
        for (int k = 0; k < 3; k++) {
            assert_int_equal(pthread_join(threads[k], NULL), 0);
            assert_int_equal(markers[k].status, CZ_OK);
        }
        step_as_a_whole(&t, &whole, s);
        compare(&parts, &whole, s);
    }
    destroy(&parts);
    destroy(&whole);
}

/* ---- state ---- */

/* Its optimizers are ordinary ones: their dictionaries go to others that step as a whole, and
 * back. */
TEST(state_comes_and_goes)
{
    static subject parts, whole;
    const trial t = {{cz_rule_adam(), cz_rule_sgd()}, true};
    create(&parts, &t);
    create(&whole, &t);
    make_in_backward(&parts);
    for (int s = 0; s < STEPS; s++) {
        subject *from = s % 2 ? &whole : &parts, *to = s % 2 ? &parts : &whole;
        freeze(&t, from, s);
        if (s % 2)
            step_as_a_whole(&t, from, s);
        else
            assert_ok(cz_in_backward_begin(from->in_backward, NULL));
        for (int k = 0; s % 2 == 0 && k < PARAMS; k++)
            if (is_marked(&t, order[k], s))
                assert_ok(cz_in_backward_mark_ready(from->in_backward, order[k],
                                                    gradient_of(order[k], s)));
        for (int k = 0; k < OPTIMS; k++) {
            cz_state_dict *dict;
            assert_ok(cz_optim_state_dict(from->optims[k], &dict));
            assert_ok(cz_optim_load_state_dict(to->optims[k], dict, NULL));
            cz_state_dict_destroy(&dict);
        }
        memcpy(to->values, from->values, sizeof to->values);
        compare(to, from, s);
    }
    destroy(&parts);
    create(&parts, &t); /* the same steps without a change of hands */
    for (int s = 0; s < STEPS; s++) {
        freeze(&t, &parts, s);
        step_as_a_whole(&t, &parts, s);
    }
    compare(&whole, &parts, STEPS);
    destroy(&parts);
    destroy(&whole);
}

/* ---- refused ---- */

static cz_status begin_fails(cz_optim *optim, const void *argument, void *context)
{
    return argument ? CZ_OK : cz_fail(CZ_ERR_STATE, "an argument is wanted");
}

TEST(a_beginning_that_fails)
{
    static subject s;
    cz_rule rule = *cz_rule_sgd();
    rule.begin_step = begin_fails;
    create(&s, &(trial){{cz_rule_adam(), &rule}, false});
    make_in_backward(&s);
    assert_ok(cz_in_backward_begin(s.in_backward, &s));
    assert_int_equal(cz_in_backward_begin(s.in_backward, NULL), CZ_ERR_STATE);
    float *gradient = gradient_of(0, 0);
    assert_int_equal(cz_in_backward_mark_ready(s.in_backward, 0, gradient), CZ_ERR_STATE);
    assert_ok(cz_in_backward_begin(s.in_backward, &s));
    assert_ok(cz_in_backward_mark_ready(s.in_backward, 0, gradient));
    destroy(&s);
}

TEST(memory)
{
    static subject s;
    const trial t = {{cz_rule_adam(), NULL}, false};
    create(&s, &t);
    for (int64_t n = 1;; n++) {
        cz_test_fail_allocation(n);
        const cz_status status = cz_in_backward_create(&s.in_backward, s.optims, 1, NULL);
        if (!cz_test_allocation_reset()) {
            assert_ok(status);
            break;
        }
        assert_int_equal(status, CZ_ERR_MEMORY);
        assert_null(s.in_backward);
    }
    cz_in_backward_destroy(&s.in_backward);

    /* state of one that is unfrozen later is had at the beginning; marks have none */
    for (int k = 0; k < s.optim_count; k++)
        cz_optim_destroy(&s.optims[k]);
    assert_ok(cz_model_set_requires_grad(s.model, 5, false));
    make_optims(&s, &t);
    make_in_backward(&s);
    assert_ok(cz_model_set_requires_grad(s.model, 5, true));
    cz_test_fail_allocation(1);
    assert_int_equal(cz_in_backward_begin(s.in_backward, NULL), CZ_ERR_MEMORY);
    assert_true(cz_test_allocation_reset());
    assert_ok(cz_in_backward_begin(s.in_backward, NULL));
    const int64_t made = cz_test_allocations_made();
    assert_ok(cz_in_backward_mark_ready(s.in_backward, 5, gradient_of(5, 0)));
    assert_int_equal(cz_test_allocations_made(), made);
    assert_int_equal(cz__optim_step_count(s.optims[0], 5), 1);
    destroy(&s);
    assert_int_equal(cz_test_allocations_held(), 0);
}

TEST(what_is_refused)
{
    static subject s, other;
    const trial t = {{cz_rule_adam(), cz_rule_sgd()}, false};
    static float gradient[LARGEST];
    cz_in_backward *made;
    create(&s, &t);
    create(&other, &t);
    assert_int_equal(cz_in_backward_create(&made, NULL, 1, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_in_backward_create(&made, s.optims, 0, NULL), CZ_ERR_ARGUMENT);
    cz_optim *lists[][2] = {
        {s.optims[0], NULL}, {s.optims[0], s.optims[0]}, {s.optims[0], other.optims[1]}};
    for (int k = 0; k < 3; k++)
        assert_int_equal(cz_in_backward_create(&made, lists[k], 2, NULL), CZ_ERR_ARGUMENT);
    assert_null(made);

    assert_ok(cz_in_backward_create(&made, s.optims, 2, NULL));
    assert_int_equal(cz_in_backward_mark_ready(made, 0, gradient), CZ_ERR_STATE);
    assert_non_null(strstr(cz_last_error(), "'p0': no step has begun"));
    assert_ok(cz_in_backward_begin(made, NULL));
    assert_int_equal(cz_in_backward_mark_ready(made, -1, gradient), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_in_backward_mark_ready(made, PARAMS, gradient), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_in_backward_mark_ready(made, 0, NULL), CZ_ERR_STATE);
    assert_non_null(strstr(cz_last_error(), "'p0' has no gradient"));
    assert_ok(cz_in_backward_mark_ready(made, 1, NULL)); /* which is empty */
    assert_ok(cz_model_set_gradient(s.model, 0, gradient));
    assert_ok(cz_in_backward_mark_ready(made, 0, NULL));
    assert_int_equal(cz_in_backward_mark_ready(made, 0, NULL), CZ_ERR_STATE);
    assert_non_null(strstr(cz_last_error(), "'p0' was marked before"));
    assert_int_equal(cz__optim_step_count(s.optims[0], 0), 1);
    cz_in_backward_destroy(NULL);
    cz_in_backward_destroy(&made);
    destroy(&s);
    destroy(&other);
}
