/* SPDX-License-Identifier: MIT */
/* Files of torch.save(): a zip file with a pickle, which says what there is, and the elements of
 * each storage. They may be anybody's, so nothing is believed that was not checked. Everything here
 * is local. */
#ifndef CZ_INTEROP_TORCH_H
#define CZ_INTEROP_TORCH_H

#include "checkpoint/index.h"
#include "czero/state.h"
#include "io/container.h"
#include "io/pickle.h"
#include "io/safetensors.h"
#include "io/stream.h"

/* ---- the file ---- */

/* What has the elements, where that is no zip file around the pickle: a folder (dcp.h). */
typedef struct cz__torch_store cz__torch_store;

typedef struct cz__torch {
    char *path;               /* owned, as the next four */
    cz__container *container; /* NULL: `entries` are pretended (tests), or one of the next two is */
    cz__reader *reader;       /* borrowed, as the next two: views are read from this file, */
    const cz__verified *part; /* from that part of it, and compared with what was verified */
    cz__held *held;
    const cz__torch_store *store;
    void *stored; /* the store's */
    cz__pickle *pickle;
    cz__text prefix;                    /* "archive/data/" */
    cz__text where;                     /* "FILE: archive/data.pkl" */
    const cz__container_entry *entries; /* borrowed; in the order of their names */
    int64_t entry_count;
    bool big_endian;
    uint64_t fingerprint; /* of the pickle, and of names, sizes, places and CRCs */
} cz__torch;

/* A tensor as a view of a storage. */
typedef struct cz__torch_tensor {
    cz__safetensors_entry form;         /* the name is the caller's; begin is 0, end its bytes */
    const cz__container_entry *storage; /* NULL: it has no elements */
    uint64_t first;                     /* byte of the storage at which element 0 is */
    int64_t number;                     /* of a store: its own */
    int64_t strides[CZ_MAX_DIMENSIONS]; /* elements */
    bool dense;                         /* one element after the other */
    bool swap;                          /* of the other byte order */
} cz__torch_tensor;

struct cz__torch_store {
    cz_status (*tensor_of)(const cz__torch *torch, const cz__pickle_value *value, const char *name,
                           cz__torch_tensor *tensor);
    cz_status (*read)(const cz__torch *torch, const cz__torch_tensor *tensor, int64_t begin,
                      int64_t end, void *to);
    cz_status (*verify)(const cz__torch *torch, int rank, int world_size);
    uint64_t *(*sums)(const cz__torch *torch, int64_t *count);
    void (*trust)(const cz__torch *torch);
    /* Checksums that verify() compares, and the bytes that they are of. */
    void (*measure)(const cz__torch *torch, int64_t *checksums, uint64_t *bytes);
    /* The files that it is made of, by their number; NULL: no more. */
    const char *(*file)(const cz__torch *torch, int64_t number);
    void (*close)(cz__torch *torch);
};

/* Is it a file for cz__torch_open(): a zip file, or a pickle as torch wrote them before version
 * 1.6? CZ_ERR_IO: it cannot be read. */
cz_status cz__torch_begins(const char *path, bool *is);

/* Read what there is, no elements. CZ_ERR_FORMAT: what is wrong, and where; CZ_ERR_UNSUPPORTED:
 * what the library does not read, and what to do; CZ_ERR_IO, CZ_ERR_MEMORY; as all that follow. */
cz_status cz__torch_open(cz__torch **out, const char *path);
/* The same of a pickle and a list of entries, which is borrowed; all elements are 0. */
cz_status cz__torch_pretend(cz__torch **out, const char *path, const void *pickle, size_t count,
                            const cz__container_entry *entries, int64_t entry_count);
/* The same of a part of a file, whose reader is borrowed; `path` is for sentences. */
cz_status cz__torch_open_part(cz__torch **out, const char *path, cz__reader *reader,
                              const cz__verified *part);
