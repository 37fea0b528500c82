# The unit tests: one program, found by ctest suite by suite.
file(GLOB cross_tests CONFIGURE_DEPENDS
  ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc ${CMAKE_CURRENT_SOURCE_DIR}/issues/*_test.cc)
# Of the library that the guard preloads, what does without being preloaded.
file(GLOB preload_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/preload/*_test.cc)
set(unit_tests ${EVENKEEL_UNIT_TEST_SOURCES} ${preload_tests} ${cross_tests})

# A test file may begin with `// labels: threads reads`: its suites get these labels, beside `unit` or
# `memory`. Presets choose by label what they run; see CMakePresets.json. ThreadSanitizer's build
# compiles nothing but the files labelled `threads`.
set(labelled)
set(in_this_build)
foreach(test IN LISTS unit_tests)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${test})
  file(STRINGS ${test} first_line LIMIT_COUNT 1)
  set(labels)
  if(first_line MATCHES "^// labels: (.*)$")
    string(REPLACE " " ";" labels "${CMAKE_MATCH_1}")
    file(STRINGS ${test} tests REGEX "^(TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP)\\(")
    foreach(line IN LISTS tests)
      string(REGEX REPLACE "^[A-Z_]*\\(([A-Za-z0-9_]*),.*" "\\1" suite "${line}")
      foreach(label IN LISTS labels)
        list(APPEND labelled "${suite}=${label}")
      endforeach()
    endforeach()
  endif()
  if(NOT EVENKEEL_SANITIZE STREQUAL "thread" OR "threads" IN_LIST labels)
    list(APPEND in_this_build ${test})
  endif()
endforeach()
list(REMOVE_DUPLICATES labelled)

# The tests of a room are compiled together, in the quickest way: it is the library that is under
# test. The plain builds use the very same commands, so that a compiler cache has them after the
# first. With sanitizers the tests are instrumented, too.
set(CMAKE_CXX_FLAGS_RELEASE "")
set(CMAKE_CXX_FLAGS_DEBUG "")
add_library(evenkeel_test_flags INTERFACE)
target_include_directories(evenkeel_test_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_link_libraries(evenkeel_test_flags INTERFACE
  evenkeel_internal rapidcheck GTest::gtest GTest::gmock GTest::gtest_main)
target_compile_options(evenkeel_test_flags INTERFACE -O0 -g0 ${EVENKEEL_WARNINGS}
  $<$<BOOL:${EVENKEEL_TESTS_WERROR}>:-Werror>)
# gcc collects garbage at every 128 MiB: for a fifteenth of its time, with memory to spare.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(evenkeel_test_flags INTERFACE "SHELL:--param ggc-min-heapsize=1048576")
endif()
# The undefined-behaviour sanitizer is for the library: in tests it would cost a third of the compiler's
# time.
if(EVENKEEL_SANITIZE)
  string(REPLACE ",undefined" "" sanitize_tests ${EVENKEEL_SANITIZE})
  target_compile_options(evenkeel_test_flags INTERFACE
    -fsanitize=${sanitize_tests} -fno-omit-frame-pointer)
endif()

# What every test includes takes a fifth of the compiler's time. Plain builds go without: a compiler
# cache has their objects from one build for the next, which a header compiled in its folder prevents.
set(precompiled <algorithm> <filesystem> <functional> <map> <random> <thread> <gmock/gmock.h>
  <gtest/gtest.h> <rapidcheck/gtest.h>)

add_executable(evenkeel_tests ${in_this_build}
  ${PROJECT_SOURCE_DIR}/preload/mapping_table.cc ${PROJECT_SOURCE_DIR}/preload/proc_maps.cc
  ${PROJECT_SOURCE_DIR}/preload/say.cc ${PROJECT_SOURCE_DIR}/preload/table_link.cc)
target_link_libraries(evenkeel_tests PRIVATE evenkeel_test_flags)
evenkeel_unity_by_folder(evenkeel_tests ${in_this_build})
if(EVENKEEL_SANITIZE)
  target_precompile_headers(evenkeel_tests PRIVATE ${precompiled})
endif()
if(TARGET evenkeel_cli)
  add_library(evenkeel_command_tests OBJECT ${EVENKEEL_COMMAND_TESTS})
  target_link_libraries(evenkeel_command_tests PRIVATE evenkeel_test_flags evenkeel_commands)
  evenkeel_unity_by_folder(evenkeel_command_tests ${EVENKEEL_COMMAND_TESTS})
  target_link_libraries(evenkeel_tests PRIVATE
    evenkeel_command_tests $<LINK_ONLY:evenkeel_commands>)
endif()

# Found when ctest starts, suite by suite.
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/suites.cmake CONTENT
"set(PROGRAM [==[$<TARGET_FILE:evenkeel_tests>]==])
set(RESULTS [==[${CMAKE_CURRENT_BINARY_DIR}/results]==])
set(LABELLED ${labelled})
include([==[${PROJECT_SOURCE_DIR}/cmake/discover_suites.cmake]==])
")
set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/suites.cmake)
