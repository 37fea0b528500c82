# The unit tests: one program, found by ctest test by test.
file(GLOB cross_tests CONFIGURE_DEPENDS
  ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc ${CMAKE_CURRENT_SOURCE_DIR}/issues/*_test.cc)
set(unit_tests ${EVENKEEL_UNIT_TEST_SOURCES} ${EVENKEEL_COMMAND_TESTS} ${cross_tests})
# What differs from the other builds: threads, or the queue that stands in for io_uring.
if(EVENKEEL_SANITIZE STREQUAL "thread")
  list(FILTER unit_tests INCLUDE REGEX
    "/(budget|per_process|queue|direct|cache_first|mover|array|chunks|loader|threads|guard|watched)_test.cc$")
elseif(NOT EVENKEEL_URING)
  list(FILTER unit_tests INCLUDE REGEX "/(queue|direct|engines|loader|engines_differential)_test.cc$")
endif()
# The library is what is under test: tests are compiled in the quickest way, and in all builds in the
# same, so that a compiler cache has all of them after the first. Under ThreadSanitizer they must be
# instrumented like the rest, for it does not see what others synchronise.
set(CMAKE_CXX_FLAGS_RELEASE "")
set(CMAKE_CXX_FLAGS_DEBUG "")
add_executable(evenkeel_tests ${unit_tests})
target_include_directories(evenkeel_tests PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_link_libraries(evenkeel_tests PRIVATE
  evenkeel rapidcheck GTest::gtest GTest::gmock GTest::gtest_main)
target_compile_options(evenkeel_tests PRIVATE -O0 -g0 ${EVENKEEL_WARNINGS}
  $<$<BOOL:${EVENKEEL_TESTS_WERROR}>:-Werror>)
if(EVENKEEL_SANITIZE MATCHES "address")
  target_compile_definitions(evenkeel_tests PRIVATE EVENKEEL_UNDER_ASAN)
endif()
if(EVENKEEL_SANITIZE STREQUAL "thread")
  target_link_libraries(evenkeel_tests PRIVATE evenkeel_sanitized)
endif()
if(TARGET evenkeel_cli)
  add_dependencies(evenkeel_tests evenkeel_cli)
  target_link_libraries(evenkeel_tests PRIVATE evenkeel_commands)
  target_compile_definitions(evenkeel_tests PRIVATE EVENKEEL_TOOL="$<TARGET_FILE:evenkeel_cli>")
endif()

# Found when ctest starts, not when the build ends: a test program that cannot start is then a
# failing test and not a failing build. Suites called Memory* are those that measure memory.
set(memory_suites "Memory*:*/Memory*")
gtest_discover_tests(evenkeel_tests TEST_FILTER "-${memory_suites}"
  DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300 LABELS unit)
gtest_discover_tests(evenkeel_tests TEST_FILTER "${memory_suites}" TEST_LIST evenkeel_memory_tests
  DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
  PROPERTIES TIMEOUT 300 LABELS memory RUN_SERIAL ON)

