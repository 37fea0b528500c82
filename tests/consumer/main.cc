// The smallest program that uses an installed Evenkeel: write ten rows, open them, sum a chunk.
#include <evenkeel/array.h>
#include <evenkeel/version.h>

#include <cstdio>
#include <fstream>
#include <numeric>
#include <vector>

using namespace ek::literals;

int main() {
  std::vector<float> numbers(40);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  std::ofstream("numbers.f32", std::ios::binary)
      .write(reinterpret_cast<const char*>(numbers.data()), 40 * sizeof(float));

  ek::Array a = ek::Array::open(
      "numbers.f32", {.budget = 16_MiB, .dtype = ek::DType::of<float>(), .shape = {-1, 4}});
  double sum = 0;
  for (const auto& chunk : a.chunks(10)) {
    for (float number : chunk.rows<float>().flat()) sum += number;
  }
  std::printf("evenkeel %s: %llu rows, sum %.0f\n", EVENKEEL_VERSION,
              static_cast<unsigned long long>(a.rows()), sum);
  return a.rows() == 10 && sum == 780 ? 0 : 1;
}
