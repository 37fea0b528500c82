// The engine `read`: plain reads into its own buffer. Pages that a read brings into the page cache
// are dropped immediately.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>

#include "base/checked.h"
#include "base/memory.h"
#include "base/mutex.h"
#include "base/per_process.h"
#include "base/retry_policy.h"
#include "engine/engines.h"
#include "engine/files.h"
#include "engine/page_cache.h"

namespace evenkeel {
namespace {

constexpr int kDontCache = 0x80;  // RWF_DONTCACHE, Linux 6.14; older headers lack the name

class ReadEngine final : public Engine {
 public:
  ReadEngine(const Layout& layout, const Budget& budget)
      : layout_(layout),
        buffer_(budget, buffer_size(budget, 64_KiB, 1_MiB), "read buffer"),
        cache_share_(budget.reserve(buffer_.size(), "page cache during reads")),
        limits_{sys::page_size(), buffer_.size(), kMergeGap},
        state_([&layout] { return std::make_unique<ProcessState>(layout); }) {
    buffer_.keep_in_children();
    cache_share_.keep_in_children();
  }

  void run(Feed& feed) override {
    ProcessState& state = state_.get();
    const MutexLock lock(state.mutex);
    state.files.forget_used();
    Extent extent;
    while (feed.next(extent)) {
      std::byte* data = extent.into ? extent.into : buffer_.data();
      fetch(state.files, extent, data);
      feed.arrived(extent, data);
    }
    state.files.verify_used();
  }

  // Called by feeds, within `run`.
  void require_unchanged(std::uint32_t file) override {
    ProcessState& state = state_.get();
    state.mutex.assert_held();
    state.files.verify(file);
  }
  EngineLimits limits() const override { return limits_; }
  EngineReport report() const override {
    return {EngineKind::kRead, EngineKind::kRead,
            dont_cache_ ? "preadv2 with RWF_DONTCACHE" : "pread, then POSIX_FADV_DONTNEED", ""};
  }

 private:
  struct ProcessState {
    // POSIX_FADV_RANDOM turns readahead off, so a read brings in only what it asks for.
    explicit ProcessState(const Layout& layout) : files(layout, 0, POSIX_FADV_RANDOM) {}
    Mutex mutex;
    FileSet files GUARDED_BY(mutex);
  };

  void fetch(FileSet& files, const Extent& extent, std::byte* data) {
    const Pin pin(files, extent.file);
    const std::uint64_t wanted = std::min(extent.length, files.size(extent.file) - extent.offset);
    std::optional<Uncached> brought_in;
    if (!dont_cache_) brought_in.emplace(pin.fd(), extent.offset, wanted);
    std::uint64_t done = 0;
    RetryPolicy retry;
    while (done < wanted) {
      const ssize_t got = sys::pread_flags(pin.fd(), data + done, wanted - done,
                                           extent.offset + done, dont_cache_ ? kDontCache : 0);
      if (got < 0 && errno == EOPNOTSUPP && dont_cache_) {
        dont_cache_ = false;
        return fetch(files, extent, data);
      }
      if (got < 0) {
        const int code = errno;
        if (retry.try_again(code)) continue;
        throw Error::system("read", code).in(files.path(extent.file)).at(extent.offset + done);
      }
      if (got == 0) throw_truncated(layout_.segments[extent.file], extent.offset + done);
      done += static_cast<std::uint64_t>(got);
      retry.moved();
    }
    if (brought_in) brought_in->drop(pin.fd());
  }

  const Layout& layout_;
  PageBuffer buffer_;
  Reservation cache_share_;
  const EngineLimits limits_;
  PerProcess<ProcessState> state_;
  std::atomic<bool> dont_cache_ = true;  // until the kernel or the filesystem refuses it
};

}  // namespace

std::unique_ptr<Engine> make_read_engine(const Layout& layout, const Budget& budget) {
  return std::make_unique<ReadEngine>(layout, budget);
}

}  // namespace evenkeel
