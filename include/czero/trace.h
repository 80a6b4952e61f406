/* SPDX-License-Identifier: MIT */
/** @file trace.h  Where a step's time went: recorded always, cheaply; reports are made elsewhere. */
#ifndef CZERO_TRACE_H
#define CZERO_TRACE_H

#include "czero/base.h"

CZ_BEGIN_DECLS

/** The points at which time is taken. */
typedef enum cz_trace_point {
    /** Ranks agree that a step can begin: with the time in which this rank waits for slower ones. */
    CZ_TRACE_AGREE = 0,
    /** Gradients to their owners. Where they are reduced, used and sent on in one pass over tiles, the bytes are counted
     *  here and the time of the whole pass at CZ_TRACE_UPDATE: seconds 0 here say that, and not that it was free. */
    CZ_TRACE_REDUCE = 1,
    CZ_TRACE_UPDATE =
        2, /**< the rule on the local spans; where that is one pass over tiles with the transfers before or
                after it, theirs, too */
    CZ_TRACE_SYNC = 3, /**< updated spans to all ranks; in one pass over tiles as CZ_TRACE_REDUCE */
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
