#!/usr/bin/env python3
"""Model weights, cold: how fast they load to the CPU and to a GPU, and the memory that this takes.

    .venv/bin/python bench/weights.py --size 4                   to the CPU
    python bench/weights.py --size 20 --device cuda              to a GPU

A file of bfloat16 tensors, as in a language model, is loaded whole by each contestant in
its own process, alternating, several times: Evenkeel, safetensors, and those of fastsafetensors,
runai-model-streamer and tensorizer that are installed; tensorizer reads its own format, which is
made first. The sums of all tensors are checked. "disk" is a plain O_DIRECT read of the same file by
threads. Memory is the growth of the process by the kernel's figures, without the tensors if they
are on the CPU; the page cache is what the file occupies afterwards.

A virtual machine may have returned free memory to its host; getting it back takes longer than
reading the file. So before each run the bench writes to as much memory as the file has bytes, and
frees it.
"""

import argparse
import concurrent.futures
import ctypes
import importlib.util
import json
import mmap
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

from side_by_side import data
from side_by_side.data import say

ROOT = pathlib.Path(__file__).resolve().parent.parent
GIB = 1 << 30
PEERS = {
    "fastsafetensors": "fastsafetensors",
    "runai": "runai_model_streamer",
    "tensorizer": "tensorizer",
}


def shapes(size):
    """Tensors of layers of a decoder with 4,096 channels, until there are `size` bytes."""
    left, layer = size // 2, 0
    while True:
        parts = [
            ("attn.qkv", (6144, 4096)),
            ("attn.out", (4096, 4096)),
            ("mlp.up", (14336, 4096)),
            ("mlp.down", (4096, 14336)),
            ("norm", (4096,)),
        ]
        for name, shape in parts:
            count = shape[0] * (shape[1] if len(shape) > 1 else 1)
            if count > left:
                return
            left -= count
            yield f"layers.{layer}.{name}.weight", shape
        layer += 1


def make_file(path, size):
    """Written piece by piece: all of it would not fit in the memory of some machines."""
    import numpy as np

    header, place = {}, 0
    for name, shape in shapes(size):
        bytes_ = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [place, place + bytes_]}
        place += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # Small numbers: their sums are exact in 64 bits, and none is NaN.
    block = np.random.default_rng(1).integers(0, 1 << 14, 1 << 23, dtype=np.uint16).tobytes()
    data.make(path, place, len(text).to_bytes(8, "little") + text, lambda _: block)
    return place


# --- contestants, each in its own process


def load_evenkeel(path, device, budget):
    import evenkeel

    return evenkeel.load_safetensors(path, device=device, budget=budget)


def load_safetensors(path, device, _):
    from safetensors.torch import load_file

    return load_file(path, device=device)


def load_fastsafetensors(path, device, _):
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    loader = SafeTensorsFileLoader(
        SingleGroup(), "cuda:0" if device == "cuda" else device, nogds=True
    )
    loader.add_filenames({0: [path]})
    buffers = loader.copy_files_to_device()
    names = list(loader.get_keys()) if hasattr(loader, "get_keys") else None
    if names is None:
        names = list(buffers.key_to_rank_lidx)
    state = {name: buffers.get_tensor(name) for name in names}
    state["__keep__"] = (loader, buffers)
    return state


def load_runai(path, device, _):
    from runai_model_streamer import SafetensorsStreamer

    state = {}
    with SafetensorsStreamer() as streamer:
        streamer.stream_file(path)
        for name, tensor in streamer.get_tensors():
            state[name] = tensor.to(device, copy=True)
    return state


def load_tensorizer(path, device, _):
    from tensorizer import TensorDeserializer

    file = TensorDeserializer(path, device=device, plaid_mode=device != "cpu")
    return {name: file[name] for name in file.keys()}


def convert_for_tensorizer(path, _device, _budget):
    """It reads only its own format."""
    from safetensors.torch import load_file
    from tensorizer import TensorSerializer

    file = TensorSerializer(path + ".tensors")
    file.write_state_dict(load_file(path))
    file.close()
    return {}


def read_disk(path, _device, _budget):
    """Reads the file with 8 threads of 2 MiB each, bypassing the page cache, into the same few huge
    pages: the fastest of the ways that were tried."""
    size, step, threads = os.path.getsize(path), 2 << 20, 8
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    # Private, because shared memory has no huge pages; more, because it begins within one.
    memory = mmap.mmap(-1, (threads + 2) * step, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    lead = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % step
    buffers = [memoryview(memory)[lead + i * step :][:step] for i in range(threads)]

    def read(thread):
        for offset in range(thread * step, size, threads * step):
            os.preadv(fd, [buffers[thread]], offset)

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, range(threads)))
    os.close(fd)
    return {}


