/* SPDX-License-Identifier: MIT */
/* Matrices as products of thin ones, for f32 and f64 (`dtype`). M is row-major; a thin matrix of r columns has one
 * column after the other. */
#ifndef CZ_HOOKS_LOW_RANK_H
#define CZ_HOOKS_LOW_RANK_H

#include "czero/base.h"

typedef struct cz__low_rank {
    int64_t rows, cols;
    int rank;
    void *matrix; /* M */
    void *p, *q;  /* `rows` and `cols` times `rank` */
} cz__low_rank;

void cz__low_rank_project(cz_dtype dtype, const cz__low_rank *l); /* P = M Q */
void cz__low_rank_back(cz_dtype dtype, const cz__low_rank *l);    /* Q = M^T P */
/* M = P Q^T. The same bits wherever P and Q have the same ones. */
void cz__low_rank_expand(cz_dtype dtype, const cz__low_rank *l);

/* Make `count` columns of `length` elements orthonormal (with an epsilon that is added to norms: nearly so). One that
 * depends on those before it, or is zero, becomes zero; one that is not finite becomes NaN. The same bits from
 * the same bits. Returns how many became zero or NaN. */
int cz__orthogonalise(cz_dtype dtype, int64_t length, int count, void *columns, double epsilon);

#endif
