# SPDX-License-Identifier: MIT
# czero_find_blas(OUT): the target of a BLAS with the interface of cblas.h, which is in the folder
# CZERO_CBLAS_INCLUDE. None: an error, or with AUTO "".
include(CheckSourceCompiles)

function(czero_find_blas out)
    find_package(BLAS)
    find_package(PkgConfig)
    if(PkgConfig_FOUND)
        pkg_check_modules(CZERO_CBLAS QUIET openblas)
    endif()
    find_path(CZERO_CBLAS_INCLUDE cblas.h HINTS ${CZERO_CBLAS_INCLUDE_DIRS} PATH_SUFFIXES openblas)
    if(BLAS_FOUND AND CZERO_CBLAS_INCLUDE)
        set(CMAKE_REQUIRED_LIBRARIES BLAS::BLAS)
        set(CMAKE_REQUIRED_INCLUDES "${CZERO_CBLAS_INCLUDE}")
        check_source_compiles(C "
            #include <cblas.h>
            int main(void)
            {
                cblas_ssyrk(CblasRowMajor, CblasUpper, CblasNoTrans, 0, 0, 1, 0, 1, 0, 0, 1);
                return 0;
            }" CZERO_HAVE_CBLAS)
    endif()
    set(${out} "" PARENT_SCOPE)
    if(CZERO_HAVE_CBLAS)
        set(${out} BLAS::BLAS PARENT_SCOPE)
        set(BLAS_LIBRARIES "${BLAS_LIBRARIES}" PARENT_SCOPE) # for czero.pc
    elseif(CZERO_BLAS STREQUAL "AUTO")
        message(STATUS "czero: matrix products by own loops, for want of a BLAS with cblas.h (libopenblas-dev)")
    else()
        message(FATAL_ERROR "czero: CZERO_BLAS is ${CZERO_BLAS}, and there is no BLAS with cblas.h (libopenblas-dev)")
    endif()
endfunction()
