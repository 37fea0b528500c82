// Completions of shells and pages of the manual, from the definitions of the commands: an option
// that is added to a command is in all of them. The build runs this and installs what it prints.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "evenkeel/error.h"
#include "evenkeel/version.h"

namespace evenkeel::cli {
namespace {

constexpr char kShells[] = "bash zsh fish";

struct DescribedOption {
  std::vector<std::string> names;  // "-o", "--output"
  std::string value;               // "SIZE"; empty: it takes none
  std::string help;
};

struct DescribedCommand {
  std::string name, help, footer;
  std::vector<DescribedOption> options;
  std::string operands;  // "FILE...", "CMD..."; empty: it takes none
  std::string operand_help;
  bool takes_command() const { return operands == "CMD..."; }
  bool takes_shell() const { return operands == "SHELL"; }
};

DescribedOption described(const CLI::Option& option) {
  DescribedOption out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  if (option.get_expected_min() > 0 || option.get_items_expected_max() > 0) {
    out.value = option.get_type_name().empty() ? "VALUE" : option.get_type_name();
  }
  out.help = option.get_description();
  return out;
}

DescribedCommand described(const CLI::App& command) {
  DescribedCommand out;
  out.name = command.get_name();
  out.help = command.get_description();
  out.footer = command.get_footer();
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) {
      out.operands = option->get_name(true) + (option->get_items_expected_max() > 1 ? "..." : "");
      out.operand_help = option->get_description();
    } else if (!option->get_group().empty()) {
      out.options.push_back(described(*option));
    }
  }
  // Groups such as "Raw files" are commands without a name.
  for (const CLI::App* group : command.get_subcommands([](const CLI::App*) { return true; })) {
    if (!group->get_name().empty()) continue;
    for (const CLI::Option* option : group->get_options()) {
      if (!option->get_positional()) out.options.push_back(described(*option));
    }
  }
  return out;
}

std::vector<DescribedCommand> all_commands(const CLI::App& app) {
  std::vector<DescribedCommand> out;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) out.push_back(described(*command));
  }
  return out;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

// ---- bash

std::string bash_completion(const std::vector<DescribedCommand>& commands) {
  std::vector<std::string> names;
  std::string cases;
  for (const DescribedCommand& command : commands) {
    names.push_back(command.name);
    std::vector<std::string> all, with_value;
    for (const DescribedOption& option : command.options) {
      all.insert(all.end(), option.names.begin(), option.names.end());
      if (option.value.empty()) continue;
      with_value.insert(with_value.end(), option.names.begin(), option.names.end());
    }
    cases += fmt::format("    {}) options='{}' with_value='{}' runs={} words='{}' ;;\n",
                         command.name, joined(all, " "), joined(with_value, " "),
                         command.takes_command() ? 1 : 0, command.takes_shell() ? kShells : "");
  }
  return fmt::format(R"(# Completion of evenkeel {} for bash. Made by `evenkeel completions bash`.
_evenkeel() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} options='' with_value='' runs=0 words='' i
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W '{} --help --version' -- "$word")
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  # Where a command of its own has begun, its words are completed as that command's.
  if [ $runs -eq 1 ]; then
    for ((i = 2; i < COMP_CWORD; i++)); do
      case ${{COMP_WORDS[i]}} in
        --) i=$((i + 1)) ;;
        -*) [[ " $with_value " != *" ${{COMP_WORDS[i]}} "* ]] || i=$((i + 1)); continue ;;
      esac
      if declare -F _command_offset >/dev/null; then _command_offset "$i"; fi
      return
    done
  fi
  [[ " $with_value " != *" ${{COMP_WORDS[COMP_CWORD - 1]}} "* ]] || return
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  elif [ $runs -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -c -- "$word")
  elif [ -n "$words" ] && [ "$COMP_CWORD" -eq 2 ]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  fi
}}
complete -o bashdefault -o default -F _evenkeel evenkeel
)",
                     EVENKEEL_VERSION, joined(names, " "), cases);
}

// ---- zsh

// Inside '...', in the text of an _arguments specification.
std::string zsh_text(std::string text) {
  text = replaced(std::move(text), "'", "'\\''");
  for (const char* special : {"[", "]", ":"}) {
    text = replaced(std::move(text), special, std::string("\\") + special);
  }
  return text;
}

