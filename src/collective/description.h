/* SPDX-License-Identifier: MIT */
/* What must be equal on all ranks, as a list of fields: written to bytes, or compared with the
 * bytes of rank 0 field by field, so that the first difference becomes a sentence with both
 * values. */
#ifndef CZ_COLLECTIVE_DESCRIPTION_H
#define CZ_COLLECTIVE_DESCRIPTION_H

#include "base/options.h"
#include "czero/group.h"
#include "czero/state.h"
#include "czero/tensor.h"
#include "operation/identity.h"

/* How the bytes of a field are printed. All but the last four are an int64_t. */
typedef enum cz__field_kind {
    CZ__FIELD_NUMBER,
    CZ__FIELD_DTYPE,
    CZ__FIELD_LAYOUT,
    CZ__FIELD_WORD,      /* one of the words given */
    CZ__FIELD_BLOCK,     /* of flat memory; -1: alone */
    CZ__FIELD_TRAINABLE, /* 0: frozen */
    CZ__FIELD_TEXT,
    CZ__FIELD_OBJECT, /* cz__object */
    CZ__FIELD_SHAPE,  /* int64_t each */
    CZ__FIELD_REAL    /* double */
} cz__field_kind;

/* "OF NOUN INDEX 'NAME' SAYS": "parameter 3 'w2' has shape", "lr of parameter group 0 is". */
typedef struct cz__subject {
    const char *of; /* NULL: left out, as `name`; index -1 too */
    const char *noun;
    int64_t index;
    const char *name;
    const char *says;
} cz__subject;

/* Zeroed: empty, to be written. */
typedef struct cz__description {
    uint8_t *bytes; /* owned */
    size_t count;
    size_t capacity;
    const uint8_t *others; /* NULL: write; else compare with these, borrowed */
    size_t other_count;
    size_t position;          /* in `others` */
    const char *const *words; /* of the field at hand */
    const char *advice;       /* what to do if that differs; NULL: it is plain */
    int rank, root;           /* who compares with whom, global */
    const char *part;         /* who speaks: "zero" */
    /* CZ_ERR_MEMORY, or CZ_ERR_MISMATCH after the first difference; the thread has the sentence,
     * and further fields are ignored. */
    cz_status status;
} cz__description;

void cz__describe(cz__description *description, const cz__subject *subject, cz__field_kind kind,
                  const void *value, size_t bytes);
void cz__describe_number(cz__description *description, const cz__subject *subject,
                         cz__field_kind kind, int64_t value);

/* The number of one of `words`, which end with NULL. */
void cz__describe_word(cz__description *description, const cz__subject *subject,
                       const char *const *words, int64_t number);

/* All that the table says is compared: "option NAME is", or with an owner, whose `of` is put in,
 * "NAME of OWNER SAYS". */
void cz__describe_options(cz__description *description, const cz__option_table *table,
                          const void *options, const cz__subject *owner);

/* Another object, or the group of one: NULL, zeroed: none. */
void cz__describe_object(cz__description *description, const cz__subject *subject,
                         const cz__object *object);
/* The object that the call is on. To come first. */
void cz__describe_call(cz__description *description, const cz__object *object);

void cz__description_clear(cz__description *description);

/* Writes all fields, in an order in which a person would look for a difference: counts before what
 * they count. */
typedef void (*cz__describer)(cz__description *description, const void *context);

/* Names, shapes, types, places of all parameters; which are trainable, which frozen; all of all
 * buffers. */
void cz__describe_params(cz__description *description, const cz_model *model);
void cz__describe_trainable(cz__description *description, const cz_model *model);
void cz__describe_buffers(cz__description *description, const cz_model *model);

/* A dictionary, NULL: an empty one, with all that is in it. `what` is its name in sentences, "the
 * common dictionary", `path` NULL, or where in it this one is. */
void cz__describe_dict(cz__description *description, const char *what, const char *path,
                       const cz_state_dict *dict);

/* Was every rank well until now, and do all describe the same? Collective; CZ_OK, or what all ranks
 * get: the failure of one, or CZ_ERR_MISMATCH with the first difference of some rank from rank 0.
 * `room` is overwritten; its memory is used and kept. A rank that is not well is not asked to
 * describe. */
cz_status cz__agree_on(cz_group *group, const char *part, cz__describer describe,
                       const void *context, cz_status mine, cz__description *room);

/* The second half: the first difference, if there is one. `mine` is this rank's description. */
cz_status cz__compare_descriptions(cz_group *group, const char *part, cz__describer describe,
                                   const void *context, const cz__description *mine);

/* The same where descriptions are known to differ. Never CZ_OK. */
cz_status cz__find_difference(cz_group *group, const char *part, cz__describer describe,
                              const void *context, const cz__description *mine);

/* cz__agree() in a call on an object (NULL: on none), which must be the same one on all ranks:
 * CZ_ERR_MISMATCH with both names. The fingerprint is of the rest, for `same`. */
cz_status cz__agree_for(cz_group *group, const cz__object *object, cz_status mine,
                        uint64_t fingerprint, bool *same, const char *label);

#endif
