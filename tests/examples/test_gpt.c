/* SPDX-License-Identifier: MIT */
/* The example's GPT: its gradients against finite differences, and what it promises about bits.
 * Built in float, as the example is, and with GPT_DOUBLE, where differences have enough digits to
 * check every single gradient. */
#include "gpt.h"
#include "model.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support/cz_test.h"

static const gpt_config tiny = {
    .layers = 2, .heads = 2, .channels = 8, .block_size = 5, .vocab = 11};
/* more than one block of attention rows, and rows that end between the lanes of a sum */
static const gpt_config ragged = {
    .layers = 2, .heads = 3, .channels = 24, .block_size = 150, .vocab = 19};

/* its products are large enough to be cut among threads */
static const gpt_config cut = {
    .layers = 2, .heads = 2, .channels = 128, .block_size = 70, .vocab = 130};

/* A model with its blocks, and a batch to run it on. */
typedef struct fixture {
    gpt *model;
    int64_t count;
    real *params, *grads;
    int *tokens, *targets;
} fixture;

static uint64_t next_bits(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static real next_real(uint64_t *state) /* between -1 and 1 */
{
    return (real)((double)next_bits(state) / 1073741824.0 - 1);
}

/* Larger values than gpt_init()'s, and no zeros or ones, so that no gradient is tiny or special. */
static void set_up_on(fixture *f, const gpt_config *config, int batch, int thread_count)
{
    gpt_setup();
    assert_true(gpt_create(&f->model, config, batch, thread_count));
    f->count = gpt_element_count(f->model);
    f->params = calloc((size_t)f->count, sizeof(real));
    f->grads = calloc((size_t)f->count, sizeof(real));
    const int rows = batch * config->block_size;
    f->tokens = calloc((size_t)rows, sizeof(int));
    f->targets = calloc((size_t)rows, sizeof(int));
    assert_true(f->params && f->grads && f->tokens && f->targets);

    uint64_t state = 7;
    int parameter_count;
    const gpt_parameter *list = gpt_parameters(f->model, &parameter_count);
    for (int p = 0; p < parameter_count; p++)
        for (int64_t i = 0; i < list[p].count; i++) {
            const bool around_one = strstr(list[p].name, "ln_") && strstr(list[p].name, "weight");
            f->params[list[p].offset + i] = (around_one ? 1 : 0) + next_real(&state) / 2;
        }
    for (int i = 0; i < rows; i++) {
        f->tokens[i] = (int)(next_bits(&state) % (uint64_t)config->vocab);
        f->targets[i] = (int)(next_bits(&state) % (uint64_t)config->vocab);
    }
}

static void set_up(fixture *f, const gpt_config *config, int batch)
{
    set_up_on(f, config, batch, 1);
}

static void tear_down(fixture *f)
{
    free(f->targets);
    free(f->tokens);
    free(f->grads);
    free(f->params);
    gpt_destroy(&f->model);
    assert_null(f->model);
}

static real forward(fixture *f, int batch, int length)
{
    real loss;
    assert_true(gpt_forward(f->model, f->params, f->tokens, f->targets, batch, length, &loss));
    return loss;
}

static void backward(fixture *f)
{
    memset(f->grads, 0, (size_t)f->count * sizeof(real));
    assert_true(gpt_backward(f->model, f->params, f->grads, NULL, NULL));
}

/* A central difference errs by step^2 f''' / 6 and by 1e-16 / step: 1e-10 of each here. */
static void check_every_gradient(const gpt_config *config, int most, int batch, int length)
{
    fixture f;
    set_up(&f, config, most);
    forward(&f, batch, length);
    backward(&f);
    const real step = (real)1e-5;
    int parameter_count;
    const gpt_parameter *list = gpt_parameters(f.model, &parameter_count);
    for (int p = 0; p < parameter_count; p++) {
        double largest = 0;
        for (int64_t i = list[p].offset; i < list[p].offset + list[p].count; i++) {
            const real kept = f.params[i];
            f.params[i] = kept + step;
            const double above = (double)forward(&f, batch, length);
            f.params[i] = kept - step;
            const double below = (double)forward(&f, batch, length);
            f.params[i] = kept;
            const double want = (above - below) / (2 * (double)step), got = (double)f.grads[i];
            if (!(fabs(got - want) <= 1e-6 * fabs(want) + 1e-9))
                fail_msg("%s[%d]: gradient %.12g, difference %.12g", list[p].name,
                         (int)(i - list[p].offset), got, want);
            largest = fmax(largest, fabs(want));
        }
        if (largest < 1e-4)
            fail_msg("%s: its gradients are all near zero: nothing was checked", list[p].name);
    }
    tear_down(&f);
}

TEST(every_gradient_is_the_slope)
{
    if (sizeof(real) < sizeof(double))
        skip();
    check_every_gradient(&tiny, 2, 2, 5);
}

TEST(every_gradient_of_smaller_batches_and_shorter_sequences)
{
    if (sizeof(real) < sizeof(double))
        skip();
    check_every_gradient(&tiny, 3, 2, 5);
    check_every_gradient(&tiny, 2, 1, 3);
    check_every_gradient(&tiny, 1, 1, 2);
}

/* Along the gradient of one parameter, the slope is that gradient's length. In float the loss has
 * an error of some 1e-6; the step changes it by 2e-2, of which 1e-2 relative is well seen. */
TEST(each_parameter_slopes_along_its_gradient)
{
    static const int lengths[] = {1, 17, 64, 65, 150};
    const bool exact = sizeof(real) == sizeof(double);
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        fixture f;
        set_up(&f, &ragged, 3);
        forward(&f, 2, lengths[n]);
        backward(&f);
        int parameter_count;
        const gpt_parameter *list = gpt_parameters(f.model, &parameter_count);
        for (int p = 0; p < parameter_count; p++) {
            real *w = f.params + list[p].offset, *g = f.grads + list[p].offset;
            double square = 0;
            for (int64_t i = 0; i < list[p].count; i++)
                square += (double)g[i] * (double)g[i];
            const double step = (exact ? 1e-6 : 1e-2) / square;
            if (sqrt(square) < 1e-3) /* such as wpe and q of a single token, whose softmax is 1 */
                continue;
            for (int64_t i = 0; i < list[p].count; i++)
                w[i] += (real)(step * (double)g[i]);
            const double above = (double)forward(&f, 2, lengths[n]);
            for (int64_t i = 0; i < list[p].count; i++)
                w[i] -= (real)(2 * step * (double)g[i]);
            const double below = (double)forward(&f, 2, lengths[n]);
            for (int64_t i = 0; i < list[p].count; i++)
                w[i] += (real)(step * (double)g[i]);
            const double slope = (above - below) / (2 * step * square);
            if (!(fabs(slope - 1) <= (exact ? 1e-6 : 1e-2)))
                fail_msg("%s, length %d: slope %.9g of the gradient's", list[p].name, lengths[n],
                         slope);
        }
        tear_down(&f);
    }
}

