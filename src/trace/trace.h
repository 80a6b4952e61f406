/* SPDX-License-Identifier: MIT */
/* Recording points: totals per point, owned by the object whose steps are traced. */
#ifndef CZ_TRACE_TRACE_H
#define CZ_TRACE_TRACE_H

#include "base/clock.h"
#include "czero/trace.h"

#define CZ__TRACE_POINTS (CZ_TRACE_FUSED + 1)

typedef struct cz__trace {
    cz_trace_totals totals[CZ__TRACE_POINTS];
} cz__trace;

/* Use as: double begin = cz__seconds(); …; cz__trace_add(trace, point, begin, bytes); */
void cz__trace_add(cz__trace *trace, cz_trace_point point, double begin, uint64_t bytes);
/* What was done at this point in a fused pass, which has the time. */
void cz__trace_count(cz__trace *trace, cz_trace_point point, uint64_t bytes);

#endif
