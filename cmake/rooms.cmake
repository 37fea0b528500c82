# A room is a folder of src/. All its sources are built. Unit tests sit beside their sources.
# The files of a room are compiled together (EVENKEEL_UNITY), so names in their anonymous namespaces
# must differ from each other.

# The sources of a folder, without tests.
function(evenkeel_sources out folder)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# evenkeel_unity(TARGET GROUP source...): compiles these sources of a target together.
function(evenkeel_unity target group)
  if(EVENKEEL_UNITY)
    set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${group})
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  endif()
endfunction()

# evenkeel_unity_by_folder(TARGET source...): the same, one group for each folder.
function(evenkeel_unity_by_folder target)
  foreach(source IN LISTS ARGN)
    get_filename_component(folder ${source} DIRECTORY)
    get_filename_component(group ${folder} NAME)
    evenkeel_unity(${target} ${group} ${source})
  endforeach()
endfunction()

# evenkeel_cold(TARGET): optimised less than the build type says, because little time is spent in this code.
# It compiles in three quarters of the time.
function(evenkeel_cold target)
  if(CMAKE_CXX_FLAGS_RELEASE MATCHES "-O[23]")
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(EVENKEEL_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# evenkeel_part(NAME [HOT] ROOMS room...): objects of the library, as the target evenkeel_part_NAME. HOT rooms
# have the code in which most time is spent; all others are cold.
function(evenkeel_part name)
  cmake_parse_arguments(arg "HOT" "" "ROOMS" ${ARGN})
  set(target evenkeel_part_${name})
  add_library(${target} OBJECT)
  foreach(room IN LISTS arg_ROOMS)
    evenkeel_sources(sources src/${room})
    target_sources(${target} PRIVATE ${sources})
    evenkeel_unity(${target} ${room} ${sources})
  endforeach()
  if(NOT arg_HOT)
    evenkeel_cold(${target})
  endif()
  set_target_properties(${target} PROPERTIES
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PRIVATE
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
  target_link_libraries(${target} PRIVATE Threads::Threads evenkeel_flags)
  if(TARGET evenkeel_sanitized)
    target_link_libraries(${target} PRIVATE evenkeel_sanitized)
  endif()
  # Compiled separately, files spend three quarters of the time on these headers, which nearly all of them
  # include. clang-tidy (scripts/lint) parses files without them, so that it finds a missing include.
  if(NOT EVENKEEL_UNITY AND NOT name STREQUAL "base")
    target_precompile_headers(${target} REUSE_FROM evenkeel_part_base)
  elseif(NOT EVENKEEL_UNITY)
    target_precompile_headers(${target} PRIVATE <algorithm> <atomic> <chrono> <filesystem> <functional>
      <map> <memory> <mutex> <optional> <span> <string> <string_view> <thread> <unordered_map> <vector>)
  endif()
  set(EVENKEEL_PARTS ${EVENKEEL_PARTS} $<TARGET_OBJECTS:${target}> PARENT_SCOPE)
endfunction()

file(GLOB EVENKEEL_UNIT_TEST_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*/*_test.cc)
