/* SPDX-License-Identifier: MIT */
/** @file mpi.hpp  Process groups on MPI in C++: mpi.h, as czero.hpp has the rest. */
#ifndef CZERO_MPI_HPP
#define CZERO_MPI_HPP

#include "czero/czero.hpp"
#include "czero/mpi.h"

namespace czero
{

template <> inline cz_mpi_options fresh<cz_mpi_options>()
{
    cz_mpi_options it;
    cz_mpi_options_init(&it);
    return it;
}

/** cz_group_create_mpi(): a group of the ranks of a communicator. */
inline group create_mpi(MPI_Comm comm, const cz_mpi_options &mpi = fresh<cz_mpi_options>(),
                        const cz_group_options &options = fresh<cz_group_options>())
{
    cz_group *made = nullptr;
    check(cz_group_create_mpi(&made, comm, &mpi, &options));
    return {made, true};
}

} // namespace czero

#endif
