/* SPDX-License-Identifier: MIT */
/* Folders that torch.distributed.checkpoint.load() reads, from what a consolidated file holds. */
#ifndef CZ_INTEROP_DCP_WRITE_H
#define CZ_INTEROP_DCP_WRITE_H

#include "interop/torch_write.h"

/* ".dcp" at its end. */
bool cz__dcp_is_name(const char *path);

/* Write a folder, or into one that is there: first the elements, then the metadata, with which it
 * is the new checkpoint; then the files of the one that it replaces go. CZ_ERR_IO,
 * CZ_ERR_UNSUPPORTED (no libzip; a type that torch has not), CZ_ERR_ARGUMENT (the folder has
 * another checkpoint in it), CZ_ERR_MEMORY: what was there is there, and nothing else. Beside what
 * names take, 8 MiB. Local. */
cz_status cz__dcp_write(const char *path, const cz__torch_export *what);

#endif
