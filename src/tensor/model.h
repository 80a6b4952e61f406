/* SPDX-License-Identifier: MIT */
/* What other parts may do to a model that the program may not. */
#ifndef CZ_TENSOR_MODEL_H
#define CZ_TENSOR_MODEL_H

#include "czero/tensor.h"

/* An optimizer stands on the model: its list of parameters and buffers cannot change while any does. */
void cz__model_freeze(cz_model *model);
void cz__model_thaw(cz_model *model);

/* Do these parameters follow each other in memory (cz_model_add_flat)? The number of the flat block a
 * parameter belongs to, -1 for one that was added alone. */
int64_t cz__model_block(const cz_model *model, int64_t param);

#endif
