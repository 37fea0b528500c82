#include "evenkeel/stats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>

#include "base/memory.h"
#include "base/number.h"
#include "base/text_file.h"
#include "base/thread.h"
#include "evenkeel/bytes.h"
#include "prepare/element_types.h"
#include "prepare/input_files.h"
#include "prepare/items.h"
#include "prepare/number_stats.h"
#include "write/output_file.h"

namespace evenkeel {
namespace {

// Reads `count` elements, `stride` bytes apart, as double.
using ReadElements = void (*)(const std::byte* from, std::uint64_t stride, std::size_t count,
                              double* to);

template <class T>
void read_elements(const std::byte* from, std::uint64_t stride, std::size_t count, double* to) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = static_cast<double>(load_element<T>(from + i * stride));
  }
}

double from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return fraction ? std::nan("") : sign * INFINITY;
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25));
}

void read_halves(const std::byte* from, std::uint64_t stride, std::size_t count, double* to) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from + i * stride, sizeof bits);
    to[i] = from_half(bits);
  }
}

void read_bfloats(const std::byte* from, std::uint64_t stride, std::size_t count, double* to) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from + i * stride, sizeof bits);
    to[i] = std::bit_cast<float>(std::uint32_t{bits} << 16);
  }
}

ReadElements reader_of(DType dtype) {
  if (dtype.kind == DTypeKind::kBfloat) return &read_bfloats;
  if (dtype.kind == DTypeKind::kFloat && dtype.size == 2) return &read_halves;
  const ReadElements reader = with_element_type(dtype, [](auto type) -> ReadElements {
    return &read_elements<typename decltype(type)::type>;
  });
  if (reader) return reader;
  throw Error(ErrorKind::kInvalid, "stats", "there are no figures of " + dtype.name())
      .hint("figures are computed for bool, integers and floats");
}

// Counts tokens 0 .. 2^32-1 exactly, in pages that are allocated when they are needed.
class TokenCounter {
 public:
  TokenCounter(const Budget& budget, std::uint64_t most_bytes)
      : budget_(budget), most_bytes_(most_bytes) {}

  void add(double token) {
    if (!(token >= 0 && token < 0x1p32)) {
      ++uncounted_;
      return;
    }
    const auto number = static_cast<std::uint64_t>(token);
    const std::uint64_t page = number / kPageTokens;
    if ((page >= pages_.size() || !pages_[page]) && !make(page)) {
      ++uncounted_;
      return;
    }
    ++reinterpret_cast<std::uint64_t*>(pages_[page].data())[number % kPageTokens];
  }

  std::uint64_t state_bytes() const { return made_bytes_ + (pages_.size() + 2) * 8; }
  void save(StateWriter& state) const {
    state.put(uncounted_);
    for (std::size_t i = 0; i < pages_.size(); ++i) {
      if (!pages_[i]) continue;
      state.put(std::uint64_t{i});
      state.put(counts_of(i));
    }
    state.put(kNoPage);
  }
  void load(StateReader& state) {
    state.get(uncounted_);
    for (;;) {
      std::uint64_t page = 0;
      state.get(page);
      if (page == kNoPage || !state.good()) return;
      if (page >= kPages) return state.fail();
      if ((page < pages_.size() && pages_[page]) || !make(page)) {
        throw Error(ErrorKind::kBudget, "stats", "the counts of tokens do not fit the budget")
            .hint("resume with the budget of the first run");
      }
      state.get(std::span(reinterpret_cast<std::uint64_t*>(pages_[page].data()), kPageTokens));
    }
  }

  void result(StatsReport& report, std::uint64_t top) const {
    report.uncounted = uncounted_;
    const auto rarer = [](const TokenCount& a, const TokenCount& b) {
      return a.count != b.count ? a.count > b.count : a.token < b.token;
    };
    std::vector<TokenCount>& best = report.most_frequent;
    for (std::size_t i = 0; i < pages_.size(); ++i) {
      if (!pages_[i]) continue;
      const std::span<const std::uint64_t> counts = counts_of(i);
      for (std::uint64_t j = 0; j < kPageTokens; ++j) {
        if (counts[j] == 0) continue;
        const TokenCount one{static_cast<std::int64_t>(i * kPageTokens + j), counts[j]};
        report.largest = one.token;
        ++report.distinct;
        best.insert(std::ranges::upper_bound(best, one, rarer), one);
        if (best.size() > top) best.pop_back();
      }
    }
  }

 private:
  static constexpr std::uint64_t kPageTokens = 1 << 16, kPages = 1 << 16;
  static constexpr std::uint64_t kNoPage = UINT64_MAX;  // behind the last one of a state

  std::span<const std::uint64_t> counts_of(std::size_t page) const {
    return {reinterpret_cast<const std::uint64_t*>(pages_[page].data()), kPageTokens};
  }

