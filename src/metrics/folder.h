// The folder that contains pages. A failed call means "no page": publishing counters must not make
// a program fail.
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

// A descriptor. base/fd.h is not used, because fault injection in tests counts its calls.
class PageFile {
 public:
  explicit PageFile(int fd = -1) : fd_(fd) {}
  PageFile(PageFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  PageFile& operator=(PageFile&&) = delete;
  ~PageFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int keep() { return std::exchange(fd_, -1); }  // the descriptor stays open
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Where the folder of a user's pages may be: `name` in `parent`.
struct PagePlace {
  std::string parent, name;
  uid_t user = 0;
  std::string path() const { return parent + "/" + name; }
};
// The places of one user, the best first: in $XDG_RUNTIME_DIR, in /run/user/N, in /dev/shm.
std::vector<PagePlace> page_places(uid_t user);
// The places of this user; for root, of all users.
std::vector<PagePlace> visible_page_places();

// Opens a folder of pages if it belongs to the user and others cannot access it. Links and folders
// that another user created are refused. The parent must be a folder of the user, or /dev/shm. With
// `make`, creates the folder if it is missing.
PageFile open_page_folder(const PagePlace& place, bool make);

// The page of a living process.
struct LockedPage {
  std::string name;  // in its folder
  PageFile file;
  // In the PID namespace of this process; 0 if the process has no PID there.
  pid_t pid = 0;
};
// Regular files of `user` that a process has locked and whose names are names of pages. Links are
// not followed. The page of this process is left out. If `user` is this user, pages of processes
// that have died are removed; files with other names are left alone.
std::vector<LockedPage> locked_pages(int folder, uid_t user);

// Identifies the file of an open descriptor.
struct PageIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool has_name = false;  // false after the file was removed
  bool same_file(const PageIdentity& other) const {
    return device == other.device && inode == other.inode;
  }
};
std::optional<PageIdentity> page_identity(int fd);

// Locks the page of this process: a write lock of the whole file, which the kernel releases when
// the process ends. Closing any descriptor of the file releases it, too, so `locked_pages` does not
// open the file that was locked.
bool lock_page(int fd);
// Call it when the lock was released, or belongs to the parent: `locked_pages` may open the file
// from now on.
void forget_own_page();

}  // namespace evenkeel
