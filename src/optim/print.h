/* SPDX-License-Identifier: MIT */
/* What an optimizer has here, section by section, for fingerprints. */
#ifndef CZ_OPTIM_PRINT_H
#define CZ_OPTIM_PRINT_H

#include "optim/optim.h"

/* Some elements of a value, or of a slot that a step has used. */
typedef struct cz__section {
    int64_t param;
    const char *slot; /* NULL: the value */
    int64_t begin, end;
    cz_dtype dtype;
    const cz_device *device;
    const void *data;
    uint64_t key; /* for cz__print_add() */
} cz__section;

/* All of the spans that are here, always in the same order; with `rest` also the values of
 * parameters in no group. What `visit` returns but CZ_OK ends it. */
typedef cz_status (*cz__section_visitor)(void *context, const cz__section *section);
cz_status cz__optim_visit_sections(const cz_optim *optim, bool rest, cz__section_visitor visit,
                                   void *context);
cz_status cz__section_print(const cz__section *section, uint64_t print[2]);

/* The step count and the scalars of a parameter. */
void cz__optim_print_scalars(const cz_optim *optim, int64_t param, uint64_t print[2]);

#endif
