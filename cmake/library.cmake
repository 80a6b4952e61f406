# SPDX-License-Identifier: MIT
# The library. Every source is compiled once, with hidden symbols; the shared library czero exports
# what CZ_API marks, and the archive czero_internal lets tests reach cz__ names as well.
find_package(Threads REQUIRED)

# `_GNU_SOURCE=` has the same tokens as `#define _GNU_SOURCE` in a file, so both may stand.
function(czero_objects name)
    add_library(${name} OBJECT ${ARGN})
    czero_flags(${name})
    set_target_properties(${name} PROPERTIES C_VISIBILITY_PRESET hidden)
    target_compile_definitions(${name} PRIVATE _GNU_SOURCE=)
    target_include_directories(${name} PRIVATE
        "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
    target_link_libraries(${name} PRIVATE Threads::Threads)
endfunction()

file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/*.c")
file(GLOB kernels CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/device/cpu/kernels/*.c")
if(kernels)
    list(REMOVE_ITEM sources ${kernels})
endif()

set(checkpoint_libraries "")
set(torch_files OFF)
if(CZERO_CHECKPOINT)
    find_package(PkgConfig)
    if(PkgConfig_FOUND)
        pkg_check_modules(jansson IMPORTED_TARGET jansson)
        pkg_check_modules(xxhash IMPORTED_TARGET libxxhash)
        pkg_check_modules(libzip IMPORTED_TARGET libzip)
    endif()
    if(jansson_FOUND AND xxhash_FOUND)
        set(checkpoint_libraries PkgConfig::jansson PkgConfig::xxhash)
        # Not every libxxhash for x86 is built with it, and there is none elsewhere.
        include(CheckSourceCompiles)
        set(CMAKE_REQUIRED_LIBRARIES PkgConfig::xxhash)
        check_source_compiles(C "
            #include <xxhash.h>
            #include <xxh_x86dispatch.h>
            int main(void) { return (int)XXH3_128bits(\"\", 0).low64; }" CZERO_XXHASH_DISPATCH)
        unset(CMAKE_REQUIRED_LIBRARIES)
        if(NOT CZERO_TORCH)
            message(STATUS "czero: no files of torch, as CZERO_TORCH says")
        elseif(libzip_FOUND)
            set(torch_files ON)
            list(APPEND checkpoint_libraries PkgConfig::libzip)
        else()
            message(STATUS "czero: no files of torch, for want of libzip (libzip-dev)")
        endif()
    else()
        message(STATUS "czero: no checkpoints, for want of jansson (libjansson-dev) or xxhash (libxxhash-dev)")
    endif()
endif()
if(checkpoint_libraries)
    list(FILTER sources EXCLUDE REGEX "/src/interop/absent\\.c$")
    if(torch_files)
        list(FILTER sources EXCLUDE REGEX "/src/io/container_absent\\.c$")
    else()
        list(FILTER sources EXCLUDE REGEX "/src/io/container_(read|write)\\.c$")
    endif()
else()
    list(FILTER sources EXCLUDE REGEX "/src/(io|checkpoint|interop)/")
    list(APPEND sources "${PROJECT_SOURCE_DIR}/src/interop/absent.c" "${PROJECT_SOURCE_DIR}/src/io/types.c")
endif()

set(blas_libraries "")
if(CZERO_BLAS)
    include(cmake/blas.cmake)
    czero_find_blas(blas_libraries)
endif()

czero_objects(czero_objects ${sources})
if(CZERO_COVERAGE) # of the library without its kernels, whose loops would take several times as long
    target_compile_options(czero_objects PRIVATE --coverage -fprofile-update=atomic)
endif()
target_link_libraries(czero_objects PRIVATE ${checkpoint_libraries})
if(blas_libraries)
    set_source_files_properties("${PROJECT_SOURCE_DIR}/src/device/cpu/matmul.c" PROPERTIES
        COMPILE_DEFINITIONS CZ_BLAS=1 INCLUDE_DIRECTORIES "${CZERO_CBLAS_INCLUDE}")
endif()
set_source_files_properties("${PROJECT_SOURCE_DIR}/src/hooks/low_rank.c" PROPERTIES
    COMPILE_OPTIONS "-O3;-fno-math-errno") # loops over matrices
# gcc clears and copies a description of an operation by one instruction, which takes longer to begin
# than the C library takes for all of it.
check_c_compiler_flag(-mstringop-strategy=libcall CZERO_HAVE_STRINGOP)
if(CZERO_HAVE_STRINGOP)
    foreach(file arguments memory driver)
        set_source_files_properties("${PROJECT_SOURCE_DIR}/src/group/${file}.c" PROPERTIES
            COMPILE_OPTIONS -mstringop-strategy=libcall)
    endforeach()
endif()
target_compile_definitions(czero_objects PRIVATE CZ_BUILD_TYPE="$<CONFIG>")
set_source_files_properties("${PROJECT_SOURCE_DIR}/src/group/plugin.c" PROPERTIES
    COMPILE_DEFINITIONS CZ_PLUGIN_FOLDER="${CMAKE_INSTALL_FULL_LIBDIR}")
if("v4" IN_LIST CZERO_LEVELS)
    target_compile_definitions(czero_objects PRIVATE CZ_LEVELS_X86=1)
endif()
if(checkpoint_libraries AND CZERO_XXHASH_DISPATCH)
    target_compile_definitions(czero_objects PRIVATE CZ_XXHASH_DISPATCH=1)
endif()
set(objects $<TARGET_OBJECTS:czero_objects>)

if(kernels)
    foreach(level IN LISTS CZERO_LEVELS)
        czero_objects(czero_kernels_${level} ${kernels})
        target_compile_definitions(czero_kernels_${level} PRIVATE CZ_LEVEL=${level})
        target_compile_options(czero_kernels_${level} PRIVATE
            ${CZERO_KERNEL_FLAGS} ${CZERO_LEVEL_FLAGS_${level}})
        list(APPEND objects $<TARGET_OBJECTS:czero_kernels_${level}>)
    endforeach()
endif()

# czero_library(NAME TYPE): a library of all objects
function(czero_library name type)
    add_library(${name} ${type} ${objects})
    czero_flags(${name})
    target_compile_features(${name} INTERFACE c_std_99)
    target_include_directories(${name} PUBLIC
        "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
        "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
    target_link_libraries(${name} PRIVATE Threads::Threads m ${checkpoint_libraries} ${blas_libraries})
endfunction()

czero_library(czero SHARED)
add_library(czero::czero ALIAS czero)
set_target_properties(czero PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
if(NOT CZERO_SANITIZE) # whose run-time library clang leaves to the program
    target_link_options(czero PRIVATE -Wl,-z,defs)
endif()

if(CZERO_STATIC)
    czero_library(czero_static STATIC)
    add_library(czero::czero_static ALIAS czero_static)
    set_target_properties(czero_static PROPERTIES OUTPUT_NAME czero)
endif()

if(CZERO_TESTS OR CZERO_BENCH OR CZERO_FUZZ OR CZERO_TOOLS)
    czero_library(czero_internal STATIC)
    target_include_directories(czero_internal PUBLIC "${PROJECT_SOURCE_DIR}/src")
endif()