LOADERS = {
    "evenkeel": load_evenkeel,
    "safetensors": load_safetensors,
    "fastsafetensors": load_fastsafetensors,
    "runai": load_runai,
    "tensorizer": load_tensorizer,
    "disk": read_disk,
    "convert": convert_for_tensorizer,
}


def contestant(options):
    name = options.contestant
    if name not in ("disk", "convert"):
        import torch

        if options.device != "cpu":
            torch.empty(1, device=options.device)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    state = LOADERS[name](options.file, options.device, options.budget)
    total = 0
    if name not in ("disk", "convert"):
        if options.device != "cpu":
            torch.cuda.synchronize()
        else:  # a mapping is not loaded before it is touched
            for key, tensor in state.items():
                if key != "__keep__":
                    tensor.view(-1).view(torch.uint8)[::4096].sum()
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for key, tensor in state.items():
        if key != "__keep__":
            total += int(tensor.view(-1).view(torch.int16).sum(dtype=torch.int64))
    print(json.dumps({"seconds": seconds, "memory": (peak - before) << 10, "sum": total}))
    if name == "fastsafetensors":
        loader, buffers = state.pop("__keep__")
        state.clear()
        buffers.close()
        loader.close()


# --- the bench


def touch_memory(size):
    """Writes to new memory in huge pages, and frees it. In a process of its own, because a
    contestant would inherit the peak of its parent's memory."""
    if os.fork() == 0:
        try:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            memory.madvise(mmap.MADV_HUGEPAGE)
            for offset in range(0, size, mmap.PAGESIZE):
                memory[offset] = 1
        finally:
            os._exit(0)  # also after an error: the parent removes the file
    os.wait()


def run(name, options, path):
    done = subprocess.run(
        [sys.executable, __file__, "--contestant", name, "--file", str(path)]
        + ["--device", options.device, "--budget", options.budget],
        capture_output=True,
        text=True,
        cwd=ROOT / "bench",
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no output"]
        return {"failed": lines[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=float, default=4, help="GiB; default 4")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--budget", default="512MiB")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="CONTESTANT", help="leave the others out")
    parser.add_argument("--warm", action="store_true", help="the file is in the page cache")
    parser.add_argument("--dir", type=pathlib.Path, default=ROOT / ".cache/bench")
    parser.add_argument("--keep", action="store_true", help="do not delete the file")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.contestant:
        return contestant(options)
    options.dir.mkdir(parents=True, exist_ok=True)
    path = options.dir / f"weights-{options.size:g}.safetensors"
    size = make_file(path, int(options.size * GIB))
    names = ["disk", "evenkeel", "safetensors"]
    names += [name for name, module in PEERS.items() if importlib.util.find_spec(module)]
    if options.only:
        missing = set(options.only) - set(names)
        if missing:
            sys.exit(f"bench: no {', '.join(sorted(missing))}; there are {', '.join(names)}")
        names = options.only
    files = dict.fromkeys(names, path)
    results = {name: [] for name in names}
    try:
        if "tensorizer" in names:
            files["tensorizer"] = pathlib.Path(f"{path}.tensors")
            run("convert", options, path)
        for turn in range(options.repeats):
            # Every second time backwards, so that none always comes after the same one.
            for name in names if turn % 2 == 0 else names[::-1]:
                (data.make_warm if options.warm else data.make_cold)(files[name])
                touch_memory(size)
                result = run(name, options, files[name])
                result["page_cache"] = data.cached_bytes(files[name]) or 0
                results[name].append(result)
                if "failed" in result:
                    say(f"  {name}: {result['failed']}")
                else:
                    say(f"  {name}: {size / result['seconds'] / GIB:.2f} GiB/s")
    finally:
        for file in set(files.values()) if not options.keep else ():
            file.unlink(missing_ok=True)
    sums = {r["sum"] for name in names for r in results[name] if "sum" in r and name != "disk"}
    if len(sums) != 1:
        sys.exit(f"the contestants do not agree: sums {sums}")
    heat = "warm" if options.warm else "cold"
    print(
        f"{size / GIB:.1f} GiB of bfloat16 tensors to {options.device}, {heat},"
        f" {options.repeats} runs in turn"
    )
    print(
        f"{'':<16} {'GiB/s (median)':>16} {'least':>7} {'most':>7} {'host memory':>12}"
        f" {'page cache':>11}"
    )
    for name in names:
        good = [r for r in results[name] if "failed" not in r]
        if not good:
            print(f"{name:<16} failed: {results[name][0]['failed']}")
            continue
        speeds = [size / r["seconds"] / GIB for r in good]
        memory = max(r["memory"] for r in good)
        if options.device == "cpu" and name != "disk":
            memory -= size
        cached = max(r["page_cache"] for r in good)
        print(
            f"{name:<16} {statistics.median(speeds):>16.2f} {min(speeds):>7.2f} {max(speeds):>7.2f}"
            f" {memory / (1 << 20):>8.0f} MiB {cached / (1 << 20):>7.0f} MiB"
        )
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
