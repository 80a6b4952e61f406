/* SPDX-License-Identifier: MIT */
/* The update kernels: the same bits wherever a span begins and ends, at every level, with every
 * option, and nothing beside the span is touched. */
#include "support/built_in_rules.h"
#include "device/cpu/cpu.h"
#include "rule/rule.h"
#include "support/cz_test.h"

#include <math.h>
#include <string.h>

#define COUNT 160 /* elements of the whole run */
#define STEPS 3
#define ROOM (COUNT * 8 + 256)

typedef struct variant {
    const char *rule;
    const cz_hyper *hypers;
} variant;

#define VARIANTS 300

#define VALUES 10

/* Of these values those that the rule has. */
static void keep_known(const cz_rule *rule, const cz_hyper *all, cz_hyper *list)
{
    int count = 0, place;
    memset(list, 0, (VALUES + 1) * sizeof *list);
    for (int i = 0; i < VALUES; i++)
        if (cz__rule_find_hyper(rule, all[i].name, &place) == CZ_OK)
            list[count++] = all[i];
}

/* Every combination of what chooses a loop. */
static int list_variants(variant *out)
{
    static cz_hyper lists[VARIANTS][VALUES + 1];
    int count = 0;
    for (int bits = 0; bits < 16; bits++) {
        const double momentum = bits & 1 ? 0.9 : 0, decay = bits & 2 ? 0.05 : 0;
        const cz_hyper sgd[] = {{"lr", 0.1},
                                {"momentum", momentum},
                                {"weight_decay", decay},
                                {"nesterov", bits & 4 && bits & 1},
                                {"maximize", bits >> 3},
                                {"dampening", bits & 4 ? 0 : 0.25},
                                {NULL, 0}};
        memcpy(lists[count], sgd, sizeof sgd);
        out[count] = (variant){"sgd", lists[count]};
        count++;
    }
    for (int bits = 0; bits < 48; bits++) {
        const int lerp = bits / 16; /* 0: no, 1: from the old value, 2: from the gradient */
        const cz_hyper adam[] = {{"lr", 0.01},
                                 {"weight_decay", bits & 1 ? 0.05 : 0},
                                 {"amsgrad", bits >> 1 & 1},
                                 {"maximize", bits >> 2 & 1},
                                 {"lerp", lerp > 0},
                                 {"beta1", lerp == 2 ? 0.3 : 0.9},
                                 {NULL, 0}};
        memcpy(lists[count], adam, sizeof adam);
        out[count] = (variant){bits & 8 ? "adamw" : "adam", lists[count]};
        count++;
    }
    enum { OTHERS = 3 }; /* the first ones are above */
    for (int r = OTHERS; r < BUILT_IN_RULES; r++)
        for (int bits = 0; bits < 48; bits++) {
            const int lerp = bits / 16;
            const cz_hyper all[VALUES] = {
                {"weight_decay", bits & 1 ? 0.05 : 0},     {"maximize", bits >> 1 & 1},
                {"decoupled_weight_decay", bits >> 2 & 1}, {"centered", bits >> 2 & 1},
                {"momentum", bits >> 3 & 1 ? 0.9 : 0},     {"lerp", lerp > 0},
                {"alpha", lerp == 2 ? 0.3 : 0.9},          {"beta1", lerp == 2 ? 0.3 : 0.9},
                {"nesterov", bits >> 2 & bits >> 3 & 1},   {"lr", 0.1}};
            assert_true(count < VARIANTS);
            keep_known(cz_rule_find(built_in_rules[r]), all, lists[count]);
            out[count] = (variant){built_in_rules[r], lists[count]};
            bool fresh = true;
            for (int v = 0; v < count; v++)
                fresh = fresh && (strcmp(out[v].rule, built_in_rules[r]) != 0 ||
                                  memcmp(out[v].hypers, lists[count], sizeof lists[count]) != 0);
            count += fresh;
        }
    return count;
}

/* Parameter, gradient and three slots; the state of one run over some elements. */
typedef struct arrays {
    char memory[5][ROOM];
} arrays;

