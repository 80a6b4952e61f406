/* SPDX-License-Identifier: MIT */
/* Reading the table of a backend that is not our own: another length, or not complete. */
#include <string.h>

#include "base/status.h"
#include "group/internal.h"

static const double DEFAULT_POLL_SECONDS = 50e-6;

/* The first required entry that is missing, NULL if none is. */
static const char *missing_entry(const cz_backend *b)
{
    const struct {
        const char *name;
        bool there;
    } required[] = {{"name", b->name},
                    {"start", b->start},
                    {"post_send", b->post_send},
                    {"post_receive", b->post_receive},
                    {"test", b->test},
                    {"withdraw", b->withdraw},
                    {"break_group", b->break_group},
                    {"broken", b->broken},
                    {"announce", b->announce},
                    {"announced", b->announced},
                    {"leave", b->leave}};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        if (!required[i].there)
            return required[i].name;
    return NULL;
}

/* May this be read as a table? */
static cz_status check_table(const cz_backend *b)
{
    if (b->abi != CZ_BACKEND_ABI)
        return cz__fail(CZ_ERR_UNSUPPORTED, "group: the backend has ABI %u, this library has %u",
                        b->abi, CZ_BACKEND_ABI);
    if (b->size < offsetof(cz_backend, poll))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "group: the backend's table has %zu bytes, the required entries take %zu",
                        b->size, offsetof(cz_backend, poll));
    return CZ_OK;
}

static bool has_collectives(const cz_backend *b)
{
    return b->all_reduce || b->reduce_scatter || b->all_gather || b->broadcast || b->barrier;
}

/* Of our copy, in which entries past an older table's end are NULL. */
static cz_status check_backend(const cz_backend *b)
{
    const char *missing = missing_entry(b);
    if (missing)
        return cz__fail(CZ_ERR_ARGUMENT, "group: backend '%s' lacks the required entry '%s'",
                        b->name ? b->name : "?", missing);
    if (b->inline_only && !b->poll)
        return cz__fail(CZ_ERR_ARGUMENT, "group: backend '%s' is inline_only, so it needs poll",
                        b->name);
    if (b->one_thread && !b->inline_only)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "group: backend '%s' is one_thread, so it must be inline_only", b->name);
    if (has_collectives(b) && (!b->test_collective || !b->withdraw_collective))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "group: backend '%s' has collectives of its own, so it needs %s", b->name,
                        b->test_collective ? "withdraw_collective" : "test_collective");
    if (b->window && !b->present)
        return cz__fail(CZ_ERR_ARGUMENT, "group: backend '%s' has a window, so it needs present",
                        b->name);
    if (b->attend && !b->poll)
        return cz__fail(CZ_ERR_ARGUMENT, "group: backend '%s' has attend, so it needs poll",
                        b->name);
    if (b->machine && !b->window)
        return cz__fail(CZ_ERR_ARGUMENT, "group: backend '%s' has machine, so it needs a window",
                        b->name);
    if (!(b->poll_seconds >= 0))
        return cz__fail(CZ_ERR_ARGUMENT, "group: backend '%s' has poll_seconds %g", b->name,
                        b->poll_seconds);
    return CZ_OK;
}

cz_status cz__backend_read(cz_backend *out, const cz_backend *backend)
{
    CZ_TRY(check_table(backend));
    const size_t whole = backend->size - backend->size % sizeof(void *); /* no half entry */
    memset(out, 0, sizeof *out);
    memcpy(out, backend, whole < sizeof *out ? whole : sizeof *out);
    CZ_TRY(check_backend(out));
    if (out->poll && out->poll_seconds == 0 && (out->inline_only || !out->attend))
        out->poll_seconds = DEFAULT_POLL_SECONDS;
    return CZ_OK;
}
