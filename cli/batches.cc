// evenkeel batches: shows the batches of a token loader and measures how fast they arrive.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/hash.h"
#include "base/visible.h"
#include "cli/commands.h"
#include "cli/describe.h"
#include "cli/file_cache_state.h"
#include "cli/interrupt.h"
#include "cli/json_out.h"
#include "cli/loader_options.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "remote/address.h"

namespace evenkeel::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Batches {
  LoaderWords words;
  std::uint64_t steps = 100, from = 0, pause_us = 0;
  std::optional<std::uint64_t> prefetch;
  bool cold = false, json = false, print = false;
};

constexpr char kBatchesFooter[] = R"(
Examples:
  evenkeel batches train.bin --batch-size 12 --block-size 1024 --steps 1000 --cold
  evenkeel batches 'fineweb_train_*.bin' --order shuffled --rank 3 --world 8 --print --steps 2
  evenkeel batches train.bin --order blocks --budget 512MiB --steps 1000 --cold
  evenkeel batches corpus.idx --documents mask --print --steps 1
  evenkeel batches chats.idx --documents whole --order shuffled --block-size 8192 --print
  evenkeel batches corpus.idx --pause 5000 --steps 500 --json)";

struct Measured {
  double seconds = 0;
  std::vector<double> waits_us;  // time in next(), sorted
  std::uint64_t tokens = 0;
  std::uint64_t checksum = 0;

  double wait(double share) const {
    return waits_us.empty()
               ? 0
               : waits_us[static_cast<std::size_t>(share * double(waits_us.size() - 1))];
  }
};

std::string shown(std::span<const std::int64_t> row) {
  constexpr std::size_t kShown = 8;
  const std::string text =
      fmt::format("{}", fmt::join(row.first(std::min(kShown, row.size())), " "));
  return row.size() > kShown ? fmt::format("{} ... {}", text, row.back()) : text;
}

// "  documents 17[120..] at 0, 18 at 1,004, padding at 2,000": which documents begin where.
std::string documents_of(const Batch& batch, const CropOrigin& origin, std::size_t row) {
  std::vector<std::string> parts;
  const auto ids = batch.document_ids()[row];
  std::size_t number = 0;
  for (std::size_t column = 0; column < ids.size(); ++column) {
    if (batch.position_ids()[row][column] != 0) continue;
    const bool padding = ids[column] < 0, named = !padding && number < origin.documents.size();
    std::string name = padding ? "padding"
                       : named ? with_commas(origin.documents[number].document)
                               : "one";
    if (named && origin.documents[number].from > 0) {
      name += fmt::format("[{}..]", with_commas(origin.documents[number].from));
    }
    ++number;
    parts.push_back(fmt::format("{} at {}", name, with_commas(column)));
  }
  return fmt::format("  documents {}\n", fmt::join(parts, ", "));
}

// Prints each document of a batch. Empty documents are not in the batch.
void print_ragged(const std::vector<CropOrigin>& origins, const Batch& batch) {
  const auto begins = batch.cu_seqlens();
  std::size_t next = 0;
  for (std::size_t row = 0; row < origins.size(); ++row) {
    const CropOrigin::Document& document = origins[row].documents.front();
    say(stdout,
        fmt::format("step {} row {} start {} document {}, {} tokens\n", batch.step(), row,
                    document.start, with_commas(document.document), with_commas(document.tokens)));
    if (document.tokens == 0) continue;
    const auto first = static_cast<std::size_t>(begins[next++]);
    say(stdout, fmt::format("  x {}\n  y {}\n",
                            shown(batch.x<std::int64_t>()[0].subspan(first, document.tokens)),
                            shown(batch.y<std::int64_t>()[0].subspan(first, document.tokens))));
  }
}

void print_batch(const TokenLoader& loader, const Batch& batch) {
  const auto origins = loader.explain(batch.step());
  if (batch.ragged()) return print_ragged(origins, batch);
  const auto x = batch.x<std::int64_t>(), y = batch.y<std::int64_t>();
  for (std::size_t row = 0; row < x.size(); ++row) {
    say(stdout, fmt::format("step {} row {} start {}\n  x {}\n  y {}\n", batch.step(), row,
                            origins[row].start, shown(x[row]), shown(y[row])));
    if (!batch.document_bytes().empty()) say(stdout, documents_of(batch, origins[row], row));
  }
}

