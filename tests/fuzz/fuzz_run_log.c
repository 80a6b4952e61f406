/* SPDX-License-Identifier: MIT */
/* Logs of runs: an input is one, or two with a byte 1 between them, which are compared and what is
 * found printed. What is read is in order and can be found; a log differs from itself in nothing,
 * and of two either differs from the other or neither does. */
#include "fuzz.h"

#include "diff.h"
#include "run_log.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A file that every input is written into. */
typedef struct file {
    int descriptor;
    char path[40];
} file;

static void fill(file *f, const uint8_t *bytes, size_t count)
{
    if (!*f->path) {
        f->descriptor = memfd_create("log", MFD_CLOEXEC);
        CZ_FUZZ_CHECK(f->descriptor >= 0);
        snprintf(f->path, sizeof f->path, "/proc/self/fd/%d", f->descriptor);
    }
    CZ_FUZZ_CHECK(ftruncate(f->descriptor, 0) == 0);
    CZ_FUZZ_CHECK(pwrite(f->descriptor, bytes, count, 0) == (ssize_t)count);
}

static bool is_expected(cz_status status)
{
    return status == CZ_OK || status == CZ_ERR_FORMAT || status == CZ_ERR_UNSUPPORTED ||
           status == CZ_ERR_ARGUMENT;
}

/* Can it be read? */
static bool check_log(const char *path)
{
    run_log log;
    const cz_status status = run_log_read(&log, path);
    int64_t prints = 0;
    CZ_FUZZ_CHECK(is_expected(status) && status != CZ_ERR_ARGUMENT);
    for (int64_t i = 0; i < log.count; i++) {
        CZ_FUZZ_CHECK(log.steps[i].step >= 0);
        CZ_FUZZ_CHECK(i == 0 || log.steps[i - 1].step < log.steps[i].step);
        CZ_FUZZ_CHECK(run_log_find(&log, log.steps[i].step) == &log.steps[i]);
        prints += log.steps[i].has_print;
    }
    CZ_FUZZ_CHECK(status != CZ_OK || prints == log.prints);
    run_log_clear(&log);
    return status == CZ_OK;
}

static cz_status compare(const file *a, const file *b, bool json, bool *differ)
{
    const cz_status status = diff_runs(a->path, b->path, (diff_wish){.json = json}, differ);
    CZ_FUZZ_CHECK(is_expected(status));
    return status;
}

static void compare_both_ways(const file *a, const file *b)
{
    bool there, back;
    const cz_status status = compare(a, b, false, &there);
    CZ_FUZZ_CHECK(compare(b, a, true, &back) == status);
    CZ_FUZZ_CHECK(there == back && (a != b || !there));
}

/* What is printed goes nowhere. */
static void compare_in_silence(const file *a, const file *b)
{
    static FILE *nowhere;
    FILE *const out = stdout, *const err = stderr;
    if (!nowhere)
        nowhere = fopen("/dev/null", "w");
    CZ_FUZZ_CHECK(nowhere);
    stdout = stderr = nowhere;
    compare_both_ways(a, b);
    stdout = out;
    stderr = err;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static file a, b;
    const uint8_t *between = count > 0 ? memchr(bytes, 1, count) : NULL;
    const size_t length = between ? (size_t)(between - bytes) : count;
    fill(&a, bytes, length);
    if (between)
        fill(&b, between + 1, count - length - 1);
    if (check_log(a.path) && (!between || check_log(b.path)))
        compare_in_silence(&a, between ? &b : &a);
    return 0;
}

#define DIGITS "0123456789abcdef0123456789abcdef"
#define PRINTS(FIRST)                                                                              \
    "\"fingerprint\":\"" FIRST "123456789abcdef" FIRST "123456789abcdef\",\"chain\":\"" DIGITS "\""

size_t cz_fuzz_seed(int number, uint8_t *bytes, size_t room)
{
    static const char *const seeds[] = {
        "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":null}\n{\"x\":1}\n\001"
        "{\"step\":1,\"loss\":2.5}\n{\"step\":3,\"loss\":1e-300}\n",
        "{\"step\":1,\"loss\":2.5," PRINTS("0") "}\n{\"step\":2," PRINTS(
            "1") "}\n\001"
                 "{\"step\":1," PRINTS("0") "}\n{\"step\":1,\"loss\":2}\n{\"step\":2," PRINTS(
                     "2") "}\n",
        "{\"step\":5,\"loss\":1}\n\n{\"step\":6,\"loss\":-0.0}\n{\"step\":5,\"loss\":3}\n{"
        "\"step\":",
    };
    if (number < 0 || number >= (int)(sizeof seeds / sizeof *seeds) || strlen(seeds[number]) > room)
        return 0;
    memcpy(bytes, seeds[number], strlen(seeds[number]));
    return strlen(seeds[number]);
}
