! SPDX-License-Identifier: MIT
! Status codes and sentences, the log, memory counters, the version: czero/status.h, base.h and
! version.h. How calls end is in docs/fortran.md.
module czero_base
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int64
    use czero_support, only: to_c, to_fortran
    implicit none
    private
    public :: cz_status_name, cz_last_error, cz_version, cz_build_info
    public :: cz_log, cz_log_set_level, cz_memory_bytes, cz_memory_peak_bytes

    integer, parameter, public :: CZ_OK = 0, CZ_ERR_ARGUMENT = 1, CZ_ERR_MEMORY = 2, &
        CZ_ERR_STATE = 3, CZ_ERR_UNSUPPORTED = 4, CZ_ERR_MISMATCH = 5, CZ_ERR_PEER = 6, &
        CZ_ERR_TIMEOUT = 7, CZ_ERR_IO = 8, CZ_ERR_INTERNAL = 9, CZ_ERR_FORMAT = 10
    integer, parameter, public :: CZ_LOG_OFF = 0, CZ_LOG_ERROR = 1, CZ_LOG_WARN = 2, &
        CZ_LOG_INFO = 3, CZ_LOG_DEBUG = 4
    integer, parameter, public :: CZ_MEMORY_GENERAL = 0, CZ_MEMORY_STATE = 1, &
        CZ_MEMORY_STAGING = 2, CZ_MEMORY_GRADIENT = 3, CZ_MEMORY_STATE_DICT = 4

    interface
        type(c_ptr) function c_status_name(status) bind(C, name='cz_status_name')
            import
            integer(c_int), value :: status
        end function
        type(c_ptr) function c_last_error() bind(C, name='cz_last_error')
            import
        end function
        type(c_ptr) function c_version() bind(C, name='cz_version')
            import
        end function
        type(c_ptr) function c_build_info() bind(C, name='cz_build_info')
            import
        end function
        subroutine c_log_text(level, text) bind(C, name='cz_log_text')
            import
            integer(c_int), value :: level
            character(kind=c_char), intent(in) :: text(*)
        end subroutine
        subroutine c_log_set_level(level) bind(C, name='cz_log_set_level')
            import
            integer(c_int), value :: level
        end subroutine
        integer(c_size_t) function c_memory_bytes(kind) bind(C, name='cz_memory_bytes')
            import
            integer(c_int), value :: kind
        end function
        integer(c_size_t) function c_memory_peak_bytes(kind) bind(C, name='cz_memory_peak_bytes')
            import
            integer(c_int), value :: kind
        end function
    end interface

contains

    ! 'CZ_ERR_PEER'
    function cz_status_name(status) result(name)
        integer, intent(in) :: status
        character(:), allocatable :: name
        name = to_fortran(c_status_name(status))
    end function

    ! The whole sentence of the last failure on this thread.
    function cz_last_error() result(sentence)
        character(:), allocatable :: sentence
        sentence = to_fortran(c_last_error())
    end function

    function cz_version() result(version)
        character(:), allocatable :: version
        version = to_fortran(c_version())
    end function

    function cz_build_info() result(line)
        character(:), allocatable :: line
        line = to_fortran(c_build_info())
    end function

    subroutine cz_log(level, line)
        integer, intent(in) :: level
        character(*), intent(in) :: line
        call c_log_text(level, to_c(line))
    end subroutine

    subroutine cz_log_set_level(level)
        integer, intent(in) :: level
        call c_log_set_level(level)
    end subroutine

    integer(int64) function cz_memory_bytes(kind)
        integer, intent(in) :: kind
        cz_memory_bytes = c_memory_bytes(kind)
    end function

    integer(int64) function cz_memory_peak_bytes(kind)
        integer, intent(in) :: kind
        cz_memory_peak_bytes = c_memory_peak_bytes(kind)
    end function
end module
