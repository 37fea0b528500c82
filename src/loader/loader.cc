#include "evenkeel/loader.h"

#include <algorithm>
#include <utility>

#include "array/internal.h"
#include "evenkeel/error.h"
#include "loader/row_loader.h"

namespace evenkeel {

const RowBatch::Field& RowBatch::at(std::size_t field) const {
  if (field < fields_.size()) return fields_[field];
  throw Error(ErrorKind::kIndex, "batch",
              "field " + std::to_string(field) + " of " + std::to_string(fields_.size()));
}

void RowBatch::require(std::size_t field, DType wanted) const {
  const DType dtype = at(field).dtype;
  if (wanted == dtype || (dtype.kind == DTypeKind::kRecord && wanted.size == dtype.size)) return;
  throw Error(ErrorKind::kInvalid, "batch",
              "field " + std::to_string(field) + " holds " + dtype.name() + ", asked for as " +
                  wanted.name());
}

LoaderField::LoaderField(const Array& array) : array_(Internals::share(array)) {}

LoaderField LoaderField::ragged(const Array& values, const Array& offsets) {
  LoaderField field(offsets);
  field.values_ = {Internals::share(values)};
  return field;
}

LoaderField LoaderField::csr(const Array& data, const Array& indices, const Array& indptr,
                             std::uint64_t columns, bool dense) {
  LoaderField field(indptr);
  field.values_ = {Internals::share(data), Internals::share(indices)};
  field.columns_ = columns;
  field.dense_ = dense;
  return field;
}

std::uint64_t LoaderField::rows() const {
  return values_.empty() ? array_->layout.rows : array_->layout.lists();
}

// For rows of different lengths, the mean.
std::uint64_t LoaderField::row_bytes() const {
  const std::uint64_t bytes = array_->layout.row_bytes;
  if (values_.empty()) return bytes;
  std::uint64_t values = 0;
  for (const auto& one : values_) values += one->layout.rows * one->layout.row_bytes;
  return 2 * bytes + values / std::max<std::uint64_t>(rows(), 1);
}

const Budget& LoaderField::budget() const {
  return values_.empty() ? array_->budget : values_.front()->budget;
}

Loader::Loader(const Array& array, RowLoaderOptions options)
    : Loader(std::vector<LoaderField>{array}, std::move(options)) {}
Loader::Loader(std::vector<LoaderField> fields, RowLoaderOptions options)
    : Loader(std::vector<WeightedRows>{{std::move(fields), 1}}, std::move(options)) {}
Loader::Loader(std::vector<WeightedRows> mixture, RowLoaderOptions options)
    : impl_(new Impl(std::move(mixture), std::move(options), false)) {}
void Loader::End::operator()(void* impl) const { end_loader(static_cast<Impl*>(impl)); }

const RowBatch* Loader::next() { return impl_->next(); }

Loader::Iterator Loader::begin() {
  impl_->begin_loop(true);
  return Iterator(this);
}

std::uint64_t Loader::step() const { return impl_->step(); }
void Loader::seek(std::uint64_t step) { impl_->seek(step); }
std::uint64_t Loader::size() const { return impl_->size(); }
std::uint64_t Loader::epoch_rows() const { return impl_->epoch_samples(); }
BlockOptions Loader::blocks() const { return impl_->blocks(); }
int Loader::buffers() const { return impl_->buffers(); }
LoaderStats Loader::stats() const { return impl_->stats(); }
RowLoaderState Loader::state() const { return impl_->state_at(impl_->step()); }
void Loader::load(const RowLoaderState& state) { impl_->load(state); }
std::vector<RowOrigin> Loader::explain(std::uint64_t step) const { return impl_->explain(step); }
void Loader::close() {
  if (impl_->owned_here()) impl_->close();
}

}  // namespace evenkeel