static void put(cz_dtype dtype, void *to, int64_t i, double value)
{
    const float single = (float)value;
    if (dtype == CZ_F32)
        memcpy((char *)to + i * 4, &single, 4);
    else
        memcpy((char *)to + i * 8, &value, 8);
}

/* Element 0 of the span is element `first` of the stream; arrays begin `offset` bytes after a
 * multiple of 64, each at another place if `apart`. */
static char *begin_of(arrays *a, int which, size_t offset, bool apart, size_t size)
{
    const uintptr_t aligned = ((uintptr_t)a->memory[which] + 127) / 64 * 64;
    return (char *)aligned + (apart ? (offset + (size_t)which * size) % 64 : offset);
}

static void run(const cz__cpu_kernels *kernels, const variant *v, cz_dtype dtype, int64_t first,
                int64_t count, size_t offset, bool apart, arrays *a)
{
    const cz_rule *rule = cz_rule_find(v->rule);
    const cz_update_kernel kernel = cz__cpu_find_update(kernels, v->rule, dtype, dtype, dtype);
    const size_t size = cz_dtype_size(dtype);
    double values[16], stream[COUNT + 1];
    memset(a->memory, 0x5a, sizeof a->memory);
    char *p = begin_of(a, 0, offset, apart, size), *g = begin_of(a, 1, offset, apart, size);
    void *slots[3] = {NULL};
    double scalars[2] = {1, 1};
    cz__rule_defaults(rule, values);
    CZ_CHECK(cz__rule_set_list(rule, values, v->hypers));
    CZ_CHECK(cz__rule_check(rule, values));
    const unsigned used = rule->slots_used(values);
    int elements = 0;
    for (int i = 0; i < rule->slot_count; i++) {
        const int e = elements;
        int place = -1;
        if (rule->slots[i].kind == CZ_SLOT_SCALAR)
            continue;
        slots[e] = used >> i & 1u ? begin_of(a, 2 + e, offset, apart, size) : NULL;
        if (rule->slots[i].initial_hyper)
            CZ_CHECK(cz__rule_find_hyper(rule, rule->slots[i].initial_hyper, &place));
        for (int64_t k = 0; slots[e] && k < count; k++)
            put(dtype, slots[e], k, place >= 0 ? values[place] : rule->slots[i].initial);
        elements++;
    }
    char moves[64];
    snprintf(moves, sizeof moves, "%s_moves", v->rule);
    const cz_update_kernel first_pass = cz__cpu_find_update(kernels, moves, dtype, dtype, dtype);
    if (first_pass) /* what it hands to the sums, or to matrix products */
        slots[elements] = begin_of(a, 2 + elements, offset, apart, size);
    cz_test_stream_f64(1, COUNT, stream);
    for (int64_t i = 0; i < count; i++)
        put(dtype, p, i, stream[first + i]);
    for (int64_t step = 1; step <= STEPS; step++) {
        double c[CZ_RULE_COEFFICIENTS] = {0};
        unsigned flags = 0;
        cz_test_stream_f64((uint64_t)(step + 1), COUNT, stream);
        for (int64_t i = 0; i < count; i++)
            put(dtype, g, i, stream[first + i]);
        const cz_rule_step now = {.hypers = values, .step = step * step * step, .scalars = scalars};
        rule->prepare(&now, c, &flags);
        if (first_pass)
            first_pass(NULL, count, p, g, slots, c, flags);
        if (rule->combine)
            rule->combine(&now, (const double[]){2, 3}, c, &flags);
        kernel(NULL, count, p, g, slots, c, flags | (step == 1 ? CZ_UPDATE_FIRST : 0u));
    }
}

