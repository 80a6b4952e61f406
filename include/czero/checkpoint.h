/* SPDX-License-Identifier: MIT */
/** @file checkpoint.h  Checkpoints in a folder: each rank writes what it owns, and any number of
 *  ranks with any partition reads it. docs/checkpoint-format.md has the files.
 *
 *  A save makes a *generation*, a folder of its own. It counts once every rank's part is complete
 *  on the medium, and is never written to again: a job that is killed at any moment leaves the
 *  generations before. Folders may be shared by all ranks or by those of one machine: files may lie
 *  wherever some rank sees them. One job writes to a folder at a time.
 *
 *      cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
 *      options.zero = zero;
 *      CZ_TRY(cz_checkpoint_create(&checkpoint, group, "checkpoints", &options));
 *      cz_load_options load = CZ_LOAD_OPTIONS_INIT;
 *      load.missing_ok = 1;                              // the first run finds nothing
 *      CZ_TRY(cz_checkpoint_load(checkpoint, &load, &result));
 *      … save.step = step; CZ_TRY(cz_checkpoint_save(checkpoint, &save));
 */
#ifndef CZERO_CHECKPOINT_H
#define CZERO_CHECKPOINT_H

#include "czero/group.h"
#include "czero/optim.h"
#include "czero/parts.h"
#include "czero/state.h"
#include "czero/zero.h"

CZ_BEGIN_DECLS

/** One rank's part of the checkpoints in a folder. One call at a time per handle. */
typedef struct cz_checkpoint cz_checkpoint;

typedef struct cz_checkpoint_options {
    size_t size; /**< set by CZ_CHECKPOINT_OPTIONS_INIT */
    /** Its parameters and buffers; borrowed, as the next two. NULL: that of `zero`. */
    cz_model *model;
    cz_zero *zero; /**< NULL, or the sharded optimizer over it */
    /** NULL, or an unsharded one, which is alike on all ranks (data-parallel training). */
    cz_optim *optim;
    int32_t keep;     /**< complete generations that a save leaves, itself included; 0: 2 */
    int32_t reserved; /**< 0 */
    /** Those of the training, whose number is saved: what was saved with parts is of another
     *  training than one with another number of them, or with none; what was saved without may go
     *  on with any. Borrowed during the call. NULL: those of `zero` or its ddp, if there are. */
    const cz_parts *parts;
} cz_checkpoint_options;
#define CZ_CHECKPOINT_OPTIONS_INIT {sizeof(cz_checkpoint_options), NULL, NULL, NULL, 0, 0, NULL}
CZ_INIT_FUNCTION(cz_checkpoint_options, CZ_CHECKPOINT_OPTIONS_INIT)

/** Say what is saved to, and loaded from, a folder. Nothing is read or written yet. Ranks compare
 *  what their checkpoints are made of: names, types, shapes and order of parameters and buffers,
 *  which optimizer there is, its rule, its groups with their members and hyper-parameters, who owns
 *  what, the number of parts, and `keep`.
 *
 *  Collective. @param group   borrowed; outlives it; that of `zero`, if there is one
 *  @param folder  copied; made by the first save if it does not exist (its parent does). Ranks may
 *                 give different names: each machine its own disk.
 *  @return CZ_OK. CZ_ERR_ARGUMENT (a NULL, an empty name, no model, an optimizer or parts over
 *          another model or group, both optimizers, keep below 0),
 *          CZ_ERR_UNSUPPORTED (sparse tensors; a library without checkpoints), CZ_ERR_MISMATCH
 *          (ranks differ in what is compared), CZ_ERR_MEMORY. */
CZ_API cz_status cz_checkpoint_create(cz_checkpoint **out, cz_group *group, const char *folder,
                                      const cz_checkpoint_options *options);

/** Waits for this rank's part of a save on its way, which is kept if all ranks' parts get complete.
 *  Local; accepts NULL and *NULL; before or after the group is broken, before it is destroyed. */
CZ_API void cz_checkpoint_destroy(cz_checkpoint **checkpoint);

