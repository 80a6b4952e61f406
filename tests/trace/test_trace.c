/* SPDX-License-Identifier: MIT */
/* Totals per point. */
#include "support/cz_test.h"

#include "trace/trace.h"

TEST(totals_add_up)
{
    cz__trace trace = {0};
    const double begin = cz__seconds() - 2;
    cz__trace_add(&trace, CZ_TRACE_SYNC, begin, 100);
    cz__trace_add(&trace, CZ_TRACE_SYNC, begin, UINT64_C(1) << 40);
    cz__trace_add(&trace, CZ_TRACE_AGREE, cz__seconds(), 0);
    const cz_trace_totals *sync = &trace.totals[CZ_TRACE_SYNC];
    assert_int_equal(sync->count, 2);
    assert_int_equal(sync->bytes, (UINT64_C(1) << 40) + 100);
    assert_true(sync->seconds >= 4 && sync->seconds < 60);
    assert_int_equal(trace.totals[CZ_TRACE_AGREE].count, 1);
    assert_true(trace.totals[CZ_TRACE_AGREE].seconds < 1);
    assert_int_equal(trace.totals[CZ_TRACE_UPDATE].count, 0);
}
