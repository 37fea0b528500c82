#include "tokens/megatron_samples.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/number.h"
#include "format/megatron.h"
#include "tokens/impl.h"
#include "tokens/megatron_blend.h"

namespace evenkeel {
namespace {

Error wrong_megatron(const std::string& what) {
  return Error(ErrorKind::kInvalid, "order \"megatron\"", what);
}

// The limits of the counters in Megatron's own indexes.
constexpr std::uint64_t kMostDocuments = std::numeric_limits<std::int32_t>::max();
constexpr std::uint64_t kMostSamples32 = std::numeric_limits<std::uint32_t>::max() - 2;

constexpr std::size_t kAhead = 32;  // memory prefetches in flight

const Layout& megatron_layout(const Tokens& tokens) {
  const Layout& layout = TokenInternals::of(tokens).layout();
  if (layout.format == "megatron" && layout.segments.size() == 1) return layout;
  throw wrong_megatron(layout.segments.size() == 1
                           ? "the documents come from Megatron's .idx, but this is " +
                                 tokens.format()
                           : "the stream has " + std::to_string(layout.segments.size()) +
                                 " files; Megatron's data sets are one file each")
      .in(layout.paths.front())
      .hint("open each Megatron file by itself, and pass several as a mixture");
}

std::string index_path(const std::string& bin_path) {
  return bin_path.substr(0, bin_path.size() - std::string_view(".bin").size()) + ".idx";
}

// Shuffles the first values, and then the others, separately.
void shuffle_parts(NumpyShuffle& shuffle, std::span<std::uint32_t> values, std::uint64_t first) {
  shuffle(values.first(first));
  shuffle(values.subspan(first));
}

}  // namespace

std::uint32_t NumpyShuffle::up_to(std::uint32_t most) {
  const std::uint32_t mask = std::numeric_limits<std::uint32_t>::max() >> std::countl_zero(most);
  for (;;) {
    const auto value = static_cast<std::uint32_t>(twister_()) & mask;
    if (value <= most) return value;
  }
}

void NumpyShuffle::operator()(std::span<std::uint32_t> values) {
  // The partners do not depend on the values, so they are drawn and prefetched before the swaps.
  std::array<std::uint32_t, kAhead> partners;
  for (std::size_t left = values.size(); left > 1;) {
    const std::size_t count = std::min(kAhead, left - 1);
    for (std::size_t i = 0; i < count; ++i) {
      partners[i] = up_to(static_cast<std::uint32_t>(left - 1 - i));
      __builtin_prefetch(&values[partners[i]], 1);
    }
    for (std::size_t i = 0; i < count; ++i) std::swap(values[left - 1 - i], values[partners[i]]);
    left -= count;
  }
}

MegatronDocuments::MegatronDocuments(const Tokens& tokens) : tokens_(tokens.size()) {
  const Layout& layout = megatron_layout(tokens);
  const Segment& file = layout.segments.front();
  const std::string path = index_path(file.path);
  MegatronLengths lengths(path);
  const std::uint64_t first = tokens.first_token(), end = first + tokens_;
  const auto no_part = [&](const std::string& what, std::uint64_t at) {
    return wrong_megatron("the part from token " + with_commas(first) + " to " + with_commas(end) +
                          " does not begin and end with a document: " + what + with_commas(at))
        .in(path)
        .hint("use a whole file, or a part that megatron_split returns");
  };
  std::uint64_t at = 0, from = 0, count = 0;
  if (tokens_ * layout.dtype.size == file.identity.size) {
    count = lengths.size();
  } else {
    // The number of documents in a slice is known only after a pass over the index.
    std::uint64_t number = 0;
    for (; number < lengths.size() && at < end; ++number) {
      if (at == first) from = number;
      const std::uint32_t length = lengths.next();
      if (at < first && at + length > first) throw no_part("one begins at token ", at);
      // An empty document at the edge could belong to either side.
      if (length == 0 && at == first) throw no_part("an empty one lies at token ", at);
      at += length;
      if (at > first) ++count;
    }
    if (at != end) throw no_part("one ends at token ", at);
    const bool empty_next = number < lengths.size() && lengths.next() == 0;
    if (empty_next) throw no_part("an empty one lies at token ", at);
  }
  if (count == 0 || count > kMostDocuments) {
    throw wrong_megatron("there are " + with_commas(count) + " documents; 1 to " +
                         with_commas(kMostDocuments) + " are possible")
        .in(path);
  }
  const std::uint64_t starts = (count - 1) / kEvery + 1;
  share_ = tokens.budget().reserve(count * 4 + starts * 8, "the lengths of Megatron's documents");
  lengths_.reserve(count);
  starts_.reserve(starts);
  lengths.rewind(from);
  at = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i % kEvery == 0) starts_.push_back(at);
    lengths_.push_back(lengths.next());
    at += lengths_.back();
  }
  if (at == tokens_) return;
  throw wrong_megatron("the documents have " + with_commas(at) + " tokens, the file " +
                       with_commas(tokens_) + ": the .idx has changed since it was opened")
      .in(path);
}

std::uint64_t MegatronDocuments::start(std::uint64_t document) const {
  std::uint64_t at = starts_[document / kEvery];
  for (std::uint64_t i = round_down(document, kEvery); i < document; ++i) at += lengths_[i];
  return at;
}

