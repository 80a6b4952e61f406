# SPDX-License-Identifier: MIT
# czero_test(NAME TARGET-OR-COMMAND [NIGHTLY] [ARGUMENTS …] [ENVIRONMENT …]): one CTest test. Builds
# with a sanitizer put its name after the test's, and give it the options that the tests need.
set(CZERO_TEST_SUFFIX "")
set(CZERO_TEST_ENVIRONMENT "")
set(CZERO_TEST_LAUNCHER "")

# So long may a test take on a machine that does other things too; the longest takes a fifth of it
# where nothing else runs. One that is for nightly runs may take six times as long.
set(CZERO_TEST_SECONDS 300)
if(CZERO_SANITIZE)
    set(CZERO_TEST_SECONDS 600)
endif()

if(CZERO_SANITIZE MATCHES "thread")
    set(CZERO_TEST_SUFFIX "@tsan")
    set(CZERO_TEST_ENVIRONMENT
        "TSAN_OPTIONS=allocator_may_return_null=1:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp")
    # gcc 12's TSan finds its memory taken where the kernel spreads addresses by more than 28 bits.
    set(bits 0)
    if(EXISTS /proc/sys/vm/mmap_rnd_bits)
        execute_process(COMMAND cat /proc/sys/vm/mmap_rnd_bits OUTPUT_VARIABLE bits ERROR_QUIET
                        OUTPUT_STRIP_TRAILING_WHITESPACE)
    endif()
    find_program(CZERO_SETARCH setarch)
    if(NOT bits OR bits GREATER 28)
        execute_process(COMMAND ${CZERO_SETARCH} -R true RESULT_VARIABLE failed
                        OUTPUT_QUIET ERROR_QUIET)
        if(failed STREQUAL "0")
            set(CZERO_TEST_LAUNCHER ${CZERO_SETARCH} -R)
        endif()
    endif()
elseif(CZERO_SANITIZE)
    set(CZERO_TEST_SUFFIX "@asan")
    set(CZERO_TEST_ENVIRONMENT
        "ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1:strict_string_checks=1"
        "UBSAN_OPTIONS=print_stacktrace=1")
endif()

function(czero_test name command)
    cmake_parse_arguments(PARSE_ARGV 2 arg "NIGHTLY" "" "ARGUMENTS;ENVIRONMENT")
    if(TARGET ${command})
        set(command ${CZERO_TEST_LAUNCHER} $<TARGET_FILE:${command}>)
    endif()
    set(when "")
    set(seconds ${CZERO_TEST_SECONDS})
    if(arg_NIGHTLY)
        set(when CONFIGURATIONS nightly) # of `ctest --build-config`
        math(EXPR seconds "6 * ${seconds}")
    endif()
    set(name ${name}${CZERO_TEST_SUFFIX})
    add_test(NAME ${name} COMMAND ${command} ${arg_ARGUMENTS} ${when})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${seconds} SKIP_RETURN_CODE 77
        ENVIRONMENT "${CZERO_TEST_ENVIRONMENT};${arg_ENVIRONMENT}")
endfunction()
