/* SPDX-License-Identifier: MIT */
/* The index of a generation: everything about it but elements. A save makes it from the model and
 * the optimizer, a load from the file; what follows from it is written once, against it: what a
 * rank's part holds, and where. */
#ifndef CZ_CHECKPOINT_INDEX_H
#define CZ_CHECKPOINT_INDEX_H

#include <jansson.h>

#include "czero/shard.h"
#include "czero/state.h"
#include "io/text.h"
#include "io/types.h"
#include "base/names.h"

/* A rank that saved costs whoever reads the index so many bytes, whatever it holds. */
enum { CZ__MOST_RANKS = 1 << 24, CZ__INDEX_RANK_COST = 128 };

/* What is written is of the first version, unless groups have rules of their own, at which older
 * readers would not look. Marks are of the first. */
enum { CZ__FIRST_VERSION = 1, CZ__VERSION_OF_GROUP_RULES = 2, CZ__NEWEST_VERSION = 2 };

/* The rule in an outline that was made from a file of torch which does not tell them apart: an
 * optimizer of either takes the state. */
#define CZ__ADAM_OR_ADAMW "adam|adamw"

/* In the metadata of a consolidated file: what this library keeps there, everything that is no
 * tensor. */
#define CZ__METADATA_KEY "czero"

/* A parameter or a buffer. */
typedef struct cz__stored {
    const char *name; /* borrowed: from the model, or from the index's JSON */
    cz_dtype dtype;   /* of types.h */
    int dimensions;
    int64_t shape[CZ_MAX_DIMENSIONS];
    int64_t count; /* elements; of a foreign type units */
    int owner;     /* whose part has it whole; -1: a parameter, as the map says */
    bool no_value; /* of a consolidated file: it has the state of this one at most */
} cz__stored;

typedef struct cz__index {
    char id[33]; /* 128 random bits, alike in all files of the generation */
    int64_t generation, step;
    int world_size;
    int part_count; /* parts of a batch; 0: there were none, or nothing is said of them */
    int64_t param_count, buffer_count;
    cz__stored *stored;           /* owned: the parameters, then the buffers */
    const cz_shard_map *map;      /* of the parameters */
    cz_shard_map *own_map;        /* owned; NULL: the map is borrowed */
    cz_state_dict *optimizer;     /* owned: an outline (optim/optim.h); NULL: none */
    const cz_state_dict *entries; /* in it: the state of each parameter, by name */
    cz__names names;              /* of what is stored */
    json_t *json;                 /* owned; of an index that was read: names are its texts */
    /* Owned: what other programs wrote beside, texts under texts; NULL: nothing. */
    json_t *metadata;
    bool says_nothing_of_state; /* another program's: whether there was an optimizer is not known */
} cz__index;

void cz__index_clear(cz__index *index);

/* Fill in names and entries from the rest. CZ_ERR_ARGUMENT: a name is there twice;
 * CZ_ERR_MEMORY. */
cz_status cz__index_complete(cz__index *index);

/* In an outline (NULL: there is none): the rule of a parameter group, its own or the optimizer's;
 * "": none is said. The one that all groups have, NULL: there are several. Has some group one of
 * its own, and so which version is it? */
const char *cz__outline_rule_of(const cz_state_dict *optimizer, const cz_state_dict *group);
const char *cz__outline_only_rule(const cz_state_dict *optimizer);
int cz__outline_version(const cz_state_dict *optimizer);

/* Of an index that was read: each member of a parameter group is a parameter, in no group twice.
 * CZ_ERR_FORMAT, CZ_ERR_MEMORY. */
cz_status cz__index_check_groups(const cz__index *index, const char *path);

/* The place in `stored`, -1: no such name. */
int64_t cz__index_find(const cz__index *index, const char *name);

/* The same, and what the metadata call a tied name of a tensor that is there is that tensor. */
int64_t cz__index_find_tied(const cz__index *index, const char *name);

/* Texts under texts for `metadata`, of a file's, which it may replace; those of this library and
 * what is there already are left. CZ_ERR_MEMORY. */
cz_status cz__index_add_metadata(cz__index *index, json_t *metadata);

/* The slots of a parameter that have elements, one after the other from *at = 0 on; false: there
 * are no more. A type that does not exist is (cz_dtype)0. */
bool cz__index_slot(const cz__index *index, int64_t param, int64_t *at, const char **slot,
                    cz_dtype *dtype);

/* The type of the elements of a value (slot NULL), or of a slot, which may be another one: that of
 * a master, of moments in 16 bits. */
cz_dtype cz__index_dtype(const cz__index *index, int64_t stored, const char *slot);

/* For one that is to be saved, of `world_size` ranks that are alike: a map that gives each an even
 * share of the parameters. CZ_ERR_MEMORY, as the next: what the map gives to nobody gets owners,
 * whole tensors, the largest first to the rank that has least of them, in bytes; and buffers get
 * rank 0, all of them. */
cz_status cz__index_cut_evenly(cz__index *index);
cz_status cz__index_deal_rest(cz__index *index);

/* As JSON with a checksum at its end, appended to an empty text; `common` is the member of that
 * name (borrowed). CZ_ERR_MEMORY. */
cz_status cz__index_print(const cz__index *index, json_t *common, cz__text *text);

/* From the bytes of a file. CZ_ERR_FORMAT, CZ_ERR_UNSUPPORTED (a newer version), CZ_ERR_MEMORY. To
 * be cleared afterwards in any case. */
cz_status cz__index_parse(cz__index *index, const char *path, const char *bytes, size_t count);

/* The member "parts", which may be missing. CZ_ERR_FORMAT. */
cz_status cz__index_parse_parts(cz__index *index, const char *path, const json_t *json);

/* ---- what a part holds ---- */

/* One tensor of a part: elements [begin, end) of something that is stored, or of a slot of its
 * state. */
typedef struct cz__piece {
    int64_t stored;   /* its place in the index */
    const char *slot; /* NULL: the value */
    cz_dtype dtype;
    int64_t begin, end;
    const char *name; /* the tensor's in the file: "parameters/w1[0:64]" */
    int dimensions;   /* its shape: the whole one, or the count of elements */
    int64_t shape[CZ_MAX_DIMENSIONS];
} cz__piece;

/* Visit the pieces of one rank in the order of the file; a piece is valid during the visit.
 * Whatever `visit` returns but CZ_OK ends it. CZ_ERR_MEMORY. */
typedef cz_status (*cz__piece_visitor)(const cz__piece *piece, void *context);
cz_status cz__index_visit(const cz__index *index, int rank, cz__piece_visitor visit, void *context);

/* The name that a piece has. */
cz_status cz__piece_name(cz__text *name, const cz__index *index, int64_t stored, const char *slot,
                         int64_t begin, int64_t end);

#endif
