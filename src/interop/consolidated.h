/* SPDX-License-Identifier: MIT */
/* Consolidated files: what writing and reading them have in common. docs/checkpoint-format.md has the form. */
#ifndef CZ_INTEROP_CONSOLIDATED_H
#define CZ_INTEROP_CONSOLIDATED_H

#include <string.h>

#include "checkpoint/index.h"
#include "io/text.h"

#define CZ__CONSOLIDATED_STATE "optimizer/" /* and the slot, a slash, the parameter's name */
#define CZ__CONSOLIDATED_COMMON "common/"   /* and the path in the dictionary */
#define CZ__CONSOLIDATED_FORMAT "czero consolidated"
#define CZ__CONSOLIDATED_SINGLE "model.safetensors"
#define CZ__CONSOLIDATED_INDEX "model.safetensors.index.json"
enum { CZ__CONSOLIDATED_VERSION = 1 };

static inline bool cz__begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* The name of a value (slot NULL) or a slot. CZ_ERR_MEMORY. */
cz_status cz__consolidated_name(cz__text *name, const char *stored, const char *slot);

/* What is at a path. It is decided here and nowhere else, on what is open: two looks may see two things. */
typedef struct cz__look {
    bool there;           /* false: nothing has that name, and all that follows is 0 */
    bool folder, file;    /* neither: a device, a pipe */
    bool generation;      /* a folder with an index.json */
    bool several, single; /* one of consolidated files, with their index, or with the one */
    uint64_t device, number;
} cz__look;

/* CZ_ERR_IO: it cannot be seen what it is. */
cz_status cz__look_at(cz__look *look, const char *path);
static inline bool cz__look_consolidated(const cz__look *look)
{
    return look->several || look->single;
}

#endif
