#include "array/batch_reader.h"

#include <utility>

#include "array/impl.h"

namespace evenkeel {

FeedRunner::FeedRunner(const Layout& layout, Engine& engine, JobSource& source,
                       std::optional<std::uint64_t> merge_gap, std::uint64_t budget_limit,
                       RowCache* cache)
    : layout_(layout),
      engine_(engine),
      source_(source),
      feed_(layout, engine, source, merge_gap, budget_limit, cache) {}

void FeedRunner::run() {
  if (!engine_.maps_files()) {
    engine_.run(feed_);
    return;
  }
  while (Job* job = source_.next_job()) {
    copy_mapped(engine_, layout_, job->starts, job->count, job->out);
    for (const JobRun& run : job->runs) {
      copy_mapped(engine_, layout_, {&run.start, 1}, run.count, run.out);
    }
    source_.job_done(*job);
  }
}

BatchReader::BatchReader(const std::vector<ReadStream>& streams, BatchMaker& maker,
                         std::uint64_t budget_limit)
    : maker_(maker) {
  for (const ReadStream& stream : streams) {
    runners_.emplace_back(stream.layout, stream.engine, static_cast<JobSource&>(*this),
                          stream.merge_gap, budget_limit, stream.cache);
  }
}

bool BatchReader::read(std::size_t slot, std::uint64_t number) {
  for (std::size_t stream = 0; stream < runners_.size(); ++stream) {
    wanted_ = {slot, number, stream};
    done_ = false;
    try {
      runners_[stream].run();
    } catch (...) {
      runners_[stream].reset();
      wanted_.reset();
      throw;
    }
    wanted_.reset();
    if (!done_) return false;
  }
  maker_.finish(slot, number);
  return true;
}

void BatchReader::cancel() {
  for (FeedRunner& runner : runners_) runner.cancel();
}

void BatchReader::reset() {
  for (FeedRunner& runner : runners_) runner.reset();
}

Job* BatchReader::next_job() {
  if (!wanted_) return nullptr;
  const Wanted wanted = *std::exchange(wanted_, std::nullopt);
  if (wanted.stream == 0) maker_.begin(wanted.slot, wanted.number);
  return &maker_.prepare_stream(wanted.slot, wanted.number, wanted.stream);
}

}  // namespace evenkeel
