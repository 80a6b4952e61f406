/* SPDX-License-Identifier: MIT */
/* One name changes hands, or nothing has happened. */
#ifndef CZ_IO_REPLACE_H
#define CZ_IO_REPLACE_H

#include "czero/base.h"

/* Who has which name afterwards. */
typedef enum cz__placed {
    CZ__NOT_PLACED,    /* as before */
    CZ__PLACED,        /* `path` is the new one, and nothing is called `beside` */
    CZ__PLACED_AND_OLD /* `path` is the new one, `beside` the one that it replaces */
} cz__placed;

/* A file that is complete takes its name, on the medium too; what had the name has the other one then, or is gone where
 * the file system cannot exchange names. CZ_ERR_IO, CZ_ERR_MEMORY: all is as it was (CZ__NOT_PLACED); or it could not be
 * taken back, which the sentence says: `path` is whole, and the new one. */
cz_status cz__replace(const char *beside, const char *path, cz__placed *placed);

#endif
