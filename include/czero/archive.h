/* SPDX-License-Identifier: MIT */
/** @file archive.h  Reading a checkpoint as what it is on a disk: tensors with names. One process
 *  opens it, without a group, a model or an optimizer, looks at what there is, reads any part of it
 *  and verifies it. Nothing is written.
 *
 *      cz_archive *archive;
 *      float weights[64];
 *      CZ_CHECK(cz_archive_open(&archive, "checkpoints", CZ_NEWEST));
 *      const int64_t place = cz_archive_find(archive, "layers.0.weight");
 *      CZ_CHECK(cz_archive_read(archive, place, NULL, 0, 64, weights));
 *      cz_archive_destroy(&archive);
 *
 *  An archive is a folder of generations (checkpoint.h), one of these, a safetensors file, a folder
 *  with model.safetensors or model.safetensors.index.json, a file of PyTorch's, or a folder of
 *  torch.distributed.checkpoint, of which nothing is executed. All functions here are local. One
 *  call at a time per archive; different archives may be used by different threads. */
#ifndef CZERO_ARCHIVE_H
#define CZERO_ARCHIVE_H

#include "czero/checkpoint.h"

CZ_BEGIN_DECLS

typedef struct cz_archive cz_archive;

/** Open what is at a path: names, types and shapes are read and checked, elements are not.
 *
 *  @param path  as above; an index.json or model.safetensors.index.json stands for its folder
 *  @param step  in a folder of generations: CZ_NEWEST, for the newest complete one, or that of this
 *               step. Elsewhere: CZ_NEWEST.
 *  @return CZ_ERR_ARGUMENT (a NULL, nothing of that kind at the path, a step where there are no
 *          generations), CZ_ERR_STATE (no generation is complete, or none of that step),
 *          CZ_ERR_FORMAT (what is damaged, and where), CZ_ERR_UNSUPPORTED (a version or a form that
 *          this library does not know; a library without checkpoints), CZ_ERR_IO, CZ_ERR_MEMORY.
 *          *out is NULL then. */
CZ_API cz_status cz_archive_open(cz_archive **out, const char *path, int64_t step);

/** Accepts NULL and *NULL. */
CZ_API void cz_archive_destroy(cz_archive **archive);

/** What was opened. Texts and dictionaries are the archive's. */
typedef struct cz_archive_info {
    size_t size; /**< set by CZ_ARCHIVE_INFO_INIT */
    /** Of the generation, or of the files; whole, so that it stays right where the program changes
     *  its working directory. */
    const char *path;
    /** A few words: "a checkpoint in parts", "a model in one safetensors file", … */
    const char *kind;
    /** A line for each generation that was passed over, and for what of a file was left; "" if
     *  there are none. */
    const char *notes;
    /** The optimizer's state dictionary, with the name of its type in place of each tensor: "rule",
     *  "state", "param_groups" (cz_optim_state_dict()). NULL: there is none. */
    const cz_state_dict *optimizer;
    /** Of the program; -1: the files do not say. */
    int64_t step;
    /** The number of the generation; -1: these are files of another form. */
    int64_t generation;
    /** Of the job that saved the generation; 0: of another form. */
    int64_t world_size;
    /** Tensors from 0 on are parameters, those that follow are buffers. */
    int64_t param_count;
    int64_t buffer_count;
    /** Of a generation: the number that all of its files have, 32 hexadecimal digits; NULL: of
     *  another form. */
    const char *id;
    /** Of a generation: the version of the library that saved it; NULL: not said. */
    const char *library;
    /** 1: another program's, which says nothing of steps and optimizers. */
    int32_t foreign;
    /** 1: a file of PyTorch's. */
    int32_t torch;
    /** Of the batches of the training (parts.h); 0: it had none, or the files do not say. */
    int64_t parts;
} cz_archive_info;
#define CZ_ARCHIVE_INFO_INIT                                                                       \
    {                                                                                              \
        sizeof(cz_archive_info), NULL, NULL, NULL, NULL, -1, -1, 0, 0, 0, NULL, NULL, 0, 0, 0      \
    }
CZ_INIT_FUNCTION(cz_archive_info, CZ_ARCHIVE_INFO_INIT)

/** @return CZ_ERR_ARGUMENT: a NULL, or a size that was not set. */
CZ_API cz_status cz_archive_get_info(const cz_archive *archive, cz_archive_info *info);

/** A parameter or a buffer. Texts are the archive's. */
typedef struct cz_archive_tensor {
    size_t size; /**< set by CZ_ARCHIVE_TENSOR_INIT */
    const char *name;
    /** "f32", "bf16", "f8_e4m3", … */
    const char *type;
    /** 0: a type that the library carries and does not compute with, such as "f8_e4m3". */
    cz_dtype dtype;
    int32_t dimensions;
    int64_t shape[CZ_MAX_DIMENSIONS];
    /** Of elements, in which ranges are counted. */
    int64_t count;
    /** Bytes of an element. Of a type with several elements to a byte it is 1, and `count` is
     *  bytes. */
    size_t element_size;
    /** Of a generation: the lowest and the highest rank whose parts have elements of it; -1: of
     *  another form. */
    int32_t first_rank;
    int32_t last_rank;
} cz_archive_tensor;
#define CZ_ARCHIVE_TENSOR_INIT                                                                     \
    {                                                                                              \
        sizeof(cz_archive_tensor), NULL, NULL, (cz_dtype)0, 0, {0}, 0, 0, -1, -1                   \
    }
CZ_INIT_FUNCTION(cz_archive_tensor, CZ_ARCHIVE_TENSOR_INIT)

/** The tensor of a place, 0 to param_count + buffer_count - 1.
 *  @return CZ_ERR_ARGUMENT: a NULL, no such place, or a size that was not set. */
