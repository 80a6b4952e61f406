/* SPDX-License-Identifier: MIT */
/* A new file that is written in blocks one after the other, past the page cache where the file system allows
 * it. Failures are numbers of errno.h here: they happen on a thread that has nobody to tell a sentence. */
#ifndef CZ_IO_OUTPUT_H
#define CZ_IO_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What direct writes are multiples of: their place in the file, in memory, and their size. */
#define CZ__SECTOR ((size_t)4096)

typedef struct cz__output {
    int file;
    bool direct;       /* O_DIRECT is on */
    uint64_t reserved; /* bytes that have room on the medium; 0: nobody knows */
    uint64_t written; /* bytes from the beginning of the file, without what fills the last sector */
    uint64_t end;     /* with it */
} cz__output;

/* 0, or why there is no such file in the folder now. `bytes`: how many it will have at most, 0: unknown. */
int cz__output_open(cz__output *output, int folder, const char *name, uint64_t bytes);

/* Append a block. If its size is no multiple of CZ__SECTOR it is the last one, and the memory behind it, up to
 * such a multiple, is zero. */
int cz__output_write(cz__output *output, const char *block, size_t count);

int cz__output_finish(cz__output *output); /* all is on the medium; closed even if not */
void cz__output_close(cz__output *output); /* also when it is closed */

#endif