// Ends at once on Ctrl-C.
void pause_for(std::uint64_t microseconds) {
  constexpr std::uint64_t kSlice = 50'000;
  while (microseconds > 0) {
    const std::uint64_t now = std::min(microseconds, kSlice);
    std::this_thread::sleep_for(std::chrono::microseconds(now));
    microseconds -= now;
    check_interrupt();
  }
}

Measured measure(const Batches& batches, TokenLoader& loader) {
  const InterruptGuard guard;
  Progress progress;
  Measured measured;
  RunningXxh3 hash;
  loader.seek(batches.from);
  const auto began = Clock::now();
  for (std::uint64_t i = 0; i < batches.steps; ++i) {
    check_interrupt();
    const auto asked = Clock::now();
    const Batch& batch = *loader.next();
    measured.waits_us.push_back(
        std::chrono::duration<double, std::micro>(Clock::now() - asked).count());
    // Hash only the last token of every row: this detects a wrong crop and costs little time.
    const auto y = batch.y<std::int64_t>();
    for (std::size_t row = 0; row < y.size() && !y[row].empty(); ++row) {
      hash.append(std::as_bytes(y[row].last(1)));
    }
    measured.tokens += y.size() * batch.columns();
    if (batches.print) print_batch(loader, batch);
    if (progress.due())
      progress.show(
          fmt::format("{} {}/{}", bar(double(i) / double(batches.steps)), i, batches.steps));
    pause_for(batches.pause_us);
  }
  measured.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  measured.checksum = hash.hash();
  std::ranges::sort(measured.waits_us);
  return measured;
}

// Only order megatron has an end.
std::uint64_t steps_left(const TokenLoader& loader, const Batches& batches) {
  if (loader.size() == 0) return batches.steps;
  if (batches.from < loader.size()) return std::min(batches.steps, loader.size() - batches.from);
  throw Error(ErrorKind::kInvalid, "batches",
              "there are " + with_commas(loader.size()) + " batches; --from is " +
                  with_commas(batches.from));
}

// "32 crops (64.0 KiB) in a block, 512 blocks in a window, 64 streams"
std::string describe_blocks(const BlockOptions& blocks, std::uint64_t crop_bytes,
                            DocumentMode documents) {
  const bool whole = documents == DocumentMode::kWhole;
  const std::string size =
      whole ? "" : fmt::format(" ({})", format_size(blocks.block_rows * crop_bytes));
  return fmt::format("{} {}{} in a block, {} blocks in a window, {} streams",
                     with_commas(blocks.block_rows),
                     whole                                ? "documents"
                     : documents == DocumentMode::kPacked ? "rows"
                                                          : "crops",
                     size, with_commas(blocks.window_blocks), blocks.streams);
}

std::vector<std::pair<std::string, std::string>> described(const Batches& batches,
                                                           const TokenLoader& loader,
                                                           const Tokens& tokens,
                                                           const Measured& measured) {
  const LoaderOptions& options = batches.words.loader;
  const double crops = double(batches.steps * options.batch_size) / measured.seconds;
  const EngineReport engine = tokens.engine();
  std::vector<std::pair<std::string, std::string>> lines = {
      {"tokens", fmt::format("{} {}, {}", with_commas(tokens.size()), tokens.dtype().name(),
                             tokens.format())},
      {"batches", fmt::format("{} of {} × {}, {}, {} in memory at once", with_commas(batches.steps),
                              options.batch_size, options.block_size,
                              crop_order_name(options.order), loader.buffers())}};
  if (options.order == CropOrder::kBlocks) {
    lines.push_back(
        {"blocks", describe_blocks(loader.blocks(), options.block_size * tokens.dtype().size,
                                   options.documents.mode)});
  }
  lines.insert(
      lines.end(),
      {{"speed", fmt::format("{} {}/s, {} tokens/s", describe_rate(crops),
                             options.documents.mode == DocumentMode::kWhole ? "documents" : "crops",
                             describe_rate(double(measured.tokens) / measured.seconds))},
       {"waiting", fmt::format("median {:.1f} µs, p99 {:.1f} µs, max {:.1f} µs per batch",
                               measured.wait(0.5), measured.wait(0.99), measured.wait(1))},
       {"budget", fmt::format("{}, of which {} were reserved", format_size(tokens.budget().limit()),
                              format_size(tokens.budget().peak()))},
       {"engine", fmt::format("{}; {}", engine.how, engine.why)}});
  return lines;
}

