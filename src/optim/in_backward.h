/* SPDX-License-Identifier: MIT */
/* Optimizers inside the backward pass, as a data-parallel model uses them. */
#ifndef CZ_OPTIM_IN_BACKWARD_H
#define CZ_OPTIM_IN_BACKWARD_H

#include "czero/in_backward.h"
#include "group/description.h"

cz_model *cz__in_backward_model(const cz_in_backward *in_backward);

/* Somebody else steps it: the program may not, from now on; false: it may again. Is it so? */
void cz__in_backward_drive(cz_in_backward *in_backward, bool driven);
bool cz__in_backward_is_driven(const cz_in_backward *in_backward);

/* As the public ones, for who drives. The gradient exists. */
cz_status cz__in_backward_begin(cz_in_backward *in_backward, const void *argument);
void cz__in_backward_update(cz_in_backward *in_backward, int64_t param, void *gradient);

/* Of rules, groups and their values: to compare between ranks, first as a number. */
uint64_t cz__in_backward_fingerprint(const cz_in_backward *in_backward);
void cz__in_backward_describe(cz__description *description, const void *in_backward);

#endif
