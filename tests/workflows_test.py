"""The scripts, steps and targets of make that the workflows of .github name exist.
actionlint, where it is installed, checks the rest (scripts/lint)."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_there_are_workflows():
    assert {path.stem for path in WORKFLOWS} == {"release", "test"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_workflow_runs_exists(path):
    text = path.read_text()
    commands = re.findall(r"^ *(?:- )?(?:run: )?((?:make|scripts/\w+)\b.*)$", text, re.MULTILINE)
    assert commands
    for command in commands:
        program, *words = command.split()
        if program == "make":
            assert set(words) <= TARGETS, command
        else:
            assert (ROOT / program).stat().st_mode & 0o100, command
        if program == "scripts/test_wheels":
            script = (ROOT / program).read_text()
            assert all(re.search(rf"^#   {word} ", script, re.MULTILINE) for word in words), command


def test_wheels_are_tried_on_a_bare_debian():
    """It has neither pip nor cmake: they come from the environment of scripts/wheels."""
    for name in ("test_wheels", "wheel_roots.sh"):
        text = (ROOT / "scripts" / name).read_text()
        assert "python3 -m pip" not in text and not re.search(r"\$\(cmake\b", text), name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_unless_a_job_says_why(path):
    text = path.read_text()
    assert "\npermissions:\n  contents: read\n" in text
    for line in re.findall(r"^.*: write\b.*$", text, re.MULTILINE):
        assert "#" in line, f"{path.name}: {line.strip()} has no reason"


def test_the_release_checks_before_it_publishes():
    text = (ROOT / ".github/workflows/release.yml").read_text()
    check, publish = text.index("scripts/release_check"), text.index("gh-action-pypi-publish")
    assert check < publish
    assert (
        "needs: build" in text[check:publish] and "github.ref_type == 'tag'" in text[check:publish]
    )
