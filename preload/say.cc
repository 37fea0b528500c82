#include "preload/say.h"

#include "preload/raw_calls.h"

namespace evenkeel::preload {
namespace {

constinit std::atomic<bool> said{false};

class Line {
 public:
  void add(const char* text) {
    while (*text != 0 && length_ < sizeof text_) text_[length_++] = *text++;
  }
  void add_number(long number) {
    char digits[24] = {};
    std::size_t at = sizeof digits - 1;
    do {
      digits[--at] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0 && at > 0);
    add(digits + at);
  }
  void write() const { raw(SYS_write, 2, text_, length_); }

 private:
  char text_[256];
  std::size_t length_ = 0;
};

}  // namespace

void say_unguarded(const char* why, long error) {
  if (said.exchange(true)) return;
  Line line;
  line.add("evenkeel guard: ");
  line.add(why);
  if (error > 0) {
    line.add(" (error ");
    line.add_number(error);
    line.add(")");
  }
  line.add("; this program runs unguarded\n");
  line.write();
}

}  // namespace evenkeel::preload
