# SPDX-License-Identifier: MIT
# Flags that every target of czero gets, and the instruction-set levels of the kernels.
include(CheckCCompilerFlag)

set(CZERO_WARNINGS
    -Wall -Wextra -Wno-unused-parameter # callbacks have unused parameters
    -Wshadow -Wundef -Wvla -Wpointer-arith -Wwrite-strings
    -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition)
if(CMAKE_C_COMPILER_ID MATCHES "Clang") # which says so of {.name = x} too; the rest is zero on purpose
    list(APPEND CZERO_WARNINGS -Wno-missing-field-initializers)
endif()

# czero_flags(TARGET): C17, no contraction of a * b + c into one rounding, warnings, sanitizers.
function(czero_flags target)
    set_target_properties(${target} PROPERTIES
        C_STANDARD 17 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
    target_compile_options(${target} PRIVATE -ffp-contract=off
        -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/= ${CZERO_WARNINGS}) # __FILE__ from the root
    if(CZERO_WERROR)
        target_compile_options(${target} PRIVATE -Werror)
    endif()
    if(CZERO_SANITIZE)
        set(flags -fsanitize=${CZERO_SANITIZE} -fno-omit-frame-pointer)
        target_compile_options(${target} PRIVATE ${flags} -fno-sanitize-recover=all)
        target_link_options(${target} PRIVATE ${flags})
    endif()
    if(CZERO_COVERAGE)
        target_link_options(${target} PRIVATE --coverage)
    endif()
endfunction()

# czero_fortran_flags(TARGET): the same for Fortran 2018; for gfortran, which czero is tried with.
function(czero_fortran_flags target)
    if(NOT CMAKE_Fortran_COMPILER_ID STREQUAL "GNU")
        return()
    endif()
    target_compile_options(${target} PRIVATE -std=f2018 -ffp-contract=off -Wall -Wextra
        $<$<CONFIG:Debug>:-fcheck=all,no-array-temps>)
    if(CZERO_WERROR)
        target_compile_options(${target} PRIVATE -Werror)
    endif()
endfunction()

# The same loops are compiled once per level; flags come last on the command line, so they win over
# those of the build type. At -O2 gcc leaves them scalar, so -O3 in every build type.
set(CZERO_KERNEL_FLAGS -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off)
set(CZERO_LEVELS v1)
set(CZERO_LEVEL_FLAGS_v1 "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$" AND CMAKE_SIZEOF_VOID_P EQUAL 8)
    check_c_compiler_flag(-march=x86-64-v4 CZERO_HAVE_X86_LEVELS)
    if(CZERO_HAVE_X86_LEVELS)
        set(CZERO_LEVELS v1 v3 v4)
        set(CZERO_LEVEL_FLAGS_v1 -march=x86-64)
        set(CZERO_LEVEL_FLAGS_v3 -march=x86-64-v3)
        set(CZERO_LEVEL_FLAGS_v4 -march=x86-64-v4 -mprefer-vector-width=512)
    endif()
endif()
