/* SPDX-License-Identifier: MIT */
/* What an endpoint has to say to the library: that its group is broken, and that something of it
 * has changed. */
#include <stdio.h>

#include "internal.h"

/* ---- broken ---- */

bool cz__endpoint_break(cz__endpoint *of, uint64_t sequence, cz_status status, const char *sentence)
{
    pthread_mutex_lock(&of->break_lock);
    const bool counts = sequence < atomic_load(&of->broken_from);
    if (counts) {
        of->broken = status;
        snprintf(of->sentence, sizeof of->sentence, "%s", sentence);
        atomic_store(&of->broken_from, sequence);
    }
    pthread_mutex_unlock(&of->break_lock);
    return counts;
}

cz_status cz__endpoint_broken(void *endpoint, uint64_t *sequence, char *sentence, size_t bytes)
{
    cz__endpoint *of = endpoint;
    if (atomic_load(&of->broken_from) == UINT64_MAX)
        return CZ_OK;
    pthread_mutex_lock(&of->break_lock);
    const cz_status status = of->broken;
    *sequence = atomic_load(&of->broken_from);
    if (sentence)
        snprintf(sentence, bytes, "%s", of->sentence);
    pthread_mutex_unlock(&of->break_lock);
    return status;
}

/* ---- changed ---- */

static cz__endpoint *changed; /* with cz__mpi_enter() */

void cz__endpoint_changed(cz__endpoint *of)
{
    if (of->changed)
        return;
    of->changed = true;
    of->next_changed = changed;
    changed = of;
}

cz__endpoint *cz__endpoints_changed(void)
{
    cz__endpoint *list = changed;
    for (cz__endpoint *of = list; of; of = of->next_changed)
        of->changed = false;
    changed = NULL;
    return list;
}

void cz__endpoints_notify(cz__endpoint *list)
{
    for (cz__endpoint *of = list, *next; of; of = next) {
        next = of->next_changed; /* once notified it may change anew */
        pthread_mutex_lock(&of->notify_lock);
        if (of->notify)
            of->notify(of->context);
        pthread_mutex_unlock(&of->notify_lock);
    }
}
