/* SPDX-License-Identifier: MIT */
/* Memory that ranks share, as the parts above ask about it; and the files that processes share it
 * by. */
#ifndef CZ_COLLECTIVE_SHARED_H
#define CZ_COLLECTIVE_SHARED_H

#include "czero/shared.h"

/* Where an address is in shared memory: equal on two ranks if it is the same byte. `block` 0: it is
 * in none. */
typedef struct cz__shared_place {
    uint64_t block;
    uint64_t offset;
    int ranks; /* that have the block */
} cz__shared_place;

/* Of all these bytes. Any thread. */
cz__shared_place cz__shared_find(const void *address, size_t bytes);

/* Do as many ranks as the group has share these bytes? Ranks compare places before they rely on
 * it. */
bool cz__shared_by(const cz_group *group, const void *address, size_t bytes);

/* shared_file.c: a file without a name, gone with the last process that has it mapped or open.
 * Another process finds it by these numbers. */
typedef struct cz__shared_file {
    uint64_t id;   /* of the block, not 0: no other one has it */
    int64_t owner; /* the process that made it */
    /* Of the file there; -1: there is none, ranks of that process have the block's address. */
    int64_t number;
    char host[64];
} cz__shared_file;

/* Mapped at a multiple of 2 MiB. CZ_ERR_MEMORY. */
cz_status cz__shared_file_create(cz__shared_file *file, size_t bytes, void **data);
/* CZ_ERR_UNSUPPORTED, CZ_ERR_MEMORY. */
cz_status cz__shared_file_open(const cz__shared_file *file, size_t bytes, void **data);
/* Nobody opens it any more; what is mapped stays. */
void cz__shared_file_close(cz__shared_file *file);
void cz__shared_file_unmap(void *data, size_t bytes);

/* A number that no other block has, on any machine. */
uint64_t cz__shared_id(void);
/* This machine's name, all of `host`. */
void cz__shared_host(char host[64]);

#endif
