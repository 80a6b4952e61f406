/* SPDX-License-Identifier: MIT */
/* A load under way, for the files that do its steps: choose a generation (load.c) and verify it
 * (verify.c), or open consolidated files (interop/bundle_index.c); compare it with what is here
 * (loading.c), bring its elements here (restore.c). */
#ifndef CZ_CHECKPOINT_LOADING_H
#define CZ_CHECKPOINT_LOADING_H

#include "checkpoint/generation.h"
#include "checkpoint/index.h"
#include "checkpoint/input.h"
#include "checkpoint/object.h"
#include "czero/group.h"
#include "czero/optim.h"
#include "io/text.h"
#include "optim/optim.h"

/* ---- compare.c ---- */
/* What is in a checkpoint against what is here. */

typedef struct cz__comparison {
    int64_t *from; /* owned: for each tensor here, its place in the file; -1: it stays as it is */
    bool state;    /* the optimizer's state is loaded */
    cz__text differences; /* a line each */
} cz__comparison;

void cz__comparison_clear(cz__comparison *comparison);

/* Compare. `convert`: values of another floating type may lose digits. Only CZ_ERR_MEMORY; whether
 * differences are allowed is the caller's to decide. */
cz_status cz__compare(cz__comparison *comparison, const cz__index *here, const cz__index *file,
                      bool convert);

/* What of the file's outline fits the parameter groups here, where differences are allowed: state
 * of parameters that are loaded, hyper-parameters of the groups that the members are from; where
 * these were several, a note says which was taken. *out is owned. CZ_ERR_MEMORY. */
cz_status cz__adapt_outline(cz_state_dict **out, const cz_optim *optim, const cz__index *here,
                            const cz__index *file, const cz__comparison *comparison,
                            cz__text *notes);

/* ---- placement.c ---- */
/* Which rank can see which files of a generation: all of them in one folder, as a rule, or each
 * machine those of its own. What a rank needs and cannot see comes from one that can (placement.c,
 * windows.c). */

typedef struct cz__placement {
    int rank;          /* this one */
    uint64_t identity; /* of the index that it sees; 0: none */
    bool one_folder;   /* all ranks see the same index, in the same place */
    bool some_lack;    /* the index, that is */
    int index_rank;    /* the lowest rank that sees it */
    int32_t *readers;  /* owned: for each part the rank that verifies it, and sends it */
    /* Owned: what each rank sees, as a number; NULL: everybody sees everything, which is the common
     * case. */
    uint64_t *views;
} cz__placement;

void cz__placement_clear(cz__placement *placement);

/* Have the index on all ranks: it is here, or `input` has the folder's name and gets it from
 * another rank. Collective. `mine`: of reading it; `identity`: of the file, 0: there is none.
 * CZ_ERR_FORMAT: ranks see those of different saves. */
cz_status cz__placement_index(cz__placement *placement, cz_group *group, cz__input *input,
                              cz_status mine, uint64_t identity);

/* Who sees which parts, and who verifies them: rank k mod world size if it sees part k, or else the
 * lowest that does. Collective. CZ_ERR_FORMAT: one that nobody sees. */
cz_status cz__placement_parts(cz__placement *placement, cz_group *group, const cz__input *input);

/* Does a rank read that part itself? The file that it sees is then the one that was verified. */
static inline bool cz__placement_sees(const cz__placement *p, int rank, int part)
{
    return !p->views || rank == p->readers[part] || p->views[rank] == p->views[p->readers[part]];
}

/* ---- a load ---- */

typedef struct cz__loading {
    cz_checkpoint *checkpoint;
    const char *call; /* "checkpoint load" */
    cz_load_options options;
    cz__index here;
    int64_t incomplete; /* generations that were passed over */
    cz__input input;
    cz__placement placement; /* of a generation's files */
    cz__comparison comparison;
    cz_state_dict *adapted;      /* owned; NULL: the file's outline is taken as it is */
    cz__load *state;             /* owned; NULL: the optimizer's state stays */
    cz_state_dict *common, *own; /* owned until they are handed over */
} cz__loading;

