// A language model in about seventy lines, trained from a token file within a budget of 1 MiB.
//
//   bigram [FILE...]     text files to learn from; default: the licenses that Debian ships
//
// It learns which byte follows which: one table of logits, softmax, plain gradient descent. The
// point is the loop around it: open, load, step, and a state to resume from.
#include <evenkeel/tokens.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace fs = std::filesystem;
using namespace ek::literals;

constexpr std::size_t kBytes = 256;  // the vocabulary

// Writes every byte as a token of 16 bits, like nanoGPT's files.
static void write_tokens(const fs::path& out, const std::vector<fs::path>& texts) {
  std::ofstream tokens(out, std::ios::binary);
  for (const fs::path& text : texts) {
    std::ifstream in(text, std::ios::binary);
    for (std::istreambuf_iterator<char> byte(in), end; byte != end; ++byte) {
      tokens.put(*byte);
      tokens.put('\0');
    }
  }
}

// One step of gradient descent on all pairs (x, y) of a batch. Returns the mean loss before it.
static double train(std::vector<float>& logits, const ek::Batch& batch, float rate) {
  const auto x = batch.x<std::int64_t>().flat(), y = batch.y<std::int64_t>().flat();
  std::vector<float> gradient(logits.size()), chance(kBytes);
  double loss = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float* row = &logits[static_cast<std::size_t>(x[i]) * kBytes];
    float sum = 0;
    for (std::size_t t = 0; t < kBytes; ++t) sum += chance[t] = std::exp(row[t]);
    float* out = &gradient[static_cast<std::size_t>(x[i]) * kBytes];
    for (std::size_t t = 0; t < kBytes; ++t) out[t] += chance[t] / sum;
    out[y[i]] -= 1;
    loss -= std::log(chance[static_cast<std::size_t>(y[i])] / sum);
  }
  const float step = rate / static_cast<float>(x.size());
  for (std::size_t t = 0; t < logits.size(); ++t) logits[t] -= step * gradient[t];
  return loss / static_cast<double>(x.size());
}

int main(int argc, char** argv) try {
  std::vector<fs::path> texts(argv + 1, argv + argc);
  if (texts.empty()) {
    for (const auto& entry : fs::directory_iterator("/usr/share/common-licenses")) {
      if (entry.is_regular_file() && !entry.is_symlink()) texts.push_back(entry.path());
    }
  }
  std::string folder = (fs::temp_directory_path() / "bigram-XXXXXX").string();
  if (!::mkdtemp(folder.data())) throw std::runtime_error("cannot create a temporary folder");
  const fs::path file = fs::path(folder) / "train.bin";
  write_tokens(file, texts);

  const ek::Tokens tokens = ek::Tokens::open(file, {.budget = 1_MiB});
  ek::TokenLoader loader(tokens, {.batch_size = 8,
                                  .block_size = 128,
                                  .order = ek::CropOrder::kCovering,
                                  .seed = 1337,
                                  .steps = 600});
  std::vector<float> logits(kBytes * kBytes);
  double first = 0, last = 0;
  for (const ek::Batch& batch : loader) {
    last = train(logits, batch, 50.0f);
    if (batch.step() == 0) first = last;
    if (batch.step() % 100 == 0 || batch.step() == 599)
      std::printf("step %4llu  loss %.3f\n", static_cast<unsigned long long>(batch.step()), last);
  }
  std::printf("%llu tokens, budget %s, peak use %s\nto resume: %s\n",
              static_cast<unsigned long long>(tokens.size()), ek::format_size(1_MiB).c_str(),
              ek::format_size(tokens.budget().peak()).c_str(), loader.state().text().c_str());
  fs::remove_all(folder);
  return last < 0.7 * first ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bigram: %s\n", error.what());
  return 1;
}
