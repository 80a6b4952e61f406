/* SPDX-License-Identifier: MIT */
/* Matrices as products of thin ones: memory is what limits these loops. With one or two columns
 * they are as fast as OpenBLAS's sgemm or faster; for more a program may bring a BLAS
 * (cz_powersgd_options). */
#include "hooks/powersgd.h"

#include <float.h>
#include <math.h>

enum { LANES = 16 };

#define REAL float
#define UNIT FLT_EPSILON
#define NAME(f) f##_f32
#include "hooks/low_rank_body.h"

#define REAL double
#define UNIT DBL_EPSILON
#define NAME(f) f##_f64
#include "hooks/low_rank_body.h"

void cz__low_rank_project(cz_dtype dtype, const cz__low_rank *l)
{
    dtype == CZ_F64 ? project_f64(l) : project_f32(l);
}

void cz__low_rank_back(cz_dtype dtype, const cz__low_rank *l)
{
    dtype == CZ_F64 ? back_f64(l) : back_f32(l);
}

void cz__low_rank_expand(cz_dtype dtype, const cz__low_rank *l)
{
    dtype == CZ_F64 ? expand_f64(l) : expand_f32(l);
}

int cz__orthogonalise(cz_dtype dtype, int64_t length, int count, void *columns, double epsilon)
{
    return dtype == CZ_F64 ? orthogonalise_f64(length, count, columns, epsilon)
                           : orthogonalise_f32(length, count, columns, epsilon);
}