/* The elements equal those of the whole run; all other bytes are as they were. */
static void compare(const variant *v, cz_dtype dtype, const char *level, arrays *whole,
                    arrays *part, int64_t first, int64_t count, size_t offset, bool apart)
{
    const size_t size = cz_dtype_size(dtype), bytes = (size_t)count * size;
    for (int which = 0; which < 5; which++) {
        const char *wanted = begin_of(whole, which, 0, false, size) + (size_t)first * size;
        const char *got = begin_of(part, which, offset, apart, size);
        if (memcmp(wanted, got, bytes) != 0)
            fail_msg("%s %s at %s: %d elements at byte %d: array %d has other bits", v->rule,
                     cz_dtype_name(dtype), level, (int)count, (int)offset, which);
        for (const char *c = part->memory[which]; c < part->memory[which] + ROOM; c++)
            if ((c < got || c >= got + bytes) && *c != 0x5a)
                fail_msg("%s %s at %s: %d elements at byte %d: array %d was written outside",
                         v->rule, cz_dtype_name(dtype), level, (int)count, (int)offset, which);
    }
}

static variant variants[VARIANTS];
static arrays whole, part;

TEST(every_variant_at_every_level)
{
    const int count = list_variants(variants);
    for (int v = 0; v < count; v++) {
        for (int dtype = CZ_F32; dtype <= CZ_F64; dtype++) {
            run(cz__cpu_kernels_at(CZ__CPU_V1), &variants[v], (cz_dtype)dtype, 0, COUNT, 0, false,
                &whole);
            for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++) {
                const cz__cpu_kernels *kernels = cz__cpu_kernels_at((cz__cpu_level)level);
                for (int64_t length = 0; kernels && length <= 67; length += 1 + length % 5) {
                    const size_t offset = (size_t)(length * 4 % 64) / 8 * 8;
                    run(kernels, &variants[v], (cz_dtype)dtype, 7, length, offset, true, &part);
                    compare(&variants[v], (cz_dtype)dtype, kernels->level, &whole, &part, 7, length,
                            offset, true);
                }
            }
        }
    }
}

TEST(every_alignment_and_length)
{
    /* two of sgd, adam, adamw with amsgrad, some of the others */
    static const int chosen[] = {3, 7, 17, 27, 70, 80, 90, 110, 115, 130, 150};
    list_variants(variants);
    for (size_t k = 0; k < sizeof chosen / sizeof *chosen; k++) {
        const variant *v = &variants[chosen[k]];
        for (int dtype = CZ_F32; dtype <= CZ_F64; dtype++) {
            const size_t size = cz_dtype_size((cz_dtype)dtype);
            run(cz__cpu_kernels_at(CZ__CPU_V1), v, (cz_dtype)dtype, 0, COUNT, 0, false, &whole);
            for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++) {
                const cz__cpu_kernels *kernels = cz__cpu_kernels_at((cz__cpu_level)level);
                for (size_t offset = 0; kernels && offset < 64; offset += size) {
                    for (int64_t length = 0; length <= 67; length++) {
                        const int64_t first = (int64_t)offset + length % 9;
                        run(kernels, v, (cz_dtype)dtype, first, length, offset, false, &part);
                        compare(v, (cz_dtype)dtype, kernels->level, &whole, &part, first, length,
                                offset, false);
                    }
                }
            }
        }
    }
}

/* AMSGrad keeps a NaN, as PyTorch's maximum does. */
TEST(a_nan_stays_in_the_maximum)
{
    for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++) {
        const cz__cpu_kernels *kernels = cz__cpu_kernels_at((cz__cpu_level)level);
        if (!kernels)
            continue;
        float p[33] = {0}, g[33] = {0}, m[33] = {0}, v[33] = {0}, v_max[33] = {0};
        double values[16], c[CZ_RULE_COEFFICIENTS];
        unsigned flags;
        const cz_rule *rule = cz_rule_adam();
        cz__rule_defaults(rule, values);
        CZ_CHECK(cz__rule_set(rule, values, "amsgrad", 1));
        for (int i = 0; i < 33; i++)
            v_max[i] = i % 2 ? NAN : 2;
        g[4] = NAN;
        rule->prepare(&(cz_rule_step){.hypers = values, .step = 1}, c, &flags);
        cz__cpu_find_update(kernels, "adam", CZ_F32, CZ_F32,
                            CZ_F32)(NULL, 33, p, g, (void *[]){m, v, v_max}, c, flags);
        for (int i = 0; i < 33; i++)
            assert_int_equal(isnan(v_max[i]) != 0, i % 2 || i == 4);
    }
}
