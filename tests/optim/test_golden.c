/* SPDX-License-Identifier: MIT */
/* Recorded runs of PyTorch, and of the equations of rules that it has not, to the last bit:
 * parameters, state and step counts, in f32 and f64, at every kernel level; the parameters whole,
 * and cut into the spans of several ranks at awkward places. Rules with partial sums, which ranks
 * exchange, and those over whole tensors run whole: elsewhere each way to shard them is compared
 * with that. */
#include "device/levels.h"
#include "optim/optim.h"
#include "support/cz_test.h"
#include "shard/shard.h"

#include <string.h>

#define PARAMS 3
#define ELEMENTS 49
#define STEPS 10
#define MAX_RANKS 8

static const int64_t counts[PARAMS] = {35, 13, 1};
static const int64_t first_element[PARAMS] = {0, 35, 48};
static const int64_t rows[PARAMS] = {7, 1, 1}; /* where a rule takes matrices */

/* One way to share the elements out. */
typedef struct cut {
    int world_size;
    int64_t order[PARAMS];
    size_t element_size; /* cuts are at multiples of 64 / element_size elements */
} cut;

static const cut cuts[] = {
    {1, {0, 1, 2}, 0}, /* whole: the public optimizer */
    {2, {2, 0, 1}, 4}, /* ranges begin with the single element: cuts at 15 and 31 */
    {3, {1, 0, 2}, 4}, /* 3, 19 */
    {4, {1, 2, 0}, 8}, /* 2, 10, 18 */
    {5, {0, 1, 2}, 8}, /* 8, 16, 24 */
    {7, {2, 1, 0}, 8}, /* 2, 10, 18, 26 and inside the second parameter */
    {8, {2, 0, 1}, 8}, /* one rank has nothing or next to nothing */
};

typedef struct run {
    const cz_test_case *c;
    const cz_rule *rule;
    bool lerp_file; /* whose states are called m and v */
    cz_dtype dtype;
    int world_size;
    cz_model *model;
    cz_optim *optims[MAX_RANKS];
    cz_shard_map *map;                        /* NULL: whole */
    double values[ELEMENTS], grads[ELEMENTS]; /* memory for either type */
} run;

static const cz_test_case *inputs;

static void *at(const run *r, const double *array, int param)
{
    return (char *)(uintptr_t)array + (size_t)first_element[param] * cz_dtype_size(r->dtype);
}

/* Recorded as f32, exact in both types. */
static void load(const run *r, const double *array, int param, const char *key)
{
    int64_t count;
    const float *from = cz_test_case_f32(inputs, key, &count);
    assert_int_equal(count, counts[param]);
    for (int64_t i = 0; i < count; i++) {
        const double wide = from[i];
        if (r->dtype == CZ_F32)
            memcpy((char *)at(r, array, param) + i * 4, &from[i], 4);
        else
            memcpy((char *)at(r, array, param) + i * 8, &wide, 8);
    }
}

/* What PyTorch has as pairs. */
static const struct {
    const char *name, *first, *second;
} pairs[] = {{"betas", "beta1", "beta2"},
             {"etas", "eta_minus", "eta_plus"},
             {"step_sizes", "step_size_min", "step_size_max"}};

static int pair_of(const char *name)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(pairs[i].name, name) == 0)
            return i;
    return -1;
}

