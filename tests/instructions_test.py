"""Hot paths take no more instructions than before. Instructions are not noisy, as times are.

callgrind counts them in build/hot_paths, and bench/instructions.json has the allowed numbers. After
a change that is meant to alter them, store new ones: python tests/instructions_test.py --record
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(os.environ.get("EVENKEEL_HOT_PATHS") or ROOT / "build" / "hot_paths")
RECORD = ROOT / "bench" / "instructions.json"
PATHS = ("planning", "permutation", "widening", "batches")
MARGIN = 0.05


def built():
    """What the figures depend on: the compiler, and how this CPU widens tokens."""
    said = json.loads(subprocess.run([PROGRAM, "built"], capture_output=True, check=True).stdout)
    return f"{said['compiler']}, widened by {said['widened_by']}"


def count(path, folder):
    """Instructions within hot_PATH and all that it calls, in all threads."""
    tokens = Path(folder) / "tokens.bin"
    tokens.write_bytes(bytes(range(256)) * (8 << 10))  # 2 MiB
    command = [
        "valgrind",
        "--tool=callgrind",
        "--collect-atstart=no",
        f"--toggle-collect=hot_{path}",
        f"--callgrind-out-file={folder}/callgrind.out",
        PROGRAM,
        path,
        tokens,
    ]
    # libc selects its memcpy by the CPU, too. Use the one for every x86-64.
    usual = "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-AVX512F,-ERMS,-FSRM,-AVX_Fast_Unaligned_Load"
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "GLIBC_TUNABLES": usual}
    )
    assert done.returncode == 0, done.stderr
    return int(re.search(r"Collected : (\d+)", done.stderr)[1])


@pytest.mark.parametrize("path", PATHS)
def test_takes_no_more_instructions_than_recorded(path, tmp_path):
    if not shutil.which("valgrind"):
        pytest.skip("valgrind is not installed")
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")
    recorded = json.loads(RECORD.read_text())
    here = built()
    if here not in recorded:
        pytest.skip(f"no figures for {here}; there are those for {', '.join(recorded)}")
    was, now = recorded[here][path], count(path, tmp_path)
    assert now > 0
    assert now <= was * (1 + MARGIN), (
        f"{path}: {now:,} instructions, recorded are {was:,}: {now / was - 1:+.1%}. If that is "
        f"meant, record anew: python tests/{Path(__file__).name} --record"
    )
    assert now >= was * (1 - MARGIN), (
        f"{path}: {now:,} instructions, recorded are {was:,}: {now / was - 1:+.1%}. Better; keep "
        f"it so: python tests/{Path(__file__).name} --record"
    )


def record():
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        recorded[built()] = {path: count(path, folder) for path in PATHS}
    RECORD.write_text(json.dumps(recorded, indent=2) + "\n")
    print(json.dumps(recorded[built()], indent=2))


if __name__ == "__main__":
    if sys.argv[1:] != ["--record"]:
        sys.exit("usage: instructions_test.py --record")
    record()
