"""File names and command lines may contain any bytes, which must do no harm on a terminal, in
pages, in pictures and in JSON."""

import html.parser
import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

NAMES = {
    "script": b"<script>alert(1)<%script>.npy",
    "end": b"<%script><!--\"'&{{data}}{{js}}]]>.npy",
    "escape": b"\x1b]0;title\x07\x1b[2J\x1b[31m.npy",
    "lines": b"a\nhint: rm -rf ~\r\nb\tc\x0b\x7f.npy",
    "c1": "a\x9b31m\x85\x9d.npy".encode(),
    "bytes": b"\xff\xfe\xc3 \x9b31m \xed\xa0\x80.npy",
    "turned": "a\u202egnp\u2066\u2028.npy".encode(),
    "shell": b"$(touch pwned);`touch pwned` 'x' \"y\" \\ *.npy",
}


def safe(output):
    """Text for a terminal: UTF-8, without control characters except newlines."""
    text = output.decode()  # raises an error if it is not UTF-8
    bad = [c for c in text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160]
    assert not bad, text
    assert not {"\u202e", "\u2066", "\u2028"} & set(text)
    return text


@pytest.fixture(params=NAMES)
def named(request, user):
    """A file with this name, in a new folder."""
    folder = os.fsencode(user.folder) + b"/hostile-" + request.param.encode()
    os.makedirs(folder, exist_ok=True)
    path = folder + b"/" + NAMES[request.param].replace(b"%", b"\xe2\x88\x95")
    with open(path, "wb") as file:
        np.save(file, np.arange(4096, dtype=np.uint16))
    for made in (folder, path):
        user.own(made)
    yield path
    os.unlink(path)
    assert os.listdir(folder) == []  # no command was run, and no file was left
    os.rmdir(folder)


def run(user, *args, code=0):
    words = [*map(os.fsencode, user.command()), *map(os.fsencode, args)]
    done = subprocess.run(words, cwd=user.folder, capture_output=True, timeout=240)
    assert done.returncode == code, done
    return done


CALLS = [
    ("info", "{}"),
    ("compare", "{}", "--engines", "read,auto", "--seconds", "0", "--pattern", "rows"),
    ("batches", "{}", "--block-size", "8", "--steps", "1"),
    ("explain", "{}", "--block-size", "8"),
    ("doctor", "{}"),
]
WRONG = [
    ("info", "{}", "--dtype", "uint64"),
    ("info", "{}-missing"),
    ("info", "{}", "--budget", "{}"),
    ("compare", "{}", "-o", "{}/no/folder"),
    ("batches", "{}", "--block-size", "99999"),
    ("{}",),
]


def filled(call, path):
    return [os.fsencode(word).replace(b"{}", path) for word in call]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_on_the_terminal_they_are_shown_and_not_obeyed(user, named, call):
    done = run(user, *filled(call, named))
    text = safe(done.stdout) + safe(done.stderr)
    assert "\nhint: rm" not in text  # a newline in a name is not a new line


@pytest.mark.parametrize("call", WRONG, ids=lambda call: " ".join(call))
def test_in_errors_they_are_shown_and_not_obeyed(user, named, call):
    words = [*map(os.fsencode, user.command()), *filled(call, named)]
    done = subprocess.run(words, cwd=user.folder, capture_output=True, timeout=240)
    assert done.returncode in (1, 2)
    assert safe(done.stdout) + safe(done.stderr)


@pytest.mark.parametrize("call", CALLS[:4], ids=lambda call: call[0])
def test_json_holds_the_name_and_no_control(user, named, call):
    text = safe(run(user, *filled(call, named), "--json").stdout)
    stored = json.dumps(json.loads(text), ensure_ascii=False)
    tail = named.decode(errors="replace").rsplit("/", 1)[1]
    assert json.dumps(tail, ensure_ascii=False)[1:-1] in stored


def test_the_next_command_names_the_same_file_to_a_shell(user, named):
    said = safe(run(user, "info", named).stderr)
    word = said.split("evenkeel compare ")[1].split(" --pattern")[0]
    printed = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert printed.stdout == named


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.seen = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, [name for name, _ in attrs]))


def test_pages_and_pictures_have_their_own_tags_and_no_others(user, named):
    made = {}
    for which, word in (("plain", b"plain"), ("hostile", named)):
        page, picture = (user.folder / f"{which}.{end}" for end in ("html", "svg"))
        table = user.folder / f"{which}.json"
        args = ["-o", page, "--svg", picture, "--json", table, "--files", named]
        done = run(user, "profile", *args, "--", b"true", word)
        assert safe(done.stderr)
        ElementTree.parse(picture)  # raises an error if it is not XML
        run_told = json.loads(safe(table.read_bytes()))["runs"][0]
        assert run_told["command"][1] == word.decode(errors="replace")
        made[which] = page.read_text(), {e.tag for e in ElementTree.parse(picture).iter()}
    assert Tags(made["plain"][0]).seen == Tags(made["hostile"][0]).seen
    assert made["plain"][1] == made["hostile"][1]


def test_a_command_that_is_not_there_is_named_safely(user, named):
    done = run(user, "profile", "-o", "x.html", "--", named + b"-missing", code=127)
    assert safe(done.stderr)
