#include "cli/loader_options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <utility>

#include "cli/options.h"
#include "cli/terminal.h"
#include "format/token_layout.h"

namespace evenkeel::cli {

// With packed or whole documents, --window counts rows or documents, in every order.
LoaderOptions LoaderWords::options() const {
  LoaderOptions options = loader;
  const DocumentMode mode = loader.documents.mode;
  const auto narrow = [](const char* name, std::uint64_t number) {
    if (number <= UINT32_MAX) return static_cast<std::uint32_t>(number);
    throw Error(ErrorKind::kInvalid, "documents",
                fmt::format("{} {} is too large: at most {}", name, number, UINT32_MAX));
  };
  if (mode == DocumentMode::kPacked || mode == DocumentMode::kWhole) {
    options.documents.window = narrow("--window", std::exchange(options.blocks.window_blocks, 0));
  }
  const DocumentOptions& documents = loader.documents;
  // Whole documents are always cut.
  if (documents.crop_long && mode != DocumentMode::kPacked && mode != DocumentMode::kWhole) {
    throw Error(ErrorKind::kInvalid, "documents", "--crop-long belongs to --documents packed");
  }
  if (mode == DocumentMode::kNone && (documents.bos || documents.eos || !documents.index.empty())) {
    throw Error(ErrorKind::kInvalid, "documents",
                "--bos, --eos and --documents-index belong to --documents")
        .hint("--documents mask, start, packed or whole selects what to do with documents");
  }
  if (options.megatron.samples > 0 && options.order != CropOrder::kMegatron) {
    throw Error(ErrorKind::kInvalid, "order", "--samples belongs to --order megatron");
  }
  if (mixed_windows > 0) {
    if (mode != DocumentMode::kPacked) {
      throw Error(ErrorKind::kInvalid, "documents",
                  "--mixed-windows belongs to --documents packed");
    }
    options.documents.mixed_windows = narrow("--mixed-windows", mixed_windows);
  }
  if (options.order != CropOrder::kBlocks && options.blocks != BlockOptions{0, 0, 0}) {
    throw Error(ErrorKind::kInvalid, "order",
                "--block, --window and --streams belong to --order blocks")
        .hint("--window also belongs to --documents packed and whole");
  }
  if (mode == DocumentMode::kPacked && options.blocks.block_rows > 0) {
    throw Error(ErrorKind::kInvalid, "order",
                "--documents packed has no --block: a window of packed rows is read together")
        .hint("set --window, the rows that are packed together, and --mixed-windows");
  }
  return options;
}

Tokens LoaderWords::open() const {
  std::vector<std::string> paths;
  for (const std::string& file : files) {
    const auto named = expand_token_paths(file);
    paths.insert(paths.end(), named.begin(), named.end());
  }
  TokensOptions options{.budget = budget, .engine = engine};
  if (!dtype.empty()) options.dtype = DType::parse(dtype);
  return Tokens::open(paths, options);
}

std::string LoaderWords::words() const {
  std::string text;
  for (const std::string& file : files) text += " " + shell_word(file);
  if (!dtype.empty()) text += " --dtype " + shell_word(dtype);
  text += fmt::format(" --batch-size {} --block-size {} --order {} --seed {}", loader.batch_size,
                      loader.block_size, crop_order_name(loader.order), loader.seed);
  const BlockOptions& blocks = loader.blocks;
  if (blocks.block_rows > 0) text += fmt::format(" --block {}", blocks.block_rows);
  if (blocks.window_blocks > 0) text += fmt::format(" --window {}", blocks.window_blocks);
  if (blocks.streams > 0) text += fmt::format(" --streams {}", blocks.streams);
  if (loader.megatron.samples > 0) text += fmt::format(" --samples {}", loader.megatron.samples);
  if (mixed_windows > 0) text += fmt::format(" --mixed-windows {}", mixed_windows);
  const DocumentOptions& documents = loader.documents;
  if (documents.mode != DocumentMode::kNone) {
    text += fmt::format(" --documents {}", document_mode_name(documents.mode));
    if (documents.bos) text += fmt::format(" --bos {}", *documents.bos);
    if (documents.eos) text += fmt::format(" --eos {}", *documents.eos);
    if (documents.crop_long) text += " --crop-long";
    if (!documents.index.empty()) text += " --documents-index " + shell_word(documents.index);
  }
  if (loader.world > 1) text += fmt::format(" --rank {} --world {}", loader.rank, loader.world);
  return text;
}

void add_loader_options(CLI::App& app, LoaderWords& words) {
  app.add_option("FILE", words.files,
                 "Token files, or patterns with * ? []; several are one stream of tokens")
      ->required()
      ->type_name("");
  words.loader.batch_size = 12;
  LoaderOptions& loader = words.loader;
  add_count(app, "--batch-size", loader.batch_size, 1, "Rows per batch; default 12");
  add_count(app, "--block-size", loader.block_size, 1, "Tokens per row; default 1024");
  add_parsed(
      app, "--order", "NAME",
      [&loader](const std::string& name) { loader.order = parse_crop_order(name); },
      "random, shuffled, covering, blocks or megatron; default random");
  add_count(
      app, "--block", loader.blocks.block_rows, 1,
      "With order blocks: crops that are read together, default by the budget; with --documents "
      "whole, documents, default 64");
  add_count(app, "--window", loader.blocks.window_blocks, 1,
            "With order blocks: blocks that are mixed in memory, default by the budget; with "
            "--documents packed, rows that are packed together, default 512; with whole, documents "
            "that are sorted together, default 4096");
  add_count(app, "--mixed-windows", words.mixed_windows, 1,
            "With --documents packed: windows whose rows are mixed; default 8");
  add_count(app, "--streams", loader.blocks.streams, 1,
            "With order blocks: a multiple of every --world you will use to continue the run; "
            "default 64");
  add_count(app, "--samples", loader.megatron.samples, 1,
            "Number of training samples for order megatron; default one epoch");
  add_parsed(
      app, "--documents", "MODE",
      [&loader](const std::string& name) { loader.documents.mode = parse_document_mode(name); },
      "mask: show where documents begin; start: rows begin at documents; packed: rows of whole "
      "documents; whole: batches of documents of different lengths; default none");
  app.add_flag("--crop-long", loader.documents.crop_long,
               "With --documents packed: cut long documents to one row instead of splitting them");
  add_token(app, "--bos", "N", loader.documents.bos,
            "The token that documents begin with, in files without an index of documents");
  add_token(app, "--eos", "N", loader.documents.eos,
            "The token that documents end with, in files without an index of documents")
      ->excludes("--bos");
  app.add_option("--documents-index", loader.documents.index,
                 "Folder for indexes of documents that must be built; default beside the file")
      ->type_name("DIR");
  add_count(app, "--seed", loader.seed, 0, "Seed of the order; default 0");
  add_count(app, "--rank", loader.rank, 0, "This rank; default 0");
  add_count(app, "--world", loader.world, 1, "Number of ranks; default 1");
  add_parsed(
      app, "--dtype", "TYPE",
      [&words](const std::string& name) {
        DType::parse(name);
        words.dtype = name;
      },
      "Type of the tokens in files without a header; default uint16");
  add_size(
      app, "--budget", [&words](std::uint64_t bytes) { words.budget = bytes; },
      "Memory that tokens and batches may occupy; default 64MiB");
  add_parsed(
      app, "--engine", "NAME",
      [&words](const std::string& name) { words.engine = parse_engine(name); },
      "How data is read from the disk; default auto");
}

}  // namespace evenkeel::cli
