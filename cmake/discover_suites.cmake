# Makes one test for ctest of each suite of a GoogleTest program: a process for each of a thousand tests
# costs more than most of them do. Included by ctest when it starts, so that a program that cannot
# start is a failing test and not a failing build. Asks for PROGRAM, and lists for each label.
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
  add_test(${suite} ${PROGRAM} --gtest_filter=${suite}.* --gtest_brief=1)
  # Suites called Memory* read the kernel's figures: nothing else may run beside them.
  if(suite MATCHES "(^|/)Memory")
    set_tests_properties(${suite} PROPERTIES LABELS memory RUN_SERIAL ON TIMEOUT 600)
  else()
    set_tests_properties(${suite} PROPERTIES LABELS unit TIMEOUT 600)
  endif()
  # The long ones first, so that they do not run alone at the end.
  if(suite MATCHES "(Mover|Array|Guard|Threads|Permutation|Chunks|EveryEngine|Differential|Loader|Plan)")
    set_tests_properties(${suite} PROPERTIES COST 100)
  endif()
  if(suite MATCHES "EveryEngineChunks|/Faults$")
    set_tests_properties(${suite} PROPERTIES COST 200)
  endif()
endforeach()
