# liburing, as the imported target Uring::uring. This file is also installed: a static libevenkeel needs it.
include(FindPackageHandleStandardArgs)
find_path(Uring_INCLUDE_DIR liburing.h)
find_library(Uring_LIBRARY uring)
find_package_handle_standard_args(Uring REQUIRED_VARS Uring_LIBRARY Uring_INCLUDE_DIR)
mark_as_advanced(Uring_INCLUDE_DIR Uring_LIBRARY)

if(Uring_FOUND AND NOT TARGET Uring::uring)
  add_library(Uring::uring UNKNOWN IMPORTED)
  set_target_properties(Uring::uring PROPERTIES
    IMPORTED_LOCATION "${Uring_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Uring_INCLUDE_DIR}")
endif()