TEST(positions_beyond_the_length_get_no_gradient)
{
    fixture f;
    set_up(&f, &tiny, 2);
    forward(&f, 2, 3);
    backward(&f);
    int parameter_count;
    const gpt_parameter *wpe = &gpt_parameters(f.model, &parameter_count)[1];
    assert_string_equal(wpe->name, "wpe.weight");
    for (int64_t i = 0; i < wpe->count; i++)
        if (i < 3 * tiny.channels)
            assert_true(f.grads[wpe->offset + i] != 0);
        else
            assert_true(f.grads[wpe->offset + i] == 0);
    tear_down(&f);
}

TEST(gradients_are_added)
{
    fixture f;
    set_up(&f, &ragged, 1);
    forward(&f, 1, 70);
    backward(&f);
    const size_t bytes = (size_t)f.count * sizeof(real);
    real *once = malloc(bytes);
    assert_non_null(once);
    memcpy(once, f.grads, bytes);
    assert_true(gpt_backward(f.model, f.params, f.grads, NULL, NULL)); /* the same forward again */
    for (int64_t i = 0; i < f.count; i++)
        assert_true(fabs((double)(f.grads[i] - 2 * once[i])) <=
                    1e-5 * fabs((double)once[i]) + 1e-6);
    free(once);
    tear_down(&f);
}

