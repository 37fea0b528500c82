"""scripts/check_skips: which tests may be skipped, for which reasons, and how many."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "check_skips"
RULES = [
    line.split(maxsplit=2)
    for line in (ROOT / "tests" / "allowed_skips.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


def check(folder, step, reasons, **environment):
    """The exit status and the output, if tests were skipped for these reasons."""
    tests = "".join(f'<testcase><skipped message="{reason}"/></testcase>' for reason in reasons)
    (folder / "results").mkdir(exist_ok=True)
    (folder / "results" / "a.xml").write_text(f"<testsuites>{tests}<testcase/></testsuites>")
    environment = {**os.environ, "EVENKEEL_SKIPS": "", **environment}
    done = subprocess.run(
        [sys.executable, SCRIPT, step, folder / "results"],
        capture_output=True,
        text=True,
        env=environment,
    )
    return done.returncode, done.stdout + done.stderr


def test_allowed_reasons_pass_up_to_their_number(tmp_path):
    reason = "zsh is not installed"
    assert check(tmp_path, "pytest", [])[0] == 0
    assert check(tmp_path, "pytest", [reason] * 3) == (
        0,
        f"skipped   3 in pytest: {reason}\n",
    )
    code, said = check(tmp_path, "pytest", [reason] * 2 + ["fish is not installed"] * 2)
    assert code == 1 and "pytest skipped 4 tests by /" in said and "at most 3 may" in said


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("pytest", "no torch"),
        ("ctest-release", "io_uring is not allowed here"),
        ("ctest-release", "built without liburing"),  # allowed for ctest-nouring alone
        ("pytest-python", "torch is not installed"),
        ("pytest-python", "collection skipped"),  # all of a file
        ("pytest-python", "bindfs is not installed, or there is no /dev/fuse"),
        ("pytest-python", "the tool is not built"),
    ],
)
def test_other_reasons_fail(tmp_path, step, reason):
    code, said = check(tmp_path, step, [reason])
    assert code == 1 and f'{step} may not skip tests because "{reason}" (1)' in said
    assert check(tmp_path, step, [reason], EVENKEEL_SKIPS="any")[0] == 0


def test_without_results_nothing_is_known(tmp_path):
    done = subprocess.run([sys.executable, SCRIPT, "pytest", tmp_path], capture_output=True)
    assert done.returncode == 1 and b"there are no results in" in done.stderr


def test_every_step_with_a_rule_is_one_whose_skips_are_checked():
    script = (ROOT / "scripts" / "test").read_text()
    lists = script[script.index("\ncheck_skips() {") :].split("for name in ")[1:3]
    ctest, pytests = (part.split(";")[0].split() for part in lists)
    steps = {f"ctest-{name}" for name in ctest} | set(pytests)
    assert {step for step, *_ in RULES} <= steps