  bool make(std::uint64_t page) {
    constexpr std::uint64_t kBytes = kPageTokens * sizeof(std::uint64_t);
    const std::uint64_t table =
        page < pages_.size() ? 0 : 2 * (page + 1) * sizeof(PageBuffer);  // old and new
    if (made_bytes_ + kBytes + table > most_bytes_) return false;
    if (table > 0) {
      table_share_.release();
      table_share_ = budget_.reserve(table, "a table of counts");
      std::vector<PageBuffer> larger(page + 1);
      std::ranges::move(pages_, larger.begin());
      pages_ = std::move(larger);
    }
    pages_[page] = PageBuffer(budget_, kBytes, "counts of tokens");
    made_bytes_ += kBytes;
    return true;
  }

  const Budget budget_;
  const std::uint64_t most_bytes_;
  Reservation table_share_;
  std::vector<PageBuffer> pages_;
  std::uint64_t made_bytes_ = 0, uncounted_ = 0;
};

class Stats {
 public:
  explicit Stats(const StatsOptions& options)
      : options_(options),
        reading_(std::clamp<std::uint64_t>(options.budget.limit() / 4, 1_MiB, 32_MiB)),
        source_(open_items(options.input, options.budget, reading_, reading_ / 8)) {
    if (options.bins < 1 || options.bins > kMostBins) {
      throw Error(ErrorKind::kInvalid, "stats",
                  "a histogram of " + with_commas(options.bins) + " bars")
          .hint("1 to " + with_commas(kMostBins));
    }
    if (options.sketch < 8 || options.sketch > 1 << 20) {
      throw Error(ErrorKind::kInvalid, "stats",
                  "a sketch of " + with_commas(options.sketch) + " numbers")
          .hint("8 to 1,048,576");
    }
    for (const double q : options.quantiles) {
      if (q >= 0 && q <= 1) continue;
      throw Error(ErrorKind::kInvalid, "stats", "there is no quantile " + number_text(q))
          .hint("0.5 is the median");
    }
  }

  StatsReport run() {
    report_.rank_error = KllSketch::rank_error(options_.sketch);
    if (options_.input.unit == ItemUnit::kRows) {
      read_rows();
    } else if (options_.input.unit == ItemUnit::kLines) {
      read_lines();
    } else {
      read_tokens();
    }
    if (!options_.state.empty()) remove_replaced(options_.state);
    return std::move(report_);
  }

 private:
  static constexpr std::uint64_t kMostBins = 10'000;
  static constexpr std::size_t kTogether = NumberCollector::kTogether;
  static constexpr std::uint64_t kReportBytes = 4_MiB;

  // Continues from the state of an earlier run, if there is one. `load` reads what was collected.
  template <class Load>
  void begin(Load load) {
    kind_ = "evenkeel stats 1 of " + std::string(item_unit_name(options_.input.unit)) +
            " by sketches of " + std::to_string(options_.sketch) + " of\n" +
            source_->fingerprint() + "\n";
    if (options_.state.empty()) return;
    source_->require_apart_from(options_.state, "");
    if (!options_.resume) {
      remove_replaced(options_.state);
      return;
    }
    const auto bytes = read_text_file(options_.state);
    if (!bytes) return;
    if (!bytes->starts_with(kind_)) throw other_work(options_.state);
    StateReader state(std::string_view(*bytes).substr(kind_.size()));
    ItemPosition at;
    for (std::uint64_t* number :
         {&at.item, &at.offset, &report_.items, &report_.bytes, &report_.tokens}) {
      state.get(*number);
    }
    load(state);
    if (!state.good() || !state.at_end()) {
      throw Error(ErrorKind::kFormat, "resume", "the checkpoint is damaged")
          .in(options_.state)
          .hint("start over without --resume");
    }
    source_->seek(at);
    reported_ = saved_ = at.offset;
    report_.resumed = true;
  }

  // Between items: reports progress and saves a state. `save` writes what was collected, at most
  // `most` bytes.
  template <class Save>
  void between(std::uint64_t most, Save save) {
    const ItemPosition at = source_->position();
    if (options_.progress && at.offset - reported_ >= kReportBytes) {
      reported_ = at.offset;
      options_.progress({"reading", at.offset, source_->bytes()});
    }
    if (options_.state.empty() || at.offset - saved_ < options_.checkpoint_bytes) return;
    saved_ = at.offset;
    std::string bytes;
    bytes.reserve(kind_.size() + 5 * sizeof(std::uint64_t) + most);
    bytes = kind_;
    StateWriter state(bytes);
    for (const std::uint64_t number :
         {at.item, at.offset, report_.items, report_.bytes, report_.tokens}) {
      state.put(number);
    }
    save(state);
    replace_file(options_.state, bytes);
  }

