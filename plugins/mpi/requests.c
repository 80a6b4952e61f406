/* SPDX-License-Identifier: MIT */
/* The requests that MPI has of us, in one array so that one call tests them all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef struct purpose {
    cz__landed *landed;
    void *owner;
    bool waits;
    bool cancelled;
} purpose;

static MPI_Request *requests;
static purpose *purposes; /* what each request is for */
static int *indices;      /* for MPI_Testsome */
static MPI_Status *statuses;
static int count, capacity, waiting;

/* The array with more room, or as it was, and *enough is false. */
static void *grown(void *array, size_t element_size, int wanted, bool *enough)
{
    void *larger = realloc(array, (size_t)wanted * element_size);
    *enough &= larger != NULL;
    return larger ? larger : array;
}

bool cz__requests_reserve(int more)
{
    bool enough = true;
    if (count + more <= capacity)
        return true;
    const int wanted = 2 * capacity + more + 64;
    requests = grown(requests, sizeof *requests, wanted, &enough);
    purposes = grown(purposes, sizeof *purposes, wanted, &enough);
    indices = grown(indices, sizeof *indices, wanted, &enough);
    statuses = grown(statuses, sizeof *statuses, wanted, &enough);
    if (enough)
        capacity = wanted;
    return enough;
}

void cz__requests_add(MPI_Request request, cz__landed *landed, void *owner, bool waits)
{
    requests[count] = request;
    purposes[count] = (purpose){landed, owner, waits, false};
    count++;
    waiting += waits;
}

static void close_gaps(int tested)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (i < tested && requests[i] == MPI_REQUEST_NULL)
            continue;
        requests[kept] = requests[i];
        purposes[kept++] = purposes[i];
    }
    count = kept;
}

bool cz__requests_test(void)
{
    int ended = 0;
    const int tested = count;
    if (tested == 0)
        return false;
    const int error = MPI_Testsome(tested, requests, &ended, indices, statuses);
    if (ended == MPI_UNDEFINED || ended <= 0)
        return false;
    for (int i = 0; i < ended; i++) { /* landing may add requests, and so move the arrays */
        const purpose its = purposes[indices[i]];
        const MPI_Status status = statuses[i];
        requests[indices[i]] = MPI_REQUEST_NULL;
        waiting -= its.waits;
        its.landed(its.owner, &status, error == MPI_SUCCESS ? error : status.MPI_ERROR);
    }
    close_gaps(tested);
    return true;
}

void cz__requests_cancel(const void *owner)
{
    for (int i = 0; i < count; i++) {
        if (purposes[i].owner != owner || purposes[i].cancelled || requests[i] == MPI_REQUEST_NULL)
            continue;
        purposes[i].cancelled = true; /* a second time is not for Open MPI */
        MPI_Cancel(&requests[i]);
    }
}

void cz__requests_visit(cz__landed *landed, void (*visit)(void *owner, void *context),
                        void *context)
{
    for (int i = 0; i < count; i++)
        if (purposes[i].landed == landed)
            visit(purposes[i].owner, context);
}

int cz__requests_busy(void)
{
    return count - waiting;
}

void cz__requests_forget(void)
{
    for (int i = 0; i < count;
         i++) { /* sends that nobody received are MPI_Finalize's to deal with */
        if (!purposes[i].waits)
            continue;
        if (!purposes[i].cancelled)
            MPI_Cancel(&requests[i]);
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE); /* local, for a receive that is cancelled */
    }
    free(requests);
    free(purposes);
    free(indices);
    free(statuses);
    requests = NULL;
    purposes = NULL;
    indices = NULL;
    statuses = NULL;
    count = capacity = waiting = 0;
}

void cz__mpi_error(int error, char *text, size_t bytes)
{
    char sentence[MPI_MAX_ERROR_STRING + 1] = "unknown error";
    int length = 0;
    if (MPI_Error_string(error, sentence, &length) != MPI_SUCCESS)
        length = 0;
    for (char *end = strchr(sentence, '\n'); end; end = strchr(end, '\n'))
        *end = ' ';
    snprintf(text, bytes, "%s", length ? sentence : "unknown MPI error");
}
