// Reading chunk after chunk, ahead of the one who uses them.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "array/impl.h"
#include "array/mover.h"
#include "base/memory.h"

namespace evenkeel {

// Chunk k goes into slot k modulo the number of slots. Only the reading thread fills slots, only
// the user empties them; `mutex_` guards their states.
struct Chunks::Impl final : JobSource {
  Impl(std::shared_ptr<Array::Impl> array, std::uint64_t rows_per_chunk, const Order& order);
  ~Impl();

  std::uint64_t size() const { return chunks_; }
  int buffers() const { return static_cast<int>(slots_.size()); }
  void seek(std::uint64_t chunk);
  bool advance(Chunk& chunk);

  Job* next_job() override;
  void job_done(Job& job) override;

 private:
  enum class State { kFree, kReading, kReady };
  struct Slot {
    PageBuffer memory;
    Reservation list_share;
    std::vector<std::uint64_t> rows;  // of this chunk, in order; the first alone when they follow
    Job job;
    State state = State::kFree;
    std::uint64_t chunk = 0;
  };

  void make_slots();
  void add_slot();
  std::uint64_t overhang() const;
  std::uint64_t bytes_of_one() const;
  [[noreturn]] void throw_too_large(const Error& error) const;

  std::uint64_t rows_in(std::uint64_t chunk) const;
  Slot& slot_of(std::uint64_t chunk) { return slots_[chunk % slots_.size()]; }
  void prepare(Slot& slot, std::uint64_t chunk);
  void show(const Slot& slot, Chunk& chunk) const;
  bool show_in_place(Chunk& chunk);
  void read_now(std::uint64_t number, Chunk& chunk);
  void wait_for(std::uint64_t number, Chunk& chunk);
  void give_back_current();

  bool start();
  void stop();
  void read_ahead();

  std::shared_ptr<Array::Impl> array_;
  std::shared_ptr<Engine> engine_;
  const Sequence sequence_;
  const std::uint64_t rows_per_chunk_, chunks_;
  const bool in_order_;    // rows follow one another, so no list of them is needed
  bool in_place_ = false;  // chunks are shown where the file is mapped
  Reservation plan_share_;
  std::vector<Slot> slots_;
  std::unique_ptr<Mover> mover_;
  Slot* single_ = nullptr;  // to be read by the user's own thread

  std::uint64_t next_chunk_ = 0;  // the next that the user gets
  bool holding_ = false;          // the user has chunk next_chunk_ - 1
  const pid_t owner_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread reader_;
  std::uint64_t next_to_read_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
};

}  // namespace evenkeel