CZ_API cz_status cz_archive_get_tensor(const cz_archive *archive, int64_t place,
                                       cz_archive_tensor *tensor);

/** The place of a name; -1: there is none, or an argument is NULL. */
CZ_API int64_t cz_archive_find(const cz_archive *archive, const char *name);

/** The slots of a parameter that have elements, such as "exp_avg", by their number from 0 on; NULL:
 *  no more, or none. A slot has the shape of its parameter. Owned by the archive.
 *  @param dtype  NULL, or receives the type of its elements, which need not be the parameter's: a
 *                16-bit value has state in f32 */
CZ_API const char *cz_archive_slot(const cz_archive *archive, int64_t place, int64_t number,
                                   cz_dtype *dtype);

/** Read elements [begin, end) of a parameter or buffer, in row-major order and in the type of the
 *  file. PyTorch's files are compared with their checksums at the first read; a generation is when
 *  it is verified.
 *
 *  @param slot  NULL: the value; or the name of one of its slots
 *  @return CZ_ERR_ARGUMENT (a NULL, no such place, slot or range), CZ_ERR_FORMAT, CZ_ERR_IO,
 *  CZ_ERR_MEMORY. */
CZ_API cz_status cz_archive_read(cz_archive *archive, int64_t place, const char *slot,
                                 int64_t begin, int64_t end, void *elements);

/** What the program saved beside (cz_save_options): for one rank alone, or, with CZ_ALL_RANKS, for
 *  all of them. Empty if nothing was. @param out  receives the caller's dictionary
 *  @return CZ_ERR_ARGUMENT (a NULL, no such rank, of one rank in files that are no generation),
 *          CZ_ERR_FORMAT, CZ_ERR_IO, CZ_ERR_MEMORY. */
CZ_API cz_status cz_archive_read_dict(cz_archive *archive, int rank, cz_state_dict **out);

/** What other programs wrote beside the tensors, by its number from 0 on: a key and a text, the
 *  archive's. NULL: no more. */
CZ_API const char *cz_archive_note(const cz_archive *archive, int64_t number, const char **key);

/** The files that it is made of, by their number from 0 on; they need not all be there. NULL: no
 *  more, or no memory. Owned by the archive, until the next call. */
CZ_API const char *cz_archive_file(cz_archive *archive, int64_t number);

/** Called with a sentence for something that is wrong. What it returns but CZ_OK ends the
 *  verification. */
typedef cz_status (*cz_archive_problem)(const char *sentence, void *context);

typedef struct cz_verify_options {
    size_t size; /**< set by CZ_VERIFY_OPTIONS_INIT */
    /** NULL: it ends with the first one. */
    cz_archive_problem problem;
    /** NULL, or called as it goes on: parts of a generation, or bytes of others' files. */
    void (*progress)(uint64_t done, uint64_t total, void *context);
    void *context; /**< for both */
} cz_verify_options;
#define CZ_VERIFY_OPTIONS_INIT {sizeof(cz_verify_options), NULL, NULL, NULL}
CZ_INIT_FUNCTION(cz_verify_options, CZ_VERIFY_OPTIONS_INIT)

typedef struct cz_verify_result {
    size_t size; /**< set by CZ_VERIFY_RESULT_INIT */
    int64_t problems;
    /** In the files. */
    int64_t tensors;
    /** That were compared; safetensors files that are no part of a generation have none. */
    int64_t checksums;
    /** That were read. */
    uint64_t bytes;
} cz_verify_result;
#define CZ_VERIFY_RESULT_INIT {sizeof(cz_verify_result), 0, 0, 0, 0}
CZ_INIT_FUNCTION(cz_verify_result, CZ_VERIFY_RESULT_INIT)

/** Verify all of it: every checksum, every header, and that every element is there exactly once.
 *  @param options, result  may be NULL
 *  @return CZ_ERR_FORMAT: something is wrong; the sentence is that of the first problem.
 *          CZ_ERR_ARGUMENT (`archive` is NULL). What cannot be looked at is no damage: CZ_ERR_IO,
 *          CZ_ERR_MEMORY; or what `problem` returned. */
CZ_API cz_status cz_archive_verify(cz_archive *archive, const cz_verify_options *options,
                                   cz_verify_result *result);

/** As cz_zero_fingerprint(), which see, of the parameters and the optimizer's state in it: all of
 *  it is read. Buffers do not count.
 *  @return CZ_ERR_ARGUMENT (a NULL), CZ_ERR_UNSUPPORTED (a parameter of a type that the library
 *          does not compute with), CZ_ERR_FORMAT, CZ_ERR_IO, CZ_ERR_MEMORY. */
CZ_API cz_status cz_archive_fingerprint(cz_archive *archive, uint64_t fingerprint[2]);

/** A generation in a folder. */
typedef struct cz_archive_generation {
    /** Of this struct in the library: a later field is there if it is as large. */
    size_t size;
    /** As long as the call lasts. */
    const char *path;
    int64_t number;
    int64_t step;
    /** 1: a load takes it; 0: it was never completed. */
    int32_t complete;
    int32_t reserved;
} cz_archive_generation;
typedef cz_status (*cz_archive_visitor)(const cz_archive_generation *generation, void *context);

/** Call `visit` for each generation in a folder, the newest first; a folder that does not exist has
 *  none. What it returns but CZ_OK ends it, and is returned.
 *  @return CZ_ERR_ARGUMENT (a NULL), CZ_ERR_IO, CZ_ERR_MEMORY. */
CZ_API cz_status cz_archive_list(const char *folder, cz_archive_visitor visit, void *context);

CZ_END_DECLS
#endif