TEST(a_larger_model_object_changes_no_bit)
{
    fixture exact, roomy;
    set_up(&exact, &ragged, 2);
    set_up(&roomy, &ragged, 5);
    memcpy(roomy.tokens, exact.tokens, 300 * sizeof(int));
    memcpy(roomy.targets, exact.targets, 300 * sizeof(int));
    const real want = forward(&exact, 2, 150), got = forward(&roomy, 2, 150);
    backward(&exact);
    backward(&roomy);
    assert_memory_equal(&got, &want, sizeof want);
    assert_memory_equal(roomy.grads, exact.grads, (size_t)exact.count * sizeof(real));
    tear_down(&roomy);
    tear_down(&exact);
}

typedef struct rank {
    pthread_t thread;
    fixture fixture;
    real loss;
} rank;

static void *each_rank(void *arg)
{
    rank *self = arg;
    fixture *f = &self->fixture;
    for (int step = 0; step < 3; step++) {
        memset(f->grads, 0, (size_t)f->count * sizeof(real));
        if (!gpt_forward(f->model, f->params, f->tokens, f->targets, 2, 150, &self->loss) ||
            !gpt_backward(f->model, f->params, f->grads, NULL, NULL))
            return NULL;
    }
    return self;
}

TEST(same_bits_again_and_on_every_thread)
{
    enum { RANKS = 3 };
    rank ranks[RANKS];
    fixture first;
    set_up(&first, &ragged, 2);
    const real loss = forward(&first, 2, 150);
    backward(&first);
    for (int r = 0; r < RANKS; r++)
        set_up(&ranks[r].fixture, &ragged, 2);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, each_rank, &ranks[r]), 0);
    for (int r = 0; r < RANKS; r++) {
        void *result;
        assert_int_equal(pthread_join(ranks[r].thread, &result), 0);
        assert_non_null(result);
        assert_memory_equal(&ranks[r].loss, &loss, sizeof loss);
        assert_memory_equal(ranks[r].fixture.grads, first.grads,
                            (size_t)first.count * sizeof(real));
        tear_down(&ranks[r].fixture);
    }
    tear_down(&first);
}

TEST(the_number_of_threads_changes_no_bit)
{
    static const int counts[] = {2, 3, 5, 7}, sizes[][2] = {{4, 70}, {3, 41}, {1, 70}, {1, 1}};
    fixture one, many;
    set_up(&one, &cut, 4);
    const size_t bytes = (size_t)one.count * sizeof(real);
    const size_t row_bytes = (size_t)cut.vocab * sizeof(real);
    real *logits = malloc(2 * row_bytes);
    assert_non_null(logits);
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        set_up_on(&many, &cut, 4, counts[n]);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const int batch = sizes[i][0], length = sizes[i][1];
            const real want = forward(&one, batch, length), got = forward(&many, batch, length);
            assert_memory_equal(&got, &want, sizeof want);
            assert_memory_equal(many.model->logits, one.model->logits,
                                (size_t)(batch * length) * row_bytes);
            backward(&one);
            backward(&many);
            assert_memory_equal(many.grads, one.grads, bytes);
            assert_true(gpt_logits(one.model, one.params, one.tokens, length, logits));
            assert_true(gpt_logits(many.model, one.params, one.tokens, length, logits + cut.vocab));
            assert_memory_equal(logits + cut.vocab, logits, row_bytes);
        }
        tear_down(&many);
    }
    free(logits);
    tear_down(&one);
}

