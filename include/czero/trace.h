/* SPDX-License-Identifier: MIT */
/** @file trace.h  Where a step's time went: each optimizer always counts it, which costs next to
 *  nothing.
 *
 *      cz_trace_totals reduce = CZ_TRACE_TOTALS_INIT;
 *      CZ_TRY(cz_zero_trace(zero, CZ_TRACE_REDUCE, &reduce));
 *      printf("%g s\n", reduce.seconds); */
#ifndef CZERO_TRACE_H
#define CZERO_TRACE_H

#include "czero/base.h"

CZ_BEGIN_DECLS

/** The points at which time is taken. */
typedef enum cz_trace_point {
    /** Ranks agree that a step can begin: with the time in which this rank waits for slower ones.
     *  In a fused pass over 1 MiB of parameters at most it is only counted here: its time is that
     *  of the pass. */
    CZ_TRACE_AGREE = 0,
    /** Gradients to their owners. In a fused pass the bytes are counted here, the time there: so
     *  are CZ_TRACE_UPDATE and CZ_TRACE_SYNC. */
    CZ_TRACE_REDUCE = 1,
    CZ_TRACE_UPDATE = 2, /**< the rule on the local spans */
    CZ_TRACE_SYNC = 3,   /**< updated spans to all ranks */
    /** Where ranks reach each other's memory: one pass over tiles that updates each, and sends it
     *  on, while it is in cache; without a norm it reduces them, too. The whole time, and no bytes.
     *  */
    CZ_TRACE_FUSED = 4
} cz_trace_point;

/** What was recorded at one point since the object was created. */
typedef struct cz_trace_totals {
    size_t size;    /**< set by CZ_TRACE_TOTALS_INIT */
    int64_t count;  /**< times the point was passed */
    double seconds; /**< time spent in it */
    /** Bytes of this rank's share of the work: sent and received in transfers; of state, parameters
     *  and gradients that are read in updates. */
    uint64_t bytes;
} cz_trace_totals;
#define CZ_TRACE_TOTALS_INIT {sizeof(cz_trace_totals), 0, 0, 0}
CZ_INIT_FUNCTION(cz_trace_totals, CZ_TRACE_TOTALS_INIT)

CZ_END_DECLS
#endif