typedef struct cz_save_options {
    size_t size;  /**< set by CZ_SAVE_OPTIONS_INIT */
    int64_t step; /**< of the program, 0 or more; alike on all ranks */
    /** Beside model and optimizer, what is the same on all ranks: schedulers, averagers (see
     *  cz_state_dict_set_dict()), the position in the data. Borrowed during the call. NULL:
     *  nothing. Its tensors are stored under their keys, joined by "/": a tensor "a/b" beside a
     *  tensor "b" in a dictionary "a" is refused. */
    const cz_state_dict *common;
    /** And what is this rank's alone: random numbers, a hook's state. Names as above. */
    const cz_state_dict *own;
} cz_save_options;
#define CZ_SAVE_OPTIONS_INIT {sizeof(cz_save_options), 0, NULL, NULL}
CZ_INIT_FUNCTION(cz_save_options, CZ_SAVE_OPTIONS_INIT)

/** Save: parameters, buffers, the optimizer's state and the dictionaries. Returns when all of it is
 *  on the medium (fsync) on all ranks. Elements are streamed: beside training state a rank needs at
 *  most 48 MiB, and what names, shapes and dictionaries take.
 *
 *  Before anything is written ranks compare again what cz_checkpoint_create() compares, and with it
 *  how far the optimizer is (of an unsharded one: step counts, what a rule keeps beside them, which
 *  state there is), step and common dictionary. Elements are compared in checked mode
 *  (cz_group_options), where each rank would write a part of what all hold: without a sharded
 *  optimizer, values of parameters and the optimizer's state. Otherwise those of a parameter come
 *  from its owner; and all buffers come from rank 0, so that running means and variances belong
 *  together whatever other ranks hold (cz_model_check_replicas() tells whether they hold the same).
 *  `own` is never compared: on each rank it may be anything, or missing. Older generations are
 *  removed only after the new one was found whole: index and parts are read again, and are of one
 *  save with all that the index says (elements are not read again; cz_checkpoint_load() and `czero
 *  verify` read them).
 *
 *  Collective.
 *  @return CZ_OK. Seen by all ranks, nothing was published and nothing removed, the group is usable
 *          and the next save too: CZ_ERR_MISMATCH (ranks differ in what is compared: in what, and
 *          how), CZ_ERR_STATE (a pass of the optimizer's ddp is under way), CZ_ERR_ARGUMENT (a step
 *          below 0, texts that are not UTF-8), CZ_ERR_IO (rank and path: no room, no rights, the
 *          folder is another job's), CZ_ERR_FORMAT (a file is not what was written), CZ_ERR_MEMORY,
 *          and what cz_checkpoint_wait() would have said of a save before. */
CZ_API cz_status cz_checkpoint_save(cz_checkpoint *checkpoint, const cz_save_options *options);

/** The same, but it returns as soon as there is a copy of all this rank saves: training may go on.
 *  The copy's memory (as much as is saved here) is kept for the next time. A thread writes; it
 *  makes no calls to other ranks. Its errors are those of cz_checkpoint_wait(), or of the next save
 *  or load. Collective; as cz_checkpoint_save() otherwise. */
CZ_API cz_status cz_checkpoint_save_async(cz_checkpoint *checkpoint,
                                          const cz_save_options *options);

/** Wait until the last asynchronous save is complete on all ranks. Collective.
 *  @return CZ_OK, also if there is none; or as cz_checkpoint_save(). */
CZ_API cz_status cz_checkpoint_wait(cz_checkpoint *checkpoint);

#define CZ_NEWEST (-1)

typedef struct cz_load_options {
    size_t size;  /**< set by CZ_LOAD_OPTIONS_INIT */
    int64_t step; /**< CZ_NEWEST, or the step that was given to the save */
    /** 1: CZ_OK where there is no complete generation (of that step), not even a damaged one;
     *  result: step -1. */
    int32_t missing_ok;
    int32_t fall_back; /**< 1: if a generation is damaged, take the newest before it that is not */
    /** 1: parameters, buffers and state may be missing on either side: what is in both is loaded,
     *  the rest stays as it is (and has no state). And the number of parts may be another one: the
     *  training goes on with the bits of that from here. */
    int32_t permissive;
    /** 1: values of another floating type are rounded to the type here; 0: only if that loses
     *  nothing for any value of the type. */
    int32_t convert;
} cz_load_options;
#define CZ_LOAD_OPTIONS_INIT {sizeof(cz_load_options), CZ_NEWEST, 0, 0, 0, 0}
CZ_INIT_FUNCTION(cz_load_options, CZ_LOAD_OPTIONS_INIT)

