/* SPDX-License-Identifier: MIT */
/* Bytes to and from files: large ones past the page cache where the file system allows it, with
 * checksums (XXH3, 128 bits) taken on the way; small ones at once and whole. Every sentence names
 * the path and the reason. */
#ifndef CZ_IO_STREAM_H
#define CZ_IO_STREAM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "czero/base.h"

/* ---- budget, in file.c ---- */
/* What a file may cost. Numbers in a file do not drive memory or time: what is made of one is paid
 * from a budget in proportion to its bytes, and what does not fit is refused before it is made.
 * CZERO_FILE_LIMIT gives more, or lifts it. Everything here is local. */

/* A file of N bytes may cost CZ__BUDGET_FREE + CZ__BUDGET_TIMES * N bytes. */
#define CZ__BUDGET_FREE ((uint64_t)32 << 20)
#define CZ__BUDGET_TIMES ((uint64_t)20)
#define CZ__BUDGET_VARIABLE "CZERO_FILE_LIMIT"

typedef struct cz__budget {
    const char *where;   /* borrowed: begins the sentence */
    uint64_t input;      /* bytes of the file */
    uint64_t most, used; /* bytes that it may cost, and does */
} cz__budget;

cz__budget cz__budget_of(const char *where, uint64_t input);

/* Pay for `bytes`, before they are allocated, for what the sentence calls `what`.
 * CZ_ERR_UNSUPPORTED: more than is left; nothing was paid. */
cz_status cz__budget_spend(cz__budget *budget, uint64_t bytes, const char *what);

/* ---- the system ---- */
/* What writer and reader ask of the system: a test puts something in between that fails or does
 * less. */

typedef struct cz__system {
    ssize_t (*write)(int file, const void *data, size_t count, off_t offset); /* pwrite */
    ssize_t (*read)(int file, void *data, size_t count, off_t offset);        /* pread */
    int (*reserve)(int file, int mode, off_t offset, off_t count);            /* fallocate */
    int (*synchronise)(int file);                                             /* fsync */
    int (*thread)(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                  void *context); /* cz__thread_create */
    bool direct;    /* writes go past the page cache, where the file system allows it */
    bool checksums; /* false: they are all 0 (benchmarks) */
} cz__system;

/* file.c: all of it, some MiB at a time: 0, or an errno; *done: so much is written. */
int cz__write_all(int file, const char *bytes, size_t count, uint64_t offset, size_t *done);

extern const cz__system cz__system_own; /* the real one */
extern cz__system cz__system_used;      /* at first the same; changed only while nothing is open */

/* ---- streams ---- */

typedef struct cz__checksum {
    uint64_t high, low;
} cz__checksum;
static inline bool cz__checksum_equal(cz__checksum a, cz__checksum b)
{
    return a.high == b.high && a.low == b.low;
}
cz__checksum cz__checksum_of(const void *bytes, size_t count);
/* 32 hexadecimal digits and a NUL; and back: false if it is not that. */
void cz__checksum_print(cz__checksum checksum, char text[33]);
bool cz__checksum_scan(const char *text, cz__checksum *checksum);

/* ---- writing ---- */

typedef struct cz__writer cz__writer;

/* A new file for at most `bytes` bytes, 0: unknown. That is a hint: room is reserved where the file
 * system does it quickly, and a small file gets small blocks; more or fewer may be appended. A
 * writer belongs to one thread at a time. CZ_ERR_IO: it exists, it cannot be made, there is no
 * room; nothing was made. CZ_ERR_MEMORY: 24 MiB of CZ_MEMORY_STAGING, or what the whole file needs
 * if it has 8 MiB at most. */
cz_status cz__writer_create(cz__writer **out, const char *path, uint64_t bytes);

/* The same in a folder that is open, which is borrowed until the writer is gone; `path` is for
 * sentences, but for its last part. */
cz_status cz__writer_create_in(cz__writer **out, int folder, const char *path, uint64_t bytes);

/* What a writer for a file of that many bytes allocates. */
size_t cz__writer_bytes(uint64_t bytes);

/* Append; the bytes may be changed as soon as it returns. Runs beside the writing of what came
 * before, and so tells of what that met. CZ_ERR_IO: how much was written, and why no more; so do
 * all further calls. */
cz_status cz__writer_append(cz__writer *writer, const void *data, size_t count);

