# SPDX-License-Identifier: MIT
# Install: headers, libraries, a CMake package (find_package(czero)) and a pkg-config file. The tree
# may be moved after installation.
include(CMakePackageConfigHelpers)

set(targets czero)
if(CZERO_STATIC)
    list(APPEND targets czero_static)
endif()
install(TARGETS ${targets} EXPORT czero
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY include/czero DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

set(CZERO_HAS_CHECKPOINT OFF)
set(CZERO_HAS_LIBZIP OFF)
set(pc_private "")
if(checkpoint_libraries)
    set(CZERO_HAS_CHECKPOINT ON)
    set(pc_private " -ljansson -lxxhash")
    if(torch_files)
        set(CZERO_HAS_LIBZIP ON)
        string(APPEND pc_private " -lzip")
    endif()
endif()

set(CZERO_HAS_BLAS OFF)
if(blas_libraries)
    set(CZERO_HAS_BLAS ON)
    list(JOIN BLAS_LIBRARIES " " blas_flags)
    string(APPEND pc_private " ${blas_flags}")
endif()

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/czero")
install(EXPORT czero NAMESPACE czero:: FILE czero-targets.cmake DESTINATION "${package_dir}")
configure_package_config_file(cmake/czero-config.cmake.in czero-config.cmake
                              INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/czero-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/czero-config.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/czero-config-version.cmake"
        DESTINATION "${package_dir}")

# ${pcfiledir} is the folder of the .pc file: the prefix follows the tree.
cmake_path(SET pc_dir NORMALIZE "/${CMAKE_INSTALL_LIBDIR}/pkgconfig")
cmake_path(RELATIVE_PATH pc_dir BASE_DIRECTORY "/" OUTPUT_VARIABLE up)
string(REGEX REPLACE "[^/]+" ".." up "${up}")
set(pc_prefix "\${pcfiledir}/${up}")
set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
    set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
    set(pc_libdir "${CMAKE_INSTALL_FULL_LIBDIR}")
    set(pc_includedir "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
endif()
configure_file(cmake/czero.pc.in czero.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/czero.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
