/* SPDX-License-Identifier: MIT */
/* What a file of torch holds, in the words of a checkpoint: a model, an optimizer's state, what czero has added. */
#ifndef CZ_INTEROP_TORCH_CONTENTS_H
#define CZ_INTEROP_TORCH_CONTENTS_H

#include "checkpoint/index.h"
#include "czero/state.h"
#include "interop/torch.h"
#include "interop/torch_rules.h"
#include "io/budget.h"

#define CZ__TORCH_KEY "czero" /* of what is ours in the outermost dictionary */
#define CZ__TORCH_MODEL "model"
#define CZ__TORCH_OPTIMIZER "optimizer"

typedef struct cz__torch_contents {
    cz__torch *file;           /* owned, as the next three */
    cz__torch_tensor *tensors; /* under the names of consolidated files, which are owned too */
    cz_state_dict *outline;    /* of the optimizer; NULL: none */
    cz_state_dict *common;     /* NULL: none */
    int64_t count, capacity;
    const cz__pickle_value
        *buffers; /* a list of texts; NULL: it is not said which tensors are buffers */
    int64_t step; /* -1: not said */
    bool has_model, ours, state_left;
    cz__text
        notes; /* owned; what of the file was left, or taken for something: a sentence each line */

    const cz__index *here; /* while it is read */
    int64_t values, bytes; /* that may still be taken: a small file is not a large dictionary */
    cz__budget elements;   /* of tensors, which may have more than their storages: expanded views */
    const cz__pickle_value *own; /* the dictionary of CZ__TORCH_KEY; NULL: none */
} cz__torch_contents;

/* torch_forms.c: read what is in a file. `here` says which parameter is which of the optimizer's, and what rule it is where several
 * fit; it may be NULL, or empty but for the name of that rule: an optimizer that nobody can assign then is left, with a
 * note, and one without a model is CZ_ERR_UNSUPPORTED. CZ_ERR_FORMAT, CZ_ERR_UNSUPPORTED, CZ_ERR_IO, CZ_ERR_MEMORY. */
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

#endif
