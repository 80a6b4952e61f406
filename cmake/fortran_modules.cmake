# SPDX-License-Identifier: MIT
# czero_fortran_modules(RESULT): "gfortran-12" and the like, the name of the folder of modules that
# this project's Fortran compiler can read. Installed, too: a project that uses czero::fortran
# compares it with what is there.
function(czero_fortran_modules result)
    string(TOLOWER "${CMAKE_Fortran_COMPILER_ID}" name)
    if(name STREQUAL "gnu")
        set(name gfortran)
    endif()
    string(REGEX REPLACE "\\..*" "" major "${CMAKE_Fortran_COMPILER_VERSION}")
    set(${result} "${name}-${major}" PARENT_SCOPE)
endfunction()
