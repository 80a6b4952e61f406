/* SPDX-License-Identifier: MIT */
/* What must be equal on all ranks, as a list of fields: written to bytes, or compared with the bytes of
 * rank 0 field by field, so that the first difference becomes a sentence with both values. */
#ifndef CZ_ZERO_DESCRIPTION_H
#define CZ_ZERO_DESCRIPTION_H

#include "czero/base.h"

/* How the bytes of a field are printed. All but the last three are an int64_t. */
typedef enum cz__field_kind {
    CZ__FIELD_NUMBER,
    CZ__FIELD_DTYPE,
    CZ__FIELD_LAYOUT,
    CZ__FIELD_PARTITION,
    CZ__FIELD_GRADIENTS,
    CZ__FIELD_BLOCK,     /* of flat memory; -1: alone */
    CZ__FIELD_TRAINABLE, /* 0: frozen */
    CZ__FIELD_TEXT,
    CZ__FIELD_SHAPE, /* int64_t each */
    CZ__FIELD_REAL   /* double */
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
    size_t position; /* in `others` */
    int rank;        /* who compares */
    cz_status
        status; /* CZ_ERR_MEMORY, or CZ_ERR_MISMATCH after the first difference; the thread has
                         the sentence, and further fields are ignored */
} cz__description;

void cz__describe(cz__description *description, const cz__subject *subject, cz__field_kind kind,
                  const void *value, size_t bytes);
void cz__describe_number(cz__description *description, const cz__subject *subject,
                         cz__field_kind kind, int64_t value);

void cz__description_clear(cz__description *description);

#endif
