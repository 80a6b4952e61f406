# SPDX-License-Identifier: MIT
# What goes into the Python package beside Python: the library under the one name that it is loaded
# by, plugins beside it, and the czero command.
set(parts czero)
install(FILES $<TARGET_FILE:czero> RENAME $<TARGET_SONAME_FILE_NAME:czero>
        DESTINATION czero/lib COMPONENT python)
foreach(flavour openmpi mpich)
    if(TARGET czero_mpi_${flavour})
        install(TARGETS czero_mpi_${flavour} LIBRARY DESTINATION czero/lib COMPONENT python)
        list(APPEND parts czero_mpi_${flavour})
    endif()
endforeach()
if(TARGET czero_tool)
    install(TARGETS czero_tool RUNTIME DESTINATION czero/bin COMPONENT python)
    list(APPEND parts czero_tool)
endif()
add_custom_target(wheel DEPENDS ${parts})