  void read_rows() {
    const DType dtype = source_->kind.array.dtype;
    const std::uint64_t row_bytes = source_->kind.row_bytes, columns = row_bytes / dtype.size;
    const ReadElements read = reader_of(dtype);
    const Reservation share = reserve(columns);
    std::vector<NumberCollector> collectors;
    collectors.reserve(columns);
    for (std::uint64_t i = 0; i < columns; ++i) collectors.emplace_back(options_.sketch, i);
    begin([&](StateReader& state) {
      for (NumberCollector& one : collectors) one.load(state);
    });
    while (const auto rows = source_->next()) {
      const std::size_t count = rows->size() / row_bytes;
      in_parallel(columns, count, [&](std::uint64_t first, std::uint64_t last) {
        double numbers[kTogether];
        for (std::size_t row = 0; row < count; row += kTogether) {
          const std::size_t now = std::min(kTogether, count - row);
          for (std::uint64_t i = first; i < last; ++i) {
            read(rows->data() + row * row_bytes + i * dtype.size, row_bytes, now, numbers);
            collectors[i].add({numbers, now});
          }
        }
      });
      report_.items += count;
      report_.bytes += rows->size();
      between(columns * NumberCollector::memory(options_.sketch), [&](StateWriter& state) {
        for (const NumberCollector& one : collectors) one.save(state);
      });
    }
    for (NumberCollector& one : collectors) report_.columns.push_back(one.result(options_));
  }

  Reservation reserve(std::uint64_t sketches) const {
    const std::uint64_t copies = options_.state.empty() ? 1 : 2;  // a state as it is written
    const std::uint64_t one =
        copies * NumberCollector::memory(options_.sketch) + options_.bins * sizeof(HistogramBin);
    if (sketches > options_.budget.left() / one) {
      throw Error(ErrorKind::kBudget, "stats",
                  with_commas(sketches) + " columns need " + format_size(one) +
                      " each, but the budget has " + format_size(options_.budget.left()) + " left")
          .hint("give a larger budget, or smaller sketches");
    }
    return options_.budget.reserve(sketches * one, "sketches of columns");
  }

  // Divides the columns among threads. The results do not depend on the number of threads.
  template <class Work>
  static void in_parallel(std::uint64_t columns, std::size_t rows, const Work& work) {
    const std::uint64_t processors = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
    const bool worth_it = rows * columns >= std::uint64_t{1} << 16;
    const std::uint64_t shares = worth_it ? std::min(processors, columns) : 1;
    std::vector<std::thread> threads;
    threads.reserve(shares);  // push_back must not fail after a thread was started
    std::vector<std::exception_ptr> errors(shares);
    const auto guarded = [&](std::uint64_t share, std::uint64_t begin, std::uint64_t end) {
      try {
        work(begin, end);
      } catch (...) {
        errors[share] = std::current_exception();
      }
    };
    std::uint64_t begin = 0;
    for (std::uint64_t i = 0; i + 1 < shares; ++i) {
      const std::uint64_t end = columns * (i + 1) / shares;
      try {
        threads.push_back(start_thread([&guarded, i, begin, end] { guarded(i, begin, end); }));
      } catch (const std::system_error&) {
        break;  // the calling thread does the rest
      }
      begin = end;
    }
    guarded(shares - 1, begin, columns);
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

  void read_lines() {
    const Reservation share = reserve(1);
    NumberCollector lengths(options_.sketch, 0);
    begin([&](StateReader& state) { lengths.load(state); });
    while (const auto line = source_->next()) {
      const auto length = static_cast<double>(line->size() - 1);  // without the newline
      lengths.add({&length, 1});
      report_.bytes += line->size();
      ++report_.items;
      if (report_.items % kTogether > 0) continue;
      between(NumberCollector::memory(options_.sketch),
              [&](StateWriter& state) { lengths.save(state); });
    }
    report_.lengths = lengths.result(options_);
  }

  void read_tokens() {
    const DType dtype = source_->kind.tokens->dtype;
    const ReadElements read = reader_of(dtype);
    const bool documents = options_.input.unit == ItemUnit::kDocuments;
    const Reservation share = reserve(1);
    NumberCollector lengths(options_.sketch, 0);
    TokenCounter counter(options_.budget,
                         options_.budget.left() / (options_.state.empty() ? 2 : 3));
    begin([&](StateReader& state) {
      lengths.load(state);
      counter.load(state);
    });
    double numbers[kTogether];
    while (const auto item = source_->next()) {
      const std::size_t count = item->size() / dtype.size;
      for (std::size_t at = 0; at < count; at += kTogether) {
        const std::size_t now = std::min(kTogether, count - at);
        read(item->data() + at * dtype.size, dtype.size, now, numbers);
        for (std::size_t i = 0; i < now; ++i) counter.add(numbers[i]);
      }
      const auto length = static_cast<double>(count);
      if (documents) lengths.add({&length, 1});
      if (documents) ++report_.items;
      report_.tokens += count;
      report_.bytes += item->size();
      between(NumberCollector::memory(options_.sketch) + counter.state_bytes(),
              [&](StateWriter& state) {
                lengths.save(state);
                counter.save(state);
              });
    }
    counter.result(report_, options_.top);
    if (documents) report_.lengths = lengths.result(options_);
  }

  const StatsOptions& options_;
  const std::uint64_t reading_;
  std::unique_ptr<ItemSource> source_;
  std::string kind_;                        // identifies the work that a state belongs to
  std::uint64_t reported_ = 0, saved_ = 0;  // offsets
  StatsReport report_;
};

}  // namespace

StatsReport stats(const StatsOptions& options) { return Stats(options).run(); }

}  // namespace evenkeel