/* The checksum of what was appended since the last call (or the beginning). */
cz__checksum cz__writer_checksum(cz__writer *writer);
uint64_t cz__writer_position(const cz__writer *writer); /* bytes appended */

/* All is on the medium (fsync; its name in the folder is cz__folder_sync()'s), the file is closed
 * and *writer NULL. After an error the writer is still there. Without it, or before it: destroy
 * closes the file and removes it, and waits for no more than the block that is being written. */
cz_status cz__writer_finish(cz__writer **writer);
void cz__writer_destroy(cz__writer **writer); /* accepts NULL and *NULL */

/* A whole small file: written beside (PATH.tmp, which is replaced if it is there), synchronised,
 * renamed, its folder synchronised. What was there before is there until the new one is. CZ_ERR_IO,
 * CZ_ERR_MEMORY. */
cz_status cz__file_write(const char *path, const void *bytes, size_t count);
cz_status cz__file_write_in(int folder, const char *path, const void *bytes, size_t count);
/* Is that name the file's, and no link? False with errno other than 0: it cannot be looked at. */
bool cz__file_is(int folder, const char *name, int file);
/* Without slashes at its end; for cz__free(); NULL: no memory. */
char *cz__path_copy(const char *path);
cz_status cz__folder_sync(const char *path);
cz_status cz__folder_sync_open(int folder, const char *path);
cz_status cz__folder_sync_of(const char *path); /* of the folder that a file or folder is in */

/* CZ_ERR_IO, "PATH cannot be made: …", for an errno; where a part of the path is missing or no
 * folder, it says which. */
cz_status cz__refuse_path(const char *path, const char *what, int error);

/* ---- a complete file takes its name ---- */

/* Who has which name afterwards. */
typedef enum cz__placed {
    CZ__NOT_PLACED,    /* as before */
    CZ__PLACED,        /* `path` is the new one, and nothing is called `beside` */
    CZ__PLACED_AND_OLD /* `path` is the new one, `beside` the one that it replaces */
} cz__placed;

/* A file that is complete takes its name, on the medium too; what had the name has the other one
 * then, or is gone where the file system cannot exchange names. CZ_ERR_IO, CZ_ERR_MEMORY: all is as
 * it was (CZ__NOT_PLACED); or it could not be taken back, which the sentence says: `path` is whole,
 * and the new one. */
cz_status cz__replace(const char *beside, const char *path, cz__placed *placed);

/* ---- reading ---- */

/* A number for a file: the same on all machines that share it, another one for a copy, if not by
 * chance; 0: it is not there. CZ_ERR_IO. */
cz_status cz__file_identity(const char *path, uint64_t *identity);

typedef struct cz__reader cz__reader;
/* CZ_ERR_IO: not there, not allowed, no regular file. CZ_ERR_MEMORY. */
cz_status cz__reader_open(cz__reader **out, const char *path);
/* The same of bytes, which are borrowed, for tests. CZ_ERR_MEMORY. */
cz_status cz__reader_pretend(cz__reader **out, const char *path, const void *bytes, size_t count);
/* Was it for want of a file that this thread's last reader could not be opened: nothing has that
 * name, or what has it is no file? Other failures of the system (no rights, no descriptors, a
 * medium) say nothing of what is there. */
bool cz__reader_missed(void);
/* Told of each file that is opened; NULL: nobody. For a program that reads on one thread. */
extern void (*cz__reader_tell)(uint64_t device, uint64_t number);
void cz__reader_close(cz__reader **reader);
uint64_t cz__reader_bytes(const cz__reader *reader); /* its size when it was opened */
int cz__reader_file(const cz__reader *reader);
/* CZ_ERR_IO; CZ_ERR_FORMAT: the file ends before. */
cz_status cz__reader_read(cz__reader *reader, uint64_t offset, void *to, size_t count);
/* Of a part of the file. The medium reads ahead while it is added up. As read; CZ_ERR_MEMORY;
 * *checksum is left as it was then. */
cz_status cz__reader_checksum(cz__reader *reader, uint64_t offset, uint64_t count,
                              cz__checksum *checksum);

/* All of a file of at most `most` bytes, with a NUL behind it; *bytes is for cz__free().
 * CZ_ERR_FORMAT: it is larger. */
cz_status cz__file_read(const char *path, size_t most, char **bytes, size_t *count);

