/* SPDX-License-Identifier: MIT */
/* sum(first..last) = sum(left) + sum(right), left being the largest power of two below the count:
 * values of several ranks become one, in the same order at every level and for any number of
 * sources. So do products. The average divides once, at the end. 16-bit floats are added and
 * multiplied as f32 and rounded once. Where a source is missing its place in the tree is empty. */
#include "device/cpu/kernels/half.h"

/* Blocks that stay in the first-level cache: at most log2(CZ__MAX_SOURCES / 4) partial results that
 * wait, and one that is being made. */
#define BLOCK_BYTES 4096
#define MAX_PARTIALS 11
#define MAX_LEVELS 13 /* of a tree of CZ__MAX_SOURCES */

/* Sources of which some are missing: how many sums are made once each has been taken, if those that
 * are there are taken in order and the last two partial results are added. Returns the last one
 * that is there among `count` from `first` on; -1: none. */
static int plan_merges(const void *const *sources, int first, int count, uint8_t *merges)
{
    if (count == 1)
        return sources[first] ? first : -1;
    int left = 1;
    while (2 * left < count)
        left *= 2;
    const int before = plan_merges(sources, first, left, merges);
    const int last = plan_merges(sources, first + left, count - left, merges);
    if (before >= 0 && last >= 0)
        merges[last]++;
    return last >= 0 ? last : before;
}

static int trailing_ones(int number)
{
    int count = 0;
    while (number >> count & 1)
        count++;
    return count;
}

static bool are_all_there(const void *const *sources, int count)
{
    for (int i = 0; i < count; i++)
        if (!sources[i])
            return false;
    return true;
}

/* Those that are there, if they are few and their sums are the tree over as many that are all
 * there; returns how many, or 0. The other merges then follow from those before the last. */
#define FEW_PRESENT 64
static int pack_present(const void *const *sources, int count, const void **present)
{
    uint8_t merges[CZ__MAX_SOURCES];
    int packed = 0, last = -1;
    memset(merges, 0, (size_t)count);
    (void)plan_merges(sources, 0, count, merges);
    for (int i = 0; i < count; i++) {
        if (!sources[i])
            continue;
        if (packed == FEW_PRESENT || (last >= 0 && merges[last] != trailing_ones(packed - 1)))
            return 0;
        present[packed++] = sources[i];
        last = i;
    }
    return packed;
}

#define AS_IT_IS(x) (x)
#define PLAIN_ADD(a, b) ((a) + (b))
#define PLAIN_MULTIPLY(a, b) ((a) * (b))
#define NAN_TEST(a) ((a) != (a))
#define NEVER(a) 0
/* Integers wrap around. */
#define I32_ADD(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define I64_ADD(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define U8_ADD(a, b) ((uint8_t)((a) + (b)))
#define I32_MULTIPLY(a, b) ((int32_t)((uint32_t)(a) * (uint32_t)(b)))
#define I64_MULTIPLY(a, b) ((int64_t)((uint64_t)(a) * (uint64_t)(b)))
#define U8_MULTIPLY(a, b) ((uint8_t)((a) * (b)))

#define TYPE f32
#define ELEMENT float
#define WIDE float
#define LOAD AS_IT_IS
#define STORE AS_IT_IS
#define ADD PLAIN_ADD
#define MULTIPLY PLAIN_MULTIPLY
#define IS_NAN NAN_TEST
#define FLOATING
#include "device/cpu/kernels/reduce_body.h"

#define TYPE f64
#define ELEMENT double
#define WIDE double
#define LOAD AS_IT_IS
#define STORE AS_IT_IS
#define ADD PLAIN_ADD
#define MULTIPLY PLAIN_MULTIPLY
#define IS_NAN NAN_TEST
#define FLOATING
#include "device/cpu/kernels/reduce_body.h"

#define TYPE f16
#define ELEMENT uint16_t
#define WIDE float
#define LOAD f16_load
#define STORE f16_store
#define ADD PLAIN_ADD
#define MULTIPLY PLAIN_MULTIPLY
#define IS_NAN NAN_TEST
#define FLOATING
#include "device/cpu/kernels/reduce_body.h"

#define TYPE bf16
#define ELEMENT uint16_t
#define WIDE float
#define LOAD bf16_load
#define STORE bf16_store
#define ADD PLAIN_ADD
#define MULTIPLY PLAIN_MULTIPLY
#define IS_NAN NAN_TEST
#define FLOATING
#include "device/cpu/kernels/reduce_body.h"

#define TYPE i32
#define ELEMENT int32_t
#define WIDE int32_t
#define LOAD AS_IT_IS
#define STORE AS_IT_IS
#define ADD I32_ADD
#define MULTIPLY I32_MULTIPLY
#define IS_NAN NEVER
#include "device/cpu/kernels/reduce_body.h"

#define TYPE i64
#define ELEMENT int64_t
#define WIDE int64_t
#define LOAD AS_IT_IS
#define STORE AS_IT_IS
#define ADD I64_ADD
#define MULTIPLY I64_MULTIPLY
#define IS_NAN NEVER
#include "device/cpu/kernels/reduce_body.h"

#define TYPE u8
#define ELEMENT uint8_t
#define WIDE uint8_t
#define LOAD AS_IT_IS
#define STORE AS_IT_IS
#define ADD U8_ADD
#define MULTIPLY U8_MULTIPLY
#define IS_NAN NEVER
#include "device/cpu/kernels/reduce_body.h"
