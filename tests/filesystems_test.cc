// Other filesystems than the one under /tmp: tmpfs, overlayfs, FUSE, disks with sectors of 4 KiB,
// and one that is full. Each is mounted in a mount namespace of a child, and gone with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <optional>

#include "evenkeel/profile.h"
#include "tests/every_engine.h"
#include "tests/forked.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kNumbers = 800'000;  // 3.2 MB

// From now on, only this process and its children see new mounts.
bool own_mounts() {
  return ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, "") == 0;
}
bool mount_tmpfs(const std::string& at, const char* options) {
  return ::mount("tmpfs", at.c_str(), "tmpfs", 0, options) == 0;
}
bool shell(const std::string& command) {
  return std::system(("(" + command + ") >/dev/null 2>&1").c_str()) == 0;  // NOLINT
}
bool there_is(const std::string& program) { return shell("command -v " + program); }

// Shows one folder at another place, by FUSE, while the object exists.
class FuseServer {
 public:
  FuseServer(const std::string& real, const std::string& seen) {
    struct stat before, now;
    if (!own_mounts() || ::stat(seen.c_str(), &before) != 0) return;
    process_ = ::fork();
    if (process_ == 0) {
      ::execlp("bindfs", "bindfs", "-f", real.c_str(), seen.c_str(), nullptr);
      ::_exit(1);
    }
    for (int i = 0; i < 500 && !works_; ++i) {
      ::usleep(10'000);
      works_ = ::stat(seen.c_str(), &now) == 0 && now.st_dev != before.st_dev;
    }
  }
  ~FuseServer() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  FuseServer(const FuseServer&) = delete;
  FuseServer& operator=(const FuseServer&) = delete;
  bool works() const { return works_; }

 private:
  pid_t process_ = -1;
  bool works_ = false;
};

class Filesystems : public testing::Test {
 protected:
  Filesystems() : folder_(disk_folder().value_or(std::filesystem::temp_directory_path())) {}

  std::string make(const std::string& name) const {
    const std::string path = folder_.path(name);
    std::filesystem::create_directories(path);
    return path;
  }
  // Reads a counting file there in every way, and says which engine `direct` became.
  static std::string read_at(const std::string& place) {
    const TempFolder inside{std::filesystem::path(place)};
    return read_file(counting_file(inside, "numbers", kNumbers));
  }
  static std::string read_file(const std::string& path) {
    const EveryEngine all{.paths = {path}};
    const Array array = Array::open(path, counted(8, 2_MiB, EngineKind::kDirect));
    const EngineReport report = array.engine();
    return all.read_by_all() + "; direct is " + std::string(engine_name(report.chosen)) + ", " +
           report.how + ", " + report.why;
  }
  static void note(const std::string& said) { std::cout << "  " << said << "\n"; }