std::string zsh_action(const std::string& value) {
  if (value == "DIR") return "_files -/";
  return value == "FILE" || value == "GLOB" ? "_files" : " ";
}

std::string zsh_completion(const std::vector<DescribedCommand>& commands) {
  std::string list, cases;
  for (const DescribedCommand& command : commands) {
    list += fmt::format("    '{}:{}'\n", command.name, zsh_text(command.help));
    std::string words;
    for (const DescribedOption& option : command.options) {
      for (const std::string& name : option.names) {
        words += fmt::format(" \\\n        '*{}[{}]{}'", name, zsh_text(option.help),
                             option.value.empty() ? ""
                                                  : fmt::format(":{}:{}", zsh_text(option.value),
                                                                zsh_action(option.value)));
      }
    }
    if (command.takes_command()) {
      words += " \\\n        '(-):command: _command_names -e' '*::arguments: _normal'";
    } else if (command.takes_shell()) {
      words += fmt::format(" \\\n        '1:shell:({})'", kShells);
    } else if (!command.operands.empty()) {
      words += " \\\n        '*:file:_files'";
    }
    cases += fmt::format("      {})\n        _arguments -s{}\n        ;;\n", command.name, words);
  }
  return fmt::format(R"(#compdef evenkeel
# Completion of evenkeel {} for zsh. Made by `evenkeel completions zsh`.
_evenkeel() {{
  local curcontext=$curcontext state line
  local -a commands=(
{}  )
  _arguments -C '--help[Print help]' '--version[Print the version]' '1:command:->command' '*::argument:->rest'
  case $state in
    command) _describe command commands ;;
    rest)
      case $line[1] in
{}      esac
      ;;
  esac
}}
_evenkeel "$@"
)",
                     EVENKEEL_VERSION, list, cases);
}

// ---- fish

std::string fish_text(std::string text) {
  text = replaced(std::move(text), "\\", "\\\\");
  return replaced(std::move(text), "'", "\\'");
}

