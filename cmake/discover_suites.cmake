# Makes one test for ctest of each suite of a GoogleTest program: a process for each of a thousand tests
# costs more than most of them do. Suites that take long, mostly waiting for the disk, are one test for
# each of their tests, so that these can wait beside each other. Included by ctest when it starts, so that a program that cannot
# start is a failing test and not a failing build. Asks for PROGRAM and for RESULTS,
# a folder for what scripts/check_skips reads; LABELLED may hold pairs `Suite=label`.
#
#   ctest -R '^Budget'                      suites by name, as GoogleTest prints them
#   evenkeel_tests --gtest_filter=Budget.*  single tests
execute_process(COMMAND ${PROGRAM} --gtest_list_tests
  OUTPUT_VARIABLE listed ERROR_VARIABLE complaint RESULT_VARIABLE failed TIMEOUT 60)
if(failed)
  add_test(evenkeel_tests_start ${PROGRAM} --gtest_list_tests)
  message(WARNING "${PROGRAM} cannot list its tests: ${complaint}")
  return()
endif()

# Suites called Memory* read the kernel's figures: nothing else may run beside them. The long ones come
# first, so that they do not run alone at the end.
function(evenkeel_add_test test suite)
  string(REGEX REPLACE "[/.]" "_" file ${test})
  set(filter ${test})
  if(test STREQUAL suite)
    set(filter "${suite}.*")
  endif()
  add_test(${test} ${PROGRAM} --gtest_filter=${filter} --gtest_brief=1
    --gtest_output=xml:${RESULTS}/${file}.xml)
  # "Instance/Suite/0" is the suite called Suite.
  string(REGEX REPLACE "^([A-Za-z0-9_]+/)?([A-Za-z][A-Za-z0-9_]*)(/[0-9]+)?$" "\\2" name "${suite}")
  set(labels unit)
  if(name MATCHES "^Memory")
    set(labels memory)
    set_tests_properties(${test} PROPERTIES RUN_SERIAL ON)
  endif()
  foreach(pair IN LISTS LABELLED)
    if(pair MATCHES "^${name}=(.*)$")
      list(APPEND labels ${CMAKE_MATCH_1})
    endif()
  endforeach()
  set_tests_properties(${test} PROPERTIES LABELS "${labels}" TIMEOUT 600)
  if(suite MATCHES "(Array|Guard|Threads|Permutation|Chunks|EveryEngine|Differential|Faults|Completions|Loader|Plan|RowFeed)")
    set_tests_properties(${test} PROPERTIES COST 100)
  endif()
endfunction()

string(REPLACE ";" "," listed "${listed}")
string(REPLACE "\n" ";" lines "${listed}")
set(one_by_one FALSE)
foreach(line IN LISTS lines)
  # "Suite." or "Instance/Suite/0.  # TypeParam = ..." stands at the margin, its tests do not.
  if(line MATCHES "^([A-Za-z0-9_/]+)\\.")
    set(suite ${CMAKE_MATCH_1})
    set(one_by_one FALSE)
    if(suite MATCHES "Faults|FaultyCompletions|EveryEngineChunks|Differential")
      set(one_by_one TRUE)
    else()
      evenkeel_add_test(${suite} ${suite})
    endif()
  elseif(one_by_one AND line MATCHES "^  ([A-Za-z0-9_/]+)")
    evenkeel_add_test(${suite}.${CMAKE_MATCH_1} ${suite})
  endif()
endforeach()
