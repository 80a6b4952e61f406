/* SPDX-License-Identifier: MIT */
/* What the tests of groups share: ranks on a group with options, inputs, plain oracles, guarded
 * memory. Rank bodies return a status; what looks like an assertion here is for the main thread. */
#ifndef CZ_GROUP_TEST_H
#define CZ_GROUP_TEST_H

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "support/cz_test.h"
#include "support/transports.h"
#include "base/half.h"

static inline const char *backend_of(const cz_group *group)
{
    cz_group_info info = CZ_GROUP_INFO_INIT;
    return cz_group_get_info(group, &info) == CZ_OK ? info.backend : "?";
}

static inline bool has_ordered_sums(const cz_group *group)
{
    cz_group_info info = CZ_GROUP_INFO_INIT;
    return cz_group_get_info(group, &info) == CZ_OK && info.ordered_sums;
}

/* Wait for an event: until `counter` has come to `value`; false if it has not after a minute. */
static inline bool comes(atomic_int *counter, int value)
{
    for (int tries = 0; atomic_load(counter) < value; tries++) {
        if (tries == 60 * 1000)
            return false;
        usleep(1000);
    }
    return true;
}

/* ---- ranks ---- */

typedef struct outcome {
    cz_status status;
    char sentence[320];
} outcome;

typedef struct rank_call {
    cz_group *group;
    cz_rank_main body;
    void *arg;
    outcome *outcome;
    pthread_t thread;
} rank_call;

static inline void note(outcome *to, cz_status status)
{
    to->status = status;
    snprintf(to->sentence, sizeof to->sentence, "%s", status == CZ_OK ? "" : cz_last_error());
}

static inline void *rank_call_main(void *context)
{
    rank_call *call = context;
    note(call->outcome, call->body(call->group, call->arg));
    cz_group_destroy(&call->group);
    return NULL;
}

/* On handles that exist; they are destroyed at the end. */
static inline void run_groups(int world, cz_group *const *groups, cz_rank_main body, void *arg,
                              outcome *outcomes)
{
    rank_call calls[MANY_RANKS];
    for (int r = 0; r < world; r++) {
        calls[r] = (rank_call){groups[r], body, arg, &outcomes[r], 0};
        assert_int_equal(pthread_create(&calls[r].thread, NULL, rank_call_main, &calls[r]), 0);
    }
    for (int r = 0; r < world; r++)
        pthread_join(calls[r].thread, NULL);
}

/* As cz_launch(), but with the group's options and what every rank returned. */
static inline void run_ranks(int world, const cz_group_options *options, cz_rank_main body,
                             void *arg, outcome *outcomes)
{
    cz_group *groups[MANY_RANKS];
    assert_ok(create_ranks(groups, world, options));
    run_groups(world, groups, body, arg, outcomes);
}

/* Every rank has returned CZ_OK. If not, `what` (with what follows, as for printf()) and the rank
 * are named that failed first rather than one that heard of it. */
__attribute__((format(printf, 3, 4))) static inline void assert_all_ok(int world,
                                                                       const outcome *outcomes,
                                                                       const char *what, ...)
{
    char text[200];
    int bad = -1;
    for (int r = world - 1; r >= 0; r--)
        if (outcomes[r].status != CZ_OK && (bad < 0 || outcomes[r].status != CZ_ERR_PEER))
            bad = r;
    if (bad < 0)
        return;
    va_list args;
    va_start(args, what);
    vsnprintf(text, sizeof text, what, args);
    va_end(args);
    fail_msg("%s: rank %d of %d: %s: %s", text, bad, world, cz_status_name(outcomes[bad].status),
             outcomes[bad].sentence);
}

static inline void expect_ok(int world, size_t segment_bytes, cz_rank_main body, void *arg)
{
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    outcome outcomes[MANY_RANKS];
    options.timeout_seconds = 60;
    options.segment_bytes = segment_bytes;
    run_ranks(world, &options, body, arg, outcomes);
    assert_all_ok(world, outcomes, "segments of %zu", segment_bytes);
}

/* ---- inputs ---- */

/* Anything from 0 to below - 1; moves on. */
static inline unsigned draw(uint64_t *state, unsigned below)
{
    *state = mix(*state);
    return (unsigned)(*state >> 33) % below;
}

static inline void nap(unsigned most_microseconds, uint64_t *state)
{
    if (most_microseconds)
        usleep(draw(state, most_microseconds));
}

/* Not 0, of either sign, over many magnitudes: sums depend on their order. */
static inline double rough_number(uint64_t word)
{
    const double fraction = 1 + (double)(word >> 20 & 0xffffff) * 0x1p-24;
    return (word & 1 ? fraction : -fraction) * (double)(1 << (word >> 4 & 7)) * 0x1p-4;
}

static inline void fill(cz_dtype dtype, uint64_t seed, int64_t count, void *out)
{
    for (int64_t i = 0; i < count; i++) {
        const uint64_t word = mix((seed << 32) + (uint64_t)i);
        if (dtype == CZ_F32)
            ((float *)out)[i] = (float)rough_number(word);
        else if (dtype == CZ_F64)
            ((double *)out)[i] = rough_number(word) + (double)(word >> 8) * 0x1p-76;
        else if (dtype == CZ_F16)
            ((uint16_t *)out)[i] = cz__f16_from_f32((float)rough_number(word));
        else if (dtype == CZ_BF16)
            ((uint16_t *)out)[i] = cz__bf16_from_f32((float)rough_number(word));
        else if (dtype == CZ_I32)
            ((int32_t *)out)[i] = (int32_t)(word >> 16);
        else if (dtype == CZ_I64)
            ((int64_t *)out)[i] = (int64_t)word;
        else
            ((uint8_t *)out)[i] = (uint8_t)(word >> 16);
    }
}