TEST(rows_are_cut_among_threads)
{
    fixture f;
    set_up(&f, &cut, 4); /* 280 rows, in pieces of 72 or more, are for up to 3 threads */
    for (int index = 0; index < 5; index++) {
        const share s = threads_share((part){NULL, index, 5}, 280, UNIT, f.model->row_least);
        assert_true((s.end > s.begin) == (index < 3));
    }
    tear_down(&f);
}

TEST(shares_are_all_there_is)
{
    for (int thread_count = 1; thread_count < 9; thread_count++)
        for (int count = 0; count < 200; count++)
            for (int least = 4; least < 40; least += 12) {
                int next = 0, smallest = count, largest = 0;
                for (int index = 0; index < thread_count; index++) {
                    const share s =
                        threads_share((part){NULL, index, thread_count}, count, 4, least);
                    if (s.begin == s.end)
                        continue;
                    assert_int_equal(s.begin, next);
                    assert_int_equal(s.begin % 4, 0);
                    next = s.end;
                    smallest = s.end - s.begin < smallest ? s.end - s.begin : smallest;
                    largest = s.end - s.begin > largest ? s.end - s.begin : largest;
                }
                assert_int_equal(next, count);
                assert_true(smallest >= (least < count ? least : count));
                assert_true(largest - smallest < 8);
            }
}

typedef struct relay {
    int seen[7], sums[7];
} relay;

/* Each writes its number, and reads those of the others when all have. */
static void pass_on(part self, void *arg)
{
    relay *r = arg;
    for (int round = 0; round < 50; round++) {
        r->seen[self.index] = round + self.index;
        threads_meet(self);
        int sum = 0;
        for (int i = 0; i < self.count; i++)
            sum += r->seen[i] - round;
        r->sums[self.index] += sum;
        threads_meet(self);
    }
}

TEST(threads_meet)
{
    for (int count = 1; count <= 7; count++) {
        threads *all;
        assert_true(threads_create(&all, count));
        for (int again = 0; again < 3; again++) {
            relay r = {{0}, {0}};
            threads_run(all, pass_on, &r);
            for (int i = 0; i < count; i++)
                assert_int_equal(r.sums[i], 50 * count * (count - 1) / 2);
        }
        threads_destroy(&all);
        assert_null(all);
    }
    threads *none;
    assert_false(threads_create(&none, 0));
    assert_null(none);
    threads_destroy(&none);
    threads_destroy(NULL);
}

TEST(a_token_has_no_effect_on_the_past)
{
    static const int places[] = {0, 1, 63, 64, 100, 149};
    const size_t row_bytes = (size_t)ragged.vocab * sizeof(real);
    fixture f;
    set_up(&f, &ragged, 1);
    forward(&f, 1, 150);
    real *before = malloc(150 * row_bytes);
    assert_non_null(before);
    memcpy(before, f.model->logits, 150 * row_bytes);
    for (size_t n = 0; n < sizeof places / sizeof *places; n++) {
        const int place = places[n], kept = f.tokens[place];
        f.tokens[place] = (kept + 1) % ragged.vocab;
        forward(&f, 1, 150);
        f.tokens[place] = kept;
        assert_memory_equal(f.model->logits, before, (size_t)place * row_bytes);
        for (int row = place; row < 150; row++)
            assert_memory_not_equal(f.model->logits + row * ragged.vocab,
                                    before + row * ragged.vocab, row_bytes);
    }
    free(before);
    tear_down(&f);
}

TEST(logits_are_those_of_the_last_row)
{
    fixture f;
    set_up(&f, &ragged, 2);
    real logits[19], want[19];
    for (int length = 1; length <= 150; length += 37) {
        forward(&f, 1, length);
        memcpy(want, f.model->logits + (length - 1) * ragged.vocab, sizeof want);
        assert_true(gpt_logits(f.model, f.params, f.tokens, length, logits));
        softmax(logits, ragged.vocab);
        for (int j = 0; j < ragged.vocab; j++)
            assert_true(fabs((double)(logits[j] - want[j])) <= 1e-5);
    }
    assert_false(gpt_backward(f.model, f.params, f.grads, NULL, NULL)); /* no loss to go from */
    tear_down(&f);
}