typedef struct cz_load_result {
    size_t size;        /**< set by CZ_LOAD_RESULT_INIT */
    int64_t step;       /**< as it was saved; -1: nothing was there */
    int64_t generation; /**< its number */
    int64_t world_size; /**< of the job that saved it */
    /** The caller's, for cz_state_dict_destroy(); empty if none was saved, NULL where `step` is -1.
     *  */
    cz_state_dict *common;
    cz_state_dict *own; /**< of the rank with this number, likewise; NULL: there were fewer ranks */
} cz_load_result;
#define CZ_LOAD_RESULT_INIT {sizeof(cz_load_result), -1, -1, 0, NULL, NULL}
CZ_INIT_FUNCTION(cz_load_result, CZ_LOAD_RESULT_INIT)

/** Load: the newest complete generation, or the one of a step. Parameters and buffers are found by
 *  name, parameter groups by their members; world size, partition, buckets and order may be others
 *  than they were. All files are verified before anything changes here; each is verified by one
 *  rank, and each rank reads what it needs of them. What a rank does not see, because it is in
 *  another machine's folder, the lowest rank that sees it reads and sends (10 MiB beside training
 *  state, and an operation's own memory); there may be new machines with empty folders. Generations
 *  that were never completed are passed over, and said (cz_checkpoint_notes()).
 *
 *  Collective. @param options, result  may be NULL
 *  @return CZ_OK. CZ_ERR_STATE (no complete generation, or of that step; as for a save),
 *          CZ_ERR_FORMAT (a file is damaged: rank, path, tensor), CZ_ERR_ARGUMENT (the checkpoint
 *          is of another model, optimizer or number of parts: all differences; a flag that is
 *          neither 0 nor 1), CZ_ERR_UNSUPPORTED (a type or version that this library does not
 *          know), CZ_ERR_IO (rank and path; also: a file that no rank sees), CZ_ERR_MISMATCH (ranks
 *          differ in options, names, shapes, types, rule, members of groups, or who owns what),
 *          CZ_ERR_MEMORY. What a failing medium does after all files were verified: CZ_ERR_IO, and
 *          a file that another program changes then: CZ_ERR_FORMAT; the values are undefined. */
CZ_API cz_status cz_checkpoint_load(cz_checkpoint *checkpoint, const cz_load_options *options,
                                    cz_load_result *result);

/** What there was to say about the last load or export, a line each: generations that were passed
 *  over and why, differences that `permissive` allowed, what of a file of torch an import left,
 *  what an export could not remove (rank 0). "" if nothing; owned by the checkpoint. Local. */
CZ_API const char *cz_checkpoint_notes(const cz_checkpoint *checkpoint);

/** What a rank alone had saved (cz_save_options), of the generation that was loaded or saved last,
 *  from whichever machine has it. One rank by itself reads it with cz_archive_read_dict().
 *
 *  Collective. @param rank  each rank may ask for another one; -1: for none
 *  @param out  receives the caller's dictionary, NULL for -1
 *  @return CZ_OK. CZ_ERR_ARGUMENT (a NULL, no such rank then), CZ_ERR_STATE (nothing was loaded or
 *          saved), CZ_ERR_IO, CZ_ERR_FORMAT, CZ_ERR_MEMORY. */
CZ_API cz_status cz_checkpoint_fetch_own(cz_checkpoint *checkpoint, int rank, cz_state_dict **out);

/* ---- consolidated files: the whole in the form that other tools read ---- */

typedef struct cz_export_options {
    size_t size;  /**< set by CZ_EXPORT_OPTIONS_INIT */
    int64_t step; /**< of the program, 0 or more */
    /** As for cz_save_options. NULL: nothing. */
    const cz_state_dict *common;
    /** 0: one file. Otherwise `path` is a folder, and a file in it gets no more bytes of elements
     *  than that, unless a single tensor has more: tensors are not split. */
    uint64_t max_file_bytes;
    /** 1: values of parameters and buffers and nothing else, neither step nor state: the way a
     *  model is published. Without `common`. */
    int32_t parameters_only;
    int32_t reserved; /**< 0 */
} cz_export_options;
#define CZ_EXPORT_OPTIONS_INIT {sizeof(cz_export_options), 0, NULL, 0, 0, 0}
CZ_INIT_FUNCTION(cz_export_options, CZ_EXPORT_OPTIONS_INIT)

