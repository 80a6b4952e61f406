/* SPDX-License-Identifier: MIT */
/** @file device.h  Devices: a table of functions for a kind of memory, with copies, reductions and
 *  the kernels of update rules. The CPU's is built in, and is meant wherever no device is named; a
 *  plugin brings a table of its own for other hardware. Most programs need only the reductions from
 *  here:
 *
 *      CZ_TRY(cz_all_reduce(group, &loss, 1, CZ_F32, CZ_AVERAGE, NULL)); */
#ifndef CZERO_DEVICE_H
#define CZERO_DEVICE_H

#include "czero/base.h"
#include "czero/sum.h"

CZ_BEGIN_DECLS

/** How values of several ranks become one. Sums have one order everywhere: a binary tree over the
 *  group ranks, sum(first..last) = sum(left) + sum(right), where left is the largest power of two
 *  below the count; 16-bit types are added in f32 and rounded once. */
typedef enum cz_reduction {
    CZ_SUM = 1,
    CZ_AVERAGE = 2, /**< the tree sum, then one division by the number of ranks; floating types */
    CZ_MAX = 3,     /**< NaN wins */
    CZ_MIN = 4,     /**< NaN wins */
    CZ_PRODUCT = 5, /**< in the order of sums; 16-bit types are multiplied in f32 and rounded once;
                         integers wrap around, as in sums */
    CZ_AND = 6,     /**< of the bits; integer types */
    CZ_OR = 7       /**< of the bits; integer types */
} cz_reduction;

/** Apply an update rule to `count` elements. `coefficients` and `flags` are what the rule of that
 *  name prepared; `slots` the state slots in the rule's order, NULL where a slot is not in use.
 *  Nothing overlaps. The same bits wherever a span begins or ends. */
typedef void (*cz_update_kernel)(void *queue, int64_t count, void *param, const void *grad,
                                 void *const *slots, const double *coefficients, unsigned flags);

/** First pass over `count` elements of a parameter: it may update the slots, and adds terms to the
 *  parameter's sums (cz_sum_add(), faster with many at once). Terms that depend on their
 *  element alone make the sums, and all that follows, the same whatever the shards are. The rest is
 *  as for cz_update_kernel, which runs in the second pass. */
typedef void (*cz_sums_kernel)(void *queue, int64_t count, const void *param, const void *grad,
                               void *const *slots, const double *coefficients, unsigned flags,
                               cz_sum *sums);

/** A product of dense matrices, row by row in memory: c = alpha a b + beta addend. */
typedef struct cz_matmul {
    /** of this struct in the library: a later field is there if it is as large */
    size_t size;
    int64_t rows, columns, inner; /**< c is rows x columns, a rows x inner, b inner x columns */
    bool transposed_a;            /**< a is in memory as inner x rows */
    bool transposed_b;            /**< b is in memory as columns x inner */
    /** c is symmetric but for rounding, as of a matrix and its transpose, or of two symmetric ones
     *  that commute; so is the addend. What is above the diagonal is computed, and is below it. */
    bool symmetric;
    double alpha, beta; /**< rounded to the type */
    const void *a, *b;
    const void *addend; /**< of c's shape, may be c; NULL: none */
    void *c;            /**< overlaps with nothing else */
    void *scratch;      /**< CZ_MATMUL_SCRATCH bytes of the device, aligned to 64 */
} cz_matmul;

#define CZ_MATMUL_SCRATCH ((size_t)1 << 20)

/** In `flags` of a kernel, set by the library: no step used any of this parameter's slots that are
 *  in use now; they hold what they start with. The other bits are the rule's. */
#define CZ_UPDATE_FIRST 0x80000000u

#define CZ_DEVICE_ABI 5u

/** A kind of device. Built-in and loaded devices are the same table; a table has every entry that
 *  is not optional, and outlives all objects made on it. `queue` orders work on devices that run
 *  asynchronously (a stream); the CPU ignores it. Functions may be called from any thread. */
