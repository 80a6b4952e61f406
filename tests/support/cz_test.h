/* SPDX-License-Identifier: MIT */
/* What tests share: ranks as threads, allocations that fail, golden files, repeatable inputs. */
#ifndef CZ_TEST_H
#define CZ_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "czero/group.h"

/* SANITIZED: a build with a sanitizer, which sees in a few sizes what it would see in all. SLOW:
 * with ThreadSanitizer. */
#if defined(__has_feature)
#define CZ_TEST_HAS(feature) __has_feature(feature)
#else
#define CZ_TEST_HAS(feature) 0
#endif
#if defined(__SANITIZE_THREAD__) || CZ_TEST_HAS(thread_sanitizer)
#define SLOW 1
#else
#define SLOW 0
#endif
#if SLOW || defined(__SANITIZE_ADDRESS__) || CZ_TEST_HAS(address_sanitizer)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* A test; a program runs those of its file in their order.
 *
 *     TEST(sums_have_one_order)
 *     {
 *         assert_ok(…);
 *     }
 */
#define TEST(name)                                                                                 \
    static void test_##name(void **state);                                                         \
    __attribute__((constructor)) static void register_##name(void)                                 \
    {                                                                                              \
        cz_test_register(#name, test_##name);                                                      \
    }                                                                                              \
    static void test_##name(void **state)

/* Before and after each of the program's tests. */
#define EACH_TEST(set_up, tear_down)                                                               \
    __attribute__((constructor)) static void wrap_each_test(void)                                  \
    {                                                                                              \
        cz_test_each(set_up, tear_down);                                                           \
    }

/* For a main() of the file's own: run the tests, between the two or NULL. */
int cz_test_run(int (*set_up)(void **state), int (*tear_down)(void **state));
void cz_test_each(int (*set_up)(void **state), int (*tear_down)(void **state));
void cz_test_register(const char *name, void (*test)(void **state));

/* On the main thread: `call` returns CZ_OK, or the test fails with the library's sentence. */
#define assert_ok(call) cz_test_assert_ok((call), #call, __FILE__, __LINE__)
void cz_test_assert_ok(cz_status status, const char *call, const char *file, int line);

/* Run `body` once per rank, on threads, for at most 60 s. `why` receives the sentence, "" for
 * CZ_OK. Bodies return a status (cz_fail() has the sentence); only the main thread asserts. */
cz_status cz_test_run_ranks(int world_size, cz_rank_main body, void *arg, char why[256]);

/* The same where all must return CZ_OK. */
void assert_ranks_ok(int world_size, cz_rank_main body, void *arg);

/* For bodies that have something to undo: what is done next unless something has failed. `status`
 * is theirs. */
#define THEN(call)                                                                                 \
    do {                                                                                           \
        if (status == CZ_OK)                                                                       \
            status = (call);                                                                       \
    } while (0)

/* NAME_body, which calls NAME with a zeroed `type` and what else is given, such as `group` and
 * `context`, and clears that. */
#define RANK_BODY(name, type, clear, ...)                                                          \
    static cz_status name##_body(cz_group *group, void *context)                                   \
    {                                                                                              \
        type it = {0};                                                                             \
        const cz_status status = name(&it, __VA_ARGS__);                                           \
        clear(&it);                                                                                \
        return status;                                                                             \
    }

/* For bodies: so it is, or they fail with this sentence. */
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return cz_fail(CZ_ERR_INTERNAL, __VA_ARGS__);                                          \
    } while (0)

/* For bodies: CZ_OK if a call has returned what is wanted, and its sentence has this in it (NULL,
 * and for CZ_OK: any). */
cz_status expect(cz_status got, cz_status wanted, const char *sentence);

/* World sizes worth running: one, powers of two and, where collectives break, odd ones. */
#define CZ_TEST_WORLD_COUNT (SANITIZED ? 5 : 6)
extern const int cz_test_worlds[6]; /* 1, 2, 3, 4, 5, 8 */

/* A program that refers to one of the next nine runs on an allocator of their own, which gives
 * memory filled with a pattern and overwrites what is released. The usual loop:
 *
 *     for (int64_t n = 1;; n++) {
 *         cz_test_fail_allocation(n);
 *         cz_status status = cz_thing_create(&thing);
 *         if (!cz_test_allocation_reset()) { assert_ok(status); break; }
 *         assert_int_equal(status, CZ_ERR_MEMORY); …that nothing was changed…
 *     }
 */
void cz_test_fail_allocation(int64_t n); /* the n-th from now on (1: the next), on any thread */
bool cz_test_allocation_reset(void);     /* no more of that; did it fail meanwhile? */
int64_t cz_test_allocations_held(void);  /* blocks that the library holds */
int64_t cz_test_allocations_made(void);  /* since the program began, failed ones included */
int64_t cz_test_allocation_bytes(void);  /* that the library holds, all ranks together */
int64_t cz_test_allocation_peak(void);   /* and the most since the next was called */
void cz_test_allocation_reset_peak(void);
/* From now on on this thread: what it has allocated less. */
void cz_test_allocation_thread_begin(void);
int64_t cz_test_allocation_thread_peak(void); /* what it has freed, at most */

/* A golden file (tests/golden/README.md). Everything returned belongs to the file. */
typedef struct cz_test_gold cz_test_gold;
typedef struct cz_test_case cz_test_case;

/* `name` inside tests/golden, "optim_sgd.gold". NULL, with the line on stderr, if it cannot be
 * read. */
cz_test_gold *cz_test_gold_open(const char *name);
void cz_test_gold_close(cz_test_gold **gold); /* accepts NULL and *NULL */

int64_t cz_test_gold_count(const cz_test_gold *gold); /* cases */
const cz_test_case *cz_test_gold_case(const cz_test_gold *gold, int64_t index);
const cz_test_case *cz_test_gold_find(const cz_test_gold *gold, const char *name); /* NULL: none */

/* The record of that type and key, NULL if there is none. A record of 0 values is not NULL. `count`
 * may be NULL. */
const char *cz_test_case_name(const cz_test_case *c);
const char *cz_test_case_str(const cz_test_case *c, const char *key);
const int64_t *cz_test_case_i64(const cz_test_case *c, const char *key, int64_t *count);
const float *cz_test_case_f32(const cz_test_case *c, const char *key, int64_t *count);
const double *cz_test_case_f64(const cz_test_case *c, const char *key, int64_t *count);

/* stream(seed, count) of tests/golden/README.md: in [-1, 1), exact in both types. */
void cz_test_stream_f32(uint64_t seed, int64_t count, float *out);
void cz_test_stream_f64(uint64_t seed, int64_t count, double *out);

/* `count` sizes from 0 to `maximum`: every fourth is 0, 1, or a multiple of 16 (64 bytes of f32) or
 * one beside it; the others are anything. Returns their sum. */
int64_t cz_test_sizes(uint64_t seed, int64_t count, int64_t maximum, int64_t *sizes);

#endif
