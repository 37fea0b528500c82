"""scripts/setup installs missing packages once. If it cannot, it says what to do."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Machine:
    """A fake Debian: commands that record their arguments, and a list of packages."""

    def __init__(self, folder: pathlib.Path, installed: set[str], uid: int = 0):
        self.bin, self.calls, self.project = folder / "bin", folder / "calls", folder / "project"
        (self.project / "scripts").mkdir(parents=True)
        self.bin.mkdir()
        self.calls.touch()
        for name in ("packages.txt", "requirements-dev.txt", "scripts/setup"):
            shutil.copy(ROOT / name, self.project / name)
        for name in ("bash", "env", "sed", "grep", "sort", "tr", "cmp", "cp", "cat", "dirname"):
            (self.bin / name).symlink_to(shutil.which(name))
        status = "\n".join(f"{package} installed" for package in sorted(installed))
        self.command("id", f"echo {uid}")
        self.command("dpkg-query", f"cat <<'END'\n{status}\nEND\nexit 1")
        self.command("apt-get", f'echo "apt-get $*" >>{self.calls}')

    def command(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        path.chmod(0o755)

    def setup(self, *sections: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self.project / "scripts/setup", *sections],
            env={**os.environ, "PATH": str(self.bin)},
            capture_output=True,
            text=True,
            check=False,
        )

    def apt_calls(self) -> list[str]:
        return self.calls.read_text().splitlines()


def packages(*sections: str) -> set[str]:
    found, section = set(), None
    for line in (ROOT / "packages.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line.startswith("["):
            section = line.strip("[]")
        elif line and section in sections:
            found.add(line)
    return found


def test_nothing_missing_means_no_call(tmp_path):
    machine = Machine(tmp_path, packages("build", "test"))
    assert machine.setup("build", "test").returncode == 0
    assert machine.apt_calls() == []


def test_only_what_is_missing_is_installed(tmp_path):
    machine = Machine(tmp_path, packages("build") - {"libfmt-dev", "g++"})
    assert machine.setup("build").returncode == 0
    update, install = machine.apt_calls()
    assert update.endswith("update")
    assert set(install.split()) & packages("build") == {"libfmt-dev", "g++"}


def test_building_asks_for_no_test_packages(tmp_path):
    assert not packages("build") & packages("test", "bench", "lint")


def test_sudo_is_used_when_not_root(tmp_path):
    machine = Machine(tmp_path, set(), uid=1000)
    machine.command("sudo", f'echo "sudo $*" >>{machine.calls}; "$@"')
    assert machine.setup("bench").returncode == 0
    assert [call.split()[0] for call in machine.apt_calls()] == ["sudo", "apt-get"] * 2


@pytest.mark.parametrize("lacking", ["sudo", "apt-get"])
def test_says_what_to_install_by_hand(tmp_path, lacking):
    machine = Machine(tmp_path, packages("build") - {"liburing-dev"}, uid=1000)
    if lacking == "apt-get":
        (machine.bin / "apt-get").unlink()
    result = machine.setup("build")
    assert result.returncode == 1
    assert lacking in result.stderr
    assert "apt-get install liburing-dev" in result.stderr


def test_a_failing_apt_is_an_error(tmp_path):
    machine = Machine(tmp_path, set())
    machine.command("apt-get", "exit 100")
    result = machine.setup("bench")
    assert result.returncode == 1
    assert "apt-get install fio python3" in result.stderr


def test_elsewhere_than_debian_it_goes_on(tmp_path):
    machine = Machine(tmp_path, set())
    (machine.bin / "dpkg-query").unlink()
    result = machine.setup("build")
    assert result.returncode == 0
    assert "liburing-dev" in result.stderr


def test_unknown_section_is_refused(tmp_path):
    result = Machine(tmp_path, set()).setup("kitchen")
    assert result.returncode == 1
    assert "kitchen" in result.stderr


def test_python_is_installed_once(tmp_path):
    machine = Machine(tmp_path, set())
    machine.command(
        "python3",
        f"""echo "python3 $*" >>{machine.calls}
{shutil.which("mkdir")} -p .venv/bin
echo '#!{shutil.which("bash")}' >.venv/bin/python
{shutil.which("chmod")} +x .venv/bin/python""",
    )
    for _ in range(2):
        assert machine.setup("python").returncode == 0
    assert machine.apt_calls() == ["python3 -m venv --clear .venv"]


def build_with(folder, *commands):
    """Runs scripts/build with only these commands, besides those of a shell."""
    (folder / "scripts").mkdir()
    (folder / "bin").mkdir()
    shutil.copy(ROOT / "scripts/build", folder / "scripts/build")
    for name in ("bash", "env", "dirname", "head", "cat"):
        (folder / "bin" / name).symlink_to(shutil.which(name))
    for name in commands:
        (folder / "bin" / name).symlink_to(shutil.which("false"))
    environment = {k: v for k, v in os.environ.items() if k not in ("CXX", "CC")}
    return subprocess.run(
        [folder / "scripts/build", "release"],
        env={**environment, "PATH": str(folder / "bin")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_missing_compiler_is_one_sentence(tmp_path):
    done = build_with(tmp_path, "cmake")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "no C++ compiler was found (tried c++ g++ clang++)" in done.stderr
    assert "apt-get install g++" in done.stderr


def test_a_missing_cmake_is_one_sentence(tmp_path):
    done = build_with(tmp_path, "g++")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "cmake is missing" in done.stderr


def test_any_compiler_will_do(tmp_path):
    assert "no C++ compiler" not in build_with(tmp_path, "cmake", "clang++").stderr