int run(Batches batches) {
  LoaderOptions options = batches.words.options();
  const Tokens tokens = batches.words.open();
  if (batches.prefetch) {  // the budget allows far fewer
    options.prefetch =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(*batches.prefetch, UINT32_MAX));
  }
  if (batches.cold && !is_url(tokens.paths().front())) make_cold(tokens.paths());
  TokenLoader loader(tokens, options);
  batches.steps = steps_left(loader, batches);
  const Measured measured = measure(batches, loader);
  if (batches.json) {
    const double crops = double(batches.steps * options.batch_size) / measured.seconds;
    const EngineReport engine = tokens.engine();
    print_json({{"file", without_query(tokens.paths().front())},
                {"format", tokens.format()},
                {"tokens", tokens.size()},
                {"dtype", tokens.dtype().name()},
                {"order", crop_order_name(options.order)},
                {"seed", options.seed},
                {"rank", options.rank},
                {"world", options.world},
                {"batch_size", options.batch_size},
                {"block_size", options.block_size},
                {"budget_bytes", tokens.budget().limit()},
                {"budget_peak_bytes", tokens.budget().peak()},
                {"buffers", loader.buffers()},
                {"documents", document_mode_name(options.documents.mode)},
                {"padding", loader.packing().padding},
                {"cut", loader.packing().cut},
                {"cold", batches.cold},
                {"first_step", batches.from},
                {"steps", batches.steps},
                {"seconds", measured.seconds},
                {"crops_per_s", crops},
                {"tokens_per_s", double(measured.tokens) / measured.seconds},
                {"wait_median_us", measured.wait(0.5)},
                {"wait_p99_us", measured.wait(0.99)},
                {"wait_max_us", measured.wait(1)},
                {"block_crops", loader.blocks().block_rows},
                {"window_blocks", loader.blocks().window_blocks},
                {"streams", loader.blocks().streams},
                {"checksum", fmt::format("{:016x}", measured.checksum)},
                {"state", loader.state().text()},
                {"how", engine.how},
                {"why", engine.why}});
    return 0;
  }
  if (!batches.print)
    say(stdout, fmt::format("{}", facts(described(batches, loader, tokens, measured))));
  next_command(fmt::format("evenkeel explain{} --step {}", batches.words.words(), batches.from),
               "which tokens a batch is cut from");
  return 0;
}

}  // namespace

void add_batches(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "batches", "Show training batches of token files, and measure their speed");
  auto batches = std::make_shared<Batches>();
  add_loader_options(*command, batches->words);
  add_count(*command, "--steps", batches->steps, 1, "How many batches; default 100");
  add_count(*command, "--from", batches->from, 0, "The first step; default 0");
  add_count(*command, "--prefetch", batches->prefetch, 0,
            "Batches read ahead; default 4, and up to 16 if batches are small");
  add_count(*command, "--pause", batches->pause_us, 0,
            "Pause after each batch, in microseconds; default 0");
  command->add_flag("--cold", batches->cold, "Drop the files from the page cache first");
  command->add_flag("--print", batches->print,
                    "Print the first tokens and the last token of each row");
  command->add_flag("--json", batches->json, "Print the figures as JSON")->excludes("--print");
  command->footer(kBatchesFooter);
  command->callback([batches, &exit_code] { exit_code = run(*batches); });
}

}  // namespace evenkeel::cli
