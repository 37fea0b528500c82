#include "metrics/folder.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string_view>

#include "base/number.h"

namespace evenkeel {
namespace {

constexpr std::size_t kMostPages = 4096;  // read in one folder
constexpr time_t kLongUnfinished = 60;    // seconds; after this, its process must have been killed
// Not "evenkeel", where the guard's library is unpacked, because old files in this folder are
// removed.
constexpr char kFolderName[] = "evenkeel-top";
constexpr char kSharedMemory[] = "/dev/shm";  // shared by all users
constexpr std::string_view kSharedMemoryName = "evenkeel-top-";

// The inode of the page that this process has locked.
std::atomic<ino_t> own_inode = 0;

// The names in a folder, except that page.
std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  const int again = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const list = again >= 0 ? ::fdopendir(again) : nullptr;
  if (!list) {
    if (again >= 0) ::close(again);
    return names;
  }
  while (const dirent* entry = ::readdir(list)) {
    const std::string name = entry->d_name;
    if (name == "." || name == ".." || entry->d_ino == own_inode.load()) continue;
    names.push_back(name);
    if (names.size() == kMostPages) break;
  }
  ::closedir(list);
  return names;
}

// /proc would not do: PIDs differ between containers and are reused.
bool is_locked(int fd, pid_t& pid) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return false;
  pid = std::max<pid_t>(lock.l_pid, 0);
  return true;
}

// PID-SECONDS.NANOSECONDS, with a dot before it while the page is being created.
bool is_page_name(std::string_view name) {
  if (name.starts_with('.')) name.remove_prefix(1);
  for (const char end : {'-', '.', '\0'}) {
    const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    if (digits == 0 || (digits < name.size() ? name[digits] : '\0') != end) return false;
    name.remove_prefix(std::min(digits + 1, name.size()));
  }
  return true;
}

}  // namespace

std::optional<PageIdentity> page_identity(int fd) {
  struct stat status;
  if (::fstat(fd, &status) != 0) return {};
  return PageIdentity{status.st_dev, status.st_ino, status.st_nlink > 0};
}

bool lock_page(int fd) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const auto identity = page_identity(fd);
  if (!identity || ::fcntl(fd, F_SETLK, &lock) != 0) return false;
  own_inode = identity->inode;
  return true;
}

void forget_own_page() { own_inode = 0; }

std::vector<PagePlace> page_places(uid_t user) {
  std::vector<PagePlace> places;
  const std::string of_user = "/run/user/" + std::to_string(user);
  const char* const runtime = ::secure_getenv("XDG_RUNTIME_DIR");
  if (runtime && runtime[0] == '/' && runtime != of_user && user == ::geteuid()) {
    places.push_back({runtime, kFolderName, user});
  }
  places.push_back({of_user, kFolderName, user});
  places.push_back({kSharedMemory, std::string(kSharedMemoryName) + std::to_string(user), user});
  return places;
}

std::vector<PagePlace> visible_page_places() {
  const uid_t self = ::geteuid();
  std::vector<PagePlace> places = page_places(self);
  if (self != 0) return places;
  const PageFile users(::open("/run/user", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (const std::string& name : names_in(users.get())) {
    const auto user = parse_number<uid_t>(name);  // "1000" of "/run/user/1000"
    if (user && *user != self) places.push_back({"/run/user/" + name, kFolderName, *user});
  }
  const PageFile memory(::open(kSharedMemory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (const std::string& name : names_in(memory.get())) {
    if (!name.starts_with(kSharedMemoryName)) continue;
    const auto user = parse_number<uid_t>(std::string_view(name).substr(kSharedMemoryName.size()));
    if (user && *user != self) places.push_back({kSharedMemory, name, *user});
  }
  return places;
}

PageFile open_page_folder(const PagePlace& place, bool make) {
  const PageFile parent(::open(place.parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat status;
  if (!parent || ::fstat(parent.get(), &status) != 0) return PageFile();
  // `sudo -E` keeps the user's $XDG_RUNTIME_DIR: root must not create its own folder there.
  if (place.parent != kSharedMemory && status.st_uid != place.user) return PageFile();
  if (make) ::mkdirat(parent.get(), place.name.c_str(), 0700);  // may exist already
  PageFile folder(
      ::openat(parent.get(), place.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const bool own = folder && ::fstat(folder.get(), &status) == 0 && status.st_uid == place.user &&
                   (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
  return own ? std::move(folder) : PageFile();
}

std::vector<LockedPage> locked_pages(int folder, uid_t user) {
  std::vector<LockedPage> locked;
  const bool clean = user == ::geteuid();
  for (const std::string& name : names_in(folder)) {
    if (!is_page_name(name)) continue;
    LockedPage page{
        name,
        PageFile(::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)),
        0};
    struct stat status;
    if (!page.file || ::fstat(page.file.get(), &status) != 0) continue;
    if (!S_ISREG(status.st_mode) || status.st_uid != user) continue;
    const bool lives = is_locked(page.file.get(), page.pid);
    const bool unfinished = name.starts_with('.');  // not locked yet
    const bool left =
        !lives && (!unfinished || status.st_mtime + kLongUnfinished < ::time(nullptr));
    if (left && clean) ::unlinkat(folder, name.c_str(), 0);
    if (lives && !unfinished) locked.push_back(std::move(page));
  }
  return locked;
}

}  // namespace evenkeel