  const TempFolder folder_;
};

TEST_F(Filesystems, Tmpfs) {
  const std::string place = make("tmpfs");
  const std::string said = in_child([&] {
    if (!own_mounts() || !mount_tmpfs(place, "size=16m")) return std::string("may not mount");
    return read_at(place);
  });
  if (said == "may not mount") GTEST_SKIP() << "only root may mount";
  EXPECT_THAT(said, HasSubstr("right; "));
  note(said);
}

TEST_F(Filesystems, Overlay) {
  const std::string lower = make("lower"), upper = make("upper"), work = make("work"),
                    merged = make("merged");
  counting_file(folder_, "lower/numbers", kNumbers);
  const std::string said = in_child([&] {
    const std::string options = "lowerdir=" + lower + ",upperdir=" + upper + ",workdir=" + work;
    if (!own_mounts() || ::mount("overlay", merged.c_str(), "overlay", 0, options.c_str()) != 0) {
      return std::string("may not mount");
    }
    return read_file(merged + "/numbers") + "\n" + read_at(merged);
  });
  if (said == "may not mount") GTEST_SKIP() << "only root may mount an overlay";
  EXPECT_THAT(said, HasSubstr("right; "));
  EXPECT_THAT(said, HasSubstr("\nright; "));
  note(said);
}

// On an overlay, a file that is opened for writing is copied to the upper layer. Readers then see
// another file, or still the old one.
TEST_F(Filesystems, OverlayCopyUpWhileReading) {
  const std::string lower = make("lower"), upper = make("upper"), work = make("work"),
                    merged = make("merged");
  counting_file(folder_, "lower/numbers", kNumbers);
  const std::string said = in_child([&] {
    const std::string options = "lowerdir=" + lower + ",upperdir=" + upper + ",workdir=" + work;
    if (!own_mounts() || ::mount("overlay", merged.c_str(), "overlay", 0, options.c_str()) != 0) {
      return std::string("may not mount");
    }
    const std::vector<std::uint64_t> rows{1, 7777, 99'999};
    for (const EngineKind engine : kAllEngines) {
      const std::string path = merged + "/numbers";
      std::filesystem::remove(upper + "/numbers");
      const Array array = Array::open(path, counted(8, 2_MiB, engine));
      if (gathered(array, rows) != rows_of_counting(rows, 8)) return std::string("wrong before");
      std::fstream(path, std::ios::in | std::ios::out).put('\xff');
      const Error error = error_of([&] {
        if (gathered(array, rows) != rows_of_counting(rows, 8)) {
          throw Error(ErrorKind::kClosed, "test", "wrong after");
        }
      });
      if (error.kind() == ErrorKind::kClosed) return std::string("wrong after");
    }
    return std::string("right");
  });
  if (said == "may not mount") GTEST_SKIP() << "only root may mount an overlay";
  EXPECT_EQ(said, "right");
}

TEST_F(Filesystems, FusePassingThrough) {
  if (!there_is("bindfs")) GTEST_SKIP() << "no bindfs: apt-get install bindfs";
  const std::string real = make("real"), seen = make("seen");
  const std::string said = in_child([&] {
    const FuseServer server(real, seen);
    return server.works() ? read_at(seen) : std::string("no FUSE");
  });
  if (said == "no FUSE") GTEST_SKIP() << "FUSE is not to be had here (/dev/fuse, or not root)";
  EXPECT_THAT(said, HasSubstr("right; "));
  note(said);
}

// If the FUSE server ends, reading is an error, and the array can be closed.
TEST_F(Filesystems, FuseThatGoesAwayWhileReading) {
  if (!there_is("bindfs")) GTEST_SKIP() << "no bindfs: apt-get install bindfs";
  const std::string real = make("real"), seen = make("seen");
  counting_file(folder_, "real/numbers", kNumbers);
  for (const EngineKind engine : {EngineKind::kRead, EngineKind::kDirect, EngineKind::kAuto}) {
    const std::string said = in_child([&] {
      std::optional<FuseServer> server(std::in_place, real, seen);
      if (!server->works()) return std::string("no FUSE");
      const Array array = Array::open(seen + "/numbers", counted(8, 1_MiB, engine));
      const std::vector<std::uint64_t> rows{1, 7777, 99'999}, others{30'000, 60'000};
      if (gathered(array, rows) != rows_of_counting(rows, 8)) return std::string("wrong before");
      server.reset();
      const Error error = error_of([&] { gathered(array, others); });
      return std::to_string(static_cast<int>(error.kind())) + " " + error.what();
    });
    if (said == "no FUSE") GTEST_SKIP() << "FUSE is not to be had here (/dev/fuse, or not root)";
    EXPECT_THAT(said, HasSubstr("numbers: ")) << engine_name(engine);
    EXPECT_THAT(said, Not(HasSubstr("nothing was thrown"))) << engine_name(engine);
    note(said);
  }
}

TEST_F(Filesystems, LoopDeviceWithSectorsOfFourKibibytes) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may make a loop device";
  if (!there_is("losetup") || !there_is("mkfs.ext4")) GTEST_SKIP() << "no losetup or mkfs.ext4";
  const std::string image = folder_.write("image", ""), place = make("loop"),
                    name = folder_.path("device");
  std::filesystem::resize_file(image, 64_MiB);
  if (!shell("losetup -b 4096 --find --show " + image + " > " + name)) {
    GTEST_SKIP() << "no loop device is to be had";
  }
  std::string device;
  std::ifstream(name) >> device;
  ASSERT_THAT(device, HasSubstr("/dev/loop"));
  const std::string said = in_child([&] {
    if (!shell("mkfs.ext4 -q " + device) || !own_mounts() ||
        ::mount(device.c_str(), place.c_str(), "ext4", 0, "") != 0) {
      return std::string("may not mount");
    }
    const std::string read = read_at(place);
    const TempFolder inside{std::filesystem::path(place)};
    const std::string path = counting_file(inside, "numbers", kNumbers);
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    alignas(4096) static char block[4096];
    const bool takes_sectors = ::pread(fd, block, 512, 512) == 512;
    ::close(fd);
    ::umount(place.c_str());
    return read + (takes_sectors ? ", 512 bytes taken" : ", 512 bytes refused");
  });
  EXPECT_TRUE(shell("losetup -d " + device));
  EXPECT_THAT(said, HasSubstr("right; direct is direct"));
  EXPECT_THAT(said, HasSubstr("512 bytes refused"));  // so the alignment was requested and used
  note(said);
}

TEST_F(Filesystems, AFullDiskWhileAReportIsWritten) {
  const std::string place = make("small");
  const std::string said = in_child([&] {
    if (!own_mounts() || !mount_tmpfs(place, "size=64k")) return std::string("may not mount");
    const std::string report = place + "/report.html";
    write_report(report, "the old one");
    const Error error = error_of([&] { write_report(report, std::string(1'000'000, 'x')); });
    std::string left;
    for (const auto& entry : std::filesystem::directory_iterator(place)) {
      left += entry.path().filename().string() + " ";
    }
    std::string old;
    std::ifstream file(report);
    std::getline(file, old);
    return std::to_string(error.code()) + "; " + error.hint_text() + "; " + left + "; " + old;
  });
  if (said == "may not mount") GTEST_SKIP() << "only root may mount";
  EXPECT_EQ(said, std::to_string(ENOSPC) +
                      "; free some space, or name a file on another disk; report.html ; the old "
                      "one");
}

}  // namespace
}  // namespace evenkeel
