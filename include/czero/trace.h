/* SPDX-License-Identifier: MIT */
/** @file trace.h  Where a step's time went: recorded always, cheaply; reports are made elsewhere. */
#ifndef CZERO_TRACE_H
#define CZERO_TRACE_H

#include "czero/base.h"

CZ_BEGIN_DECLS

/** The points at which time is taken. */
typedef enum cz_trace_point {
    CZ_TRACE_AGREE = 0,  /**< ranks agree that a step can begin */
    CZ_TRACE_REDUCE = 1, /**< gradients to their owners */
    CZ_TRACE_UPDATE =
        2, /**< the rule on the local spans; where that is one pass over tiles with the transfers before or
                after it, theirs, too */
    CZ_TRACE_SYNC = 3, /**< updated spans to all ranks */
    CZ_TRACE_POINT_COUNT = 4
} cz_trace_point;

/** What was recorded at one point since the object was created. */
typedef struct cz_trace_totals {
    int64_t count;  /**< times the point was passed */
    double seconds; /**< time spent in it */
    uint64_t bytes; /**< bytes that this rank's share of the work names: sent plus received for
                         transfers, state and parameters and gradients read for updates */
} cz_trace_totals;

/** "agree", "reduce", "update", "sync"; "unknown" otherwise. Local; any thread; static text. */
CZ_API const char *cz_trace_point_name(cz_trace_point point);

CZ_END_DECLS
#endif
