/* SPDX-License-Identifier: MIT */
/* Hyper-parameters: defaults, ranges, what is refused and in which words; coefficients. */
#include "support/built_in_rules.h"
#include "device/coefficients.h"
#include "rule/rule.h"
#include "support/cz_test.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

static const cz_rule *const *rules(void)
{
    static const cz_rule *all[BUILT_IN_RULES];
    static const cz_rule *(*const constructors[BUILT_IN_RULES])(void) = {
        cz_rule_sgd,
        cz_rule_adam,
        cz_rule_adamw,
        cz_rule_adamax,
        cz_rule_adadelta,
        cz_rule_adagrad,
        cz_rule_rmsprop,
        cz_rule_rprop,
        cz_rule_nadam,
        cz_rule_radam,
        cz_rule_lion,
        cz_rule_lamb,
        cz_rule_lars,
        cz_rule_ademamix,
        cz_rule_schedule_free_sgd,
        cz_rule_schedule_free_adamw,
        cz_rule_adam_mini,
        cz_rule_muon};
    for (int r = 0; r < BUILT_IN_RULES; r++)
        all[r] = constructors[r]();
    return all;
}

TEST(found_by_name)
{
    for (int r = 0; r < BUILT_IN_RULES; r++) {
        assert_ptr_equal(cz_rule_find(built_in_rules[r]), rules()[r]);
        assert_ok(cz__rule_check_table(rules()[r]));
    }
    assert_null(cz_rule_find("ada"));
    assert_null(cz_rule_find("adamw "));
    assert_null(cz_rule_find(""));
    assert_null(cz_rule_find(NULL));
}

