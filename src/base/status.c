/* SPDX-License-Identifier: MIT */
/* The sentence that goes with a status: one per thread, on the C library's heap, so that a failing
 * allocator of the program can still be reported. */
#include "base/plain_text.h"
#include "base/status.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>

static _Thread_local const char *sentence = ""; /* static text, or what the key owns */
static pthread_key_t owned;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static atomic_bool have_key;

static void forget(void *text)
{
    sentence = "";
    free(text);
}

static void make_key(void)
{
    have_key = pthread_key_create(&owned, forget) == 0;
}

/* Threads that outlive an unloaded library must not find its destructor. */
__attribute__((destructor)) static void delete_key(void)
{
    if (!have_key)
        return;
    forget(pthread_getspecific(owned));
    pthread_key_delete(owned);
    have_key = false;
}

static void set_sentence(const char *format, va_list args)
{
    CZ__PLAIN_TEXT;
    pthread_once(&key_once, make_key);
    char *text = NULL;
    void *old = have_key ? pthread_getspecific(owned) : NULL;
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    if (text) /* names and paths in it may come from anywhere */
        cz__make_plain(text);
    if (!have_key || pthread_setspecific(owned, text) != 0) {
        free(text);
        text = NULL;
        old = NULL; /* still the key's, if it has one */
    }
    sentence = text ? text : "a failure whose sentence could not be kept (out of memory?)";
    free(old);
}

cz_status(cz__fail)(cz_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_sentence(format, args);
    va_end(args);
    return status;
}

cz_status cz_fail(cz_status status, const char *format, ...)
{
    va_list args;
    if (!format)
        return cz__fail(status, "%s", cz_status_name(status));
    va_start(args, format);
    set_sentence(format, args);
    va_end(args);
    return status;
}

cz_status cz_fail_text(cz_status status, const char *text)
{
    return cz__fail(status, "%s", text ? text : cz_status_name(status));
}

cz_status cz__fail_in(cz_status status, const char *what)
{
    return cz__fail(status, "%s: %s", what, sentence);
}

cz__sentence cz__sentence_hold(void)
{
    const cz__sentence held = {sentence, have_key ? pthread_getspecific(owned) : NULL};
    if (held.owned)
        pthread_setspecific(owned, NULL);
    sentence = "";
    return held;
}

void cz__sentence_resume(cz__sentence held)
{
    if (have_key) {
        free(pthread_getspecific(owned));
        pthread_setspecific(owned, held.owned);
    }
    sentence = held.text;
}

void cz__sentence_drop(cz__sentence held)
{
    free(held.owned);
}

void cz__sentence_clear(void)
{
    sentence = ""; /* its memory stays until the next failure: somebody may be reading it */
}

cz_status cz__sentence_complete(cz_status status)
{
    return status == CZ_OK || *sentence ? status : cz__fail(status, "%s", cz_status_name(status));
}

const char *cz_last_error(void)
{
    return sentence;
}

const char *cz_status_name(cz_status status)
{
    static const char *const names[] = {
        [CZ_OK] = "CZ_OK",
        [CZ_ERR_ARGUMENT] = "CZ_ERR_ARGUMENT",
        [CZ_ERR_MEMORY] = "CZ_ERR_MEMORY",
        [CZ_ERR_STATE] = "CZ_ERR_STATE",
        [CZ_ERR_UNSUPPORTED] = "CZ_ERR_UNSUPPORTED",
        [CZ_ERR_MISMATCH] = "CZ_ERR_MISMATCH",
        [CZ_ERR_PEER] = "CZ_ERR_PEER",
        [CZ_ERR_TIMEOUT] = "CZ_ERR_TIMEOUT",
        [CZ_ERR_IO] = "CZ_ERR_IO",
        [CZ_ERR_INTERNAL] = "CZ_ERR_INTERNAL",
        [CZ_ERR_FORMAT] = "CZ_ERR_FORMAT",
    };
    const size_t index = (size_t)status;
    return index < sizeof names / sizeof *names ? names[index] : "unknown status";
}
