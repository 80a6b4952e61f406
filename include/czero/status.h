/* SPDX-License-Identifier: MIT */
/** @file status.h  Errors are values: a code to branch on and a sentence to read.
 *
 *  In all headers, **NULL** for a pointer of which nothing else is said: CZ_ERR_ARGUMENT; calls
 *  without a status do nothing, and return NULL, "", 0, -1 or false. In collective calls all ranks
 *  see it, but for the handle, without which a rank cannot tell them. */
#ifndef CZERO_STATUS_H
#define CZERO_STATUS_H

#include <stdio.h>
#include <stdlib.h>

#include "czero/version.h"

CZ_BEGIN_DECLS

/** What calls return that can fail. The library never ends the process and prints only through the
 *  log sink (stderr, unless the program sets another); cz_last_error() has the sentence that
 *  belongs to a failure. With the first four nothing was changed, unless the call says otherwise.
 *  */
typedef enum cz_status {
    CZ_OK = 0,
    CZ_ERR_ARGUMENT = 1,    /**< an argument is outside its range */
    CZ_ERR_MEMORY = 2,      /**< memory could not be had */
    CZ_ERR_STATE = 3,       /**< the call is not allowed now */
    CZ_ERR_UNSUPPORTED = 4, /**< this build or backend cannot do it */
    CZ_ERR_MISMATCH = 5, /**< ranks gave different arguments to one collective call: all ranks get
                                 it, no data was moved, the group stays usable */
    CZ_ERR_PEER = 6,     /**< another rank failed or left; the group is broken: destroy it */
    CZ_ERR_TIMEOUT = 7,  /**< ranks did not arrive in time; the group is broken: destroy it */
    CZ_ERR_IO = 8,       /**< a file or the operating system refused */
    CZ_ERR_INTERNAL = 9, /**< the library contradicts itself: please report it */
    CZ_ERR_FORMAT = 10   /**< a file is damaged, or not of the kind that was expected */
} cz_status;

/** The name of a status as it is written in C ("CZ_ERR_PEER"), "unknown status" for any other
 *  number. Local; any thread; static text. */
CZ_API const char *cz_status_name(cz_status status);

/** The sentence of the last failure on the calling thread: what was seen and what was wanted; ""
 *  before the first, and after a successful call that ran the program's own code (a closure).
 *  Local. Owned by the library, valid until the thread's next failing call. */
CZ_API const char *cz_last_error(void);

/** Set the calling thread's sentence and return `status`: for functions of the program that the
 *  library calls, such as the main function given to cz_launch(). `format` NULL: the name of the
 *  status. Local; any thread. */
CZ_API cz_status cz_fail(cz_status status, const char *format, ...) CZ_PRINTF(2, 3);

/** As cz_fail() with a text as it is, for languages that have no printf. */
CZ_API cz_status cz_fail_text(cz_status status, const char *text);

/** In a function that returns cz_status: pass a failure up. */
#define CZ_TRY(call)                                                                               \
    do {                                                                                           \
        cz_status cz_try_status_ = (call);                                                         \
        if (cz_try_status_ != CZ_OK)                                                               \
            return cz_try_status_;                                                                 \
    } while (0)

/** For programs: on failure print place, status and sentence to stderr and exit(1). */
#define CZ_CHECK(call)                                                                             \
    do {                                                                                           \
        cz_status cz_check_status_ = (call);                                                       \
        if (cz_check_status_ != CZ_OK) {                                                           \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__,                                 \
                    cz_status_name(cz_check_status_), cz_last_error());                            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

CZ_END_DECLS
#endif
