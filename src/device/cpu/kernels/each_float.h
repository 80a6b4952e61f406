/* SPDX-License-Identifier: MIT */
/* A rule's body for both types of parameters: BODY is the file, included once with each. In it REAL
 * is the type, TYPE its name, ROOT and ABSOLUTE its functions. */
#include <math.h>

#define REAL float
#define TYPE f32
#define ROOT sqrtf
#define ABSOLUTE fabsf
#include BODY
#undef REAL
#undef TYPE
#undef ROOT
#undef ABSOLUTE

#define REAL double
#define TYPE f64
#define ROOT sqrt
#define ABSOLUTE fabs
#include BODY
#undef REAL
#undef TYPE
#undef ROOT
#undef ABSOLUTE
#undef BODY
