#!/usr/bin/env python3
"""Kills a command repeatedly at random moments, resumes it, and compares its output.

    .venv/bin/python bench/kill_resume.py dedup --kills 200
    .venv/bin/python bench/kill_resume.py tokenize --kills 200

The command runs with --resume and checkpoints every 256 KiB, on 8 MiB of text. All its processes
are killed (SIGKILL) after a random part of the time that a whole run takes. A run that ends before
that must have written the same bytes as an undisturbed one, and left nothing else; then the next
begins.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOL = os.environ.get("EVENKEEL_TOOL") or str(ROOT / "build" / "evenkeel")
SMALL = ["--checkpoint", "256KiB"]
# The commands, and the files that they write.
COMMANDS = {
    "dedup": (["in.jsonl", "-o", "out.jsonl", "--budget", "16MiB", *SMALL], ["out.jsonl"]),
    "shuffle": (["in.jsonl", "-o", "out.jsonl", "--budget", "16MiB", *SMALL], ["out.jsonl"]),
    "convert": (["in.jsonl", "-o", "out.jsonl", "--budget", "16MiB", *SMALL], ["out.jsonl"]),
    "tokenize": (
        ["in.jsonl", "-o", "train.bin", "--format", "megatron", "--tokenizer", "bytes"]
        + ["--workers", "2", "--val-share", "0.1", *SMALL],
        ["train.bin", "train.idx", "val.bin", "val.idx"],
    ),
}


def make_input(path):
    draw = random.Random(5)
    texts = ["".join(draw.choices("abcdefgh ", k=draw.randint(1, 400))) for _ in range(30_000)]
    lines = [json.dumps({"text": text}) + "\n" for text in texts]
    path.write_text("".join(lines + draw.choices(lines, k=10_000)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    words, outputs = COMMANDS[options.command]
    command = [TOOL, options.command, *words]
    env = {"EVENKEEL_PYTHON": sys.executable, **os.environ}
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="evenkeel-kill-", dir=".") as name:
        folder = pathlib.Path(name).resolve()
        make_input(folder / "in.jsonl")

        def digests():
            return [hashlib.sha256((folder / path).read_bytes()).hexdigest() for path in outputs]

        def clean():
            for path in folder.iterdir():
                if path.name != "in.jsonl":
                    path.unlink()

        began = time.monotonic()
        subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)
        whole = time.monotonic() - began
        wanted, left = digests(), sorted(path.name for path in folder.iterdir())
        clean()
        killed = complete = resumed = 0
        while killed < options.kills or list(folder.iterdir()) != [folder / "in.jsonl"]:
            child = subprocess.Popen(
                [*command, "--resume", "--json"],
                cwd=folder,
                env=env,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            limit = draw.uniform(0, 0.9 * whole) if killed < options.kills else None
            try:
                said, _ = child.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
                killed += 1
                continue
            assert child.returncode == 0, child.returncode
            assert digests() == wanted, "other bytes"
            assert sorted(path.name for path in folder.iterdir()) == left, "something is left"
            complete += 1
            resumed += json.loads(said)["resumed"]
            clean()
    print(
        f"{options.command}: {killed} kills, {complete} complete runs, of which {resumed} were"
        " resumed; all made the same bytes"
    )


if __name__ == "__main__":
    main()
