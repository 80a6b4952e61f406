/* SPDX-License-Identifier: MIT */
/* The endpoints of this process: made, listed, and freed when their rank and all others have
 * left. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static cz__endpoint *all;

/* ---- made ---- */

static void set_peers(cz__endpoint *of, const int *ranks)
{
    for (int r = 0; r < of->size; r++) {
        const bool sub_group = of->parent != NULL;
        of->peers[r] = (cz__peer){.address = sub_group ? of->parent->peers[ranks[r]].address : r,
                                  .parent_rank = sub_group ? ranks[r] : -1,
                                  .port = sub_group ? -1 : 0,
                                  .hello_due = sub_group && r != of->rank,
                                  .told_from = UINT64_MAX};
    }
    of->peers[of->rank].port = of->port;
}

cz_status cz__endpoint_create(cz__endpoint **out, cz__wire *wire, int rank, int size,
                              cz__endpoint *parent, const int *ranks)
{
    cz__endpoint *of = calloc(1, sizeof *of + (size_t)size * sizeof(cz__peer));
    if (!of || !cz__tag_window_open(&of->window, &wire->layout)) {
        if (of)
            cz__tag_window_close(&of->window);
        free(of);
        return cz_fail(CZ_ERR_MEMORY, "mpi: no memory for rank %d of %d", rank, size);
    }
    of->wire = wire;
    of->rank = rank;
    of->size = size;
    of->parent = parent;
    of->untold = of->present = size - 1;
    atomic_store(&of->broken_from, UINT64_MAX);
    of->held_end = &of->held;
    of->waiting_end = &of->waiting;
    if (!cz__wire_connect(wire, of)) {
        cz__tag_window_close(&of->window);
        free(of);
        return cz_fail(CZ_ERR_UNSUPPORTED, "mpi: a group and its sub-groups can be %d at once",
                       1 << wire->layout.port_bits);
    }
    set_peers(of, ranks);
    pthread_mutex_init(&of->notify_lock, NULL);
    pthread_mutex_init(&of->break_lock, NULL);
    of->next = all;
    all = of;
    *out = of;
    return CZ_OK;
}

cz__endpoint *cz__endpoints_find(const cz__endpoint *parent, uint64_t id)
{
    cz__endpoint *of = all;
    while (of && !(of->parent == parent && of->id == id))
        of = of->next;
    return of;
}

/* ---- in use ---- */

cz__endpoint *cz__endpoints_first(void)
{
    return all;
}

void cz__endpoints_attend_children(const cz__endpoint *parent)
{
    for (cz__endpoint *of = all; of; of = of->next)
        if (of->parent == parent)
            atomic_store(&of->attention, true);
}

int cz__endpoints_waiting(void)
{
    int count = 0;
    for (const cz__endpoint *of = all; of; of = of->next)
        count += of->waiting != NULL;
    return count;
}

int cz__endpoints_present(void)
{
    int count = 0;
    for (const cz__endpoint *of = all; of; of = of->next)
        count += of->present;
    return count;
}

int cz__endpoints_untold(void)
{
    int count = 0;
    for (const cz__endpoint *of = all; of; of = of->next)
        count += atomic_load(&of->leaving) && of->untold > 0;
    return count;
}

/* ---- gone ---- */

/* Every message that was sent to this rank has been received; and nothing failed, for then some
 * rank may never come to what is collective. */
static bool is_clean(const cz__endpoint *of)
{
    if (atomic_load(&of->broken_from) != UINT64_MAX)
        return false;
    for (int r = 0; r < of->size; r++)
        if (r != of->rank && of->peers[r].received != of->peers[r].sent_in_all)
            return false;
    return true;
}

void cz__endpoint_forget(cz__endpoint *of)
{
    cz__endpoint **link = &all;
    while (*link != of)
        link = &(*link)->next;
    *link = of->next;
}

void cz__endpoint_free(cz__endpoint *of)
{
    cz__endpoint_forget(of);
    for (cz__endpoint *child = all; child; child = child->next)
        if (child->parent == of)
            child->parent = NULL;
    cz__wire_disconnect(of->wire, of, is_clean(of));
    for (cz__parcel *parcel = of->idle, *next; parcel; parcel = next) {
        next = parcel->next;
        cz__parcel_free(parcel);
    }
    for (cz__hello *hello = of->hellos, *next; hello; hello = next) {
        next = hello->next;
        free(hello);
    }
    for (int r = 0; r < of->size; r++)
        free(of->peers[r].why);
    cz__tag_window_close(&of->window);
    cz__share_close(of);
    pthread_mutex_destroy(&of->notify_lock);
    pthread_mutex_destroy(&of->break_lock);
    free(of);
}

void cz__endpoints_reap(void)
{
    for (cz__endpoint *of = all, *next; of; of = next) {
        next = of->next;
        if (atomic_load(&of->gone) && of->untold == 0 && of->present == 0 && of->under_way == 0 &&
            !of->changed)
            cz__endpoint_free(of);
    }
}

void cz__endpoints_end(const cz__endpoint *but, const char *sentence, const char *why)
{
    for (cz__endpoint *of = all; of; of = of->next) {
        if (of == but || atomic_load(&of->leaving))
            continue;
        for (int r = 0; r < of->size; r++)
            of->peers[r].told_from = 0; /* that this rank leaves is enough */
        (void)cz__endpoint_break(of, 0, CZ_ERR_STATE, sentence);
        snprintf(of->why, sizeof of->why, "%s", why);
        atomic_store(&of->leaving, true);
        atomic_store(&of->attention, true);
        cz__parcels_cancel(of);
    }
}
