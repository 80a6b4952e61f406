/* SPDX-License-Identifier: MIT */
/* The kernels of the CPU, one table per instruction-set level. All tables give the same bits. */
#ifndef CZ_DEVICE_CPU_CPU_H
#define CZ_DEVICE_CPU_CPU_H

#include "czero/device.h"

/* out[i] = the tree reduction of sources[0 … source_count - 1][i]; out may be one of the
 * sources. */
typedef void (*cz__reduce_kernel)(int source_count, const void *const *sources, int64_t count,
                                  void *out);

/* to[i] = from[i]; no overlap. */
typedef void (*cz__convert_kernel)(int64_t count, const void *from, void *to);

/* to[i] = from[i] rounded by chance, which is made of `key` and the place `first` + i. */
typedef void (*cz__stochastic_kernel)(uint64_t key, uint32_t first, int64_t count, const void *from,
                                      void *to);

/* copies[i], in f32, becomes values[i] where it does not round to that. */
typedef void (*cz__refresh_kernel)(int64_t count, const void *values, void *copies);

typedef void (*cz__matmul_kernel)(const cz_matmul *product);

/* What is below the diagonal of a square matrix of `count` rows becomes what is above it. */
typedef void (*cz__mirror_kernel)(int64_t count, void *matrix);

/* averages[i] += weight * (values[i] - averages[i]), in their type. */
typedef void (*cz__average_kernel)(double weight, int64_t count, const void *values,
                                   void *averages);

/* Codes of 8 bits with a scale for each block (device/blocks.h), and back. No overlap. */
typedef void (*cz__pack_kernel)(int64_t count, const float *values, uint8_t *codes, float *scales);
typedef void (*cz__unpack_kernel)(int64_t count, const uint8_t *codes, const float *scales,
                                  float *values);

#define CZ__DTYPE_END (CZ_U8 + 1)
#define CZ__REDUCTION_END (CZ_OR + 1)
#define CZ__MAX_SOURCES 4096

/* Terms of an exact sum, a block of them. Each is the sum of at most three parts: a multiple of a
 * large power of two, one of a small power of two, and a rest, which is 0 but where terms differ a
 * lot. The first two kinds are added up exactly in doubles. */
#define CZ__SUM_TERMS 2048 /* at most in a block */
#define CZ__SUM_LANES 8
typedef struct cz__sum_block {
    double split[2]; /* x + split - split is x rounded to a multiple of the power */
    double sums[2][CZ__SUM_LANES];
    bool rest; /* some term has one */
} cz__sum_block;

/* False: nothing was done, some term is too large or not finite. */
typedef bool (*cz__sum_kernel)(int64_t count, const void *values, cz__sum_block *block);

/* What the terms are, of the values. */
typedef enum cz__sum_kind {
    CZ__SUM_VALUES,      /* f64 as they are */
    CZ__SUM_SQUARES_F32, /* exact */
    CZ__SUM_SQUARES_F64, /* rounded */
    CZ__SUM_KIND_COUNT
} cz__sum_kind;

typedef struct cz__update_entry {
    const char *rule; /* NULL ends the list */
    cz_dtype dtype;   /* of parameter, gradient and state */
    cz_update_kernel kernel;
} cz__update_entry;

/* Add `count` words, of which the first has that place, to two sums. */
typedef void (*cz__print_kernel)(uint64_t key, uint32_t first, int64_t count, const uint32_t *words,
                                 uint64_t print[2]);

typedef struct cz__cpu_kernels {
    const char *level;                                          /* "v1", "v3", "v4" */
    cz__reduce_kernel reduce[CZ__DTYPE_END][CZ__REDUCTION_END]; /* NULL: there is none */
    /* The same of 16-bit floats, not rounded: `out` is f32, and none of the sources. */
    cz__reduce_kernel reduce_wide[CZ__DTYPE_END][CZ__REDUCTION_END];
    cz__convert_kernel convert[CZ__DTYPE_END][CZ__DTYPE_END]; /* from, to; NULL: there is none */
    cz__stochastic_kernel stochastic[CZ__DTYPE_END];          /* to; NULL: there is none */
    cz__refresh_kernel refresh[CZ__DTYPE_END];                /* the same */
    cz__pack_kernel pack[2];                                  /* unsigned, signed */
    cz__unpack_kernel unpack[2];                              /* the same */
    cz__average_kernel average[CZ__DTYPE_END];                /* to; NULL: there is none */
    cz__sum_kernel sum[CZ__SUM_KIND_COUNT];
    cz__print_kernel print;
    cz__matmul_kernel matmul[CZ__DTYPE_END]; /* NULL: there is none; as of the next one */
    cz__mirror_kernel mirror[CZ__DTYPE_END];
    const cz__update_entry *updates;
} cz__cpu_kernels;

typedef enum cz__cpu_level {
    CZ__CPU_V1,
    CZ__CPU_V3,
    CZ__CPU_V4,
    CZ__CPU_LEVEL_COUNT
} cz__cpu_level;

/* The kernels of a level; NULL where the build or the processor lacks it. Any thread. */
const cz__cpu_kernels *cz__cpu_kernels_at(cz__cpu_level level);

/* The kernels in use, chosen at the first call. Any thread. */
const cz__cpu_kernels *cz__cpu_kernels_chosen(void);

/* Add terms to a sum with the kernels of a table. */
void cz__cpu_add_terms(const cz__cpu_kernels *kernels, cz__sum_kind kind, int64_t count,
                       const void *values, cz_sum *sum);

/* cz_device.add_squares */
cz_status cz__cpu_add_squares(void *queue, cz_dtype dtype, int64_t count, const void *values,
                              cz_sum *sum);

/* What makes matrix products: "own loops", or the name of a BLAS. */
const char *cz__cpu_matmul_by(void);

/* cz_device.matmul */
cz_status cz__cpu_matmul(void *queue, cz_dtype dtype, const cz_matmul *product);

/* cz_device.find_sums */
cz_sums_kernel cz__cpu_find_sums(const char *rule, cz_dtype param, cz_dtype grad, cz_dtype state);

/* The kernel of an update rule in a table, NULL if there is none. */
cz_update_kernel cz__cpu_find_update(const cz__cpu_kernels *kernels, const char *rule,
                                     cz_dtype param, cz_dtype grad, cz_dtype state);

#endif