/* The same of a pickle whose tensors a store has, which is closed in any case; `where` is what the
 * pickle is called. */
cz_status cz__torch_open_store(cz__torch **out, const char *path, const char *where,
                               const void *pickle, size_t count, const cz__torch_store *store,
                               void *stored);
void cz__torch_close(cz__torch **torch); /* accepts NULL and *NULL */

static inline const cz__pickle_value *cz__torch_root(const cz__torch *torch)
{
    return &torch->pickle->values[torch->pickle->root];
}

/* The tensor that a value is, under that name, checked against its storage. */
cz_status cz__torch_tensor_of(const cz__torch *torch, const cz__pickle_value *value,
                              const char *name, cz__torch_tensor *tensor);

/* Elements [begin, end) in row-major order. */
cz_status cz__torch_read(const cz__torch *torch, const cz__torch_tensor *tensor, int64_t begin,
                         int64_t end, void *to);

/* Is a value a number, or a tensor of one element? *number, and *integer if it is whole and fits
 * (else INT64_MIN). */
cz_status cz__torch_number(const cz__torch *torch, const cz__pickle_value *value, const char *name,
                           bool *is_number, double *number, int64_t *integer);

/* Compare with their CRCs the storages that are the share of one rank. The checksums of blocks of
 * all ranks are then to be added up, element by element, and trusted; NULL: there are none. */
cz_status cz__torch_verify(const cz__torch *torch, int rank, int world_size);
uint64_t *cz__torch_sums(const cz__torch *torch, int64_t *count);
void cz__torch_trust(const cz__torch *torch);
/* How many checksums of how many bytes there are. */
void cz__torch_measure(const cz__torch *torch, int64_t *checksums, uint64_t *bytes);

/* ---- torch_rules.c ---- */
/* What torch's optimizers call what the rules here have. */

enum { CZ__TORCH_HYPERS = 10, CZ__TORCH_ABSENT = 2 };

typedef struct cz__torch_hyper {
    const char *key;     /* torch's; NULL: the end */
    const char *ours[2]; /* the second: torch has a tuple of both */
    bool flag;           /* True or False */
    bool optional;       /* older versions have not got it */
} cz__torch_hyper;

typedef struct cz__torch_rule {
    const char *rule;
    bool counts;         /* its state has "step" */
    bool step_is_tensor; /* in torch 1.13 too, where others have numbers */
    int decoupled;       /* what "decoupled_weight_decay" has to be where it is no value of ours, or
                            CZ__TORCH_ABSENT; -1: it is one */
    const char *scalar;  /* of the state, a tensor of one element; NULL: none */
    cz__torch_hyper hypers[CZ__TORCH_HYPERS];
} cz__torch_rule;

/* NULL: a rule that torch does not have. And the one of that number; NULL: no more. */
const cz__torch_rule *cz__torch_rule_find(const char *rule);
const cz__torch_rule *cz__torch_rule_at(int number);

/* NULL: the rule has none of that key. */
const cz__torch_hyper *cz__torch_hyper_find(const cz__torch_rule *rule, const char *key);
/* One that only says how torch computes: foreach, fused. */
bool cz__torch_hyper_is_ignored(const char *key);
/* Does some rule have it? */
bool cz__torch_hyper_is_known(const char *key);

/* ---- contents ---- */
/* What a file of torch holds, in the words of a checkpoint: a model, an optimizer's state, what
 * czero has added. */

#define CZ__TORCH_KEY "czero" /* of what is ours in the outermost dictionary */
#define CZ__TORCH_MODEL "model"
#define CZ__TORCH_OPTIMIZER "optimizer"

