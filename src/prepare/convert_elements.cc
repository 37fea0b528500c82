#include "prepare/convert_elements.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "base/number.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "prepare/element_types.h"

namespace evenkeel {
namespace {

template <class From, class To>
bool element_fits(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value == From(0) || value == From(1);
  } else if constexpr (std::is_floating_point_v<To>) {
    if constexpr (std::is_floating_point_v<From>) {
      return !std::isfinite(value) || std::isfinite(static_cast<To>(value));
    } else {
      return true;
    }
  } else if constexpr (std::is_floating_point_v<From>) {
    // Both limits are powers of two (or 0), so they are exact.
    const auto least = static_cast<From>(std::numeric_limits<To>::min());
    const From beyond = std::ldexp(From(1), std::numeric_limits<To>::digits);
    return value >= least && value < beyond && std::trunc(value) == value;
  } else if constexpr (std::is_same_v<From, bool>) {
    return true;
  } else {
    return std::in_range<To>(value);
  }
}

// Returns how many elements were converted: fewer than `count` if the next one does not fit.
template <class From, class To>
std::size_t convert_all(const std::byte* from, std::byte* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const From value = load_element<From>(from + i * sizeof(From));
    if (!element_fits<From, To>(value)) return i;
    const To converted = static_cast<To>(value);  // NOLINT(bugprone-signed-char-misuse): a number
    std::memcpy(to + i * sizeof(To), &converted, sizeof converted);
  }
  return count;
}

using ConvertFunction = std::size_t (*)(const std::byte*, std::byte*, std::size_t);

ConvertFunction find_conversion(DType from, DType to) {
  return with_element_type(from, [to](auto source) -> ConvertFunction {
    using From = typename decltype(source)::type;
    return with_element_type(to, [](auto target) -> ConvertFunction {
      return &convert_all<From, typename decltype(target)::type>;
    });
  });
}

std::string value_text(DType dtype, const std::byte* element) {
  std::string text;
  with_element_type(dtype, [&](auto type) -> ConvertFunction {
    text = number_text(+load_element<typename decltype(type)::type>(element));
    return nullptr;
  });
  return text;
}

}  // namespace

ElementConverter::ElementConverter(DType from, DType to, Budget budget)
    : from_(from), to_(to), budget_(std::move(budget)) {
  if (from == to) return;
  convert_ = find_conversion(from, to);
  if (convert_) return;
  throw Error(ErrorKind::kInvalid, "convert",
              "elements of " + from.name() + " are not converted to " + to.name())
      .hint("bool, int8 to int64, uint8 to uint64, float32 and float64 can be converted");
}

std::span<const std::byte> ElementConverter::operator()(std::span<const std::byte> elements) {
  if (!convert_) return elements;
  const std::size_t count = elements.size() / from_.size;
  if (count * to_.size > out_.capacity()) {
    out_ = {};
    share_.release();
    share_ = budget_.reserve(count * to_.size, "converted elements");
    out_.reserve(count * to_.size);
  }
  out_.resize(count * to_.size);
  const std::size_t good = convert_(elements.data(), out_.data(), count);
  if (good < count) {
    throw Error(ErrorKind::kInvalid, "convert",
                "element " + with_commas(done_ + good) + " is " +
                    value_text(from_, elements.data() + good * from_.size) + ", which " +
                    to_.name() + " cannot hold")
        .hint("choose a type that holds all values");
  }
  done_ += count;
  return out_;
}

}  // namespace evenkeel