TEST(steps_down_the_gradient_lower_the_loss)
{
    fixture f;
    set_up(&f, &ragged, 2);
    gpt_init(f.model, f.params, 1);
    const double first = (double)forward(&f, 2, 70);
    assert_true(fabs(first - log(19)) < 0.05); /* small first weights: every token as likely */
    for (int step = 0; step < 200; step++) {
        forward(&f, 2, 70);
        backward(&f);
        for (int64_t i = 0; i < f.count; i++)
            f.params[i] -= f.grads[i] / 2;
    }
    assert_true((double)forward(&f, 2, 70) < first - 0.3);
    tear_down(&f);
}

static void note_ready(void *arg, int parameter)
{
    int *last = arg;
    assert_int_equal(parameter, *last - 1);
    *last = parameter;
}

TEST(parameters_become_ready_from_last_to_first)
{
    fixture f;
    set_up(&f, &tiny, 1);
    forward(&f, 1, 5);
    int last;
    gpt_parameters(f.model, &last);
    assert_true(gpt_backward(f.model, f.params, f.grads, note_ready, &last));
    assert_int_equal(last, 0);
    tear_down(&f);
}

typedef struct early {
    const fixture *fixture;
    real *seen; /* each gradient as it was when it was announced */
} early;

static void keep_gradient(void *arg, int parameter)
{
    const early *e = arg;
    int parameter_count;
    const gpt_parameter *p = &gpt_parameters(e->fixture->model, &parameter_count)[parameter];
    memcpy(e->seen + p->offset, e->fixture->grads + p->offset, (size_t)p->count * sizeof(real));
}

TEST(ready_gradients_do_not_change_any_more)
{
    fixture f;
    set_up(&f, &tiny, 1);
    forward(&f, 1, 5);
    early e = {&f, calloc((size_t)f.count, sizeof(real))};
    assert_non_null(e.seen);
    assert_true(gpt_backward(f.model, f.params, f.grads, keep_gradient, &e));
    assert_memory_equal(e.seen, f.grads, (size_t)f.count * sizeof(real));
    free(e.seen);
    tear_down(&f);
}

TEST(parameters_fill_the_flat_block)
{
    fixture f;
    set_up(&f, &tiny, 1);
    int parameter_count;
    int64_t next = 0;
    const gpt_parameter *list = gpt_parameters(f.model, &parameter_count);
    assert_int_equal(parameter_count, 2 + 2 * 12 + 2);
    for (int p = 0; p < parameter_count; p++) {
        assert_int_equal(list[p].offset, next);
        assert_int_equal(list[p].count, list[p].shape[0] * list[p].shape[1]);
        next += list[p].count;
    }
    assert_int_equal(next, f.count);
    assert_string_equal(list[0].name, "wte.weight");
    assert_string_equal(list[4].name, "h.0.attn.c_attn.weight");
    assert_int_equal(list[4].shape[0], 24);
    assert_string_equal(list[14 + 10].name, "h.1.mlp.c_proj.weight");
    assert_int_equal(list[14 + 10].shape[1], 32);
    tear_down(&f);
}

