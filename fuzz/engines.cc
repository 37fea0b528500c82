// Compares every engine with the plain pread reference, on the same file and requests.
#include <fcntl.h>
#include <unistd.h>

#include <numeric>

#include "array/reference.h"
#include "evenkeel/array.h"
#include "fuzz/target.h"
#include "tests/temp_folder.h"

namespace evenkeel::fuzz {
namespace {

constexpr EngineKind kEngines[] = {EngineKind::kMap,  EngineKind::kRemap,  EngineKind::kAdvise,
                                   EngineKind::kRead, EngineKind::kDirect, EngineKind::kFill,
                                   EngineKind::kAuto};

// On a disk if there is one, because O_DIRECT works differently on tmpfs.
const TempFolder& folder() {
  static const TempFolder made{disk_folder().value_or(std::filesystem::temp_directory_path())};
  return made;
}

// Random bytes without equal pages. The beginning is combined with the input's bytes.
std::string bytes_for(std::string_view seed, std::uint64_t count) {
  std::string bytes = random_bytes(count, seed.size() + 1);
  for (std::size_t i = 0; i < std::min(bytes.size(), seed.size()); ++i) bytes[i] ^= seed[i];
  return bytes;
}

std::string npy(const std::string& descr, bool fortran, std::uint64_t rows, std::uint64_t columns) {
  std::string header = "{'descr': '" + descr +
                       "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': (" +
                       std::to_string(rows) + ", " + std::to_string(columns) + ")}";
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n";
}

struct Data {
  std::vector<std::string> paths;
  ArrayOptions options;
};

Data make_data(Input& input) {
  Data data;
  const std::uint64_t columns = 1 + input.upto(12), files = 1 + input.upto(2);
  static constexpr const char* kDescr[] = {"|u1", "<u2", ">u2", "<f4", ">f8", "<c16"};
  static constexpr std::uint32_t kItem[] = {1, 2, 2, 4, 8, 16};
  const std::size_t type = input.upto(std::size(kItem) - 1);
  const bool raw = input.flag(), fortran = input.flag();
  const std::uint64_t item = kItem[type];
  data.options.budget = 1_MiB + input.upto(3) * 512_KiB;
  if (input.flag()) data.options.merge_gap = input.upto(5000);
  if (raw) {
    data.options.dtype = DType{DTypeKind::kRecord, kItem[type]};
    data.options.shape = {-1, static_cast<std::int64_t>(columns)};
    data.options.offset = input.upto(600);
  }
  for (std::uint64_t file = 0; file < files; ++file) {
    const std::uint64_t rows = input.upto(file == 0 ? 4000 : 60) + (file == 0 ? 1 : 0);
    std::string bytes =
        raw ? std::string(data.options.offset, 'o') : npy(kDescr[type], fortran, rows, columns);
    bytes += bytes_for(input.rest(), rows * columns * item);
    if (bytes.empty()) bytes = std::string(item * columns, '1');  // an empty file is an error
    data.paths.push_back(folder().write("part" + std::to_string(file), bytes));
  }
  return data;
}

struct Request {
  std::vector<std::uint64_t> starts;
  std::uint64_t each = 1;
};

std::vector<Request> make_requests(Input& input, std::uint64_t rows) {
  std::vector<Request> requests;
  for (std::uint64_t count = 1 + input.upto(2); count > 0; --count) {
    Request request;
    request.each = 1 + input.upto(std::min<std::uint64_t>(rows, 9) - 1);
    for (std::uint64_t crops = 1 + input.upto(15); crops > 0; --crops) {
      request.starts.push_back(input.upto(65535) % (rows - request.each + 1));
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<std::byte> reference_answer(const Layout& layout, const Request& request) {
  std::vector<std::uint64_t> rows;
  for (const std::uint64_t start : request.starts) {
    for (std::uint64_t i = 0; i < request.each; ++i) rows.push_back(start + i);
  }
  return reference_rows(layout, rows);
}

void check_chunks(const Array& array, std::uint64_t per_chunk, const Order& order,
                  const std::vector<std::byte>& whole) {
  const Sequence sequence(order, array.rows());
  std::uint64_t seen = 0;
  for (const Chunk& chunk : array.chunks(per_chunk, order)) {
    for (std::size_t i = 0; i < chunk.size(); ++i, ++seen) {
      MUST(chunk.index(i) == sequence[seen]);
      const auto row = chunk.bytes().subspan(i * array.row_bytes(), array.row_bytes());
      const std::byte* wanted = whole.data() + chunk.index(i) * array.row_bytes();
      MUST(std::equal(row.begin(), row.end(), wanted));
    }
  }
  MUST(seen == sequence.size());
}

FUZZ_TARGET(engines) {
  Data data = make_data(input);
  const Layout layout =
      read_layout(data.paths, {data.options.dtype, data.options.shape, data.options.offset, false});
  const auto requests = make_requests(input, layout.rows);
  const std::uint64_t per_chunk = 1 + input.upto(999);
  const Order order{static_cast<OrderKind>(input.upto(2)), input.upto(255), 0, input.upto(1), 2};
  std::vector<std::byte> whole;
  for (const EngineKind engine : kEngines) {
    data.options.engine = engine;
    const Array array = Array::open(data.paths, data.options);
    MUST(array.rows() == layout.rows);
    for (const Request& request : requests) {
      std::vector<std::byte> out(request.starts.size() * request.each * layout.row_bytes);
      array.crops(request.starts, request.each, out);
      MUST(out == reference_answer(layout, request));
    }
    std::vector<std::byte> all(layout.bytes());
    array.read(0, layout.rows, all);
    if (whole.empty()) whole = all;  // its crops were compared with the reference
    MUST(all == whole);
    check_chunks(array, per_chunk, order, whole);
  }
}

}  // namespace
}  // namespace evenkeel::fuzz
