#include "loader/steps.h"

#include <algorithm>
#include <string>

#include "base/checked.h"
#include "evenkeel/bytes.h"

namespace evenkeel {
namespace {

Error wrong_option(const std::string& what) { return Error(ErrorKind::kInvalid, "loader", what); }

// "rank must be 0 or 1 for world=2; got 2"
Error out_of_range(const std::string& name, std::uint64_t got, const std::string& count_name,
                   std::uint64_t count) {
  const std::string allowed = count == 1   ? "0"
                              : count == 2 ? "0 or 1"
                                           : "0 to " + with_commas(count - 1);
  return wrong_option(name + " must be " + allowed + " for " + count_name + "=" +
                      with_commas(count) + "; got " + with_commas(got));
}

std::uint64_t steps_of_epoch(std::uint64_t samples, std::uint64_t step, Steps::Ends ends) {
  if (ends == Steps::Ends::kNone) return 0;
  return samples / step + (ends == Steps::Ends::kShort && samples % step != 0 ? 1 : 0);
}

constexpr std::uint64_t kMostSamples = std::uint64_t{1} << 63;

}  // namespace

void check_steps(const StepOptions& options) {
  if (options.batch_size == 0) throw wrong_option("batch_size must be at least 1; got 0");
  if (options.world == 0) throw wrong_option("world must be at least 1; got 0");
  if (options.rank >= options.world) {
    throw out_of_range("rank", options.rank, "world", options.world);
  }
  const auto [stride, phase] = options.workers;
  if (stride == 0) throw wrong_option("stride must be at least 1; got 0");
  if (phase >= stride) throw out_of_range("phase", phase, "stride", stride);
  if (!checked_mul(options.batch_size, options.world)) {
    throw wrong_option("world x batch_size must be below 2^64; got " + with_commas(options.world) +
                       " x " + with_commas(options.batch_size));
  }
}

void check_epochs(const StepOptions& options, bool order_has_epochs, std::size_t sets) {
  if (options.epochs == 0) return;
  if (options.steps > 0) throw wrong_option("steps and epochs exclude each other; got both");
  if (!order_has_epochs) {
    throw wrong_option("order \"random\" has no epochs").hint("give steps instead of epochs");
  }
  if (sets > 1) {
    throw wrong_option("a mixture of " + std::to_string(sets) + " sets has no common epoch")
        .hint("give steps instead of epochs");
  }
}

Error no_whole_step(std::uint64_t epoch_samples, std::uint64_t step_samples) {
  return wrong_option(
      "an epoch has " + with_commas(epoch_samples) +
      " samples, less than one step of world x batch_size = " + with_commas(step_samples));
}

Steps::Steps(const StepOptions& options, std::uint64_t epoch_samples, Ends ends, Shares shares)
    : options_(options),
      epoch_samples_(epoch_samples),
      ends_(ends),
      shares_(shares),
      epoch_steps_(steps_of_epoch(epoch_samples, samples_of_step(), ends)),
      loop_steps_(steps_of_loop()) {
  if (ends == Ends::kNone || epoch_steps_ > 0) return;
  throw no_whole_step(epoch_samples, samples_of_step()).hint("take a smaller batch_size");
}

std::uint64_t Steps::steps_of_loop() const {
  if (options_.epochs == 0) return options_.steps;
  const auto samples = checked_mul(options_.epochs, epoch_samples_);
  if (!samples) {
    throw wrong_option(with_commas(options_.epochs) + " epochs have more than 2^64 samples");
  }
  if (ends_ != Ends::kNone) return options_.epochs * epoch_steps_;
  const std::uint64_t steps = *samples / samples_of_step();
  if (steps > 0) return steps;
  throw wrong_option(
      "epochs=" + with_commas(options_.epochs) + " has " + with_commas(*samples) +
      " samples, less than one step of world x batch_size = " + with_commas(samples_of_step()))
      .hint("take a smaller batch_size, or more epochs");
}

Steps::Run Steps::run_of(std::uint64_t step, std::uint64_t place) const {
  const std::uint64_t world = options_.world, first = samples_before(step);
  std::uint64_t samples = samples_of_step();
  if (ends_ != Ends::kNone) {
    samples = std::min(samples, epoch_samples_ - first % epoch_samples_);
  }
  // The samples of a short step are divided as evenly as possible.
  const std::uint64_t each = samples / world, more = samples % world;
  const std::uint64_t count = each + (place < more ? 1 : 0);
  if (shares_ == Shares::kInterleaved) return {first + place, count, world};
  return {first + place * each + std::min(place, more), count, 1};
}

std::uint64_t Steps::taken_of_epoch() const {
  const std::uint64_t last = epoch_steps_ - 1;
  return taken_of_epoch(last) + run_of(last, options_.rank).count;
}

std::uint64_t Steps::samples_before(std::uint64_t step) const {
  if (ends_ == Ends::kNone) return step * samples_of_step();
  return step / epoch_steps_ * epoch_samples_ + step % epoch_steps_ * samples_of_step();
}

std::optional<std::uint64_t> Steps::step_at(std::uint64_t samples) const {
  const std::uint64_t epoch = ends_ == Ends::kNone ? 0 : samples / epoch_samples_;
  const std::uint64_t within = samples - epoch * epoch_samples_;
  if (within % samples_of_step() != 0) return std::nullopt;
  const std::uint64_t step = within / samples_of_step();
  if (ends_ == Ends::kNone) return step;
  // A state from another batch size may lie in the samples that this batch size leaves out.
  return epoch * epoch_steps_ + std::min(step, epoch_steps_);
}

std::uint64_t Steps::last_step() const {
  const std::uint64_t steps = ends_ == Ends::kNone ? kMostSamples / samples_of_step()
                                                   : kMostSamples / epoch_samples_ * epoch_steps_;
  return steps > options_.workers.stride + 1 ? steps - options_.workers.stride - 1 : 0;
}

void Steps::require_step(const char* operation, std::uint64_t step) const {
  if (step <= last_step()) return;
  throw Error(
      ErrorKind::kInvalid, operation,
      "the last step is " + with_commas(last_step()) +
          ", because samples are counted in 63 bits and a step takes world x batch_size = " +
          with_commas(samples_of_step()) + "; got " + with_commas(step));
}

std::uint64_t Steps::number_of(std::uint64_t step) const {
  const auto [stride, phase] = options_.workers;
  return step <= phase ? 0 : (step - phase - 1) / stride + 1;
}

std::uint64_t Steps::end_of_loop(std::uint64_t step) const {
  if (loop_steps_ == 0) return last_step() + 1;
  if (options_.epochs == 0) return std::min(loop_steps_, last_step() + 1);
  const std::uint64_t loops = std::max<std::uint64_t>(1, divide_up(step, loop_steps_));
  return std::min(loops * loop_steps_, last_step() + 1);
}

}  // namespace evenkeel