std::string fish_completion(const std::vector<DescribedCommand>& commands) {
  std::string out = fmt::format(
      "# Completion of evenkeel {} for fish. Made by `evenkeel completions fish`.\n"
      "complete -c evenkeel -n __fish_use_subcommand -f -l help -d 'Print help'\n"
      "complete -c evenkeel -n __fish_use_subcommand -f -l version -d 'Print the version'\n",
      EVENKEEL_VERSION);
  for (const DescribedCommand& command : commands) {
    out += fmt::format("complete -c evenkeel -n __fish_use_subcommand -f -a {} -d '{}'\n",
                       command.name, fish_text(command.help));
    for (const DescribedOption& option : command.options) {
      std::string names;
      for (const std::string& name : option.names) {
        names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      out += fmt::format("complete -c evenkeel -n '__fish_seen_subcommand_from {}'{}{} -d '{}'\n",
                         command.name, names, option.value.empty() ? "" : " -r",
                         fish_text(option.help));
    }
    if (command.takes_shell()) {
      out += fmt::format(
          "complete -c evenkeel -n '__fish_seen_subcommand_from {0}; and not "
          "__fish_seen_subcommand_from {1}' -f -a '{1}'\n",
          command.name, kShells);
    }
    if (!command.takes_command()) continue;
    out += fmt::format(
        "complete -c evenkeel -n '__fish_seen_subcommand_from {}' -a "
        "'(__fish_complete_subcommand --fcs-skip=2)'\n",
        command.name);
  }
  return out;
}

// ---- the manual

std::string roff(std::string text) {
  text = replaced(std::move(text), "\\", "\\e");
  text = replaced(std::move(text), "-", "\\-");
  // A line that begins with one of these would be taken for a request.
  text = replaced(std::move(text), "\n.", "\n\\&.");
  text = replaced(std::move(text), "\n'", "\n\\&'");
  return text.starts_with(".") || text.starts_with("'") ? "\\&" + text : text;
}

std::string manual_head(const std::string& title) {
  return fmt::format(".TH {} 1 \"\" \"evenkeel {}\" \"Evenkeel\"\n", roff(title), EVENKEEL_VERSION);
}

std::string preformatted(const std::string& text) {
  std::string inner = text;
  while (inner.starts_with("\n")) inner.erase(0, 1);
  return inner.empty() ? "" : fmt::format(".nf\n{}\n.fi\n", roff(inner));
}

std::string manual_of(const DescribedCommand& command) {
  std::string out = manual_head("EVENKEEL-" + command.name);
  out += fmt::format(".SH NAME\nevenkeel\\-{} \\- {}\n", command.name, roff(command.help));
  out += fmt::format(".SH SYNOPSIS\n.B evenkeel {}\n[\\fIOPTIONS\\fR] {}\n", command.name,
                     roff(command.operands));
  out += ".SH OPTIONS\n";
  if (!command.operands.empty()) {
    out += fmt::format(".TP\n.I {}\n{}\n", roff(command.operands), roff(command.operand_help));
  }
  for (const DescribedOption& option : command.options) {
    out += fmt::format(".TP\n.B {}{}\n{}\n", roff(joined(option.names, ", ")),
                       option.value.empty() ? "" : " \\fI" + roff(option.value) + "\\fR",
                       roff(option.help));
  }
  if (!command.footer.empty()) out += ".SH NOTES AND EXAMPLES\n" + preformatted(command.footer);
  return out + ".SH SEE ALSO\n.BR evenkeel (1)\n";
}

std::string manual_of(const CLI::App& app, const std::vector<DescribedCommand>& commands) {
  std::string out = manual_head("EVENKEEL");
  out += fmt::format(".SH NAME\nevenkeel \\- {}\n", roff(app.get_description()));
  out += ".SH SYNOPSIS\n.B evenkeel\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR] ...\n.SH COMMANDS\n";
  std::string pages;
  for (const DescribedCommand& command : commands) {
    out += fmt::format(".TP\n.B {}\n{}\n", command.name, roff(command.help));
    pages += fmt::format("{}.BR evenkeel\\-{} (1)", pages.empty() ? "" : ",\n", command.name);
  }
  out += ".SH NOTES AND EXAMPLES\n" + preformatted(app.get_footer());
  out +=
      ".SH EXIT STATUS\n0: success. 1: failure. 2: invalid usage. \\fBprofile\\fR and "
      "\\fBguard\\fR exit with the status of the command they ran.\n";
  return out + ".SH SEE ALSO\n" + pages + "\n";
}

std::string manual(const CLI::App& app, const std::string& name) {
  const auto commands = all_commands(app);
  if (name == "evenkeel") return manual_of(app, commands);
  for (const DescribedCommand& command : commands) {
    if (command.name == name) return manual_of(command);
  }
  throw CLI::ValidationError("COMMAND", fmt::format("there is no command \"{}\"", name));
}

constexpr char kCompletionsFooter[] = R"(
Examples:
  evenkeel completions bash > ~/.local/share/bash-completion/completions/evenkeel
  evenkeel completions zsh > ~/.zfunc/_evenkeel      # a folder that is in $fpath
  evenkeel completions fish > ~/.config/fish/completions/evenkeel.fish)";

}  // namespace

void add_completions(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("completions", "Print shell completion for bash, zsh or fish");
  auto shell = std::make_shared<std::string>();
  add_parsed(
      *command, "SHELL", "",
      [shell](const std::string& text) {
        if (text != "bash" && text != "zsh" && text != "fish") {
          throw Error(ErrorKind::kInvalid, "shell", "\"" + text + "\" is not bash, zsh or fish");
        }
        *shell = text;
      },
      "bash, zsh or fish")
      ->required();
  command->footer(kCompletionsFooter);
  command->callback([&app, shell, &exit_code] {
    const auto commands = all_commands(app);
    const std::string text = *shell == "bash"  ? bash_completion(commands)
                             : *shell == "zsh" ? zsh_completion(commands)
                                               : fish_completion(commands);
    fmt::print("{}", text);
    exit_code = 0;
  });
}

void add_manual(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("manual", "A page of the manual, for man");
  command->group("");  // hidden: the build runs it
  auto name = std::make_shared<std::string>("evenkeel");
  command->add_option("COMMAND", *name, "Default: the page about all of them");
  command->callback([&app, name, &exit_code] {
    fmt::print("{}", manual(app, *name));
    exit_code = 0;
  });
}

}  // namespace evenkeel::cli