/** Write everything into one file for PyTorch, if `path` ends in ".pt", ".pth" or ".bin"
 *  (docs/pytorch-files.md), or into a folder for torch.distributed.checkpoint, if it ends in
 *  ".dcp", or into one safetensors file, or a folder of them with an index, as other tools read and
 *  publish models: parameters and buffers under their own names, an optimizer's state as
 *  "optimizer/SLOT/NAME", the rest in the file's metadata. The bytes are the same whatever the
 *  number of ranks, partition and buckets. docs/checkpoint-format.md has the form. Every rank
 *  writes what it owns, 8 MiB at a time; beside training state a rank needs 8 MiB (rank 0 16 MiB
 *  for PyTorch), and what names, shapes and dictionaries take.
 *
 *  What was there under that name stays until the new one is on the medium, and its headers and
 *  lengths were found to be those that were written; after any error it is there as it was. In a
 *  folder the files go that the old index names and the new one does not. What cannot be removed
 *  then is said by a warning. Buffers are those of rank 0, as in a save. The checkpoint's own
 *  folder and its generations are not touched; a save on its way goes on.
 *
 *  Collective. @param path  of a folder that all ranks share, by whatever name each of them has for
 *  it; a file is replaced, a folder is made if it is not there (its parent is)
 *  @param options  alike on all ranks; NULL: the defaults
 *  @return CZ_OK. CZ_ERR_ARGUMENT (path is NULL or empty, a step below 0, `common` with
 *          parameters_only, a tensor's name that begins with "optimizer/" or "common/" where state
 *          is written, names that are not UTF-8, max_file_bytes with a path of PyTorch's),
 *          CZ_ERR_MISMATCH (ranks differ in options, or as for a save), CZ_ERR_STATE (a pass of the
 *          optimizer's ddp is under way), CZ_ERR_IO (rank and path: no room, no rights, a rank that
 *          does not see the others' file), CZ_ERR_FORMAT (a file is not what was written),
 *          CZ_ERR_UNSUPPORTED (more names than a header can hold: let max_file_bytes be smaller; a
 *          path of PyTorch's, and no libzip), CZ_ERR_MEMORY. */
CZ_API cz_status cz_checkpoint_export(cz_checkpoint *checkpoint, const char *path,
                                      const cz_export_options *options);

/** Load what was exported, on any number of ranks, or a model that another program has written: a
 *  safetensors file, or a folder with several and "model.safetensors.index.json", or with
 *  "model.safetensors"; or what torch.save() or torch.distributed.checkpoint.save() wrote of a
 *  model, an optimizer or both, of which nothing is executed (docs/pytorch-files.md). A file that
 *  says nothing of an optimizer, as others' do, has parameters and buffers only: state stays as it
 *  is. Headers, names, shapes and sizes are verified before anything changes here, and checksums
 *  where there are any (PyTorch's files and folders); each rank reads what it needs. What is read
 *  of a file of torch.save() is then compared again. Of safetensors files, which have no checksums,
 *  and of folders each element is as it is when it is read.
 *
 *  Collective. @param path  seen by all ranks, the same content
 *  @param options  NULL, or `permissive` and `convert`; the others are for generations and stay as
 *                  they are in CZ_LOAD_OPTIONS_INIT
 *  @param result   NULL, or receives step (-1: the file has none), common, and generation -1,
 *                 world_size 0, own NULL
 *  @return CZ_OK. CZ_ERR_ARGUMENT (path is NULL or empty, an option that does not apply; another
 *          model or optimizer: all differences), CZ_ERR_FORMAT (what is wrong, and where; a file
 *          that an export has not completed; ranks that see different files), CZ_ERR_UNSUPPORTED (a
 *          type or version that this library does not know), CZ_ERR_IO, CZ_ERR_STATE and
 *          CZ_ERR_MISMATCH as for a load, CZ_ERR_MEMORY. A medium that fails after that: CZ_ERR_IO,
 *          a file of PyTorch's that changes then: CZ_ERR_FORMAT; the values are undefined. */
CZ_API cz_status cz_checkpoint_import(cz_checkpoint *checkpoint, const char *path,
                                      const cz_load_options *options, cz_load_result *result);

CZ_END_DECLS
#endif
