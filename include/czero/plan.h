/* SPDX-License-Identifier: MIT */
/** @file plan.h  Memory and traffic per rank, known before anything is allocated: from the shapes
 *  of a model and the options of a training, for any number of ranks. Sizes are asked of the code
 *  that allocates, and cuts of the code that cuts; no tensor is ever made.
 *
 *      CZ_TRY(cz_shapes_read(&shapes, "model.safetensors"));
 *      options.world_size = 64;
 *      CZ_TRY(cz_plan_create(&plan, shapes, &options));
 *      CZ_TRY(cz_plan_rank(plan, 0, &memory));     // memory.training_bytes
 */
#ifndef CZERO_PLAN_H
#define CZERO_PLAN_H

#include "czero/ddp.h"
#include "czero/zero.h"

CZ_BEGIN_DECLS

/* ---- shapes ---- */

typedef enum cz_shape_kind {
    CZ_SHAPE_PARAM = 0,  /**< a trainable parameter */
    CZ_SHAPE_FROZEN = 1, /**< a parameter that is not trained: neither gradient nor state */
    CZ_SHAPE_BUFFER = 2
} cz_shape_kind;

/** The tensors of a model without their memory, in the order of the model. One thread at a time. */
typedef struct cz_shapes cz_shapes;

CZ_API cz_status cz_shapes_create(cz_shapes **out); /**< an empty list. Local. CZ_ERR_MEMORY. */
CZ_API void cz_shapes_destroy(cz_shapes **shapes);  /**< local; accepts NULL and *NULL */

/** Append a tensor.
 *
 *  Local. @param name  its length alone is kept, for what files and tables need (and for a
 *  sentence, one that has another type than those before it); not empty
 *  @param dimensions, shape  0 dimensions: a single element
 *  @return CZ_ERR_ARGUMENT: a NULL, an unknown type or kind, a bad shape, a parameter of an integer
 *          type, more elements than there are numbers; CZ_ERR_MEMORY. Nothing was changed. */
CZ_API cz_status cz_shapes_add(cz_shapes *shapes, const char *name, cz_dtype dtype, int dimensions,
                               const int64_t *shape, cz_shape_kind kind);

/** Those of a model, as it is now. Local.
 *  @return CZ_ERR_ARGUMENT: a NULL; otherwise as cz_shapes_add(). */
CZ_API cz_status cz_shapes_from_model(cz_shapes **out, const cz_model *model);

/** Read a list of shapes: whatever is under the path.
 *
 *      a text         a line for each tensor: its name, its type (f32, f64, f16, bf16, i32, i64,
 *      u8), its sizes, and
 *                     perhaps the word "frozen" or "buffer"; '#' begins a comment; each name once
 *      JSON           as the header of a safetensors file: {"NAME": {"dtype": "F32", "shape": [2,
 *      3]}}, in this order; with
 *                     "kind": "frozen" or "buffer" where it is one
 *      safetensors    the header of a file, or of a folder of them as Hugging Face's tools have it.
 *      Of another program's
 *                     files, tensors of integer types are buffers
 *      torch          what torch.save() wrote of a model, see docs/pytorch-files.md; as above
 *      a checkpoint   a generation, or a folder of generations: the newest complete one
 *
 *  Local.
 *  @return CZ_ERR_IO: it cannot be read; CZ_ERR_FORMAT: what is wrong, and in which line or file;
 *          CZ_ERR_ARGUMENT: a NULL, or no tensor in it; CZ_ERR_UNSUPPORTED: all but texts, in a
 *          library without checkpoints; CZ_ERR_MEMORY. */
CZ_API cz_status cz_shapes_read(cz_shapes **out, const char *path);

/* ---- the plan ---- */

typedef struct cz_plan_options {
    size_t size;            /**< set by CZ_PLAN_OPTIONS_INIT */
    int32_t world_size;     /**< 0: 1 */
    int32_t unsharded;      /**< 1: every rank has the whole state (plain data parallelism) */
    cz_partition partition; /**< of the sharded optimizer; not CZ_PARTITION_GIVEN */
    int32_t ddp; /**< 1: gradients travel in buckets during the backward pass (cz_ddp); 0: in the
                                 step of the sharded optimizer. Implied by all that needs it. */
    cz_overlap overlap; /**< of the sharded optimizer */
    int32_t all_reduce; /**< of cz_ddp_options */
    int32_t views;      /**< parameters_as_bucket_view of cz_zero_options */
    /** 0: gradients travel in their type; CZ_F16, CZ_BF16: by the hooks "fp16_compress" and
     *  "bf16_compress", which need `unsharded` or `all_reduce` */
    cz_dtype wire;
    size_t bucket_bytes, first_bucket_bytes; /**< as in cz_ddp_options; 0: its defaults */
    size_t segment_bytes;                    /**< as in cz_group_options; 0: its default */
    const cz_rule *rule;                     /**< NULL: AdamW */
    /** What differs from the rule's defaults: slots depend on it; NULL: nothing. A learning rate
     *  need not be given. */
    const cz_hyper *hypers;
    /** 1: the ranks are threads of one process, which needs no staging memory */
    int32_t in_process;
    /** Of a batch (parts.h), at least as many as ranks; 0: none. Not with `wire`. */
    int32_t parts;
    int32_t average;  /**< 1: moving averages of all values (cz_moving_average) */
    int32_t reserved; /**< 0 */
    /** Parameters with a rule of their own, by their places among those of `shapes`: what each
     *  group says of `rule`, `hypers` and `granule`; others have the rule above. NULL: none. */
    const cz_param_group *groups;
    int64_t group_count;
    int64_t granule; /**< as in cz_param_group, of all parameters; 0: the rule's alone */
} cz_plan_options;
#define CZ_PLAN_OPTIONS_INIT                                                                       \
    {                                                                                              \
        sizeof(cz_plan_options), 0, 0, CZ_PARTITION_ELEMENTS, 0, CZ_OVERLAP_NONE, 0, 0,            \
            (cz_dtype)0, 0, 0, 0, NULL, NULL, 0, 0, 0, 0, NULL, 0, 0                               \
    }
