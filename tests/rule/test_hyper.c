/* SPDX-License-Identifier: MIT */
/* Hyper-parameters: defaults, ranges, what is refused and in which words; coefficients. */
#include "device/coefficients.h"
#include "rule/rule.h"
#include "support/cz_test.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const cz_rule *const *rules(void)
{
    static const cz_rule *all[4];
    all[0] = cz_rule_sgd();
    all[1] = cz_rule_adam();
    all[2] = cz_rule_adamw();
    return all;
}

static void test_found_by_name(void **state)
{
    assert_ptr_equal(cz_rule_find("sgd"), cz_rule_sgd());
    assert_ptr_equal(cz_rule_find("adam"), cz_rule_adam());
    assert_ptr_equal(cz_rule_find("adamw"), cz_rule_adamw());
    assert_null(cz_rule_find("ada"));
    assert_null(cz_rule_find("adamw "));
    assert_null(cz_rule_find(""));
    assert_null(cz_rule_find(NULL));
}

/* What PyTorch 1.13 has; lr of sgd has no default. */
static void test_defaults(void **state)
{
    static const struct {
        const char *rule, *name;
        double value;
    } defaults[] = {
        {"sgd", "momentum", 0},      {"sgd", "dampening", 0},  {"sgd", "weight_decay", 0},
        {"sgd", "nesterov", 0},      {"sgd", "maximize", 0},   {"adam", "lr", 1e-3},
        {"adam", "beta1", 0.9},      {"adam", "beta2", 0.999}, {"adam", "eps", 1e-8},
        {"adam", "weight_decay", 0}, {"adam", "amsgrad", 0},   {"adam", "maximize", 0},
        {"adam", "lerp", 0},         {"adamw", "lr", 1e-3},    {"adamw", "beta1", 0.9},
        {"adamw", "beta2", 0.999},   {"adamw", "eps", 1e-8},   {"adamw", "weight_decay", 1e-2},
        {"adamw", "amsgrad", 0},     {"adamw", "maximize", 0}, {"adamw", "lerp", 0},
    };
    int places = 1; /* sgd's lr */
    for (int r = 0; r < 3; r++)
        places -= rules()[r]->hyper_count;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++, places++) {
        double values[16];
        int place = -1;
        const cz_rule *rule = cz_rule_find(defaults[i].rule);
        cz__rule_defaults(rule, values);
        assert_int_equal(cz__rule_find_hyper(rule, defaults[i].name, &place), CZ_OK);
        assert_true(values[place] == defaults[i].value);
        assert_string_equal(rule->hypers[place].name, defaults[i].name);
    }
    assert_int_equal(places, 0); /* every one of them is in the list */
}

static void test_lr_of_sgd_is_required(void **state)
{
    double values[16];
    cz__rule_defaults(cz_rule_sgd(), values);
    assert_int_equal(cz__rule_check(cz_rule_sgd(), values), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(), "sgd: lr has no default and was not given");
    assert_int_equal(cz__rule_set(cz_rule_sgd(), values, "lr", 0), CZ_OK);
    assert_int_equal(cz__rule_check(cz_rule_sgd(), values), CZ_OK);
}

/* Is the value in the range that spec/optim.md gives this name? */
static bool allowed(const char *name, double value)
{
    if (!isfinite(value))
        return false;
    if (strncmp(name, "beta", 4) == 0)
        return value >= 0 && value < 1;
    if (strcmp(name, "dampening") == 0)
        return true;
    if (!strcmp(name, "nesterov") || !strcmp(name, "maximize") || !strcmp(name, "amsgrad") ||
        !strcmp(name, "lerp"))
        return value == 0 || value == 1;
    return value >= 0;
}

static void test_ranges(void **state)
{
    const double tries[] = {0,    -0.0, 0.5,      1,         nextafter(1, 0), nextafter(1, 2),
                            -1,   2,    -DBL_MIN, DBL_MAX,   -DBL_MAX,        DBL_TRUE_MIN,
                            1e30, NAN,  INFINITY, -INFINITY, -DBL_TRUE_MIN,   1e-300};
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < rules()[r]->hyper_count; i++) {
            const char *name = rules()[r]->hypers[i].name;
            for (size_t t = 0; t < sizeof tries / sizeof *tries; t++) {
                double values[16], before[16];
                cz__rule_defaults(rules()[r], values);
                memcpy(before, values, sizeof values);
                const cz_status status = cz__rule_set(rules()[r], values, name, tries[t]);
                if ((status == CZ_OK) != allowed(name, tries[t]))
                    fail_msg("%s: %s = %g: %s", rules()[r]->name, name, tries[t],
                             cz_status_name(status));
                if (status == CZ_OK)
                    before[i] = tries[t];
                assert_memory_equal(values, before,
                                    (size_t)rules()[r]->hyper_count * sizeof *values);
            }
        }
    }
}