typedef struct cz_device {
    uint32_t abi;     /**< CZ_DEVICE_ABI; others are refused */
    size_t size;      /**< sizeof(cz_device): tables that end before find_update are refused,
                           entries past an older table's end read as NULL */
    const char *name; /**< "cpu", … */
    cz_status (*allocate)(cz_memory_kind kind, size_t bytes,
                          void **out); /**< zeroed, 64-byte aligned */
    void (*release)(void *memory);     /**< accepts NULL */
    cz_status (*copy)(void *queue, void *to, const void *from, size_t bytes);
    cz_status (*zero)(void *queue, void *to, size_t bytes);
    /** `count` elements become `value`, rounded to their type. CZ_ERR_UNSUPPORTED: an integer type.
     *  */
    cz_status (*fill)(void *queue, cz_dtype dtype, double value, int64_t count, void *to);
    /** Each of `count` elements becomes its product with `factor` (rounded to f32, to f64 for that
     *  type), rounded once. CZ_ERR_UNSUPPORTED: an integer type. */
    cz_status (*scale)(void *queue, cz_dtype dtype, double factor, int64_t count, void *data);
    /** to[i] = from[i], rounded once to nearest even where the type is narrower: too large becomes
     *  infinite, NaN stays NaN. Of one type: a copy. No overlap. CZ_ERR_UNSUPPORTED: between
     *  integer types, or to or from one. */
    cz_status (*convert)(void *queue, cz_dtype to_type, void *to, cz_dtype from_type,
                         const void *from, int64_t count);
    /** out[i] = the reduction of sources[0..source_count)[i] in the one order above; `out` may be
     *  one of the sources. A source may be NULL, but not all: its place in the tree is empty, so
     *  that the other side of its sum is the sum; an average still divides by source_count.
     *  `result` is the type of `out`: that of the sources; or of 16-bit types CZ_F32, for a sum or
     *  an average that is not rounded, and `out` is none of the sources. CZ_ERR_UNSUPPORTED: no
     *  such kernel for these types. */
    cz_status (*reduce)(void *queue, cz_dtype dtype, cz_reduction reduction, int source_count,
                        const void *const *sources, int64_t count, cz_dtype result, void *out);
    /** Add the squares of `count` values to a sum in the host's memory: those of f32 and narrower
     *  types exactly, those of f64 each rounded once. CZ_ERR_UNSUPPORTED: an integer type. */
    cz_status (*add_squares)(void *queue, cz_dtype dtype, int64_t count, const void *values,
                             cz_sum *sum);
    /** The kernel of an update rule for these types, NULL if there is none. */
    cz_update_kernel (*find_update)(const char *rule, cz_dtype param, cz_dtype grad,
                                    cz_dtype state);
    /** Optional: a copy that nobody reads before much else was moved, so that it had better not
     *  take the place of other memory in caches. */
    cz_status (*copy_once)(void *queue, void *to, const void *from, size_t bytes);
    /** Optional: add elements [first, first + count) of a tensor, which lie at `values`, to two
     *  sums in the host's memory that depend on bits, places and `key`, and on no order: what the
     *  CPU's adds for the same bytes. */
    cz_status (*add_print)(void *queue, uint64_t key, cz_dtype dtype, int64_t first, int64_t count,
                           const void *values, uint64_t print[2]);
    /** Optional; 16-bit values are updated without a copy in f32, and have state in 16 bits, where
     *  it is there. to[i] = from[i] in a 16-bit type, rounded to one of the two values beside it by
     *  chance, so that the mean is from[i], that of f16 below 2^-14 to 2^-38; what is a value of
     *  the type stays. What convert() makes infinite becomes so, NaN stays NaN. Chance is a pure
     *  function of `key` and of the place `first` + i: the same bits as the CPU's, however elements
     *  are cut. No overlap. CZ_ERR_UNSUPPORTED: another type. */
    cz_status (*convert_stochastic)(void *queue, cz_dtype to_type, void *to, const float *from,
                                    int64_t count, uint64_t key, int64_t first);
    /** Optional; 16-bit values have copies in f32 where it is there. copies[i] becomes values[i],
     *  exactly, where convert() would round it to anything else: somebody has changed the value.
     *  CZ_ERR_UNSUPPORTED: another type. */
    cz_status (*refresh)(void *queue, cz_dtype dtype, const void *values, float *copies,
                         int64_t count);
    /** Optional: the first pass of a built-in update rule with partial sums for these types, NULL
     *  if there is none. */
    cz_sums_kernel (*find_sums)(const char *rule, cz_dtype param, cz_dtype grad, cz_dtype state);
    /** Optional; rules that multiply matrices (muon) work where it is there. The same bits for the
     *  same arguments, whichever thread calls, others too at once. CZ_ERR_UNSUPPORTED: a type other
     *  than f32 and f64. */
    cz_status (*matmul)(void *queue, cz_dtype dtype, const cz_matmul *product);
    /** Optional; optimizers keep moving averages of values where it is there. averages[i] +=
     *  weight * (values[i] - averages[i]), `weight` rounded to the type, and each operation. No
     *  overlap. CZ_ERR_UNSUPPORTED: another type than f32 and f64. */
    cz_status (*average)(void *queue, cz_dtype dtype, double weight, int64_t count,
                         const void *values, void *averages);
} cz_device;

/** The host's processor. Local; any thread; never NULL. */
CZ_API const cz_device *cz_device_cpu(void);

CZ_END_DECLS
#endif
