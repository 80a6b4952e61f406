/* SPDX-License-Identifier: MIT */
/* Totals of what each point of a step spent. */
#include "trace/trace.h"

void cz__trace_add(cz__trace *trace, cz_trace_point point, double begin, uint64_t bytes)
{
    cz_trace_totals *totals = &trace->totals[point];
    totals->count++;
    totals->seconds += cz__seconds() - begin;
    totals->bytes += bytes;
}

void cz__trace_count(cz__trace *trace, cz_trace_point point, uint64_t bytes)
{
    trace->totals[point].count++;
    trace->totals[point].bytes += bytes;
}
