/* SPDX-License-Identifier: MIT */
/* For tests/misuse/test_calls.c with czero/mpi.h: communicators, in processes that are MPI jobs of
 * one. */
#ifndef CZ_TEST_MPI_MISUSE_FIXTURES_H
#define CZ_TEST_MPI_MISUSE_FIXTURES_H

#include <mpi.h>
#include <stdlib.h>

static inline void begin_job(void)
{
    int level;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS ||
        level != MPI_THREAD_MULTIPLE)
        abort();
}

#define MISUSE_BEGIN_PROCESS begin_job()
#include "misuse/fixtures.h"

#include "czero/mpi.h"

/* Two ranks are threads, so each has a communicator of its own. */
FIXTURE(MPI_Comm, MPI_Comm, 1)
{
    return v ? MPI_COMM_NULL : MPI_COMM_SELF;
}

/* The same as numbers of Fortran. */
FIXTURE(MPI_Fint, MPI_Fint, 1)
{
    return MPI_Comm_c2f(v ? MPI_COMM_NULL : MPI_COMM_SELF);
}

#endif