/* The beginning of a call: take the options, agree on them, empty the result. `call` begins its
 * sentences. All ranks return the failure of one, `mine` included. */
cz_status cz__loading_begin(cz__loading *loading, const char *call, cz_status mine,
                            const cz_load_options *options, cz_load_result *result);

/* Have the index of a generation, whose folder this rank calls `path`, on all ranks. Collective.
 * `mine`: what failed before, on this rank. */
cz_status cz__loading_find(cz__loading *loading, const char *path, cz_status mine);
/* A generation that some ranks see is opened, all of it verified, and the dictionaries are had. All
 * ranks get the same. */
cz_status cz__loading_open(cz__loading *loading, const cz__generation *generation);
/* One that was written a moment ago is found whole: index and parts are of one save and have what
 * the index says, no more and no less. Elements are not read again. All ranks get the same. */
cz_status cz__loading_confirm(cz__loading *loading, const cz__generation *generation);

/* Once `here` and `input` are there: are they of the same kind? All ranks get the same. */
cz_status cz__loading_compare(cz__loading *loading);
/* Then: change what is here, and hand over the result, which may be NULL. Collective. */
cz_status cz__loading_finish(cz__loading *loading, cz_load_result *result);
void cz__loading_clear(cz__loading *loading);

/* Have all that it takes, and change nothing: local. */
cz_status cz__restore_prepare(cz__loading *loading);
/* Make the change. Collective. CZ_ERR_IO: a file could be verified and now cannot be read;
 * CZ_ERR_FORMAT: it has changed since. */
cz_status cz__restore(cz__loading *loading);

/* ---- windows.c ---- */

/* The slots of a parameter here, in the outline that is loaded; NULL: none. */
const cz_state_dict *cz__restore_entry(const cz__loading *loading, int64_t place);

/* Is a slot of that entry brought here? Averages are where the parameter has one. */
bool cz__restore_takes(const cz__loading *loading, int64_t place, const cz_state_dict *entry,
                       const char *slot);

/* The type of a master in an outline that is loaded, where the file has none, and a value of more
 * bits than here: it is read from that. */
#define CZ__MASTER_FROM_VALUE "value"

/* Where a slot's elements are in the file: in a slot, NULL: they are those of the value. And their
 * type where they go here. */
const char *cz__restore_slot_in_file(const cz__loading *loading, int64_t place, const char *slot);
cz_dtype cz__restore_type_here(const cz__loading *loading, int64_t place, const char *slot);

/* Bring elements [begin, end) of a tensor here (slot NULL), or of a slot of its state, from the
 * files. */
cz_status cz__restore_fetch(cz__loading *loading, int64_t place, const char *slot, int64_t begin,
                            int64_t end);

/* Memory to move elements between ranks: 8 MiB, and what one operation takes. CZ_ERR_MEMORY. */
typedef struct cz__windows cz__windows;
cz_status cz__windows_create(cz__windows **out, cz_group *group);
void cz__windows_destroy(cz__windows **windows); /* accepts NULL and *NULL */

/* See that all is there that this rank reads, for itself and for others; nothing is changed.
 * Local. */
cz_status cz__windows_reach(cz__loading *loading);
/* Each element to the rank that owns it here, from the one that reads it. Collective; all ranks get
 * the same. */
cz_status cz__windows_move(cz__windows *windows, cz__loading *loading);

/* ---- placement.c: dictionaries ---- */
/* Those whose files some ranks cannot see, by ranks that can send them. */

/* The common one, and each rank's own. Collective; all ranks get the same. 2 MiB at most beside the
 * dictionaries, and what names and shapes take. */
cz_status cz__pass_dictionaries(cz__loading *loading);
/* Own dictionaries only: to each rank r that of saved rank wants[r], -1: none, if it does not see
 * it itself. */
cz_status cz__pass_own(cz__loading *loading, const int32_t *wants);

#endif
