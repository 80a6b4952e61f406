/* SPDX-License-Identifier: MIT */
/* Sentences that say where in a tree of dictionaries something is wrong. */
#include "base/memory.h"
#include "base/status.h"
#include "state/object.h"

#include <stdarg.h>
#include <string.h>

/* "state/w1/exp_avg"; NULL: out of memory. */
static char *path_of(const cz_state_dict *dict, const char *key)
{
    size_t bytes = strlen(key) + 1;
    for (const cz_state_dict *d = dict; d->parent; d = d->parent)
        bytes += strlen(d->key) + 1;
    char *path = cz__calloc(1, bytes);
    if (!path)
        return NULL;
    char *at = path + bytes - 1 - strlen(key);
    memcpy(at, key, strlen(key) + 1);
    for (const cz_state_dict *d = dict; d->parent; d = d->parent) {
        *--at = '/';
        at -= strlen(d->key);
        memcpy(at, d->key, strlen(d->key));
    }
    return path;
}

cz_status cz__state_fail(cz_status status, const cz_state_dict *dict, const char *key,
                         const char *format, ...)
{
    char what[160];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    char *path = path_of(dict, key);
    cz__fail(status, "state dictionary: '%s' %s", path ? path : key, what);
    cz__free(path);
    return status;
}
