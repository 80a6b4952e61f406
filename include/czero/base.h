/* SPDX-License-Identifier: MIT */
/** @file base.h  Data types, memory and the log: what all parts stand on.
 *
 *      cz_log_set_level(CZ_LOG_INFO);                              // more lines on stderr
 *      printf("%zu bytes of optimizer state\n", cz_memory_bytes(CZ_MEMORY_STATE)); */
#ifndef CZERO_BASE_H
#define CZERO_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "czero/status.h"

CZ_BEGIN_DECLS

/** @section floats  Floating-point environment
 *  The library computes, converts, and reads and writes numbers as text, in an environment of its
 *  own on every thread: rounding to nearest, no flush to zero, no traps, whatever the calling
 *  thread has set (fesetround(), feenableexcept(), _mm_setcsr(), a program linked with -Ofast). So
 *  no result depends on the program's environment, nor on the number of threads. When a call
 *  returns, the thread's environment is as it was before, its exception flags included: none is
 *  raised for what the library computed. Numbers in texts have a point in every locale.
 *
 *  What the program gives the library to call runs in the library's environment: rules and their
 *  kernels, communication hooks, continuations, backends, devices, functions of schedulers,
 *  joinables, sinks of the log; it may change the environment if it puts it back. Only a step's
 *  closure, what cz_parts_check() runs and the main function of cz_launch() run in the program's
 *  own: that of the thread that steps, or checks, and that of the thread that launches.
 *  cz_sum_add() has no rounding. A table of a device (device.h) that the program calls itself
 *  computes as the program does. */

/** Element types. Values are stable: they travel between ranks and into files. */
typedef enum cz_dtype {
    CZ_F32 = 1,
    CZ_F64 = 2,
    CZ_F16 = 3,  /**< IEEE binary16; to and from other types by the device's convert() (device.h) */
    CZ_BF16 = 4, /**< upper half of a binary32; likewise */
    CZ_I32 = 5,
    CZ_I64 = 6,
    CZ_U8 = 7
} cz_dtype;

/** Bytes of one element, 0 for an unknown type. Local; any thread. */
CZ_API size_t cz_dtype_size(cz_dtype dtype);

/** "f32", "bf16", …; "unknown" for any other number. Local; any thread; static text. */
CZ_API const char *cz_dtype_name(cz_dtype dtype);

/** What memory is for; the byte counters are kept per kind. */
typedef enum cz_memory_kind {
    CZ_MEMORY_GENERAL = 0,   /**< handles, tables, names */
    CZ_MEMORY_STATE = 1,     /**< optimizer state */
    CZ_MEMORY_STAGING = 2,   /**< buffers through which collectives pass their segments */
    CZ_MEMORY_GRADIENT = 3,  /**< gradients the library keeps itself */
    CZ_MEMORY_STATE_DICT = 4 /**< tensors in state dictionaries */
} cz_memory_kind;

/** The program's own allocator. Both functions may be called from several threads at once. */
typedef struct cz_allocator {
    size_t size; /**< set by CZ_ALLOCATOR_INIT */
    /** At least `bytes` (> 0) bytes, aligned to `alignment` (a power of two); NULL when out. */
    void *(*allocate)(size_t bytes, size_t alignment, void *context);
    void (*release)(void *memory, size_t bytes, void *context);
    void *context;
} cz_allocator;
#define CZ_ALLOCATOR_INIT {sizeof(cz_allocator), NULL, NULL, NULL}
CZ_INIT_FUNCTION(cz_allocator, CZ_ALLOCATOR_INIT)

/** Use `allocator` for all host memory of the library from now on; NULL: the C library's again.
 *
 *  Local. Thread-safety: no other call of the library at the same time. The struct is copied.
 *  @return CZ_ERR_ARGUMENT: a function or the size is missing. CZ_ERR_STATE: the library holds
 *          memory already (handles exist). Either way nothing was changed.
 */
CZ_API cz_status cz_set_allocator(const cz_allocator *allocator);

/** Bytes that the library has asked for and holds now, and the most it has held since the process
 *  began (or since cz_memory_reset_peak()), for one kind; all ranks of this process together. 0 for
 *  an unknown kind. Local; any thread. */
CZ_API size_t cz_memory_bytes(cz_memory_kind kind);
CZ_API size_t cz_memory_peak_bytes(cz_memory_kind kind);
CZ_API void cz_memory_reset_peak(void);

/** Go on with a chain of fingerprints (cz_zero_fingerprint()): `chain` becomes a number that
 *  depends on what it was, on `step` and on `fingerprint`. It begins with zeros. Pure; any thread;
 *  nothing for a NULL. */
CZ_API void cz_fingerprint_chain(uint64_t chain[2], int64_t step, const uint64_t fingerprint[2]);

typedef enum cz_log_level {
    CZ_LOG_OFF = 0,
    CZ_LOG_ERROR = 1,
    CZ_LOG_WARN = 2,
    CZ_LOG_INFO = 3,
    CZ_LOG_DEBUG = 4
} cz_log_level;

/** Receives each line, without a newline at its end. May be called from several threads at once. */
typedef void (*cz_log_sink)(cz_log_level level, const char *line, void *context);

/** Send log lines to `sink` instead of stderr; NULL: stderr again. Local; any thread. */
CZ_API void cz_log_set_sink(cz_log_sink sink, void *context);

/** Let through lines of this level and the more severe ones. The default is CZ_LOG_WARN, or what
 *  the environment variable CZERO_LOG says (off, error, warn, info, debug). Local; any thread. */
CZ_API void cz_log_set_level(cz_log_level level);

/** A line for the log, from a backend or any other code that the library calls; none for a NULL.
 *  Local; any thread. */
CZ_API void cz_log(cz_log_level level, const char *format, ...) CZ_PRINTF(2, 3);

/** As cz_log() with a text as it is. */
CZ_API void cz_log_text(cz_log_level level, const char *text);

CZ_END_DECLS
#endif
