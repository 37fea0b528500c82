# Creates one ctest test for each suite of a GoogleTest program: a process for each of a thousand tests would
# take longer than most of the tests. Long suites, which mostly wait for the disk, become one test for each of
# their tests or parameters, so that these run in parallel. Included by ctest
# when it starts, so that a program that cannot start is a failing test and not a failing build. Needs PROGRAM
# and RESULTS, a folder for the results that scripts/check_skips reads; LABELLED may hold pairs
# `Suite=label`.
# With EVENKEEL_SUITES_TOGETHER=N in the environment, N quick suites form one test: see scripts/test.
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

set(slow_suites
  "Array|Guard|Threads|Permutation|Chunks|EveryEngine|Differential|Faults|Completions|Loader|Plan|RowFeed|Fork|Limits|Memory|Engines|Window|Cache|BlockOrder|Fill|Preload")

# evenkeel_labels(VARIABLE SUITE): `unit`, or `memory` for suites called Memory*, which read the
# kernel's figures; and those of its file.
function(evenkeel_labels out suite)
  # "Instance/Suite/0" is the suite called Suite.
  string(REGEX REPLACE "^([A-Za-z0-9_]+/)?([A-Za-z][A-Za-z0-9_]*)(/[0-9]+)?$" "\\2" name "${suite}")
  set(labels unit)
  if(name MATCHES "^Memory")
    set(labels memory)
  endif()
  foreach(pair IN LISTS LABELLED)
    if(pair MATCHES "^${name}=(.*)$")
      list(APPEND labels ${CMAKE_MATCH_1})
    endif()
  endforeach()
  set(${out} ${labels} PARENT_SCOPE)
endfunction()

# evenkeel_add_test(TEST FILTER label...): slow tests come first, so that none runs alone at the end.
function(evenkeel_add_test test filter)
  string(REGEX REPLACE "[/.]" "_" file ${test})
  add_test(${test} ${PROGRAM} --gtest_filter=${filter} --gtest_brief=1
    --gtest_output=xml:${RESULTS}/${file}.xml)
  set_tests_properties(${test} PROPERTIES LABELS "${ARGN}" TIMEOUT 600)
  if(test MATCHES "${slow_suites}")
    set_tests_properties(${test} PROPERTIES COST 100)
  endif()
endfunction()

string(REPLACE ";" "," listed "${listed}")
string(REPLACE "\n" ";" lines "${listed}")
set(together "$ENV{EVENKEEL_SUITES_TOGETHER}")
set(all_waiting)  # variables that each hold quick suites of the same labels
set(one_by_one FALSE)
set(by_parameter FALSE)
foreach(line IN LISTS lines)
  # "Suite." or "Instance/Suite/0.  # TypeParam = ..." is not indented, its tests are.
  if(line MATCHES "^([A-Za-z0-9_/]+)\\.")
    set(suite ${CMAKE_MATCH_1})
    evenkeel_labels(labels ${suite})
    set(one_by_one FALSE)
    set(by_parameter FALSE)
    if(suite MATCHES "EveryEngineChunks|Differential")
      set(by_parameter TRUE)
      set(parameters)
    elseif(suite MATCHES "Faults|FaultyCompletions")
      set(one_by_one TRUE)
    elseif(together AND NOT suite MATCHES "${slow_suites}")
      string(REPLACE ";" "_" waiting "waiting_${labels}")
      list(APPEND ${waiting} ${suite})
      list(APPEND all_waiting ${waiting})
      set(labels_of_${waiting} ${labels})
    else()
      evenkeel_add_test(${suite} "${suite}.*" ${labels})
    endif()
  elseif(by_parameter AND line MATCHES "^  [A-Za-z0-9_]+/([A-Za-z0-9_]+)")
    if(NOT CMAKE_MATCH_1 IN_LIST parameters)
      list(APPEND parameters ${CMAKE_MATCH_1})
      evenkeel_add_test(${suite}/${CMAKE_MATCH_1} "${suite}.*/${CMAKE_MATCH_1}" ${labels})
    endif()
  elseif((one_by_one OR by_parameter) AND line MATCHES "^  ([A-Za-z0-9_/]+)")
    evenkeel_add_test(${suite}.${CMAKE_MATCH_1} ${suite}.${CMAKE_MATCH_1} ${labels})
  endif()
endforeach()

list(REMOVE_DUPLICATES all_waiting)
foreach(waiting IN LISTS all_waiting)
  while(${waiting})
    list(SUBLIST ${waiting} 0 ${together} suites)
    list(REMOVE_ITEM ${waiting} ${suites})
    list(GET suites 0 first)
    list(GET suites -1 last)
    list(TRANSFORM suites APPEND ".*")
    list(JOIN suites ":" filter)
    evenkeel_add_test(${first}_to_${last} ${filter} ${labels_of_${waiting}})
  endwhile()
endforeach()
