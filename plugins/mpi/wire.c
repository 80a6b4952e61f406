/* SPDX-License-Identifier: MIT */
/* A communicator of ours and the ports on it. */
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

static void get_ready(cz__wire *wire, int error)
{
    if (error == MPI_SUCCESS && !wire->listen(wire))
        error = MPI_ERR_NO_MEM;
    if (error != MPI_SUCCESS)
        cz__mpi_error(error, wire->why, sizeof wire->why);
    atomic_store(&wire->ready, error == MPI_SUCCESS ? 1 : -1);
}

static void named(void *owner, const MPI_Status *status, int error)
{
    get_ready(owner, error);
}

/* FNV-1a. A machine without a name, or without memory, is nobody else's. */
static uint64_t number_of_name(int rank)
{
    char name[CZ_MPI_SENTENCE_BYTES];
    uint64_t number = UINT64_C(0xcbf29ce484222325);
    if (!cz__share_machine_name(name, sizeof name))
        snprintf(name, sizeof name, " %d", rank);
    for (const char *at = name; *at; at++)
        number = (number ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    return number;
}

/* All ranks tell each other which machine they are on. */
static int exchange_names(cz__wire *wire)
{
    MPI_Request request;
    int rank, error = MPI_Comm_rank(wire->comm, &rank);
    if (error == MPI_SUCCESS && !cz__requests_reserve(1))
        error = MPI_ERR_NO_MEM;
    if (error != MPI_SUCCESS)
        return error;
    wire->name = number_of_name(rank);
    error = MPI_Iallgather(&wire->name, 1, MPI_UINT64_T, wire->names, 1, MPI_UINT64_T, wire->comm,
                           &request);
    if (error == MPI_SUCCESS)
        cz__requests_add(request, named, wire, false);
    return error;
}

static void duplicated(void *owner, const MPI_Status *status, int error)
{
    cz__wire *wire = owner;
    if (error == MPI_SUCCESS)
        error = MPI_Comm_set_errhandler(wire->comm, MPI_ERRORS_RETURN);
    if (error == MPI_SUCCESS)
        error = exchange_names(wire);
    if (error != MPI_SUCCESS)
        get_ready(wire, error);
}

static int tag_upper_bound(void)
{
    int *bound = NULL, found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&bound, &found);
    return found && bound ? *bound : 32767;
}

static void free_wire(cz__wire *wire)
{
    free(wire->names);
    free(wire->ports);
    free(wire->spoilt);
    free(wire->incoming);
    free(wire);
}

cz_status cz__wire_create(cz__wire **out, MPI_Comm comm, bool (*listen)(cz__wire *wire))
{
    MPI_Request request;
    cz__wire *wire = calloc(1, sizeof *wire);
    if (wire) {
        wire->listen = listen;
        MPI_Comm_size(comm, &wire->size);
        wire->names = calloc((size_t)wire->size, sizeof *wire->names);
        wire->layout = cz__tag_layout_of(tag_upper_bound());
        wire->ports = calloc((size_t)1 << wire->layout.port_bits, sizeof(cz__endpoint *));
        wire->spoilt = calloc((size_t)1 << wire->layout.port_bits, sizeof(bool));
    }
    if (!wire || !wire->names || !wire->ports || !wire->spoilt || !cz__requests_reserve(1)) {
        if (wire)
            free_wire(wire);
        return cz_fail(CZ_ERR_MEMORY, "group_create_mpi: no memory for a communicator");
    }
    const int error = MPI_Comm_idup(comm, &wire->comm, &request);
    if (error != MPI_SUCCESS) {
        char why[CZ_MPI_SENTENCE_BYTES];
        cz__mpi_error(error, why, sizeof why);
        free_wire(wire);
        return cz_fail(CZ_ERR_IO, "group_create_mpi: MPI_Comm_idup: %s", why);
    }
    cz__requests_add(request, duplicated, wire, false);
    *out = wire;
    return CZ_OK;
}

bool cz__wire_connect(cz__wire *wire, cz__endpoint *of)
{
    for (int port = 0; port < 1 << wire->layout.port_bits; port++) {
        if (wire->ports[port] || wire->spoilt[port])
            continue;
        of->port = port;
        wire->ports[port] = of;
        wire->endpoints++;
        return true;
    }
    return false;
}

void cz__wire_disconnect(cz__wire *wire, cz__endpoint *of, bool clean)
{
    wire->ports[of->port] = NULL;
    wire->spoilt[of->port] = !clean;
    wire->unclean |= !clean;
    if (--wire->endpoints > 0)
        return;
    if (cz__mpi_over())
        free_wire(wire);
    else if (wire->listening)
        cz__requests_cancel(wire); /* then it lands, and the wire is freed */
    else
        cz__wire_free_unused(wire);
}

void cz__wire_free_unused(cz__wire *wire)
{
    if (wire->endpoints > 0 || wire->listening || wire->messages > 0)
        return;
    /* Collective, but "normally implemented to be local" (MPI-3.1, 6.4.3); and all ranks have
     * left. */
    if (!wire->unclean)
        MPI_Comm_free(&wire->comm);
    free_wire(wire);
}
