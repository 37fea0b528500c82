# Headers, the library, the tool, a CMake package and a pkg-config file. All of them can be moved:
# nothing installed names the prefix.
include(CMakePackageConfigHelpers)
set(EVENKEEL_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/evenkeel)

install(TARGETS evenkeel EXPORT evenkeelTargets)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/evenkeel ${PROJECT_BINARY_DIR}/include/evenkeel
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT evenkeelTargets NAMESPACE evenkeel:: DESTINATION ${EVENKEEL_CMAKE_DIR})

get_target_property(EVENKEEL_LIBRARY_TYPE evenkeel TYPE)
if(TARGET evenkeel_cli)
  install(TARGETS evenkeel_cli)
endif()
if(TARGET evenkeel_share)
  install(DIRECTORY ${EVENKEEL_SHARE}/ DESTINATION ${CMAKE_INSTALL_DATADIR})
endif()
if(TARGET evenkeel_guard_preload)
  install(TARGETS evenkeel_guard_preload LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/evenkeel)
endif()

set(EVENKEEL_NEEDS_URING OFF)
if(EVENKEEL_HAVE_URING AND EVENKEEL_LIBRARY_TYPE STREQUAL "STATIC_LIBRARY")
  set(EVENKEEL_NEEDS_URING ON)
endif()
configure_package_config_file(cmake/evenkeelConfig.cmake.in cmake/evenkeelConfig.cmake
  INSTALL_DESTINATION ${EVENKEEL_CMAKE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(cmake/evenkeelConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/evenkeelConfig.cmake
              ${PROJECT_BINARY_DIR}/cmake/evenkeelConfigVersion.cmake
              cmake/FindUring.cmake
        DESTINATION ${EVENKEEL_CMAKE_DIR})

set(EVENKEEL_PC_LIBS "")
if(EVENKEEL_LIBRARY_TYPE STREQUAL "STATIC_LIBRARY")
  # Includes the C++ standard library, which a C linker does not add.
  set(EVENKEEL_PC_LIBS "${CMAKE_THREAD_LIBS_INIT}")
  foreach(library IN LISTS CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
    if(library MATCHES "^(stdc\\+\\+|c\\+\\+|m)$")
      string(APPEND EVENKEEL_PC_LIBS " -l${library}")
    endif()
  endforeach()
  foreach(library IN LISTS CMAKE_DL_LIBS)  # before glibc 2.34, dlopen is not in libc
    string(APPEND EVENKEEL_PC_LIBS " -l${library}")
  endforeach()
  if(EVENKEEL_NEEDS_URING)
    string(PREPEND EVENKEEL_PC_LIBS "-luring ")
  endif()
endif()
file(RELATIVE_PATH EVENKEEL_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" EVENKEEL_PC_PREFIX "${EVENKEEL_PC_PREFIX}")
configure_file(cmake/evenkeel.pc.in cmake/evenkeel.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cmake/evenkeel.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