CZ_INIT_FUNCTION(cz_plan_options, CZ_PLAN_OPTIONS_INIT)

/** What one rank needs; all in bytes. */
typedef struct cz_plan_memory {
    size_t size;             /**< set by CZ_PLAN_MEMORY_INIT */
    uint64_t param_bytes;    /**< values of parameters: the program's memory, as the next two */
    uint64_t buffer_bytes;   /**< of the model's buffers */
    uint64_t gradient_bytes; /**< of trainable parameters */
    uint64_t state_bytes;    /**< the optimizer's, for what the rank owns */
    uint64_t view_bytes;     /**< buckets into which values have moved (option views) */
    uint64_t hook_bytes;     /**< buckets that hooks see, and their copies of 16 bits */
    uint64_t staging_bytes;  /**< through which operations pass segments; with a hook: at most */
    uint64_t table_bytes;    /**< handles, tables, names */
    uint64_t training_bytes; /**< all of these, and part_bytes: the most there is in a step */
    /* At most beside that, as long as it lasts: */
    uint64_t save_bytes; /**< a checkpoint's save */
    /** an asynchronous one: with its copy of what is saved, which is kept */
    uint64_t async_save_bytes;
    uint64_t export_bytes; /**< a consolidated file's */
    /** cz_zero_consolidate_state_dict() to rank 0, until it is handed over */
    uint64_t consolidate_bytes;
    uint64_t consolidate_all_bytes; /**< the same to all ranks */
    /* No memory: */
    uint64_t file_bytes; /**< elements that the rank writes in a save */
    /** elements that it sends in a step, on the ways the library has of its own; UINT64_MAX: at
     *  least as many */
    uint64_t sent_bytes;
    uint64_t part_bytes; /**< memory again: gradients of several parts, added up */
} cz_plan_memory;
#define CZ_PLAN_MEMORY_INIT                                                                        \
    {                                                                                              \
        sizeof(cz_plan_memory), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                  \
    }
CZ_INIT_FUNCTION(cz_plan_memory, CZ_PLAN_MEMORY_INIT)

/** Immutable once made: any number of threads may ask. */
typedef struct cz_plan cz_plan;

/** Plan a training. Takes time and memory in proportion to tensors and ranks, not to their product;
 *  the cz_rule's kernels are not asked. What rules of the program's own have as scratch memory is
 *  not in it.
 *
 *  Local. @param shapes  borrowed until the end of the call
 *  @return CZ_ERR_ARGUMENT: a NULL, no trainable parameter, an option out of range or that does not
 *          go with another, a hyper-parameter that is wrong, a parameter that there is not or that
 *          is in two groups, parameters of several types.
 *          CZ_ERR_UNSUPPORTED: options that the training would refuse. CZ_ERR_MEMORY. */
CZ_API cz_status cz_plan_create(cz_plan **out, const cz_shapes *shapes,
                                const cz_plan_options *options);
CZ_API void cz_plan_destroy(cz_plan **plan); /**< local; accepts NULL and *NULL */

/** In place of a rank: the same training in one process without a group, on an unsharded optimizer,
 *  which sharding is measured against. With `parts` also the sums of as many parts as there are (of
 *  a data-parallel model on a group of one rank, which it has besides). */
#define CZ_PLAN_ALONE (-1)

/** What a rank needs. Local. @return CZ_ERR_ARGUMENT: a NULL, no such rank, a wrong size. */
CZ_API cz_status cz_plan_rank(const cz_plan *plan, int rank, cz_plan_memory *memory);

/** The least, the most and the mean of each number, over the ranks; and the sum, UINT64_MAX where
 *  that is more. Each may be NULL. Local. As above. */
CZ_API cz_status cz_plan_ranks(const cz_plan *plan, cz_plan_memory *least, cz_plan_memory *most,
                               cz_plan_memory *mean, cz_plan_memory *sum);

typedef struct cz_plan_info {
    size_t size; /**< set by CZ_PLAN_INFO_INIT */
    int32_t world_size;
    int32_t bucket_count; /**< of the data-parallel model; 0: there is none */
    /** What was planned for: tensors of each cz_shape_kind, and their elements. */
    int64_t tensors[3];
    int64_t elements[3];
} cz_plan_info;
#define CZ_PLAN_INFO_INIT {sizeof(cz_plan_info), 0, 0, {0}, {0}}
CZ_INIT_FUNCTION(cz_plan_info, CZ_PLAN_INFO_INIT)

/** Local. @return CZ_ERR_ARGUMENT: a NULL, or a size that was not set. */
CZ_API cz_status cz_plan_get_info(const cz_plan *plan, cz_plan_info *info);

CZ_END_DECLS
#endif
