/* SPDX-License-Identifier: MIT */
/* Options that no recorded run has, to the last bit against the equations written down once more,
 * one operation at a time: NAdam, RAdam, and the interpolated first moments of Adamax and RMSprop
 * from the gradient's end. The equations themselves are held against the recorded runs, with the
 * defect of 1.13. */
#include "optim/optim.h"
#include "support/cz_test.h"
#include "shard/shard.h"

#include <math.h>
#include <string.h>

#define COUNT 49
#define PARAMS 2
#define STEPS 10

typedef struct variant {
    const char *rule;
    cz_hyper hypers[8];
} variant;

/* One parameter of the reference. */
typedef struct reference {
    double p[COUNT], first[COUNT], second[COUNT], product;
    int64_t step;
} reference;

static bool single;  /* the type is f32 */
static bool as_1131; /* NAdam's second denominator has the defect */

/* Every operation in double, rounded to the type, is the operation of the type. */
static double R(double exact)
{
    return single ? (double)(float)exact : exact;
}

static double hyper(const variant *v, const char *name, double otherwise)
{
    for (const cz_hyper *h = v->hypers; h->name; h++)
        if (strcmp(h->name, name) == 0)
            return h->value;
    return otherwise;
}

static double moment(const variant *v, double m, double g, double keep)
{
    const double take = R(1 - keep), away = R(g - m);
    if (hyper(v, "lerp", 0) == 0)
        return R(R(m * R(keep)) + R(take * g));
    return take < 0.5 ? R(m + R(take * away)) : R(g - R(away * R(1 - take)));
}

static double second_moment(double v, double g, double keep)
{
    return R(R(v * R(keep)) + R(R(R(1 - keep) * g) * g));
}

/* p + a y / z */
static double addcdiv(double p, double a, double y, double z)
{
    return R(p + R(R(R(a) * y) / z));
}

static double nadam(const variant *v, reference *r, int i, double p, double g)
{
    const double b1 = hyper(v, "beta1", 0.9), b2 = hyper(v, "beta2", 0.999), t = (double)r->step;
    const double lr = hyper(v, "lr", 2e-3), psi = hyper(v, "momentum_decay", 4e-3);
    const double mu = b1 * (1. - 0.5 * pow(0.96, t * psi));
    const double next = b1 * (1. - 0.5 * pow(0.96, (t + 1) * psi));
    const double after =
        as_1131 ? (float)((float)(r->product * (float)mu) * (float)next) : r->product * next;
    const double den = R(R(sqrt(R(r->second[i] / R(1 - pow(b2, t))))) + R(hyper(v, "eps", 1e-8)));
    p = addcdiv(p, -lr * (1. - mu) / (1. - r->product), g, den);
    return addcdiv(p, -lr * next / (1. - after), r->first[i], den);
}

static double radam(const variant *v, const reference *r, int i, double p)
{
    const double b1 = hyper(v, "beta1", 0.9), b2 = hyper(v, "beta2", 0.999), t = (double)r->step;
    const double lr = hyper(v, "lr", 1e-3), bias1 = 1 - pow(b1, t), bias2 = 1 - pow(b2, t);
    const double most = 2 / (1 - b2) - 1, length = most - 2 * t * pow(b2, t) / bias2;
    const double step = R(R(r->first[i] / R(bias1)) * R(lr));
    if (length <= 5)
        return R(p - step);
    const double factor =
        sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
    const double root = R(R(sqrt(r->second[i])) + R(hyper(v, "eps", 1e-8)));
    return R(p - R(R(step * R(R(1 / root) * R(sqrt(bias2)))) * R(factor)));
}

static double adamax(const variant *v, const reference *r, int i, double p)
{
    const double b1 = hyper(v, "beta1", 0.9), lr = hyper(v, "lr", 2e-3);
    return addcdiv(p, -(lr / (1 - pow(b1, (double)r->step))), r->first[i], r->second[i]);
}

