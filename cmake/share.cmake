# Completions for bash, zsh and fish, and man pages. The tool generates them from its own commands. If it is
# built for another machine and cannot run here, EVENKEEL_HOST_TOOL names one that can.
set(EVENKEEL_HOST_TOOL "" CACHE FILEPATH "A tool of this version that runs here, if the one that is built does not")
set(EVENKEEL_SHARE ${PROJECT_BINARY_DIR}/share)
if(EVENKEEL_HOST_TOOL)
  set(tool ${EVENKEEL_HOST_TOOL})
else()
  set(tool $<TARGET_FILE:evenkeel_cli>)
endif()

set(made)
function(evenkeel_shared file)
  get_filename_component(folder ${EVENKEEL_SHARE}/${file} DIRECTORY)
  add_custom_command(
    OUTPUT ${EVENKEEL_SHARE}/${file}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
    COMMAND ${tool} ${ARGN} > ${EVENKEEL_SHARE}/${file}
    DEPENDS evenkeel_cli ${EVENKEEL_HOST_TOOL}
    COMMENT "Generating share/${file}"
    VERBATIM)
  set(made ${made} ${EVENKEEL_SHARE}/${file} PARENT_SCOPE)
endfunction()

evenkeel_shared(bash-completion/completions/evenkeel completions bash)
evenkeel_shared(zsh/site-functions/_evenkeel completions zsh)
evenkeel_shared(fish/vendor_completions.d/evenkeel.fish completions fish)
evenkeel_shared(man/man1/evenkeel.1 manual)
foreach(command demo info compare profile guard top batches explain tokenize shuffle convert merge split sample dedup stats verify cache doctor completions)
  evenkeel_shared(man/man1/evenkeel-${command}.1 manual ${command})
endforeach()
# Installed with the tool.
add_custom_target(evenkeel_share ALL DEPENDS ${made})
