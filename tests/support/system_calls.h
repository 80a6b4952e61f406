/* SPDX-License-Identifier: MIT */
/* Calls of the system that fail. A program that refers to one of these functions has open(),
 * write(), fsync(), mmap(), pthread_create() and the like go through support/system_calls.c, which
 * lets the n-th of them fail. */
#ifndef CZ_TEST_SYSTEM_CALLS_H
#define CZ_TEST_SYSTEM_CALLS_H

#include <stdbool.h>
#include <stdint.h>

/* In place of an error number: a read or write of half of what was asked for. */
#define CZ_TEST_SHORT (-1)

/* The n-th call from now on (1: the next), on any thread, fails with that error; with `for_good`
 * all later ones of its kind fail too, until the next of these two functions is called. */
void cz_test_fail_system_call(int64_t n, int error, bool for_good);
bool cz_test_system_call_reset(void); /* no more of that; did one fail meanwhile? */

/* The name of the call that failed last, "" for none. */
const char *cz_test_system_call_failed(void);

/* Descriptors that are open, mappings, and threads, of this process. */
typedef struct cz_test_holdings {
    int files, mappings, threads;
} cz_test_holdings;
cz_test_holdings cz_test_holdings_now(void);

#endif
