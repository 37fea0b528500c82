// Arrow IPC, files and streams: columns of numbers in record batches. See docs/formats.md.
#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "evenkeel/bytes.h"
#include "format/arrow_schema.h"
#include "format/container.h"

namespace evenkeel {
namespace {

constexpr std::string_view kFileMagic("ARROW1\0\0", 8), kFileEnd = "ARROW1";
constexpr std::string_view kContinuation = "\xff\xff\xff\xff";
constexpr std::uint64_t kMostMetadata = 16_MiB;
constexpr std::uint64_t kBlockBytes = 24, kNodeBytes = 16, kBufferBytes = 16;
constexpr int kSchemaMessage = 1, kBatchMessage = 3;
constexpr std::string_view kValues = ".values", kOffsets = ".offsets";
constexpr char kRewrite[] =
    "pyarrow: write it again without compression: with pyarrow.ipc.new_file(path, table.schema) as "
    "f: f.write_table(table)";

Error bad_arrow(const Source& source, std::uint64_t place, const std::string& problem) {
  return Error(ErrorKind::kFormat, "open", "bad Arrow file: " + problem).in(source.path).at(place);
}

// A message: its metadata, and where its body lies.
struct Message {
  std::string metadata;
  std::uint64_t place = 0, body = 0, body_bytes = 0, end = 0;
  std::int16_t version = 0;
  std::uint8_t kind = 0;

  FlatTable header() const {
    const auto table = FlatTable::root(metadata).table(2);
    if (!table) throw Error(ErrorKind::kFormat, "open", "bad Arrow metadata: an empty message");
    return *table;
  }
};

// The message at `place`; empty at the end of the stream.
std::optional<Message> read_message(const Source& source, std::uint64_t place) {
  const std::uint64_t size = source.identity.size;
  if (place == size) return std::nullopt;  // a stream without an end marker
  const std::string head = source.read(place, kHeadBytes);
  if (place >= kHeadBytes) source.drop(place, kHeadBytes);  // there may be many batches
  if (head.size() < 8 || !head.starts_with(kContinuation)) {
    throw bad_arrow(source, place, "there is no message here")
        .hint("the file may be truncated, or of a version before 0.15");
  }
  const auto length = load_number<std::uint32_t>(head.data() + 4);
  if (length == 0) return std::nullopt;
  if (length > kMostMetadata || length > size - place - 8) {
    throw bad_arrow(source, place,
                    "metadata of " + with_commas(length) + " bytes, and " +
                        with_commas(size - place - 8) + " bytes follow");
  }
  Message message;
  message.place = place;
  message.metadata =
      length <= head.size() - 8 ? head.substr(8, length) : source.read(place + 8, length);
  const FlatTable table = FlatTable::root(message.metadata);
  message.version = table.number<std::int16_t>(0, 0);
  message.kind = table.number<std::uint8_t>(1, 0);
  const auto body_bytes = table.number<std::int64_t>(3, 0);
  message.body = place + 8 + length;
  if (body_bytes < 0 || static_cast<std::uint64_t>(body_bytes) > size - message.body) {
    throw bad_arrow(source, place,
                    "a body of " + std::to_string(body_bytes) + " bytes, and " +
                        with_commas(size - message.body) + " bytes follow")
        .hint("the file may be truncated: copy or download it again");
  }
  message.body_bytes = static_cast<std::uint64_t>(body_bytes);
  message.end = message.body + message.body_bytes;
  if (message.version != 3 && message.version != 4) {
    throw bad_arrow(
        source, place,
        "metadata version " + std::to_string(message.version + 1) + "; versions 4 and 5 are read");
  }
  return message;
}

// Reads the schema, and then the record batches one after the other.
class Batches {
 public:
  Batches(const Source& source, std::string_view head) : source_(source) {
    const bool file = head.starts_with(kFileMagic);
    const auto first = read_message(source, file ? kFileMagic.size() : 0);
    if (!first || first->kind != kSchemaMessage) {
      throw bad_arrow(source, 0, "it does not begin with a schema");
    }
    schema_ = read_arrow_schema(first->header(), first->version == 3);
    next_ = first->end;
    if (file) read_footer();
  }

