/* SPDX-License-Identifier: MIT */
/* Which rank can see which files of a generation: all of them in one folder, as a rule, or each machine those of its
 * own. What a rank needs and cannot see comes from one that can (passing.c, windows.c). */
#ifndef CZ_CHECKPOINT_PLACEMENT_H
#define CZ_CHECKPOINT_PLACEMENT_H

#include "checkpoint/input.h"
#include "czero/group.h"

typedef struct cz__placement {
    int rank;          /* this one */
    uint64_t identity; /* of the index that it sees; 0: none */
    bool one_folder;   /* all ranks see the same index, in the same place */
    bool some_lack;    /* the index, that is */
    int index_rank;    /* the lowest rank that sees it */
    int32_t *readers;  /* owned: for each part the rank that verifies it, and sends it */
    /* Owned: what each rank sees, as a number; NULL: everybody sees everything, which is the common case. */
    uint64_t *views;
} cz__placement;

void cz__placement_clear(cz__placement *placement);

/* Have the index on all ranks: it is here, or `input` has the folder's name and gets it from another rank.
 * Collective. `mine`: of reading it; `identity`: of the file, 0: there is none. CZ_ERR_FORMAT: ranks see those of
 * different saves. */
cz_status cz__placement_index(cz__placement *placement, cz_group *group, cz__input *input,
                              cz_status mine, uint64_t identity);

/* Who sees which parts, and who verifies them: rank k mod world size if it sees part k, or else the lowest that does.
 * Collective. CZ_ERR_FORMAT: one that nobody sees. */
cz_status cz__placement_parts(cz__placement *placement, cz_group *group, const cz__input *input);

/* Does a rank read that part itself? The file that it sees is then the one that was verified. */
static inline bool cz__placement_sees(const cz__placement *p, int rank, int part)
{
    return !p->views || rank == p->readers[part] || p->views[rank] == p->views[p->readers[part]];
}

#endif
