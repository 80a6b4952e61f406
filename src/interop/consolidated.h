/* SPDX-License-Identifier: MIT */
/* Consolidated files: what writing and reading them have in common. docs/checkpoint-format.md has
 * the form. */
#ifndef CZ_INTEROP_CONSOLIDATED_H
#define CZ_INTEROP_CONSOLIDATED_H

#include <string.h>

#include "base/status.h"
#include "checkpoint/index.h"
#include "io/folder.h"
#include "io/text.h"

#define CZ__CONSOLIDATED_STATE "optimizer/" /* and the slot, a slash, the parameter's name */
#define CZ__CONSOLIDATED_COMMON "common/"   /* and the path in the dictionary */
#define CZ__CONSOLIDATED_FORMAT "czero consolidated"
/* What is read; what is written is as cz__outline_version() says. */
enum { CZ__CONSOLIDATED_VERSION = 2 };

static inline bool cz__begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* The name of a value (slot NULL) or a slot. CZ_ERR_MEMORY. */
static inline cz_status cz__consolidated_name(cz__text *name, const char *stored, const char *slot)
{
    cz__text_cut(name, 0);
    if (slot)
        cz__text_print(name, CZ__CONSOLIDATED_STATE "%s/%s", slot, stored);
    else
        cz__text_print(name, "%s", stored);
    return name->failed ? cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a name") : CZ_OK;
}

#endif