  const ArrowSchema& schema() const { return schema_; }

  // The next record batch; empty after the last.
  std::optional<Message> next() {
    if (!footer_.empty()) {
      const FlatTable footer = FlatTable::root(footer_);
      const FlatTable::Items blocks = footer.list(3, kBlockBytes);
      if (block_ == blocks.count) return std::nullopt;
      const auto place = footer.item<std::int64_t>(blocks.begin + block_++ * kBlockBytes);
      if (place < 0 || static_cast<std::uint64_t>(place) >= source_.identity.size) {
        throw bad_arrow(source_, source_.identity.size, "a record batch outside the file");
      }
      auto message = read_message(source_, static_cast<std::uint64_t>(place));
      if (!message || message->kind != kBatchMessage) {
        throw bad_arrow(source_, static_cast<std::uint64_t>(place),
                        "there is no record batch here");
      }
      return message;
    }
    while (auto message = read_message(source_, next_)) {
      next_ = message->end;
      if (message->kind == kBatchMessage) return message;
      if (message->kind == kSchemaMessage) {
        throw bad_arrow(source_, message->place, "a second schema");
      }
    }
    return std::nullopt;
  }

 private:
  void read_footer() {
    const std::uint64_t size = source_.identity.size, tail = 4 + kFileEnd.size();
    const std::string end = size < tail ? "" : source_.read(size - tail, tail);
    if (end.size() < tail || !end.ends_with(kFileEnd)) {
      throw bad_arrow(source_, size, "it does not end with ARROW1")
          .hint("it is truncated, or still being written");
    }
    const auto length = load_number<std::uint32_t>(end.data());
    if (length < 8 || length > size - tail || length > 8 * kMostMetadata) {
      throw bad_arrow(source_, size - tail, "a footer of " + with_commas(length) + " bytes");
    }
    footer_ = source_.read(size - tail - length, length);
    FlatTable::root(footer_).list(3, kBlockBytes);
  }

  const Source& source_;
  ArrowSchema schema_;
  std::string footer_;  // files have one, streams do not
  std::uint64_t block_ = 0, next_ = 0;
};

// The nodes and buffers of one column in one record batch.
class BatchColumn {
 public:
  BatchColumn(const Source& source, const Message& message, const ArrowColumn& column)
      : source_(source), message_(message), column_(column), batch_(message.header()) {
    if (batch_.table(3)) throw fail("its buffers are compressed").hint(kRewrite);
    const auto length = batch_.number<std::int64_t>(0, 0);
    if (length < 0) throw fail("a length below 0");
    rows_ = static_cast<std::uint64_t>(length);
    buffer_ = column.first_buffer;
    const FlatTable::Items views = batch_.list(4, 8);
    if (views.count < column.views_before) throw fail("it has too few counts of views");
    for (std::uint64_t i = 0; i < column.views_before; ++i) {
      const auto more = batch_.item<std::int64_t>(views.begin + 8 * i);
      const auto sum = checked_add(buffer_, static_cast<std::uint64_t>(more));
      if (more < 0 || !sum) throw fail("a number of views below 0");
      buffer_ = *sum;
    }
  }

  std::uint64_t rows() const { return rows_; }

  // The length of the column's node number `which`, which must have no nulls.
  std::uint64_t node(std::uint64_t which) const {
    const FlatTable::Items nodes = batch_.list(1, kNodeBytes);
    const std::uint64_t number = column_.first_node + which;
    if (number >= nodes.count) throw fail("it has too few nodes");
    const auto length = batch_.item<std::int64_t>(nodes.begin + number * kNodeBytes);
    const auto nulls = batch_.item<std::int64_t>(nodes.begin + number * kNodeBytes + 8);
    if (length < 0) throw fail("a length below 0");
    if (nulls != 0) {
      throw fail(with_commas(static_cast<std::uint64_t>(nulls)) + " of its values are null")
          .hint("fill them first: pyarrow.compute.fill_null(column, 0)");
    }
    return static_cast<std::uint64_t>(length);
  }

