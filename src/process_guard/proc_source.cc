#include "process_guard/proc_source.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "base/text_file.h"
#include "evenkeel/error.h"
#include "guard/page_out.h"
#include "meter/proc.h"
#include "meter/proc_maps.h"

namespace evenkeel {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{50};

// One call acts on at most 2 GiB and returns how much it did.
int page_out(int pidfd, AddressRange range) {
  while (range.begin < range.end) {
    void* const at = reinterpret_cast<void*>(range.begin);  // NOLINT(performance-no-int-to-ptr)
    iovec vector{at, range.end - range.begin};
    const long done = ::syscall(SYS_process_madvise, pidfd, &vector, 1, kPageOut, 0);
    if (done < 0) return errno;
    if (done == 0) break;
    range.begin += static_cast<std::uint64_t>(done);
  }
  return 0;
}

class ProcMapping : public GuardedMapping {
 public:
  ProcMapping(const ObservedMapping& observed, std::shared_ptr<ProcSource::Process> process,
              std::string name)
      : GuardedMapping(observed.key, observed.range, observed.offset),
        process_(std::move(process)),
        name_(std::move(name)) {}

  std::string name() const override { return name_; }
  // The source checks this every 50 ms. Paging out other memory meanwhile loses nothing.
  bool still_there() const override { return true; }
  int let_go(AddressRange range) override {
    const int error = page_out(process_->pidfd.get(), range);
    return error == ESRCH || error == ENOMEM ? 0 : error;  // the process or the mapping is gone
  }
  int advise(AddressRange, int) override { return 0; }
  bool count_resident(AddressRange range, AccessSample& sample) const override {
    return process_->pages.count(range, sample);
  }

 private:
  const std::shared_ptr<ProcSource::Process> process_;
  const std::string name_;
};

// The device in maps may differ from the device that stat returns, so only the inode is compared.
bool find_file(const MapsLine& mapped, pid_t pid, std::string& path, struct stat& status) {
  for (const std::string& name : {std::string(mapped.path), unescape_newlines(mapped.path)}) {
    for (const std::string& place : {name, proc_path(pid, "root") + name}) {
      if (::stat(place.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
          status.st_ino == mapped.vma.inode) {
        path = name;
        return true;
      }
    }
  }
  return false;
}

std::string hint_for(int code) {
  if (code == EPERM || code == EACCES) {
    return "guarding another process needs CAP_SYS_NICE and permission to read its /proc: run as "
           "root, or give the tool these with `setcap cap_sys_nice,cap_sys_ptrace+ep`, or start "
           "the program with `evenkeel guard -- COMMAND`, which needs no privileges";
  }
  if (code == ENOSYS || code == EINVAL) return "process_madvise(MADV_PAGEOUT) needs Linux 5.10";
  return "is it running?";
}

Error not_permitted(pid_t pid, int code) {
  return Error::system("guard", code, "process " + std::to_string(pid)).hint(hint_for(code));
}

}  // namespace

ProcSource::Process::Process(pid_t pid)
    : pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))), pages(pid) {}

ProcSource::ProcSource(pid_t pid, std::uint64_t least_bytes)
    : least_bytes_(least_bytes), tree_(pid) {
  const auto process = std::make_shared<Process>(pid);
  if (!process->pidfd) throw not_permitted(pid, errno);
  // Checks the permission with a page near the lowest address, where there is nothing to page out.
  const int error = page_out(process->pidfd.get(), {0x10000, 0x10000 + 4096});
  if (error == EPERM || error == EACCES || error == ENOSYS || error == EINVAL || error == ESRCH) {
    throw not_permitted(pid, error);
  }
  if (!read_text_file(proc_path(pid, "maps"))) throw not_permitted(pid, errno);
  processes_[pid] = process;
}

void ProcSource::wait(std::chrono::nanoseconds most) {
  const auto until =
      std::chrono::steady_clock::now() + std::min<std::chrono::nanoseconds>(most, kBetweenLooks);
  MutexLock lock(mutex_);
  while (!stop_ && interrupted_.wait_until(mutex_, until)) {
  }
}

void ProcSource::interrupt() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  interrupted_.notify_all();
}

std::vector<ObservedMapping> ProcSource::observe() {
  tree_.sample();
  std::vector<ObservedMapping> observed;
  paths_.clear();
  std::set<pid_t> living;
  for (const pid_t pid : tree_.processes()) {
    living.insert(pid);
    observe_process(pid, observed);
  }
  std::erase_if(processes_, [&](const auto& one) { return !living.contains(one.first); });
  return observed;
}

// A file of which any part may be executed is a program or a library.
void ProcSource::observe_process(pid_t pid, std::vector<ObservedMapping>& out) {
  const auto text = read_text_file(proc_path(pid, "maps"));
  if (!text) return;
  std::set<std::uint64_t> programs;
  std::string_view rest = *text;
  for (std::string_view line; take_line(rest, line);) {
    const auto mapped = parse_maps_line(line);
    if (mapped && mapped->vma.executable) programs.insert(mapped->vma.inode);
  }
  rest = *text;
  for (std::string_view line; take_line(rest, line);) {
    const auto mapped = parse_maps_line(line);
    if (!mapped || !mapped->has_file()) continue;
    const Vma* const vma = &mapped->vma;
    if (vma->range.end - vma->range.begin < least_bytes_ || programs.contains(vma->inode) ||
        mapped->path.starts_with("/dev/") || mapped->path.starts_with("/memfd:")) {
      continue;
    }
    std::string path;
    struct stat status;
    if (!find_file(*mapped, pid, path, status)) continue;
    auto& process = processes_[pid];
    if (!process) process = std::make_shared<Process>(pid);
    const std::uint64_t key = static_cast<std::uint64_t>(pid) << 40 | vma->range.begin >> 12;
    out.push_back({.key = key,
                   .generation = vma->range.end * 31 + vma->offset * 17 + vma->inode,
                   .pid = pid,
                   .range = vma->range,
                   .offset = vma->offset,
                   .device = status.st_dev,
                   .inode = status.st_ino,
                   .file = key,
                   .descriptor = {}});
    paths_[key] = std::move(path);
  }
}

std::string ProcSource::path(const ObservedMapping& mapping) const {
  return paths_.at(mapping.key);
}

std::unique_ptr<GuardedMapping> ProcSource::make_guarded(const ObservedMapping& mapping,
                                                         bool /*has_descriptor*/) {
  return std::make_unique<ProcMapping>(
      mapping, processes_.at(mapping.pid),
      path(mapping) + ", mapped by process " + std::to_string(mapping.pid));
}

}  // namespace evenkeel
