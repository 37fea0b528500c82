// evenkeel tokenize: defines the options, for help, completions and the manual. The Python package
// does the work, because tokenizers are Python libraries.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/python_command.h"

namespace evenkeel::cli {
namespace {

constexpr char kTokenizeFooter[] = R"(
This command needs the Python package, and the tokenizer's library, such as tiktoken. It is run by
python3, or by the program that EVENKEEL_PYTHON names. The output is the same for any number of workers.
Continue a killed run with --resume.

Examples:
  evenkeel tokenize corpus.jsonl -o train.bin --tokenizer gpt2 --val-share 0.0005
  evenkeel tokenize 'part_*.parquet' -o corpus.bin --format megatron --tokenizer llama/tokenizer.json
  evenkeel tokenize book.txt -o train.bin --tokenizer gpt2 --separator '\n\n'
  evenkeel tokenize 'part_*.jsonl.zst' -o '{}.ds' --val-share 0.01 --tokenizer m.model --resume
On a cluster:
  evenkeel tokenize '*.jsonl' -o train.bin --tokenizer gpt2 --manifest m.json --parts 64
  evenkeel tokenize --manifest m.json --part 17
  evenkeel tokenize --manifest m.json --finish)";

struct TextOption {
  const char *name, *type, *help;
};
constexpr TextOption kTextOptions[] = {
    {"-o,--output", "FILE", "The token file to write; {} in its name becomes train and val"},
    {"--tokenizer", "NAME",
     "An encoding of tiktoken (gpt2), a tokenizer.json, a sentencepiece .model, org/name at the "
     "Hugging Face hub, python:MODULE:NAME, or bytes"},
    {"--format", "NAME", "nanogpt, llm.c, megatron, datatrove or npy; default: by the name"},
    {"--dtype", "TYPE", "Default: uint16 if all tokens fit, else uint32 (Megatron: int32)"},
    {"--eot", "TOKEN",
     "The token between documents: a number, a special token, or none; default: the tokenizer's"},
    {"--text-key", "KEY", "The key of JSON, or the column, that holds the text; default text"},
    {"--separator", "TEXT",
     "Between documents of text files, \\n for lines; default: a file is one document"},
    {"--input-format", "NAME", "text, jsonl, parquet or arrow; default: by the names"},
    {"--invalid", "HOW", "Bytes that are not UTF-8: error (default) or replace"},
    {"--special", "HOW", "Special tokens that occur in a text: text (default) or parse"},
    {"--val-share", "SHARE", "The share of documents for validation, chosen by their text"},
    {"--val-output", "FILE", "File for these documents; default: the output, with val for train"},
    {"--seed", "N", "Seed that selects them; default 0"},
    {"--workers", "N", "Processes; default: one for each core"},
    {"--budget", "SIZE",
     "Memory for documents and tokens in progress; default 512MiB, or 256MiB per worker, or an "
     "eighth of the memory available if that is less"},
    {"--checkpoint", "SIZE",
     "Text between two checkpoints, from which a killed run can continue; default 256MiB"},
    {"--manifest", "FILE", "Plan the work and write the plan to this file, or read it from there"},
    {"--parts", "N", "Number of parts, for a new manifest"},
    {"--scratch", "DIR", "Folder for parts, visible to all machines; default: beside the output"},
    {"--part", "I", "Do this part of the manifest: 0 to N-1"},
};

}  // namespace

void add_tokenize(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "tokenize", "Convert text, JSONL, Parquet or Arrow files to token files, on all cores");
  // Values are not checked here: Python does that.
  const auto add = [command](const char* name, const char* help) {
    return command->add_option(
        name, [](const CLI::results_t&) { return true; }, help);
  };
  auto files = std::make_shared<std::vector<std::string>>();
  command->add_option("FILE", *files, "Files or patterns; text and JSONL also as .gz and .zst")
      ->type_name("");
  for (const TextOption& option : kTextOptions) {
    add(option.name, option.help)->type_name(option.type);
  }
  command->add_flag("--finish")->description("Join the parts of the manifest into the output");
  command->add_flag("--checksums")->description("Also write OUTPUT.xxh3, for `evenkeel verify`");
  command->add_flag("--resume")->description("Continue a run that was killed");
  command->add_flag("--json")->description("Print the figures as JSON");
  command->footer(kTokenizeFooter);
  command->callback([command, files, &exit_code] {
    exit_code = 1;
    run_in_python(*command, "evenkeel._tokenize.command");
  });
}

}  // namespace evenkeel::cli
