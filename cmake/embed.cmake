# Turns a file into a function that returns its bytes. Run as a script, at build time:
#   cmake -DINPUT=file -DOUTPUT=file.cc -DHEADER=room/header.h -DFUNCTION=name -P embed.cmake
# Bytes are written one by one: a string literal would need escapes, and has a maximum length.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
string(REGEX REPLACE "(('....',)('....',)('....',)('....',)('....',)('....',)('....',)('....',))" "\\1\n" bytes "${bytes}")
get_filename_component(name ${INPUT} NAME)
file(WRITE ${OUTPUT} "// Made from ${name} by embed.cmake.
#include \"${HEADER}\"

namespace evenkeel {
namespace {

const char kBytes[] = {
${bytes}'\\0'};

}  // namespace

std::string_view ${FUNCTION}() { return {kBytes, sizeof kBytes - 1}; }

}  // namespace evenkeel
")
