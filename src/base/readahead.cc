#include "base/readahead.h"

#include <sys/sysmacros.h>

#include "base/text_file.h"

namespace evenkeel {

std::optional<std::uint64_t> readahead_of_device(dev_t device, const std::string& sys) {
  const std::string number = std::to_string(major(device)) + ":" + std::to_string(minor(device));
  const std::string block = sys + "/dev/block/" + number, bdi = sys + "/class/bdi/" + number;
  // A partition has no queue folder; its parent folder, the disk, has one. File systems without a
  // block device (NFS) are found by their own number under /sys/class/bdi.
  for (const std::string& folder : {block + "/queue", block + "/../queue", bdi}) {
    const auto text = read_text_file(folder + "/read_ahead_kb");
    if (!text) continue;
    if (const auto kib = leading_number(*text)) return *kib * 1024;
  }
  return std::nullopt;
}

std::uint64_t readahead_window(dev_t device) {
  return readahead_of_device(device).value_or(16 << 20);
}

}  // namespace evenkeel
