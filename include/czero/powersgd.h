/* SPDX-License-Identifier: MIT */
/** @file powersgd.h  The state of the hook "powersgd": gradients travel as products of two thin
 *  matrices.
 *
 *  A gradient of n x m elements (n: its first dimension) is approximated by P Q^T with r columns
 *  each: P = M Q is summed over ranks and made orthonormal, Q = M^T P is averaged, and both are the
 *  start of the next iteration. So (n + m) r elements travel instead of n m. What the approximation
 *  leaves out is added to the next gradient. Gradients that this would not make shorter, vectors
 *  among them, are averaged as they are.
 *  @see Vogels et al., "PowerSGD", NeurIPS 2019, arXiv:1905.13727. */
#ifndef CZERO_POWERSGD_H
#define CZERO_POWERSGD_H

#include "czero/ddp.h"
#include "czero/state.h"

CZ_BEGIN_DECLS

typedef struct cz_powersgd cz_powersgd;

/** A product of matrices in f32 by a BLAS or what else the program has: product = M thin, or M^T
 *  thin if `transposed`. M has rows x cols elements, row-major; thin and product have r columns,
 *  one after the other without gaps, of cols and rows elements or, transposed, of rows and cols.
 *  They do not overlap. In terms of a BLAS, column-major, with alpha 1 and beta 0: sgemm("T", "N",
 *  rows, r, cols, M, cols, thin, cols, product, rows) and sgemm("N", "N", cols, r, rows, M, cols,
 *  thin, rows, product, cols). */
typedef void (*cz_powersgd_gemm)(void *context, bool transposed, int64_t rows, int64_t cols,
                                 int32_t r, const float *matrix, const float *thin, float *product);

typedef struct cz_powersgd_options {
    size_t size;         /**< set by CZ_POWERSGD_OPTIONS_INIT */
    int32_t rank;        /**< columns r; 0: 1. A matrix has at most as many as rows or columns. */
    int32_t drop_errors; /**< 1: what is left out is lost */
    int32_t cold_start;  /**< 1: each iteration begins with random numbers for Q */
    /** 1: a bucket is one matrix, its gradients one after the other in a square, padded with
     *  zeros: faster, less exact */
    int32_t batched;
    int64_t start_iter; /**< iterations before that one average as usual; 0: 1000; -1: none */
    /** compress where (n + m) r rate < n m; 0: 2. Not if `batched`. */
    double min_compression_rate;
    double epsilon; /**< added to the norms of columns in orthogonalisation, if r is 1 or
                               2 and not `batched` */
    uint32_t seed;  /**< of the random numbers */
    /** 1: numbers for matrices of one shape are drawn in one request, as PyTorch does with
     *  batch_tensors_with_same_shape: other numbers if they are few */
    int32_t draw_by_shape;
    int64_t log_every; /**< a line at CZ_LOG_INFO after so many iterations; 0: 10000 */
    /** NULL: the library's own loops. Otherwise what makes M Q and M^T P wherever these are
     *  computed in f32 (of 16-bit gradients, too); it pays from 4 or 8 columns on. Both are summed
     *  over ranks before anything else is made of them, by the library's loops: the result has the
     *  same bits on all ranks even if their products do not, as with a BLAS on different
     *  processors. Called on threads of the library and of the program, of ranks that are threads
     *  on several at once. The library links no BLAS and sets nothing in one: on how many threads a
     *  product runs is the program's to say, best before its ranks start
     *  (openblas_set_num_threads(1)). */
    cz_powersgd_gemm gemm;
    void *gemm_context;
} cz_powersgd_options;
#define CZ_POWERSGD_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(cz_powersgd_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL                      \
    }
CZ_INIT_FUNCTION(cz_powersgd_options, CZ_POWERSGD_OPTIONS_INIT)

/** Make the state of one rank, to be given to cz_ddp_register_hook_by_name(ddp, "powersgd", state).
 *
 *  Errors and Q belong to parameters: buckets may be made anew, parameters be frozen and unfrozen.
 *  Memory: one element per element of compressed gradients for errors, had in the first compressed
 *  iteration. Local. One thread at a time, and not during a pass.
 *  @param model    of the ddp; borrowed
 *  @param options  NULL: all defaults. Alike on all ranks.
 *  @return CZ_ERR_ARGUMENT: a NULL, an option out of range; CZ_ERR_MEMORY. */
CZ_API cz_status cz_powersgd_create(cz_powersgd **out, const cz_model *model,
                                    const cz_powersgd_options *options);

/** After the ddp. Local; accepts NULL and *NULL. */
CZ_API void cz_powersgd_destroy(cz_powersgd **powersgd);

typedef struct cz_powersgd_stats {
    size_t size;  /**< set by CZ_POWERSGD_STATS_INIT */
    int64_t iter; /**< iterations that are finished */
    /** Elements of gradients, and those that travelled for them, in compressed ones. */
    int64_t before, after;
    double rate; /**< before / after; 0: nothing was compressed */
} cz_powersgd_stats;
#define CZ_POWERSGD_STATS_INIT {sizeof(cz_powersgd_stats), 0, 0, 0, 0}
CZ_INIT_FUNCTION(cz_powersgd_stats, CZ_POWERSGD_STATS_INIT)

/** Local. @return CZ_ERR_ARGUMENT: a NULL. */
CZ_API cz_status cz_powersgd_get_stats(const cz_powersgd *powersgd, cz_powersgd_stats *stats);

/** What has to be kept over a restart: iterations, Q, and this rank's errors, under the names of
 *  parameters. Each rank has its own dictionary.
 *  @param out  receives a new one, to be destroyed
 *  @return CZ_ERR_ARGUMENT: a NULL; CZ_ERR_MEMORY. Local. */
CZ_API cz_status cz_powersgd_state_dict(const cz_powersgd *powersgd, cz_state_dict **out);

/** Go on from there. On all ranks, each with its own dictionary; on another number of ranks, with
 *  everything but "errors" from any one of them.
 *  @return CZ_ERR_ARGUMENT: a NULL, a value that is missing or of another kind, or out of range.
 *          CZ_ERR_MISMATCH: another rank or `batched`, a parameter that the model lacks or that has
 *          another shape or type. CZ_ERR_MEMORY. Nothing was changed. Local. */
CZ_API cz_status cz_powersgd_load_state_dict(cz_powersgd *powersgd, const cz_state_dict *dict);

CZ_END_DECLS
#endif