static void expect_sentence(const cz_rule *rule, const char *name, double value, const char *words)
{
    double values[16];
    cz__rule_defaults(rule, values);
    assert_int_equal(cz__rule_set(rule, values, name, value), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(), words);
}

static void test_sentences(void **state)
{
    const cz_rule *adamw = cz_rule_adamw(), *sgd = cz_rule_sgd();
    expect_sentence(adamw, "beta1", 1.5, "adamw: beta1 is 1.5, allowed is 0 <= beta1 < 1");
    expect_sentence(adamw, "lr", -1, "adamw: lr is -1, allowed is 0 <= lr, finite");
    expect_sentence(adamw, "eps", INFINITY, "adamw: eps is inf, allowed is 0 <= eps, finite");
    expect_sentence(sgd, "nesterov", 2, "sgd: nesterov is 2, allowed is 0 or 1");
    expect_sentence(sgd, "dampening", NAN, "sgd: dampening is nan, allowed is a finite number");
    expect_sentence(
        adamw, "betas", 0.9,
        "adamw: no hyper-parameter 'betas' (it has lr, beta1, beta2, eps, weight_decay, "
        "amsgrad, maximize, lerp)");
}

static cz_status check_sgd(double momentum, double dampening, double nesterov)
{
    double values[16];
    cz__rule_defaults(cz_rule_sgd(), values);
    CZ_TRY(cz__rule_set_list(cz_rule_sgd(), values,
                             CZ_HYPERS({"lr", 0.1}, {"momentum", momentum},
                                       {"dampening", dampening}, {"nesterov", nesterov})));
    return cz__rule_check(cz_rule_sgd(), values);
}

static void test_nesterov_needs_momentum(void **state)
{
    assert_int_equal(check_sgd(0.9, 0, 1), CZ_OK);
    assert_int_equal(check_sgd(0.9, 0.5, 0), CZ_OK);
    assert_int_equal(check_sgd(0, 0, 1), CZ_ERR_ARGUMENT);
    assert_int_equal(check_sgd(0.9, 0.5, 1), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(),
                        "sgd: nesterov needs momentum > 0 and dampening 0, they are "
                        "0.9 and 0.5");
}

static void test_tables_are_checked(void **state)
{
    cz_rule rule = *cz_rule_sgd();
    assert_int_equal(cz__rule_check_table(&rule), CZ_OK);
    assert_int_equal(cz__rule_check_table(NULL), CZ_ERR_ARGUMENT);
    rule.abi++;
    assert_int_equal(cz__rule_check_table(&rule), CZ_ERR_UNSUPPORTED);
    rule = *cz_rule_sgd();
    rule.size--;
    assert_int_equal(cz__rule_check_table(&rule), CZ_ERR_UNSUPPORTED);
    rule = *cz_rule_sgd();
    rule.prepare = NULL;
    assert_int_equal(cz__rule_check_table(&rule), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "prepare"));
    rule = *cz_rule_sgd();
    rule.slot_count = 33;
    assert_int_equal(cz__rule_check_table(&rule), CZ_ERR_ARGUMENT);
    rule = *cz_rule_sgd();
    rule.hypers = NULL;
    assert_int_equal(cz__rule_check_table(&rule), CZ_ERR_ARGUMENT);
    rule = *cz_rule_sgd();
    rule.name = NULL;
    assert_int_equal(cz__rule_check_table(&rule), CZ_ERR_ARGUMENT);
}

/* The order of operations decides the last bit: lr / bc1, then the sign. */
static void test_coefficients(void **state)
{
    double values[16], c[CZ_RULE_COEFFICIENTS];
    unsigned flags = 0;
    for (int64_t step = 1; step < 100000; step = step * 3 + 1) {
        cz__rule_defaults(cz_rule_adamw(), values);
        cz_rule_adamw()->prepare(values, step, c, &flags);
        assert_true(c[CZ__ADAM_RATE] == -(1e-3 / (1 - pow(0.9, (double)step))));
        assert_true(c[CZ__ADAM_ROOT] == sqrt(1 - pow(0.999, (double)step)));
        assert_true(c[CZ__ADAM_TAKE1] == 1 - 0.9 && c[CZ__ADAM_DECAY] == 1 - 1e-3 * 1e-2);
        assert_int_equal(flags, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found_by_name),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_lr_of_sgd_is_required),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_nesterov_needs_momentum),
        cmocka_unit_test(test_tables_are_checked),
        cmocka_unit_test(test_coefficients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
