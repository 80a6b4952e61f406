/* SPDX-License-Identifier: MIT */
/* Elements of one floating type as those of another. */
#ifndef CZ_TENSOR_CONVERT_H
#define CZ_TENSOR_CONVERT_H

#include "czero/base.h"

/* Is it a type that cz__convert() takes: f32, f64, f16 or bf16? */
bool cz__converts(cz_dtype dtype);

/* to[i] = from[i], rounded to nearest even where the type is narrower. Host memory; no overlap. */
void cz__convert(cz_dtype to_type, void *to, cz_dtype from_type, const void *from, int64_t count);

#endif
