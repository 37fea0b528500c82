// Memory that comes back when an array is gone, for the next array of its size.
#pragma once

#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace evenkeel::python {

// New memory is touched page by page, which takes as long as reading it from a fast disk: a loop
// that lets go of its arrays gets the same memory again. The GIL guards it.
class Recycled : public std::enable_shared_from_this<Recycled> {
 public:
  Recycled(std::size_t bytes, std::size_t most_spare) : bytes_(bytes), most_spare_(most_spare) {
    spare_.reserve(most_spare);
  }

  // Keeps nothing any more; arrays that are still there keep theirs.
  void close() {
    most_spare_ = 0;
    spare_.clear();
  }

  using Array = nanobind::ndarray<nanobind::numpy, std::uint8_t, nanobind::ndim<1>>;
  // Of `bytes` bytes, whatever they hold. They are the array's until it and all its views are gone.
  Array array() {
    auto lent = std::make_unique<Lent>(Lent{shared_from_this(), memory()});
    std::byte* data = lent->memory.get();
    const nanobind::capsule owner(lent.release(), [](void* pointer) noexcept {
      const std::unique_ptr<Lent> back(static_cast<Lent*>(pointer));
      back->from->give_back(std::move(back->memory));
    });
    return Array(data, {bytes_}, owner);
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<std::byte, Free>;
  struct Lent {
    std::shared_ptr<Recycled> from;
    Memory memory;
  };

  Memory memory() {
    if (!spare_.empty()) {
      Memory last = std::move(spare_.back());
      spare_.pop_back();
      return last;
    }
    Memory fresh(static_cast<std::byte*>(std::malloc(bytes_)));
    if (!fresh) throw std::bad_alloc();
    return fresh;
  }
  void give_back(Memory memory) noexcept {
    if (spare_.size() < most_spare_) spare_.push_back(std::move(memory));
  }

  const std::size_t bytes_;
  std::size_t most_spare_;
  std::vector<Memory> spare_;
};

}  // namespace evenkeel::python
