/* SPDX-License-Identifier: MIT */
/* What writer and reader ask of the system: a test puts something in between that fails or does less. */
#ifndef CZ_IO_SYSTEM_H
#define CZ_IO_SYSTEM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

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

#endif