static double rmsprop(const variant *v, const reference *r, int i, double p, double g)
{
    const double a = r->first[i], square = R(r->second[i] - R(a * a));
    return addcdiv(p, -hyper(v, "lr", 1e-2), g, R(R(sqrt(square)) + R(hyper(v, "eps", 1e-8))));
}

static double one_element(const variant *v, reference *r, int i, double g)
{
    const double lr = hyper(v, "lr", 1e-3), decay = hyper(v, "weight_decay", 0);
    const double keep1 = hyper(v, "beta1", hyper(v, "alpha", 0.9));
    const bool is_rmsprop = strcmp(v->rule, "rmsprop") == 0;
    double p = r->p[i];
    if (hyper(v, "maximize", 0) != 0)
        g = -g;
    if (decay != 0 && hyper(v, "decoupled_weight_decay", 0) != 0)
        p = R(p * R(1 - lr * decay));
    else if (decay != 0)
        g = R(g + R(R(decay) * p));
    r->first[i] = moment(v, r->first[i], g, keep1);
    if (strcmp(v->rule, "adamax") == 0) {
        const double kept = R(r->second[i] * R(hyper(v, "beta2", 0.999)));
        r->second[i] = fmax(kept, R(fabs(g) + R(hyper(v, "eps", 1e-8))));
        return adamax(v, r, i, p);
    }
    r->second[i] = second_moment(r->second[i], g, is_rmsprop ? keep1 : hyper(v, "beta2", 0.999));
    return is_rmsprop                      ? rmsprop(v, r, i, p, g)
           : strcmp(v->rule, "nadam") == 0 ? nadam(v, r, i, p, g)
                                           : radam(v, r, i, p);
}

static void reference_step(const variant *v, reference *r, int count, const double *g)
{
    const double psi = hyper(v, "momentum_decay", 4e-3);
    r->step++;
    r->product = (float)r->product *
                 (float)(hyper(v, "beta1", 0.9) * (1. - 0.5 * pow(0.96, (double)r->step * psi)));
    for (int i = 0; i < count; i++)
        r->p[i] = one_element(v, r, i, g[i]);
}

/* ---- the equations against a recorded run ---- */

static double recorded(const cz_test_case *c, const char *key, int i)
{
    const float *narrow = cz_test_case_f32(c, key, NULL);
    const double *wide = cz_test_case_f64(c, key, NULL);
    assert_true(narrow || wide);
    return narrow ? (double)narrow[i] : wide[i];
}

static void expect_recorded(const cz_test_case *c, int step, int param, const char *slot, int count,
                            const double *got)
{
    char key[64];
    snprintf(key, sizeof key, "t%d.p%d%s", step, param, slot);
    for (int i = 0; i < count; i++)
        if (recorded(c, key, i) != got[i])
            fail_msg("%s %s: element %d is %a, recorded %a", cz_test_case_name(c), key, i, got[i],
                     recorded(c, key, i));
}

static void replay(const cz_test_case *inputs, const cz_test_case *c, const variant *v)
{
    static const int counts[] = {35, 13, 1};
    single = strstr(cz_test_case_name(c), ".f32") != NULL;
    for (int param = 0; param < 3; param++) {
        reference r = {.product = 1};
        char key[32];
        snprintf(key, sizeof key, "p%d", param);
        for (int i = 0; i < counts[param]; i++)
            r.p[i] = recorded(inputs, key, i);
        for (int step = 1; step <= STEPS; step++) {
            double g[COUNT];
            snprintf(key, sizeof key, "g.%d.%d", step, param);
            for (int i = 0; i < counts[param]; i++)
                g[i] = recorded(inputs, key, i);
            reference_step(v, &r, counts[param], g);
            if (step > 2 && step % 5 != 0)
                continue;
            expect_recorded(c, step, param, "", counts[param], r.p);
            expect_recorded(c, step, param, ".exp_avg", counts[param], r.first);
            expect_recorded(c, step, param, ".exp_avg_sq", counts[param], r.second);
            if (strcmp(v->rule, "nadam") == 0)
                expect_recorded(c, step, param, ".mu_product", 1, &r.product);
        }
    }
}

