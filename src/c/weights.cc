// Model weights.
#include "evenkeel/weights.h"

#include "c/call.h"

using namespace evenkeel::c;  // NOLINT(google-build-using-namespace)

struct evenkeel_weights {
  evenkeel::Weights weights;
  std::vector<std::string> dtypes;  // of tensors()
};

namespace {

const evenkeel::Tensor& tensor_at(const evenkeel::Weights& weights, std::size_t number) {
  const auto& tensors = weights.tensors();
  if (number < tensors.size()) return tensors[number];
  throw evenkeel::Error(
      evenkeel::ErrorKind::kIndex, "weights",
      "tensor " + std::to_string(number) + " of " + std::to_string(tensors.size()));
}

}  // namespace

int evenkeel_weights_open(const char* path, const evenkeel_weights_options* options,
                          evenkeel_weights** weights) {
  return make(__func__, weights, [&](const Call& c) {
    const evenkeel_weights_options given = c.given(options, "options");
    evenkeel::Weights opened = evenkeel::Weights::open(
        c.text(path, "path"),
        {.budget = budget_of(given.budget), .engine = engine_of(given.engine)});
    std::vector<std::string> dtypes;
    for (const evenkeel::Tensor& tensor : opened.tensors()) {
      dtypes.push_back(tensor.dtype ? tensor.dtype->name() : "");
    }
    return handle<evenkeel_weights>(std::move(opened), std::move(dtypes));
  });
}

int evenkeel_weights_count(const evenkeel_weights* weights, size_t* count) {
  return call(__func__, [&](const Call& c) {
    c.need(count, "count") = c.need(weights, "weights").weights.tensors().size();
  });
}

int evenkeel_weights_tensor(const evenkeel_weights* weights, size_t number,
                            evenkeel_tensor* tensor) {
  return call(__func__, [&](const Call& c) {
    c.check_result(tensor, "tensor");
    const evenkeel_weights& known = c.need(weights, "weights");
    const evenkeel::Tensor& one = tensor_at(known.weights, number);
    c.give({0, one.name.c_str(), one.type.c_str(), known.dtypes[number].c_str(), one.shape.data(),
            one.shape.size(), one.bytes, known.weights.paths().at(one.file).c_str(), one.offset},
           tensor);
  });
}

int evenkeel_weights_find(const evenkeel_weights* weights, const char* name, size_t* number) {
  return call(__func__, [&](const Call& c) {
    c.need(number, "number");
    const evenkeel::Weights& known = c.need(weights, "weights").weights;
    const evenkeel::Tensor& found = known.at(c.text(name, "name"));
    *number = static_cast<std::size_t>(&found - known.tensors().data());
  });
}

int evenkeel_weights_read(const evenkeel_weights* weights, size_t number, void* out, size_t bytes) {
  return call(__func__, [&](const Call& c) {
    const evenkeel::Weights& known = c.need(weights, "weights").weights;
    known.read(tensor_at(known, number), c.room(out, bytes));
  });
}

int evenkeel_weights_close(evenkeel_weights* weights) {
  return call(__func__, [&](const Call& c) { c.need(weights, "weights").weights.close(); });
}

void evenkeel_weights_free(evenkeel_weights* weights) { delete weights; }