/* "betas=0.9,0.999 eps=1e-08 …" */
static const cz_hyper *parse_options(const char *text, bool lerp, bool centered, cz_hyper list[16],
                                     char room[512])
{
    int count = 0;
    snprintf(room, 512, "%s", text);
    for (char *save, *word = strtok_r(room, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value++ = '\0';
        char *second = strchr(value, ',');
        const int pair = pair_of(word);
        assert_int_equal(second != NULL, pair >= 0);
        list[count++] = (cz_hyper){pair >= 0 ? pairs[pair].first : word, strtod(value, NULL)};
        if (second)
            list[count++] = (cz_hyper){pairs[pair].second, strtod(second + 1, NULL)};
    }
    if (lerp)
        list[count++] = (cz_hyper){"lerp", 1};
    if (centered)
        list[count++] = (cz_hyper){"centered", 1};
    list[count] = (cz_hyper){NULL, 0};
    return list;
}

static void make_model(run *r, const cz_device *device)
{
    assert_ok(cz_model_create(&r->model));
    for (int p = 0; p < PARAMS; p++) {
        char name[32];
        snprintf(name, sizeof name, "p%d", p);
        load(r, r->values, p, name);
        cz_tensor value = {.data = at(r, r->values, p),
                           .dtype = r->dtype,
                           .layout = CZ_DENSE,
                           .dimensions = 1,
                           .shape = {counts[p]},
                           .device = device};
        if (r->rule->update_tensor) {
            value.dimensions = 2;
            value.shape[0] = rows[p];
            value.shape[1] = counts[p] / rows[p];
        }
        cz_tensor grad = value;
        grad.data = at(r, r->grads, p);
        assert_ok(cz_model_add_tensor(r->model, name, &value, &grad));
    }
}

static void make_optims(run *r, const cut *way)
{
    cz_param_group groups[2];
    cz_hyper lists[2][16];
    char room[2][512], key[32];
    int64_t count = 0;
    for (; count < 2; count++) {
        snprintf(key, sizeof key, "group%d.options", (int)count);
        const char *options = cz_test_case_str(r->c, key);
        if (!options)
            break;
        snprintf(key, sizeof key, "group%d.params", (int)count);
        groups[count] = (cz_param_group)CZ_PARAM_GROUP_INIT;
        groups[count].params = cz_test_case_i64(r->c, key, &groups[count].param_count);
        groups[count].hypers = parse_options(options, r->lerp_file,
                                             strstr(cz_test_case_name(r->c), "rmsprop_centered"),
                                             lists[count], room[count]);
        if (!groups[count].params) { /* the lerp file: one group of all */
            static const int64_t all[PARAMS] = {0, 1, 2};
            groups[count].params = all;
            groups[count].param_count = PARAMS;
        }
    }
    const cz_optim_options options = {sizeof options, groups, count, 0, 0};
    r->world_size = way->world_size;
    if (way->element_size == 0) {
        assert_ok(cz_optim_create(&r->optims[0], r->model, r->rule, NULL, &options));
        return;
    }
    assert_ok(cz__shard_map_create_even(&r->map, way->world_size, PARAMS, counts, way->order, 0,
                                        NULL, way->element_size));
    for (int rank = 0; rank < way->world_size; rank++) {
        assert_ok(cz__optim_create(&r->optims[rank], r->model, r->rule, NULL, &options));
        assert_ok(cz__optim_set_map(r->optims[rank], r->map, rank));
    }
}

static bool has_no_gradient(const run *r, int param, int step)
{
    int64_t count = 0;
    const int64_t *steps = cz_test_case_i64(r->c, "nograd.param1.steps", &count);
    for (int64_t i = 0; i < count; i++)
        if (param == 1 && steps[i] == step)
            return true;
    return false;
}

static void step_once(run *r, int step)
{
    void *gradients[PARAMS];
    for (int p = 0; p < PARAMS; p++) {
        char key[32];
        snprintf(key, sizeof key, "g.%d.%d", step, p);
        load(r, r->grads, p, key);
        gradients[p] = has_no_gradient(r, p, step) ? NULL : at(r, r->grads, p);
        assert_ok(cz_model_set_gradient(r->model, p, gradients[p]));
    }
    if (!r->map) {
        assert_ok(cz_optim_step(r->optims[0], NULL, NULL));
        return;
    }
    for (int rank = 0; rank < r->world_size; rank++) {
        assert_ok(cz__optim_prepare(r->optims[rank]));
        cz__optim_update(r->optims[rank], gradients);
    }
}

static const void *recorded(const run *r, const char *key, int64_t *count)
{
    return r->dtype == CZ_F32 ? (const void *)cz_test_case_f32(r->c, key, count)
                              : (const void *)cz_test_case_f64(r->c, key, count);
}

static void compare(const run *r, const char *key, int64_t begin, const void *got, int64_t count)
{
    const size_t size = cz_dtype_size(r->dtype);
    const char *wanted = recorded(r, key, NULL);
    if (memcmp(got, wanted + (size_t)begin * size, (size_t)count * size) != 0)
        fail_msg("%s, %d ranks: %s: other bits in elements from %d", cz_test_case_name(r->c),
                 r->world_size, key, (int)begin);
}

/* The state of one slot: each element on exactly one rank, or on none if it was not recorded. */
static void compare_slot(const run *r, int step, int p, const char *slot, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "t%d.p%d.%s", step, p, name);
    const bool exists = recorded(r, key, NULL) != NULL;
    int64_t held = 0;
    for (int rank = 0; rank < r->world_size; rank++) {
        for (int64_t begin = 0, count; begin < counts[p]; begin += count) {
            const void *data;
            assert_ok(cz_optim_state(r->optims[rank], p, slot, begin, &data, &count));
            assert_true(count > 0 && begin + count <= counts[p]);
            if (!data)
                continue;
            held += count;
            if (exists)
                compare(r, key, begin, data, count);
        }
    }
    if (held != (exists ? counts[p] : 0))
        fail_msg("%s, %d ranks: %s: %d elements", cz_test_case_name(r->c), r->world_size, key,
                 (int)held);
}

static void compare_scalar(const run *r, int step, int p, const char *slot)
{
    char key[64];
    snprintf(key, sizeof key, "t%d.p%d.%s", step, p, slot);
    const double *wanted = cz_test_case_f64(r->c, key, NULL);
    for (int rank = 0; wanted && rank < r->world_size; rank++) {
        double got = -1;
        if (cz__optim_step_count(r->optims[rank], p) == 0)
            continue;
        assert_ok(cz_optim_scalar(r->optims[rank], p, slot, &got));
        if (memcmp(&got, wanted, sizeof got) != 0)
            fail_msg("%s, rank %d: %s: %a, wanted %a", cz_test_case_name(r->c), rank, key, got,
                     *wanted);
    }
}