TEST(equations)
{
    static const struct {
        const char *file, *name;
        variant v;
    } runs[] = {
        {"optim_nadam_v1131.gold", "nadam_v1131.default", {"nadam", {{"lr", 0.002}}}},
        {"optim_radam.gold", "radam.default", {"radam", {{"lr", 0.01}}}},
        {"optim_radam.gold",
         "radam.wd_beta2",
         {"radam", {{"lr", 0.01}, {"beta2", 0.7}, {"weight_decay", 0.1}}}},
    };
    cz_test_gold *inputs = cz_test_gold_open("inputs.gold");
    as_1131 = true;
    for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
        cz_test_gold *gold = cz_test_gold_open(runs[k].file);
        assert_true(inputs && gold);
        for (int type = 0; type < 2; type++) {
            char name[64];
            snprintf(name, sizeof name, "%s.%s", runs[k].name, type ? "f64" : "f32");
            assert_non_null(cz_test_gold_find(gold, name));
            replay(cz_test_gold_find(inputs, "inputs"), cz_test_gold_find(gold, name), &runs[k].v);
        }
        cz_test_gold_close(&gold);
    }
    as_1131 = false;
    cz_test_gold_close(&inputs);
}

/* ---- the library against the equations ---- */

typedef struct trial {
    const variant *v;
    int ranks;                                          /* 0: the public optimizer */
    double values[PARAMS][COUNT], grads[PARAMS][COUNT]; /* memory for either type */
    cz_model *model;
    cz_shard_map *map;
    cz_optim *optims[5];
    reference references[PARAMS];
} trial;

static void store(void *to, int i, double value)
{
    if (single)
        ((float *)to)[i] = (float)value;
    else
        ((double *)to)[i] = value;
}

static double fetch(const void *from, int i)
{
    return single ? (double)((const float *)from)[i] : ((const double *)from)[i];
}

static void make(trial *t)
{
    static const int64_t counts[PARAMS] = {COUNT, COUNT};
    assert_ok(cz_model_create(&t->model));
    for (int p = 0; p < PARAMS; p++) {
        double start[COUNT];
        cz_test_stream_f64(1 + (uint64_t)p, COUNT, start);
        for (int i = 0; i < COUNT; i++) {
            store(t->values[p], i, start[i]);
            t->references[p].p[i] = start[i];
        }
        t->references[p].product = 1;
        assert_ok(cz_model_add(t->model, p ? "b" : "a", t->values[p], t->grads[p],
                               single ? CZ_F32 : CZ_F64, 1, counts));
    }
    const cz_rule *rule = cz_rule_find(t->v->rule);
    if (t->ranks == 0) {
        assert_ok(cz_optim_create(&t->optims[0], t->model, rule, t->v->hypers, NULL));
        return;
    }
    assert_ok(cz__shard_map_create_even(&t->map, t->ranks, PARAMS, counts, NULL, 0, NULL,
                                        single ? 4 : 8));
    for (int r = 0; r < t->ranks; r++) {
        assert_ok(cz__optim_create(&t->optims[r], t->model, rule, t->v->hypers, NULL));
        assert_ok(cz__optim_set_map(t->optims[r], t->map, r));
    }
}

static void step_all(trial *t, int step)
{
    void *gradients[PARAMS];
    for (int p = 0; p < PARAMS; p++) {
        double g[COUNT];
        cz_test_stream_f64((uint64_t)(1000 * step + p), COUNT, g);
        for (int i = 0; i < COUNT; i++)
            store(t->grads[p], i, g[i]);
        /* the second one falls behind: its step count and its product are its own */
        gradients[p] = p == 1 && (step == 1 || step == 4) ? NULL : t->grads[p];
        assert_ok(cz_model_set_gradient(t->model, p, gradients[p]));
        if (gradients[p])
            reference_step(t->v, &t->references[p], COUNT, g);
    }
    if (t->ranks == 0)
        assert_ok(cz_optim_step(t->optims[0], NULL, NULL));
    for (int r = 0; r < t->ranks; r++) {
        assert_ok(cz__optim_prepare(t->optims[r]));
        cz__optim_update(t->optims[r], gradients);
    }
}

