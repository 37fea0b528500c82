# The unit tests: one program, found by ctest suite by suite.
file(GLOB cross_tests CONFIGURE_DEPENDS
  ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc ${CMAKE_CURRENT_SOURCE_DIR}/issues/*_test.cc)
# Of the library that the guard preloads, what does without being preloaded.
file(GLOB preload_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/preload/*_test.cc)
set(unit_tests ${EVENKEEL_UNIT_TEST_SOURCES} ${preload_tests} ${cross_tests})
# What differs from the other builds: threads, or the queue that stands in for io_uring.
if(EVENKEEL_SANITIZE STREQUAL "thread")
  list(FILTER unit_tests INCLUDE REGEX
    "/(budget|per_process|queue|direct|cache_first|array|chunks|loader|threads|guard|guarded_file|shared_table|process_guard|mapping_table)_test.cc$")
elseif(NOT EVENKEEL_URING)
  list(FILTER unit_tests INCLUDE REGEX "/(queue|direct|engines|loader|engines_differential)_test.cc$")
endif()
# The library is what is under test: tests are compiled in the quickest way, and in all builds by the
# very same command, so that a compiler cache has all of them after the first and need not even look
# at what they include. What differs is said to the files that ask for it alone. Under ThreadSanitizer
# they must be instrumented like the rest, for it does not see what others synchronise.
set(CMAKE_CXX_FLAGS_RELEASE "")
set(CMAKE_CXX_FLAGS_DEBUG "")
add_library(evenkeel_test_flags INTERFACE)
target_include_directories(evenkeel_test_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_link_libraries(evenkeel_test_flags INTERFACE
  evenkeel rapidcheck GTest::gtest GTest::gmock GTest::gtest_main)
target_compile_options(evenkeel_test_flags INTERFACE -O0 -g0 ${EVENKEEL_WARNINGS}
  $<$<BOOL:${EVENKEEL_TESTS_WERROR}>:-Werror>)

add_executable(evenkeel_tests ${unit_tests}
  ${PROJECT_SOURCE_DIR}/preload/mapping_table.cc ${PROJECT_SOURCE_DIR}/preload/proc_maps.cc)
target_link_libraries(evenkeel_tests PRIVATE evenkeel_test_flags)
# A compiler cache makes __FILE__ relative, so the one that reads a page of docs/ is told where.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/order/golden_test.cc PROPERTIES
  COMPILE_DEFINITIONS EVENKEEL_ORDERS_PAGE="${PROJECT_SOURCE_DIR}/docs/orders.md")
if(EVENKEEL_SANITIZE MATCHES "address")
  foreach(test IN LISTS unit_tests)
    file(STRINGS ${test} asks REGEX "\"tests/sanitizers.h\"")
    if(asks)
      set_source_files_properties(${test} PROPERTIES COMPILE_DEFINITIONS EVENKEEL_UNDER_ASAN)
    endif()
  endforeach()
endif()
if(EVENKEEL_SANITIZE STREQUAL "thread")
  target_link_libraries(evenkeel_tests PRIVATE evenkeel_sanitized)
endif()
if(TARGET evenkeel_cli)
  add_library(evenkeel_command_tests OBJECT ${EVENKEEL_COMMAND_TESTS})
  target_link_libraries(evenkeel_command_tests PRIVATE evenkeel_test_flags evenkeel_commands)
  target_link_libraries(evenkeel_tests PRIVATE
    evenkeel_command_tests $<LINK_ONLY:evenkeel_commands>)
endif()

# Found when ctest starts, suite by suite.
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/suites.cmake CONTENT
"set(PROGRAM [==[$<TARGET_FILE:evenkeel_tests>]==])
include([==[${PROJECT_SOURCE_DIR}/cmake/discover_suites.cmake]==])
")
set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/suites.cmake)
