/* SPDX-License-Identifier: MIT */
/* Allocations that fail when a test says so, on the calling thread only: one rank at a time. */
#ifndef CZ_TEST_FAILING_H
#define CZ_TEST_FAILING_H

/* Use the failing allocator for all memory of the library, and the C library's again. False: the
 * library holds memory. */
_Bool cz_test_failing_begin(void);
_Bool cz_test_failing_end(void);

/* The n-th allocation of this thread from now on fails (1: the next one), the others do not. 0: none. */
void cz_test_fail_allocation(long n);

/* Did it come to that? */
_Bool cz_test_allocation_failed(void);

#endif