/* The lerp file has the first moment, or mean, and the second. */
static const char *lerp_name(const char *slot)
{
    if (strcmp(slot, "exp_avg") == 0 || strcmp(slot, "grad_avg") == 0)
        return "m";
    const bool second =
        !strcmp(slot, "exp_avg_sq") || !strcmp(slot, "exp_inf") || !strcmp(slot, "square_avg");
    return second ? "v" : slot;
}

static void compare_all(const run *r, int step)
{
    for (int p = 0; p < PARAMS; p++) {
        char key[64];
        int64_t most = 0;
        snprintf(key, sizeof key, "t%d.p%d", step, p);
        compare(r, key, 0, at(r, r->values, p), counts[p]);
        for (int i = 0; i < r->rule->slot_count; i++) {
            const char *slot = r->rule->slots[i].name, *name = slot;
            if (r->rule->slots[i].kind != CZ_SLOT_ELEMENT) {
                compare_scalar(r, step, p, slot);
                continue;
            }
            if (r->lerp_file)
                name = lerp_name(slot);
            compare_slot(r, step, p, slot, name);
        }
        for (int rank = 0; rank < r->world_size; rank++) {
            const int64_t steps = cz__optim_step_count(r->optims[rank], p);
            most = steps > most ? steps : most;
        }
        snprintf(key, sizeof key, "t%d.p%d.step", step, p);
        const float *single = cz_test_case_f32(r->c, key, NULL);
        const double *wide = cz_test_case_f64(r->c, key, NULL);
        if ((single && *single != (float)most) || (wide && *wide != (double)most))
            fail_msg("%s: %s: %d", cz_test_case_name(r->c), key, (int)most);
    }
}

static void replay(const cz_test_case *c, bool lerp_file, const char *rule, const cz_device *device,
                   const cut *way)
{
    static run r;
    memset(&r, 0, sizeof r);
    r.c = c;
    r.rule = cz_rule_find(rule);
    r.lerp_file = lerp_file;
    r.dtype = strstr(cz_test_case_name(c), ".f64") ? CZ_F64 : CZ_F32;
    make_model(&r, device);
    make_optims(&r, way);
    for (int step = 1; step <= STEPS; step++) {
        step_once(&r, step);
        if (step <= 2 || step == 5 || step == 10)
            compare_all(&r, step);
    }
    for (int rank = 0; rank < r.world_size; rank++)
        cz_optim_destroy(&r.optims[rank]);
    cz__shard_map_destroy(&r.map);
    cz_model_destroy(&r.model);
}

/* All cases of a file whose name begins with `prefix`, by the rule of that name. */
static int replay_file(const char *file, const char *prefix, const char *rule)
{
    int cases = 0;
    cz_test_gold *input_file = cz_test_gold_open("inputs.gold"), *gold = cz_test_gold_open(file);
    assert_true(input_file && gold);
    inputs = cz_test_gold_find(input_file, "inputs");
    for (int64_t k = 0; k < cz_test_gold_count(gold); k++) {
        const cz_test_case *c = cz_test_gold_case(gold, k);
        if (strncmp(cz_test_case_name(c), prefix, strlen(prefix)) != 0)
            continue;
        cases++;
        const bool whole = cz_rule_find(rule)->sum_count > 0 || cz_rule_find(rule)->update_tensor;
        const size_t ways = whole ? 1 : sizeof cuts / sizeof *cuts;
        for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++)
            for (size_t way = 0; way < ways; way++)
                if (level_device((cz__cpu_level)level))
                    replay(c, strstr(file, "lerp") != NULL, rule,
                           level_device((cz__cpu_level)level), &cuts[way]);
    }
    cz_test_gold_close(&gold);
    cz_test_gold_close(&input_file);
    return cases;
}

/* Its file has so many cases. */
#define RULE(name, cases)                                                                          \
    TEST(name)                                                                                     \
    {                                                                                              \
        assert_int_equal(replay_file("optim_" #name ".gold", #name ".", #name), cases);            \
    }
RULE(sgd, 18)
RULE(adam, 18)
RULE(adamw, 10)
RULE(adamax, 10)
RULE(adadelta, 10)
RULE(adagrad, 12)
RULE(rmsprop, 14)
RULE(rprop, 10)
RULE(radam, 4)
RULE(lion, 8)
RULE(lamb, 10)
RULE(lars, 10)
RULE(ademamix, 8)
RULE(schedule_free_sgd, 8)
RULE(schedule_free_adamw, 8)
RULE(adam_mini, 8)
RULE(muon, 8)

TEST(lerp)
{
    assert_int_equal(replay_file("optim_lerp_variants.gold", "adam.", "adam"), 2);
    assert_int_equal(replay_file("optim_lerp_variants.gold", "adam_beta1_small.", "adam"), 2);
    assert_int_equal(replay_file("optim_lerp_variants.gold", "adamw.", "adamw"), 2);
    assert_int_equal(replay_file("optim_lerp_variants.gold", "adamax.", "adamax"), 2);
    assert_int_equal(replay_file("optim_lerp_variants.gold", "rmsprop_centered.", "rmsprop"), 2);
}