/* ---- the plain reduction, from the words of DESIGN.md ---- */

#define PLAIN_AS_IS(x) (x)
#define PLAIN_REDUCTION(name, element, wide, unsigned_or_wide, load, store)                        \
    static inline wide name##_fold(bool product, const void *const *in, int first, int count,      \
                                   int64_t i)                                                      \
    {                                                                                              \
        int left = 1;                                                                              \
        if (count == 1)                                                                            \
            return load(((const element *)in[first])[i]);                                          \
        while (2 * left < count)                                                                   \
            left *= 2;                                                                             \
        const unsigned_or_wide a = (unsigned_or_wide)name##_fold(product, in, first, left, i);     \
        const unsigned_or_wide b =                                                                 \
            (unsigned_or_wide)name##_fold(product, in, first + left, count - left, i);             \
        return (wide)(product ? a * b : a + b);                                                    \
    }                                                                                              \
    static inline wide name##_tree(const void *const *in, int first, int count, int64_t i)         \
    {                                                                                              \
        return name##_fold(false, in, first, count, i);                                            \
    }                                                                                              \
    static inline void name##_plain(cz_reduction reduction, int count, const void *const *in,      \
                                    int64_t elements, void *out)                                   \
    {                                                                                              \
        for (int64_t i = 0; i < elements; i++) {                                                   \
            wide value = load(((const element *)in[0])[i]);                                        \
            for (int r = 1; r < count; r++) {                                                      \
                const wide other = load(((const element *)in[r])[i]);                              \
                const bool better = reduction == CZ_MAX ? other > value : other < value;           \
                if (value == value && (better || other != other))                                  \
                    value = other;                                                                 \
            }                                                                                      \
            if (reduction == CZ_SUM || reduction == CZ_AVERAGE)                                    \
                value = name##_tree(in, 0, count, i);                                              \
            if (reduction == CZ_PRODUCT)                                                           \
                value = name##_fold(true, in, 0, count, i);                                        \
            if (reduction == CZ_AVERAGE)                                                           \
                value = value / (wide)count;                                                       \
            ((element *)out)[i] = store(value);                                                    \
        }                                                                                          \
    }

PLAIN_REDUCTION(f32, float, float, float, PLAIN_AS_IS, PLAIN_AS_IS)
PLAIN_REDUCTION(f64, double, double, double, PLAIN_AS_IS, PLAIN_AS_IS)
PLAIN_REDUCTION(f16, uint16_t, float, float, cz__f32_from_f16, cz__f16_from_f32)
PLAIN_REDUCTION(bf16, uint16_t, float, float, cz__f32_from_bf16, cz__bf16_from_f32)
PLAIN_REDUCTION(i32, int32_t, int32_t, uint32_t, PLAIN_AS_IS, PLAIN_AS_IS)
PLAIN_REDUCTION(i64, int64_t, int64_t, uint64_t, PLAIN_AS_IS, PLAIN_AS_IS)
PLAIN_REDUCTION(u8, uint8_t, uint8_t, unsigned, PLAIN_AS_IS, PLAIN_AS_IS)

/* Byte after byte. */
static inline void plain_bits(bool all, int count, const void *const *in, size_t bytes, void *out)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char value = ((const unsigned char *)in[0])[i];
        for (int r = 1; r < count; r++) {
            const unsigned char other = ((const unsigned char *)in[r])[i];
            value = all ? value & other : value | other;
        }
        ((unsigned char *)out)[i] = value;
    }
}

static inline void plain_reduce(cz_dtype dtype, cz_reduction reduction, int count,
                                const void *const *in, int64_t elements, void *out)
{
    static void (*const of[])(cz_reduction, int, const void *const *, int64_t, void *) = {
        NULL, f32_plain, f64_plain, f16_plain, bf16_plain, i32_plain, i64_plain, u8_plain};
    if (reduction == CZ_AND || reduction == CZ_OR)
        plain_bits(reduction == CZ_AND, count, in, (size_t)elements * cz_dtype_size(dtype), out);
    else
        of[dtype](reduction, count, in, elements, out);
}

static inline bool is_floating(cz_dtype dtype)
{
    return dtype <= CZ_BF16;
}

/* Is there such a reduction of such values? */
static inline bool is_defined(cz_reduction reduction, cz_dtype dtype)
{
    return reduction == CZ_AVERAGE                     ? is_floating(dtype)
           : reduction == CZ_AND || reduction == CZ_OR ? !is_floating(dtype)
                                                       : true;
}

/* ---- memory with guards on both sides, at an address that is no multiple of 64 ---- */

enum { GUARD = 64, GUARD_BYTE = 0x5a };

typedef struct guarded {
    unsigned char *block;
    size_t offset;
    size_t bytes;
} guarded;

static inline void *guarded_open(guarded *memory, size_t bytes, cz_dtype dtype)
{
    memory->offset = GUARD + cz_dtype_size(dtype);
    memory->bytes = bytes;
    memory->block = malloc(memory->offset + bytes + GUARD);
    if (!memory->block)
        abort();
    memset(memory->block, GUARD_BYTE, memory->offset + bytes + GUARD);
    return memory->block + memory->offset;
}

/* False if anything was written outside. */
static inline bool guarded_close(guarded *memory)
{
    bool intact = true;
    for (size_t i = 0; i < memory->offset; i++)
        intact &= memory->block[i] == GUARD_BYTE;
    for (size_t i = 0; i < GUARD; i++)
        intact &= memory->block[memory->offset + memory->bytes + i] == GUARD_BYTE;
    free(memory->block);
    return intact;
}

#endif
