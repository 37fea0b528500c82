#include "evenkeel/profile.h"
#include "profile/fill_page.h"
#include "profile/markup.h"
#include "profile/page.h"

namespace evenkeel {

std::string to_html(const ProfileReport& report) {
  return fill_page(page_html(), {{"title", escape_markup(report.title)},
                                 {"css", std::string(page_css())},
                                 {"js", std::string(page_js())},
                                 {"data", json_for_script(to_json(report))}});
}

}  // namespace evenkeel