MegatronSamples::MegatronSamples(const Tokens& tokens, std::uint64_t block_size,
                                 std::uint64_t samples, std::uint32_t seed)
    : block_size_(block_size), documents_(tokens) {
  const std::uint64_t each = documents_.tokens();  // of an epoch
  const auto wanted = checked_mul(samples, block_size);
  const std::uint64_t per_epoch = (each - 1) / block_size;
  if (samples > 0 && wanted) epochs_ = std::max<std::uint64_t>(1, *wanted / each + 1);
  const auto entries = checked_mul(epochs_, documents_.size());
  const auto all = checked_mul(epochs_, each);
  const std::uint64_t count = all ? (*all - 1) / block_size : 0;
  if (!wanted || !entries || !all || *entries > kMostDocuments || count > kMostSamples32) {
    throw wrong_megatron(with_commas(samples) + " samples of " + with_commas(block_size) +
                         " tokens are too many: Megatron numbers the documents of all epochs with "
                         "31 bits, and this order its samples with 32");
  }
  if (count == 0) {
    throw wrong_megatron("a sample has " + with_commas(block_size + 1) +
                         " tokens; the documents have " + with_commas(each))
        .in(tokens.paths().front())
        .hint("take a smaller block_size");
  }
  const std::uint64_t before_last = ((epochs_ - 1) * each - (epochs_ > 1 ? 1 : 0)) / block_size;
  // If only a small part of the last epoch is needed, it is shuffled separately and comes last.
  const bool last_apart =
      epochs_ > 1 &&
      samples - before_last < static_cast<std::uint64_t>(0.80 * static_cast<double>(per_epoch));

  const std::uint64_t marks = (*entries - 1) / kEvery + 1;
  share_ = tokens.budget().reserve(*entries * 4 + marks * 8 + count * 4,
                                   "Megatron's order of documents and samples");
  NumpyShuffle shuffle(seed);
  order_.resize(*entries);
  const std::uint64_t documents = documents_.size();
  for (std::uint64_t epoch = 0; epoch < epochs_; ++epoch) {
    std::iota(order_.begin() + static_cast<std::ptrdiff_t>(epoch * documents),
              order_.begin() + static_cast<std::ptrdiff_t>((epoch + 1) * documents), 0u);
  }
  shuffle_parts(shuffle, order_, last_apart ? *entries - documents : *entries);
  before_.reserve(marks);
  count_tokens();
  shuffled_.resize(count);
  std::iota(shuffled_.begin(), shuffled_.end(), 0u);
  shuffle_parts(shuffle, shuffled_, last_apart ? before_last : count);
}

void MegatronSamples::count_tokens() {
  std::uint64_t at = 0;
  std::uint64_t next = 0, began = 0;  // token of the next sample; entry where the last one began
  for (std::uint64_t entry = 0; entry < order_.size(); ++entry) {
    if (entry % kEvery == 0) before_.push_back(at);
    if (entry + kAhead < order_.size()) documents_.prefetch(order_[entry + kAhead]);
    at += documents_.length(order_[entry]);
    if (at <= next) continue;
    // A sample ends with the token at which the next one begins.
    most_runs_ = std::max(most_runs_, entry - began + 1);
    began = entry;
    next += ((at - 1 - next) / block_size_ + 1) * block_size_;
  }
}

MegatronSamples::Place MegatronSamples::find(std::uint64_t token) const {
  const auto behind = std::ranges::upper_bound(before_, token);
  const auto mark = static_cast<std::uint64_t>(behind - before_.begin()) - 1;
  std::uint64_t entry = mark * kEvery, at = before_[mark];
  for (;; ++entry) {
    const std::uint32_t length = documents_.length(order_[entry]);
    if (token - at < length) return {entry, token - at};
    at += length;
  }
}

std::vector<std::optional<Tokens>> megatron_split(const Tokens& tokens, const std::string& split) {
  constexpr std::size_t kParts = 3;
  std::vector<double> shares;
  for (std::size_t i = 0; i < split.size();) {
    const std::size_t begin = split.find_first_of(".0123456789", i);
    if (begin == std::string::npos) break;
    i = std::min(split.find_first_not_of(".0123456789", begin), split.size());
    const auto share = parse_number<double>(std::string_view(split).substr(begin, i - begin));
    shares.push_back(share.value_or(-1));
  }
  const bool good = !shares.empty() && shares.size() <= kParts &&
                    std::ranges::all_of(shares, [](double share) { return share >= 0; }) &&
                    std::ranges::any_of(shares, [](double share) { return share > 0; });
  if (!good) {
    throw Error(ErrorKind::kInvalid, "megatron_split", "\"" + split + "\" is not a split")
        .hint("give one to three shares, for instance \"969,30,1\"");
  }
  shares.resize(kParts);
  shares = megatron_normalized(shares);
  const MegatronDocuments documents(tokens);
  const auto first = [&](double share) {  // a document, rounded as in Python, and its first token
    const double document = std::nearbyint(share * static_cast<double>(documents.size()));
    const auto number = static_cast<std::uint64_t>(document);
    return std::pair(number,
                     number >= documents.size() ? documents.tokens() : documents.start(number));
  };
  std::vector<std::optional<Tokens>> parts;
  double from = 0;
  for (const double share : shares) {
    const double to = from + share;
    const auto [first_document, begin] = first(from);
    const auto [end_document, end] = first(to);
    const bool any = to > from && end_document > first_document && end > begin;
    parts.push_back(any ? std::optional(tokens.slice(static_cast<std::int64_t>(begin),
                                                     static_cast<std::int64_t>(end)))
                        : std::nullopt);
    from = to;
  }
  return parts;
}

}  // namespace evenkeel
