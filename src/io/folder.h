/* SPDX-License-Identifier: MIT */
/* Folders that somebody gives: what is there, and one writer at a time. */
#ifndef CZ_IO_FOLDER_H
#define CZ_IO_FOLDER_H

#include "czero/base.h"
#include "io/text.h"

/* ---- what is at a path ---- */
/* A file, a folder of generations, one of these, a model of several files. */

/* The names by which a folder is taken for a model, as Hugging Face's tools have them: of one file,
 * of several. */
#define CZ__CONSOLIDATED_SINGLE "model.safetensors"
#define CZ__CONSOLIDATED_INDEX "model.safetensors.index.json"
/* And for one that torch.distributed.checkpoint wrote. */
#define CZ__DISTRIBUTED_INDEX ".metadata"

/* The names of its files, in editions: model-00001-of-00003.safetensors,
 * model-1-00001-of-00003.safetensors, … False: it has not room. And is that such a name, of any
 * edition? */
bool cz__model_file_print(char *name, size_t bytes, int edition, int number, int count);
bool cz__model_file_is(const char *name);

/* What is at a path. It is decided here and nowhere else, on what is open: two looks may see two
 * things. */
typedef struct cz__look {
    bool there;           /* false: nothing has that name, and all that follows is 0 */
    bool folder, file;    /* neither: a device, a pipe */
    bool generation;      /* a folder with an index.json */
    bool several, single; /* one of consolidated files, with their index, or with the one */
    bool distributed;     /* one of torch.distributed.checkpoint */
    uint64_t device, number;
} cz__look;

/* CZ_ERR_IO: it cannot be seen what it is. */
cz_status cz__look_at(cz__look *look, const char *path);
static inline bool cz__look_consolidated(const cz__look *look)
{
    return look->several || look->single || look->distributed;
}

/* Is that the name of a file with one rank's shards, as torch's HuggingFaceStorageWriter writes
 * them: shard-00001-model-00001-of-00001.safetensors? Their headers have this key. */
bool cz__shard_file_is(const char *name);
#define CZ__SHARDS_KEY "DCP_SHARDING_INFO"
#define CZ__SHARDS_UNREAD                                                                          \
    "shards of a model that torch's HuggingFaceStorageWriter saved apart, which are not read: "    \
    "save with enable_consolidation=True"

/* For where there is nothing to read: what torch.distributed.checkpoint has put there in a form
 * that is not read, and what to do; NULL: nothing of that kind. */
const char *cz__folder_unread(const char *path);

/* A path of an index becomes that of its folder, in place: "a/index.json" "a", "/index.json" "/",
 * "index.json" ".". */
void cz__index_to_folder(char *path);

/* What a consolidated file is called until it is complete. No program of a user's gives a file such
 * a name, so what is found under it was left by an export or a conversion that was killed, and may
 * be replaced unasked. */
#define CZ__UNFINISHED ".czero-unfinished"
#define CZ__ELEMENTS ".elements" /* and that: of a file for torch, what all ranks write */

/* "PATH.czero-unfinished", in place of what is in `name`. CZ_ERR_MEMORY. */
cz_status cz__unfinished_name(cz__text *name, const char *path);
bool cz__unfinished_is(const char *name);

/* A line for each that belongs to a file, which may not be there itself, or is in a folder; if more
 * than a few are in one, a line for all. What cannot be read has none. */
void cz__unfinished_list(cz__text *list, const char *path);

/* ---- one writer ---- */
/* One writer at a time in a folder. */

struct stat;

/* For the time of a save: a second one at the same time is CZ_ERR_IO. The folder is open; `owner`
 * is what this process has made in it. The lock is a file that only its owner can open, and ends
 * with the process in any case; -1 where the file system has none. */
cz_status cz__folder_lock(int *lock, int folder, const char *path, const struct stat *owner);
void cz__folder_unlock(int lock, int folder);

/* Is that the name of such a file, whoever owns it? */
bool cz__folder_lock_is(const char *name);

#endif
