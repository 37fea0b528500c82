# The report page becomes part of the library: a report is one file, wherever the tool is installed.
foreach(kind html css js)
  set(page ${PROJECT_SOURCE_DIR}/src/profile/page/report.${kind})
  set(embedded ${PROJECT_BINARY_DIR}/profile/page_${kind}.cc)
  add_custom_command(
    OUTPUT ${embedded}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${page} -DOUTPUT=${embedded} -DHEADER=profile/page.h
            -DFUNCTION=page_${kind} -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${page} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    COMMENT "Embedding report.${kind}"
    VERBATIM)
  target_sources(evenkeel_part_watch PRIVATE ${embedded})
endforeach()