typedef struct cz__torch_contents {
    cz__torch *file;           /* owned, as the next three */
    cz__torch_tensor *tensors; /* under the names of consolidated files, which are owned too */
    cz_state_dict *outline;    /* of the optimizer; NULL: none */
    cz_state_dict *common;     /* NULL: none */
    int64_t count, capacity;
    /* A list of texts; NULL: it is not said which tensors are buffers. */
    const cz__pickle_value *buffers;
    int64_t step; /* -1: not said */
    bool has_model, ours, state_left;
    /* Owned; what of the file was left, or taken for something: a sentence each line. */
    cz__text notes;

    const cz__index *here; /* while it is read, as the next */
    const cz__pickle_value *root;
    int64_t values, bytes; /* that may still be taken: a small file is not a large dictionary */
    cz__budget elements;   /* of tensors, which may have more than their storages: expanded views */
    const cz__pickle_value *own; /* the dictionary of CZ__TORCH_KEY; NULL: none */
} cz__torch_contents;

/* torch_forms.c: read what is in a file. `here` says which parameter is which of the optimizer's,
 * and what rule it is where several fit; it may be NULL, or empty but for the name of that rule: an
 * optimizer that nobody can assign then is left, with a note, and one without a model is
 * CZ_ERR_UNSUPPORTED. CZ_ERR_FORMAT, CZ_ERR_UNSUPPORTED, CZ_ERR_IO, CZ_ERR_MEMORY. */
cz_status cz__torch_contents_open(cz__torch_contents **out, const char *path,
                                  const cz__index *here);
/* The same of a file that is open, and then the contents' in any case. */
cz_status cz__torch_contents_read(cz__torch_contents **out, cz__torch *file, const cz__index *here);
void cz__torch_contents_close(cz__torch_contents **contents); /* accepts NULL and *NULL */

/* ---- for the files that read them ---- */

cz_status cz__torch_refuse(const cz__torch_contents *c, const char *format, ...) CZ_PRINTF(2, 3);
cz_status cz__torch_note(cz__torch_contents *c, const char *format, ...) CZ_PRINTF(2, 3);
/* Does an index, which may be NULL, say which parameters there are? */
bool cz__torch_knows_model(const cz__index *here);
cz_status cz__torch_contents_spend(cz__torch_contents *c);
/* A tensor more; `slot` NULL: a value of the model. */
cz_status cz__torch_contents_add(cz__torch_contents *c, const cz__pickle_value *value,
                                 const char *slot, const char *name, cz_dtype *dtype);
/* torch_optimizer.c: the outline, and a tensor for each slot. */
cz_status cz__torch_read_optimizer(cz__torch_contents *c, const cz__pickle_value *optimizer);

/* ---- an optimizer ---- */
/* Reading an optimizer's state dictionary of torch: what its two parts share. */

/* A parameter as the optimizer counts it. */
typedef struct cz__torch_member {
    int64_t number;   /* in the file */
    int64_t place;    /* among the members of all groups, one after the other */
    const char *name; /* in place of a number; NULL: it has one */
} cz__torch_member;

typedef struct cz__torch_reading {
    cz__torch_contents *c;
    const cz__pickle *p;
    const cz__pickle_value *state, *groups;
    const char *rule_name;
    const cz__torch_rule *rule; /* NULL: one that torch does not have */
    cz__torch_member *members;  /* owned, as the next; in the order of their numbers */
    const char **names;         /* by place */
    cz__names model;            /* owned: the place of each tensor of the file's model */
    cz__names named;            /* owned: of each member, where they have names for numbers */
    bool ambiguous;             /* another rule's groups and state would look the same */
    /* Of Adam and AdamW the one that gives its keys in the order of these; NULL: no saying. */
    const char *order;
    int64_t count, capacity;
} cz__torch_reading;

/* torch_names.c: the members of the groups, and their names. *clear false: the last sentence says
 * why they are not known, and nothing is wrong with the file. */
cz_status cz__torch_name_members(cz__torch_reading *reading, bool *clear);
/* Of the member of that number; -1: there is none. */
int64_t cz__torch_place(const cz__torch_reading *reading, const cz__pickle_value *number);

#endif