TEST(first_values)
{
    static const gpt_config config = {2, 2, 64, 16, 50};
    fixture f;
    set_up(&f, &config, 1);
    real *again = calloc((size_t)f.count, sizeof(real));
    assert_non_null(again);
    gpt_init(f.model, f.params, 3);
    gpt_init(f.model, again, 3);
    assert_memory_equal(f.params, again, (size_t)f.count * sizeof(real));
    gpt_init(f.model, again, 4);
    int parameter_count;
    const gpt_parameter *list = gpt_parameters(f.model, &parameter_count);
    for (int p = 0; p < parameter_count; p++) {
        const real *w = f.params + list[p].offset;
        double sum = 0, square = 0;
        for (int64_t i = 0; i < list[p].count; i++) {
            sum += (double)w[i];
            square += (double)w[i] * (double)w[i];
        }
        const double count = (double)list[p].count, mean = sum / count;
        if (list[p].dims == 1) {
            assert_true(mean == (strstr(list[p].name, "bias") ? 0 : 1) && square == fabs(sum));
            continue;
        }
        /* 5 standard errors of the mean, and of the deviation */
        const double want = strstr(list[p].name, "c_proj") ? 0.01 : 0.02;
        assert_true(fabs(mean) < 5 * want / sqrt(count));
        assert_true(fabs(sqrt(square / count) / want - 1) < 5 / sqrt(2 * count));
        assert_memory_not_equal(w, again + list[p].offset, (size_t)list[p].count * sizeof(real));
    }
    free(again);
    tear_down(&f);
}

TEST(what_does_not_fit_is_refused)
{
    gpt *model;
    gpt_config odd_heads = tiny;
    odd_heads.heads = 3;
    assert_false(gpt_create(&model, &odd_heads, 1, 1));
    assert_null(model);
    assert_false(gpt_create(&model, &tiny, 0, 1));
    assert_false(gpt_create(&model, &tiny, 1, 0));
    gpt_destroy(&model);
    gpt_destroy(NULL);

    fixture f;
    set_up(&f, &tiny, 2);
    const int zeros[15] = {0};
    real loss = 5;
    assert_false(gpt_backward(f.model, f.params, f.grads, NULL, NULL)); /* nothing before it */
    assert_false(gpt_forward(f.model, f.params, zeros, zeros, 3, 5, &loss));
    assert_false(gpt_forward(f.model, f.params, zeros, zeros, 1, 6, &loss));
    assert_false(gpt_forward(f.model, f.params, f.tokens, f.targets, 0, 5, &loss));
    f.targets[9] = 11;
    assert_false(gpt_forward(f.model, f.params, f.tokens, f.targets, 2, 5, &loss));
    f.tokens[0] = -1;
    assert_false(gpt_logits(f.model, f.params, f.tokens, 5, &loss));
    assert_true(loss == 5);
    tear_down(&f);
}

TEST(softmax_and_gelu_are_those_of_libm)
{
    enum { COUNT = 20001 }; /* of -100 to 100 */
    const double close = sizeof(real) == sizeof(double) ? 1e-14 : 1e-6;
    real *x = malloc(COUNT * sizeof *x), *y = malloc(COUNT * sizeof *y);
    assert_true(x && y);
    for (int i = 0; i < COUNT; i++)
        x[i] = (real)((i - COUNT / 2) / 100.0);
    gelu(y, x, COUNT);
    for (int i = 0; i < COUNT; i++) {
        const double in = (double)x[i];
        const double want = in / (1 + exp(-1.5957691216057308 * (in + 0.044715 * in * in * in)));
        assert_true(fabs((double)y[i] - want) <= close * fmin(1, fabs(in)));
    }
    double sum = 0;
    for (int i = 0; i < COUNT; i++)
        sum += exp((double)x[i] - 100);
    memcpy(y, x, COUNT * sizeof *y);
    const double log_sum = (double)softmax(y, COUNT);
    assert_true(fabs(log_sum - (100 + log(sum))) <= 100 * close);
    for (int i = 0; i < COUNT; i++) {
        const double want = exp((double)x[i] - 100) / sum;
        if (x[i] >= 20) /* x - 100 is rounded by up to 4e-6; below, float may give zero */
            assert_true(fabs((double)y[i] - want) <= 5 * close * want);
        else
            assert_true(y[i] >= 0 && (double)y[i] < 2e-37);
    }
    y[7] = (real)NAN;
    softmax(y, 40);
    assert_true(isnan(y[20])); /* a NaN is not hidden */
    free(x);
    free(y);
}
