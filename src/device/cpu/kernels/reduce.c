/* SPDX-License-Identifier: MIT */
/* sum(first..last) = sum(left) + sum(right), left being the largest power of two below the count:
 * values of several ranks become one, in the same order at every level and for any number of
 * sources. So do products. The average divides once, at the end. 16-bit floats are added and
 * multiplied as f32, and rounded once unless they stay so. Where a source is missing its place in
 * the tree is empty. */
#include "device/cpu/kernels/half.h"

/* Blocks that stay in the first-level cache: at most log2(CZ__MAX_SOURCES / 4) partial results that
 * wait, and one that is being made. */
#define BLOCK_BYTES 4096
#define MAX_PARTIALS 11
#define MAX_LEVELS 13 /* of a tree of CZ__MAX_SOURCES */

/* The sources that are there, where some are missing, and how many sums are made once each of them
 * has been taken, of the last two partial results each. */
typedef struct present {
    int count;
    uint16_t places[CZ__MAX_SOURCES];
    uint8_t merges[CZ__MAX_SOURCES];
} present;

static int highest_digit(int number)
{
    int digit = 0;
    while (number >> digit > 1)
        digit++;
    return digit;
}

/* Two neighbours are in one sum from the highest binary digit on in which their places differ. When
 * the next one is farther away than sums that wait were from each other these are complete. */
static void find_present(const void *const *sources, int count, present *there)
{
    int levels[MAX_LEVELS], depth = 0, last = -1;
    there->count = 0;
    for (int i = 0; i < count; i++) {
        if (!sources[i])
            continue;
        const int level = last < 0 ? 0 : highest_digit(last ^ i), before = depth;
        while (last >= 0 && depth > 0 && levels[depth - 1] < level)
            depth--;
        if (last >= 0) {
            there->merges[there->count - 1] = (uint8_t)(before - depth);
            levels[depth++] = level;
        }
        there->places[there->count++] = (uint16_t)i;
        last = i;
    }
    if (there->count > 0)
        there->merges[there->count - 1] = (uint8_t)depth;
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

/* Are they few, and their sums the tree over as many that are all there? The merges after the last
 * then follow from those before it. */
#define FEW_PRESENT 64
static bool are_dense(const present *there)
{
    if (there->count > FEW_PRESENT)
        return false;
    for (int k = 0; k + 1 < there->count; k++)
        if (there->merges[k] != trailing_ones(k))
            return false;
    return true;
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
#define RESULT float
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
#define RESULT double
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
#define RESULT uint16_t
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
#define RESULT uint16_t
#define WIDE float
#define LOAD bf16_load
#define STORE bf16_store
#define ADD PLAIN_ADD
#define MULTIPLY PLAIN_MULTIPLY
#define IS_NAN NAN_TEST
#define FLOATING
#include "device/cpu/kernels/reduce_body.h"

#define TYPE f16_wide
#define ELEMENT uint16_t
#define RESULT float
#define WIDE float
#define LOAD f16_load
#define STORE AS_IT_IS
#define ADD PLAIN_ADD
#define MULTIPLY PLAIN_MULTIPLY
#define IS_NAN NAN_TEST
#define FLOATING
#define SUMS_ONLY
#include "device/cpu/kernels/reduce_body.h"

#define TYPE bf16_wide
#define ELEMENT uint16_t
#define RESULT float
#define WIDE float
#define LOAD bf16_load
#define STORE AS_IT_IS
#define ADD PLAIN_ADD
#define MULTIPLY PLAIN_MULTIPLY
#define IS_NAN NAN_TEST
#define FLOATING
#define SUMS_ONLY
#include "device/cpu/kernels/reduce_body.h"

#define TYPE i32
#define ELEMENT int32_t
#define RESULT int32_t
#define WIDE int32_t
#define LOAD AS_IT_IS
#define STORE AS_IT_IS
#define ADD I32_ADD
#define MULTIPLY I32_MULTIPLY
#define IS_NAN NEVER
#include "device/cpu/kernels/reduce_body.h"

#define TYPE i64
#define ELEMENT int64_t
#define RESULT int64_t
#define WIDE int64_t
#define LOAD AS_IT_IS
#define STORE AS_IT_IS
#define ADD I64_ADD
#define MULTIPLY I64_MULTIPLY
#define IS_NAN NEVER
#include "device/cpu/kernels/reduce_body.h"

#define TYPE u8
#define ELEMENT uint8_t
#define RESULT uint8_t
#define WIDE uint8_t
#define LOAD AS_IT_IS
#define STORE AS_IT_IS
#define ADD U8_ADD
#define MULTIPLY U8_MULTIPLY
#define IS_NAN NEVER
#include "device/cpu/kernels/reduce_body.h"
