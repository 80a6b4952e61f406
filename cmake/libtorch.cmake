# SPDX-License-Identifier: MIT
# libtorch, for the test and the example of czero/torch.hpp, where it is found with a compiler for
# C++. The library itself has nothing to do with it.
include(CheckLanguage)
set(CZERO_HAS_LIBTORCH OFF)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
    enable_language(CXX)
    find_package(Torch QUIET)
    set(CZERO_HAS_LIBTORCH ${Torch_FOUND})
endif()
if(NOT CZERO_HAS_LIBTORCH)
    message(STATUS "no libtorch here: czero/torch.hpp is not tried")
endif()

# czero_libtorch_program(TARGET SOURCE): as a user would build it. libtorch's headers are long enough
# without information for a debugger.
function(czero_libtorch_program target source)
    add_executable(${target} "${source}")
    set_target_properties(${target} PROPERTIES
        CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
    target_include_directories(${target} SYSTEM PRIVATE ${TORCH_INCLUDE_DIRS})
    target_compile_options(${target} PRIVATE -g0 -Wall -Wextra -Wpedantic -Wconversion
        -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
    if(CZERO_WERROR)
        target_compile_options(${target} PRIVATE -Werror)
    endif()
    if(CZERO_SANITIZE)
        set(flags -fsanitize=${CZERO_SANITIZE} -fno-omit-frame-pointer)
        target_compile_options(${target} PRIVATE ${flags} -fno-sanitize-recover=all)
        target_link_options(${target} PRIVATE ${flags})
    endif()
    target_link_libraries(${target} PRIVATE czero::czero ${TORCH_LIBRARIES})
endfunction()
