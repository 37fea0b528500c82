// The whole of xxHash, from its header: one library less to find, to link and to ship.
#define XXH_STATIC_LINKING_ONLY
#define XXH_IMPLEMENTATION
#include <xxhash.h>
