# Makes one test for ctest of each suite of a GoogleTest program: a process for each of a thousand tests
# costs more than most of them do. Included by ctest when it starts, so that a program that cannot
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

string(REPLACE ";" "," listed "${listed}")
string(REPLACE "\n" ";" lines "${listed}")
foreach(line IN LISTS lines)
  # "Suite." or "Instance/Suite/0.  # TypeParam = ..." stands at the margin, its tests do not.
  if(NOT line MATCHES "^([A-Za-z0-9_/]+)\\.")
    continue()
  endif()
  set(suite ${CMAKE_MATCH_1})
  string(REPLACE "/" "_" file ${suite})
  add_test(${suite} ${PROGRAM} --gtest_filter=${suite}.* --gtest_brief=1
    --gtest_output=xml:${RESULTS}/${file}.xml)
  # "Instance/Suite/0" is the suite called Suite.
  string(REGEX REPLACE "^([A-Za-z0-9_]+/)?([A-Za-z][A-Za-z0-9_]*)(/[0-9]+)?$" "\\2" name "${suite}")
  set(labels unit)
  # Suites called Memory* read the kernel's figures: nothing else may run beside them.
  if(name MATCHES "^Memory")
    set(labels memory)
    set_tests_properties(${suite} PROPERTIES RUN_SERIAL ON)
  endif()
  foreach(pair IN LISTS LABELLED)
    if(pair MATCHES "^${name}=(.*)$")
      list(APPEND labels ${CMAKE_MATCH_1})
    endif()
  endforeach()
  set_tests_properties(${suite} PROPERTIES LABELS "${labels}" TIMEOUT 600)
  # The long ones first, so that they do not run alone at the end.
  if(suite MATCHES "(Mover|Array|Guard|Threads|Permutation|Chunks|EveryEngine|Differential|Loader|Plan)")
    set_tests_properties(${suite} PROPERTIES COST 100)
  endif()
  if(suite MATCHES "EveryEngineChunks|/Faults$")
    set_tests_properties(${suite} PROPERTIES COST 200)
  endif()
endforeach()