/* What PyTorch 1.13 has, and docs/rules.md; lr of sgd and lars has no default. */
TEST(defaults)
{
    static const struct {
        const char *rule, *name;
        double value;
    } defaults[] = {
        {"sgd", "momentum", 0},
        {"sgd", "dampening", 0},
        {"sgd", "weight_decay", 0},
        {"sgd", "nesterov", 0},
        {"sgd", "maximize", 0},
        {"adam", "lr", 1e-3},
        {"adam", "beta1", 0.9},
        {"adam", "beta2", 0.999},
        {"adam", "eps", 1e-8},
        {"adam", "weight_decay", 0},
        {"adam", "amsgrad", 0},
        {"adam", "maximize", 0},
        {"adam", "lerp", 0},
        {"adamw", "lr", 1e-3},
        {"adamw", "beta1", 0.9},
        {"adamw", "beta2", 0.999},
        {"adamw", "eps", 1e-8},
        {"adamw", "weight_decay", 1e-2},
        {"adamw", "amsgrad", 0},
        {"adamw", "maximize", 0},
        {"adamw", "lerp", 0},
        {"adamax", "lr", 2e-3},
        {"adamax", "beta1", 0.9},
        {"adamax", "beta2", 0.999},
        {"adamax", "eps", 1e-8},
        {"adamax", "weight_decay", 0},
        {"adamax", "maximize", 0},
        {"adamax", "lerp", 0},
        {"adadelta", "lr", 1},
        {"adadelta", "rho", 0.9},
        {"adadelta", "eps", 1e-6},
        {"adadelta", "weight_decay", 0},
        {"adadelta", "maximize", 0},
        {"adagrad", "lr", 1e-2},
        {"adagrad", "lr_decay", 0},
        {"adagrad", "weight_decay", 0},
        {"adagrad", "initial_accumulator_value", 0},
        {"adagrad", "eps", 1e-10},
        {"adagrad", "maximize", 0},
        {"rmsprop", "lr", 1e-2},
        {"rmsprop", "alpha", 0.99},
        {"rmsprop", "eps", 1e-8},
        {"rmsprop", "weight_decay", 0},
        {"rmsprop", "momentum", 0},
        {"rmsprop", "centered", 0},
        {"rmsprop", "maximize", 0},
        {"rmsprop", "lerp", 0},
        {"rprop", "lr", 1e-2},
        {"rprop", "eta_minus", 0.5},
        {"rprop", "eta_plus", 1.2},
        {"rprop", "step_size_min", 1e-6},
        {"rprop", "step_size_max", 50},
        {"rprop", "maximize", 0},
        {"nadam", "lr", 2e-3},
        {"nadam", "beta1", 0.9},
        {"nadam", "beta2", 0.999},
        {"nadam", "eps", 1e-8},
        {"nadam", "weight_decay", 0},
        {"nadam", "momentum_decay", 4e-3},
        {"nadam", "decoupled_weight_decay", 0},
        {"nadam", "maximize", 0},
        {"nadam", "lerp", 0},
        {"radam", "lr", 1e-3},
        {"radam", "beta1", 0.9},
        {"radam", "beta2", 0.999},
        {"radam", "eps", 1e-8},
        {"radam", "weight_decay", 0},
        {"radam", "decoupled_weight_decay", 0},
        {"radam", "maximize", 0},
        {"radam", "lerp", 0},
        {"lion", "lr", 1e-4},
        {"lion", "beta1", 0.9},
        {"lion", "beta2", 0.99},
        {"lion", "weight_decay", 0},
        {"lion", "maximize", 0},
        {"lamb", "lr", 1e-3},
        {"lamb", "beta1", 0.9},
        {"lamb", "beta2", 0.999},
        {"lamb", "eps", 1e-6},
        {"lamb", "weight_decay", 1e-2},
        {"lamb", "bias_correction", 1},
        {"lamb", "always_adapt", 1},
        {"lamb", "trust_clip", 0},
        {"lamb", "maximize", 0},
        {"lars", "momentum", 0.9},
        {"lars", "dampening", 0},
        {"lars", "weight_decay", 0},
        {"lars", "nesterov", 0},
        {"lars", "trust_coefficient", 1e-3},
        {"lars", "eps", 1e-8},
        {"lars", "always_adapt", 1},
        {"lars", "trust_clip", 0},
        {"lars", "maximize", 0},
        {"ademamix", "lr", 1e-3},
        {"ademamix", "beta1", 0.9},
        {"ademamix", "beta2", 0.999},
        {"ademamix", "beta3", 0.9999},
        {"ademamix", "alpha", 5},
        {"ademamix", "beta3_warmup", 0},
        {"ademamix", "alpha_warmup", 0},
        {"ademamix", "eps", 1e-8},
        {"ademamix", "weight_decay", 1e-2},
        {"ademamix", "maximize", 0},
        {"schedule_free_sgd", "lr", 1},
        {"schedule_free_sgd", "momentum", 0.9},
        {"schedule_free_sgd", "weight_decay", 0},
        {"schedule_free_sgd", "warmup_steps", 0},
        {"schedule_free_sgd", "r", 0},
        {"schedule_free_sgd", "weight_lr_power", 2},
        {"schedule_free_sgd", "maximize", 0},
        {"schedule_free_adamw", "lr", 2.5e-3},
        {"schedule_free_adamw", "beta1", 0.9},
        {"schedule_free_adamw", "weight_decay", 0},
        {"schedule_free_adamw", "warmup_steps", 0},
        {"schedule_free_adamw", "r", 0},
        {"schedule_free_adamw", "weight_lr_power", 2},
        {"schedule_free_adamw", "maximize", 0},
        {"schedule_free_adamw", "beta2", 0.999},
        {"schedule_free_adamw", "eps", 1e-8},
        {"adam_mini", "lr", 1e-3},
        {"adam_mini", "beta1", 0.9},
        {"adam_mini", "beta2", 0.999},
        {"adam_mini", "eps", 1e-8},
        {"adam_mini", "weight_decay", 0},
        {"adam_mini", "maximize", 0},
        {"muon", "lr", 1e-3},
        {"muon", "weight_decay", 0.1},
        {"muon", "momentum", 0.95},
        {"muon", "nesterov", 1},
        {"muon", "ns_a", 3.4445},
        {"muon", "ns_b", -4.7750},
        {"muon", "ns_c", 2.0315},
        {"muon", "eps", 1e-7},
        {"muon", "ns_steps", 5},
        {"muon", "adjust_lr_fn", 0},
        {"muon", "maximize", 0},
    };
    int places = 2; /* lr of sgd and lars */
    for (int r = 0; r < BUILT_IN_RULES; r++)
        places -= rules()[r]->hyper_count;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++, places++) {
        double values[16];
        int place = -1;
        const cz_rule *rule = cz_rule_find(defaults[i].rule);
        cz__rule_defaults(rule, values);
        assert_ok(cz__rule_find_hyper(rule, defaults[i].name, &place));
        assert_true(values[place] == defaults[i].value);
        assert_string_equal(rule->hypers[place].name, defaults[i].name);
    }
    assert_int_equal(places, 0); /* every one of them is in the list */
}

TEST(lr_of_sgd_is_required)
{
    double values[16];
    cz__rule_defaults(cz_rule_sgd(), values);
    assert_int_equal(cz__rule_check(cz_rule_sgd(), values), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(), "sgd: lr has no default and was not given");
    assert_ok(cz__rule_set(cz_rule_sgd(), values, "lr", 0));
    assert_ok(cz__rule_check(cz_rule_sgd(), values));
}

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

/* Is the value in the range that spec/optim.md gives this name? The momentum of schedule-free SGD
 * is the share of a mean. */