/* ---- stream.c: a new file ---- */
/* A new file that is written in blocks one after the other, past the page cache where the file
 * system allows it. Failures are numbers of errno.h here: they happen on a thread that has nobody
 * to tell a sentence. */

/* What direct writes are multiples of: their place in the file, in memory, and their size. */
#define CZ__SECTOR ((size_t)4096)

typedef struct cz__output {
    int file;
    bool direct;       /* O_DIRECT is on */
    uint64_t reserved; /* bytes that have room on the medium; 0: nobody knows */
    uint64_t written; /* bytes from the beginning of the file, without what fills the last sector */
    uint64_t end;     /* with it */
} cz__output;

/* 0, or why there is no such file in the folder now. `bytes`: how many it will have at most, 0:
 * unknown. */
int cz__output_open(cz__output *output, int folder, const char *name, uint64_t bytes);

/* Append a block. If its size is no multiple of CZ__SECTOR it is the last one, and the memory
 * behind it, up to such a multiple, is zero. */
int cz__output_write(cz__output *output, const char *block, size_t count);

int cz__output_finish(cz__output *output); /* all is on the medium; closed even if not */
void cz__output_close(cz__output *output); /* also when it is closed */

/* ---- stream.c: checksums ---- */
/* A checksum of bytes that come one piece after the other. */

typedef struct XXH3_state_s cz__checksum_state;

cz__checksum_state *cz__checksum_begin(void); /* NULL: no memory; its own, libxxhash makes it */
void cz__checksum_add(cz__checksum_state *state, const void *bytes, size_t count);
cz__checksum cz__checksum_take(cz__checksum_state *state); /* and begins anew */
void cz__checksum_end(cz__checksum_state *state);          /* accepts NULL */

/* ---- of the blocks of a file's data ---- */

/* Checksums of the blocks of a file's data, in the order of the file. They are taken while the file
 * is verified; what is read afterwards, in whole tensors or in parts of them, is compared with
 * them, so that bytes which change in between are found. */
typedef struct cz__block_table {
    uint64_t *sums; /* owned; NULL: not known */
    int64_t count;
} cz__block_table;

/* The size of a block of that many bytes of data: 64 KiB, and more where there would be very
 * many. */
uint64_t cz__block_bytes(uint64_t data_bytes);

/* Taking them: all bytes, one piece after the other, then the end. CZ_ERR_MEMORY. */
typedef struct cz__block_sums {
    cz__block_table *blocks;   /* borrowed */
    cz__checksum_state *state; /* owned */
    uint64_t block, at;        /* bytes of a block; that were added */
} cz__block_sums;
cz_status cz__block_sums_begin(cz__block_sums *sums, cz__block_table *blocks, uint64_t data_bytes);
void cz__block_sums_add(cz__block_sums *sums, const char *bytes, size_t count);
void cz__block_sums_end(cz__block_sums *sums, bool whole);

/* reader.c: cz__reader_checksum(), and of the blocks of what is read; `sums` NULL: not. */
cz_status cz__reader_checksums(cz__reader *reader, uint64_t offset, uint64_t count,
                               cz__checksum *checksum, cz__block_sums *sums);

void cz__block_table_clear(cz__block_table *blocks);

/* ---- reader.c: what was verified, once more ---- */

/* A region of a file, and the checksums of its blocks, taken when it was verified. */
typedef struct cz__verified {
    uint64_t begin, bytes, block; /* of the file; of a block */
    const uint64_t *sums;         /* borrowed, one for each block */
} cz__verified;

/* The size of a block for reading any part of so many bytes: small, as of a view that is not
 * contiguous each element may be in another; larger where there would be very many. */
uint64_t cz__verified_block(uint64_t bytes);

/* A block that was read and compared, of which parts are wanted one after the other. */
typedef struct cz__held {
    char *bytes; /* owned */
    size_t room, count;
    const uint64_t *sum; /* borrowed: which one it is */
} cz__held;

/* Have the memory for a block of such a region; reading then needs no more. CZ_ERR_MEMORY. */
cz_status cz__held_have(cz__held *held, const char *path, const cz__verified *region);
void cz__held_clear(cz__held *held);

/* Bytes of the region, from `offset` on. As cz__reader_read(); CZ_ERR_FORMAT also where they are
 * not what was verified. */
cz_status cz__reader_read_verified(cz__reader *reader, const cz__verified *region, cz__held *held,
                                   uint64_t offset, char *to, size_t count);

#endif
