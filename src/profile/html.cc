#include "base/visible.h"
#include "evenkeel/profile.h"
#include "profile/page.h"

namespace evenkeel {
namespace {

const Insert* insert_at_front(std::string_view page, const std::vector<Insert>& inserts) {
  for (const Insert& insert : inserts) {
    if (page.starts_with("{{" + insert.name + "}}")) return &insert;
  }
  return nullptr;
}

}  // namespace

std::string fill_page(std::string_view page, const std::vector<Insert>& inserts) {
  std::string out;
  for (std::size_t open = page.find("{{"); open != page.npos; open = page.find("{{")) {
    out += page.substr(0, open);
    page.remove_prefix(open);
    const Insert* insert = insert_at_front(page, inserts);
    out += insert ? std::string_view(insert->text) : page.substr(0, 1);
    page.remove_prefix(insert ? insert->name.size() + 4 : 1);
  }
  return out.append(page);
}

std::string json_for_script(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  while (!json.empty()) {
    std::size_t taken = 3;
    if (json.starts_with("\u2028")) {
      out += "\\u2028";
    } else if (json.starts_with("\u2029")) {
      out += "\\u2029";
    } else {
      taken = 1;
      json[0] == '<' ? out += "\\u003c" : out += json[0];
    }
    json.remove_prefix(taken);
  }
  return out;
}

std::string to_html(const ProfileReport& report) {
  return fill_page(page_html(), {{"title", escape_markup(report.title)},
                                 {"css", std::string(page_css())},
                                 {"js", std::string(page_js())},
                                 {"data", json_for_script(to_json(report))}});
}

}  // namespace evenkeel
