// The folder that pages are in. All calls here are the kernel's own, and failures mean "no page":
// showing numbers must not make a program fail.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace evenkeel {

// Not base/fd.h: tests make each of its calls fail, one after the other, and count on which they
// are.
class PageFile {
 public:
  explicit PageFile(int fd = -1) : fd_(fd) {}
  PageFile(PageFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  PageFile& operator=(PageFile&&) = delete;
  ~PageFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int keep() { return std::exchange(fd_, -1); }  // it stays open
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Where a folder of pages of a user may lie: `name` in `parent`.
struct PagePlace {
  std::string parent, name;
  uid_t user = 0;
  std::string path() const { return parent + "/" + name; }
};
// Of one user, the best first: in $XDG_RUNTIME_DIR, in /run/user/N, in /dev/shm.
std::vector<PagePlace> page_places(uid_t user);
// Of this user; for root, of all users.
std::vector<PagePlace> visible_page_places();

// A folder of pages, if it is the user's own and closed to others: not a link, and not made by
// somebody else beforehand. It lies in a folder of that user, or in /dev/shm. `make`: creates it if
// it is missing.
PageFile open_page_folder(const PagePlace& place, bool make);

// The page of a process that lives.
struct HeldPage {
  std::string name;  // in its folder
  PageFile file;
  // As seen from here; 0 where the process is in a container and has no number here.
  pid_t pid = 0;
};
// Plain files of `user` that a process holds and whose name is a page's; links are not followed.
// Not the page of this process. Pages of processes that have died are removed if they are this
// user's; files of other names are left alone.
std::vector<HeldPage> held_pages(int folder, uid_t user);

// Which file an open descriptor is of.
struct PageIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool has_name = false;  // it was not removed
  bool same_file(const PageIdentity& other) const {
    return device == other.device && inode == other.inode;
  }
};
std::optional<PageIdentity> page_identity(int fd);

// The lock by which a process holds its page: write lock of the whole file, ended by the kernel
// with the process. Closing any descriptor of the file ends it, too: `held_pages` does not open the
// file that `hold_page` was called with.
bool hold_page(int fd);
// The lock ended, or is the parent's: `held_pages` may open that file from now on.
void let_go_of_page();

}  // namespace evenkeel