/* NAdam's product is kept by every owner, once per step, however many spans it has. */
static void compare_product(const trial *t, int p)
{
    for (int r = 0; r < (t->ranks ? t->ranks : 1); r++) {
        double product = 0;
        const void *data;
        int64_t count;
        assert_ok(cz_optim_scalar(t->optims[r], p, "mu_product", &product));
        assert_ok(cz_optim_state(t->optims[r], p, "exp_avg", 0, &data, &count));
        const bool owner = data || count < COUNT;
        if (owner ? product != t->references[p].product : !isnan(product))
            fail_msg("rank %d of %d: the product of parameter %d is %a", r, t->ranks, p, product);
    }
}

static void compare(const trial *t, int step)
{
    for (int p = 0; p < PARAMS; p++) {
        for (int i = 0; i < COUNT; i++)
            if (fetch(t->values[p], i) != t->references[p].p[i])
                fail_msg("%s, %s, %d ranks: step %d, parameter %d, element %d is %a, wanted %a",
                         t->v->rule, single ? "f32" : "f64", t->ranks, step, p, i,
                         fetch(t->values[p], i), t->references[p].p[i]);
        if (strcmp(t->v->rule, "nadam") == 0 && t->references[p].step > 0)
            compare_product(t, p);
    }
}

static void try_variant(const variant *v, int ranks)
{
    static trial t;
    memset(&t, 0, sizeof t);
    t.v = v;
    t.ranks = ranks;
    make(&t);
    for (int step = 1; step <= STEPS; step++) {
        step_all(&t, step);
        compare(&t, step);
    }
    for (int r = 0; r < 5; r++)
        cz_optim_destroy(&t.optims[r]);
    cz__shard_map_destroy(&t.map);
    cz_model_destroy(&t.model);
}

TEST(variants)
{
    static const variant variants[] = {
        {"nadam", {{NULL, 0}}},
        {"nadam", {{"lr", 0.01}, {"weight_decay", 0.1}, {"momentum_decay", 0.1}}},
        {"nadam", {{"lr", 0.01}, {"weight_decay", 0.1}, {"decoupled_weight_decay", 1}}},
        {"nadam", {{"lr", 0.01}, {"maximize", 1}, {"eps", 1e-3}}},
        {"nadam", {{"lr", 0.01}, {"lerp", 1}, {"weight_decay", 0.1}}},
        {"nadam", {{"lr", 0.01}, {"lerp", 1}, {"beta1", 0.3}, {"beta2", 0.9}}},
        {"radam", {{"lr", 0.01}, {"weight_decay", 0.1}, {"decoupled_weight_decay", 1}}},
        {"radam", {{"lr", 0.01}, {"maximize", 1}, {"weight_decay", 0.1}}},
        {"radam", {{"lr", 0.01}, {"lerp", 1}, {"beta2", 0.99}}},
        {"radam", {{"lr", 0.01}, {"lerp", 1}, {"beta1", 0.3}}},
        {"adamax", {{"lr", 0.01}, {"lerp", 1}, {"beta1", 0.3}}},
        {"rmsprop", {{"lr", 0.01}, {"centered", 1}, {"lerp", 1}, {"alpha", 0.3}}},
    };
    static const int ways[] = {0, 1, 2, 3, 5};
    for (size_t k = 0; k < sizeof variants / sizeof *variants; k++)
        for (int type = 0; type < 2; type++)
            for (int way = 0; way < 5; way++) {
                single = type == 0;
                try_variant(&variants[k], ways[way]);
            }
}