  // The offset in the file of the column's buffer number `which`, which must have `bytes` bytes.
  std::uint64_t buffer(std::uint64_t which, std::uint64_t bytes) const {
    const FlatTable::Items buffers = batch_.list(2, kBufferBytes);
    const auto number = checked_add(buffer_, which);
    if (!number || *number >= buffers.count) throw fail("it has too few buffers");
    const std::uint64_t place = buffers.begin + *number * kBufferBytes;
    const auto offset = batch_.item<std::uint64_t>(place);
    const auto length = batch_.item<std::uint64_t>(place + 8);
    if (offset > message_.body_bytes || length > message_.body_bytes - offset || length < bytes) {
      throw fail("a buffer of " + with_commas(length) + " bytes at " + with_commas(offset) +
                 " of a body of " + with_commas(message_.body_bytes) + " bytes, where " +
                 with_commas(bytes) + " are needed");
    }
    return message_.body + offset;
  }

  Error fail(const std::string& problem) const {
    return Error(ErrorKind::kFormat, "open",
                 "column \"" + printable(column_.name) + "\": " + problem)
        .in(source_.path)
        .at(message_.place);
  }

 private:
  const Source& source_;
  const Message& message_;
  const ArrowColumn& column_;
  const FlatTable batch_;
  std::uint64_t rows_ = 0, buffer_ = 0;
};

enum class Want : std::uint8_t { kRows, kValues, kOffsets };

struct Choice {
  const ArrowColumn* column = nullptr;
  Want want = Want::kRows;
};

std::vector<Member> columns_of(const ArrowSchema& schema) {
  std::vector<Member> members;
  for (const ArrowColumn& column : schema.columns) {
    members.push_back(
        {column.name, column.type, column.lengths, column.list_offset_bytes > 0, column.refused});
  }
  return members;
}

Choice choose(const Source& source, const ArrowSchema& schema, const std::string& name) {
  const auto named = [&](std::string_view wanted) -> const ArrowColumn* {
    const auto found = std::ranges::find(schema.columns, wanted, &ArrowColumn::name);
    return found == schema.columns.end() ? nullptr : &*found;
  };
  const std::vector<Member> members = columns_of(schema);
  Choice choice;
  if (name.empty() && schema.columns.size() == 1) {
    choice.column = &schema.columns.front();
  } else if (!name.empty()) {
    choice.column = named(name);
    for (const auto& [end, want] :
         {std::pair(kValues, Want::kValues), {kOffsets, Want::kOffsets}}) {
      if (choice.column || !name.ends_with(end)) continue;
      choice = {named(std::string_view(name).substr(0, name.size() - end.size())), want};
      if (choice.column && choice.column->list_offset_bytes == 0) choice = {};
    }
  }
  if (!choice.column) throw no_such_member(source, name, members);
  const ArrowColumn& column = *choice.column;
  const auto fail = [&](const std::string& problem) {
    return Error(ErrorKind::kFormat, "open",
                 "column \"" + printable(column.name) + "\": " + problem)
        .in(source.path);
  };
  if (!column.refused.empty()) throw fail(column.refused);
  if (column.list_offset_bytes > 0 && choice.want == Want::kRows) {
    throw fail("its rows are lists, which may have different lengths")
        .hint("open \"" + column.name + ".values\" and \"" + column.name +
              ".offsets\", and read both with ragged()");
  }
  return choice;
}

// Adds one batch's rows, values or offsets to the array.
void add_batch(const BatchColumn& batch, const Choice& choice, Part& part) {
  const ArrowColumn& column = *choice.column;
  const std::uint64_t outer = column.list_offset_bytes > 0 ? 1 : 0;  // nodes above the values
  if (batch.node(0) != batch.rows()) throw batch.fail("its length is not that of the batch");
  const std::uint64_t values = batch.node(outer);
  auto numbers = std::optional(values);
  for (std::size_t i = 0; i < column.lengths.size(); ++i) {
    numbers = numbers ? checked_mul(*numbers, column.lengths[i]) : numbers;
    if (batch.node(outer + 1 + i) != numbers) throw batch.fail("lists of a wrong length");
  }
  const auto bytes = numbers ? checked_mul(*numbers, column.dtype.size) : std::nullopt;
  if (!bytes) throw batch.fail("more bytes than any file has");
  // The buffers before the numbers: a validity buffer for each level of lists and one for the
  // numbers, and the offsets of lists.
  const std::uint64_t place =
      values == 0 ? 0 : batch.buffer(2 * outer + column.lengths.size() + 1, *bytes);
  std::uint64_t rows = values, at = place;
  if (choice.want == Want::kOffsets) {
    // A batch without lists may have no offsets at all.
    if (batch.rows() == 0) return;
    rows = batch.rows() + 1;
    const auto needed = checked_mul(rows, column.list_offset_bytes);
    if (!needed) throw batch.fail("more offsets than any file has");
    at = batch.buffer(1, *needed);
    OffsetBatch next{0, batch.rows(), part.segment.rows, 0, values};
    if (!part.offset_batches.empty()) {
      const OffsetBatch& last = part.offset_batches.back();
      next.first_list = last.first_list + last.lists;
      next.first_value = last.first_value + last.values;
    }
    part.offset_batches.push_back(next);
  } else if (outer > 0 && batch.rows() == 0) {
    return;  // values without a list, if any: the offsets have no batch for them
  }
  if (rows == 0) return;
  const auto sum = checked_add(part.segment.rows, rows);
  if (!sum || !checked_mul(*sum, part.row_bytes)) throw batch.fail("more rows than any file has");
  part.stretches.push_back({part.segment.rows, rows, at, 0});
  part.segment.rows = *sum;
}

}  // namespace

bool is_arrow(std::string_view head) {
  if (head.starts_with(kFileMagic)) return true;
  // A stream begins with the marker, a length, and a flatbuffer, whose first number is the position
  // of a table.
  return head.size() > 16 && head.starts_with(kContinuation) &&
         load_number<std::uint32_t>(head.data() + 4) >= 16 &&
         load_number<std::uint32_t>(head.data() + 4) <= kMostMetadata &&
         load_number<std::uint32_t>(head.data() + 8) < 256;
}

std::vector<Member> arrow_columns(const Source& source, std::string_view head, bool count_rows) {
  Batches batches(source, head);
  std::vector<Member> members = columns_of(batches.schema());
  if (!count_rows) return members;
  std::uint64_t rows = 0;
  while (const auto message = batches.next()) {
    const auto length = message->header().number<std::int64_t>(0, 0);
    if (length < 0) throw bad_arrow(source, message->place, "a length below 0");
    rows += static_cast<std::uint64_t>(length);
  }
  for (Member& member : members) member.shape.insert(member.shape.begin(), rows);
  return members;
}

Part read_arrow(const Source& source, std::string_view head, const std::string& name) {
  Batches batches(source, head);
  const Choice choice = choose(source, batches.schema(), name);
  const ArrowColumn& column = *choice.column;
  Part part;
  part.format = "arrow";
  part.dtype = column.dtype;
  part.shape = {0};
  if (choice.want == Want::kOffsets) {
    part.dtype = {DTypeKind::kInt, column.list_offset_bytes};
  } else {
    part.shape.insert(part.shape.end(), column.lengths.begin(), column.lengths.end());
  }
  part.swapped = needs_swap(part.dtype, batches.schema().big_endian);
  const auto size = measure(part.shape, part.dtype.size);
  if (!size) throw bad_arrow(source, 0, "rows larger than any file");
  part.row_bytes = size->row_bytes;
  part.segment = source.segment(0, 0);
  while (const auto message = batches.next()) {
    add_batch(BatchColumn(source, *message, column), choice, part);
  }
  part.shape[0] = part.segment.rows;
  return part;
}

}  // namespace evenkeel
