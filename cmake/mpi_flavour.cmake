# SPDX-License-Identifier: MIT
# czero_mpi_flavour(RESULT LANGUAGE): "openmpi", "mpich" or "" of the MPI that find_package(MPI) found
# for a language. There is no ABI common to both, so each has a plugin of its own. Installed, too: a project that uses
# czero::mpi gets the plugin for its own MPI.
function(czero_mpi_flavour result language)
    set(${result} "" PARENT_SCOPE)
    find_file(header mpi.h HINTS ${MPI_${language}_INCLUDE_DIRS} ${MPI_Fortran_F77_HEADER_DIR} NO_CACHE)
    if(NOT header)
        return()
    endif()
    file(STRINGS "${header}" lines REGEX "define (OPEN_MPI|MPICH_VERSION)[ \t]")
    if(lines MATCHES "OPEN_MPI")
        set(${result} openmpi PARENT_SCOPE)
    elseif(lines MATCHES "MPICH_VERSION")
        set(${result} mpich PARENT_SCOPE)
    endif()
endfunction()