static bool allowed(const char *rule, const char *name, double value)
{
    static const char *const flags[] = {"nesterov",        "maximize",
                                        "amsgrad",         "lerp",
                                        "centered",        "decoupled_weight_decay",
                                        "bias_correction", "always_adapt",
                                        "trust_clip",      NULL};
    static const char *const shares[] = {"beta1", "beta2", "beta3", NULL};
    if (!isfinite(value))
        return false;
    if (is_one_of(name, shares) ||
        (strcmp(rule, "schedule_free_sgd") == 0 && strcmp(name, "momentum") == 0))
        return value >= 0 && value < 1;
    if (strcmp(name, "rho") == 0)
        return value >= 0 && value <= 1;
    if (strcmp(name, "dampening") == 0 || strncmp(name, "eta_", 4) == 0 ||
        strncmp(name, "step_size_", 10) == 0)
        return true;
    if (is_one_of(name, flags))
        return value == 0 || value == 1;
    if (strcmp(name, "ns_steps") == 0 || strcmp(name, "adjust_lr_fn") == 0)
        return value >= 0 && value <= (name[0] == 'n' ? 99 : 2);
    if (strncmp(name, "ns_", 3) == 0)
        return true;
    return value >= 0;
}

TEST(ranges)
{
    const double tries[] = {0,    -0.0, 0.5,      1,         nextafter(1, 0), nextafter(1, 2),
                            -1,   2,    -DBL_MIN, DBL_MAX,   -DBL_MAX,        DBL_TRUE_MIN,
                            1e30, NAN,  INFINITY, -INFINITY, -DBL_TRUE_MIN,   1e-300};
    for (int r = 0; r < BUILT_IN_RULES; r++) {
        for (int i = 0; i < rules()[r]->hyper_count; i++) {
            const char *name = rules()[r]->hypers[i].name;
            for (size_t t = 0; t < sizeof tries / sizeof *tries; t++) {
                double values[16], before[16];
                cz__rule_defaults(rules()[r], values);
                memcpy(before, values, sizeof values);
                const cz_status status = cz__rule_set(rules()[r], values, name, tries[t]);
                if ((status == CZ_OK) != allowed(rules()[r]->name, name, tries[t]))
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

TEST(sentences)
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

static cz_status check_momentum(const cz_rule *rule, double momentum, double dampening,
                                double nesterov)
{
    double values[16];
    cz__rule_defaults(rule, values);
    CZ_TRY(cz__rule_set_list(rule, values,
                             CZ_HYPERS({"lr", 0.1}, {"momentum", momentum},
                                       {"dampening", dampening}, {"nesterov", nesterov})));
    return cz__rule_check(rule, values);
}

TEST(nesterov_needs_momentum)
{
    const cz_rule *both[] = {cz_rule_sgd(), cz_rule_lars()};
    for (int r = 0; r < 2; r++) {
        char words[128];
        snprintf(words, sizeof words,
                 "%s: nesterov needs momentum > 0 and dampening 0, they are 0.9 and 0.5",
                 both[r]->name);
        assert_ok(check_momentum(both[r], 0.9, 0, 1));
        assert_ok(check_momentum(both[r], 0.9, 0.5, 0));
        assert_int_equal(check_momentum(both[r], 0, 0, 1), CZ_ERR_ARGUMENT);
        assert_int_equal(check_momentum(both[r], 0.9, 0.5, 1), CZ_ERR_ARGUMENT);
        assert_string_equal(cz_last_error(), words);
    }
}

static cz_status check_rprop(double minus, double plus)
{
    double values[16];
    cz__rule_defaults(cz_rule_rprop(), values);
    CZ_TRY(cz__rule_set_list(cz_rule_rprop(), values,
                             CZ_HYPERS({"eta_minus", minus}, {"eta_plus", plus})));
    return cz__rule_check(cz_rule_rprop(), values);
}

TEST(etas_stand_around_1)
{
    assert_ok(check_rprop(0.1, 1.5));
    assert_int_equal(check_rprop(0, 1.5), CZ_ERR_ARGUMENT);
    assert_int_equal(check_rprop(1, 1.5), CZ_ERR_ARGUMENT);
    assert_int_equal(check_rprop(0.5, 1), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(), "rprop: eta_minus is 0.5 and eta_plus 1, allowed are 0 < "
                                         "eta_minus < 1 < eta_plus");
}

static cz_sums_kernel no_sums(const cz_device *device, cz_dtype param, cz_dtype grad,
                              cz_dtype state, void *context)
{
    return NULL;
}

static void no_combination(const cz_rule_step *step, const double *sums, double *coefficients,
                           unsigned *flags)
{
}

static void no_update(const cz_tensor_update *update)
{
}

/* One wrong thing in a table, and the sentence about it. */
TEST(slots_and_names_are_checked)
{
    cz_hyper_spec hypers[2] = {{"lr", 1, 0, 2, false, false}, {"wd", 1, 0, 2, false, false}};
    cz_slot_spec slots[2] = {{"step", CZ_SLOT_SCALAR, 0, NULL}, {"sum", CZ_SLOT_ELEMENT, 0, "wd"}};
    cz_rule rule = *cz_rule_adagrad();
    rule.name = "mine";
    rule.hypers = hypers;
    rule.hyper_count = 2;
    rule.slots = slots;
    assert_ok(cz__rule_check_table(&rule));
#define EXPECT(change, back, words)                                                                \
    do {                                                                                           \
        change;                                                                                    \
        assert_int_equal(cz__rule_check_table(&rule), CZ_ERR_ARGUMENT);                            \
        assert_string_equal(cz_last_error(), words);                                               \
        back;                                                                                      \
        assert_ok(cz__rule_check_table(&rule));                                                    \
    } while (0)
    EXPECT(rule.name = "", rule.name = "mine", "rule: its name is empty");
    EXPECT(hypers[1].name = NULL, hypers[1].name = "wd",
           "rule mine: hyper-parameter 1 has no name");
    EXPECT(hypers[0].name = "wd", hypers[0].name = "lr",
           "rule mine: it has two hyper-parameters 'wd'");
    EXPECT(rule.hyper_count = -1, rule.hyper_count = 2,
           "rule mine: no table of its -1 hyper-parameters");
    EXPECT(rule.hyper_size = 0, rule.hyper_size = sizeof(cz_hyper_spec),
           "rule mine: hyper_size is 0, set it to sizeof(cz_hyper_spec)");
    EXPECT(rule.slot_size = 0, rule.slot_size = sizeof(cz_slot_spec),
           "rule mine: slot_size is 0, set it to sizeof(cz_slot_spec)");
    EXPECT(slots[0].name = "", slots[0].name = "step", "rule mine: slot 0 has no name");
    EXPECT(slots[0].name = "sum", slots[0].name = "step", "rule mine: it has two slots 'sum'");
    EXPECT(slots[0].kind = CZ_SLOT_ELEMENT, slots[0].kind = CZ_SLOT_SCALAR,
           "rule mine: slot 'step' is the step count, a scalar");
    EXPECT(slots[1].kind = (cz_slot_kind)2, slots[1].kind = CZ_SLOT_ELEMENT,
           "rule mine: slot 'sum' is of kind 2, allowed are element (0) and scalar (1)");
    EXPECT(slots[1].initial_hyper = "eps", slots[1].initial_hyper = NULL,
           "rule mine: slot 'sum' starts with hyper-parameter 'eps', it has none of that name");
    EXPECT(rule.slots = NULL, rule.slots = slots,
           "rule mine: 2 slots, allowed are 0 to 32 in a table");
    EXPECT(rule.sum_count = 9, rule.sum_count = 0, "rule mine: 9 partial sums, allowed are 0 to 8");
    EXPECT(rule.sum_count = -1, rule.sum_count = 0,
           "rule mine: -1 partial sums, allowed are 0 to 8");
    EXPECT(rule.sum_count = 1, rule.sum_count = 0,
           "rule mine: it has 1 partial sums and find_sums is NULL");
    rule.find_sums = no_sums;
    EXPECT(rule.sum_count = 2, rule.sum_count = 0,
           "rule mine: it has 2 partial sums and combine is NULL");
    rule.combine = no_combination;
    rule.sum_count = 8;
    EXPECT(rule.update_tensor = no_update, rule.update_tensor = NULL,
           "rule mine: it has both partial sums and update_tensor, which sees whole tensors");
#undef EXPECT
}

TEST(tables_are_checked)
{
    cz_rule rule = *cz_rule_sgd();
    assert_ok(cz__rule_check_table(&rule));
    assert_int_equal(cz__rule_check_table(NULL), CZ_ERR_ARGUMENT);
    rule.abi++;
    assert_int_equal(cz__rule_check_table(&rule), CZ_ERR_UNSUPPORTED);
    rule = *cz_rule_sgd();
    rule.size = offsetof(cz_rule, granule); /* that of an older program */
    assert_ok(cz__rule_check_table(&rule));
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
TEST(coefficients)
{
    double values[16], c[CZ_RULE_COEFFICIENTS];
    unsigned flags = 0;
    for (int64_t step = 1; step < 100000; step = step * 3 + 1) {
        cz__rule_defaults(cz_rule_adamw(), values);
        cz_rule_adamw()->prepare(&(cz_rule_step){.hypers = values, .step = step}, c, &flags);
        assert_true(c[CZ__ADAM_RATE] == -(1e-3 / (1 - pow(0.9, (double)step))));
        assert_true(c[CZ__ADAM_ROOT] == sqrt(1 - pow(0.999, (double)step)));
        assert_true(c[CZ__ADAM_TAKE1] == 1 - 0.9 && c[CZ__ADAM_DECAY] == 1 - 1e-3 * 1e-2);
        assert_int_equal(flags, 0);
    }
}
