#!/usr/bin/env python3
"""Tokenizing, compared with the usual ways with the same tokenizer library, texts and cores.

    .venv/bin/python bench/tokenizing.py --size 200           MiB of text, made here, as JSONL
    .venv/bin/python bench/tokenizing.py --size 2000 --only evenkeel     memory does not grow
    .venv/bin/python bench/tokenizing.py --size 200 --plain              lines of text, no JSON

`nanogpt` is its prepare.py: datasets.map, then batches into a memmap. `megatron` is its
preprocess_data.py: a pool that gets lines, and a builder. `datatrove` is its DocumentTokenizer,
which only takes Hugging Face tokenizers. `alone` is the library's own speed: as many processes
as cores, texts in memory, tokens discarded; the slowest counts, and starting is not counted.

Each contestant is a separate process tree, alternating, `--rounds` times; the median counts.
Importing libraries is not counted (megatron.core alone takes ten seconds). `cpu` is the CPU time of
all processes, which other load on the machine hardly changes. `memory` is the largest sum of RSS of
its processes. All must return the same number of tokens, and those that keep the order the same
tokens.
"""

import argparse
import json
import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20
PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""

COMMON = """
import glob, json, os, sys, numpy as np
cores = int(sys.argv[1])
files = sorted(glob.glob("corpus/*.jsonl") or glob.glob("corpus/*.txt"))
plain = files[0].endswith(".txt")
def text_of(line): return line.rstrip("\\n") if plain else json.loads(line)["text"]
os.environ["TOKENIZERS_PARALLELISM"] = "false"
def begin():
    import resource, time
    mine = resource.getrusage(resource.RUSAGE_SELF)
    json.dump([time.time(), mine.ru_utime + mine.ru_stime], open("began.json", "w"))
def encoder(library):
    if library == "tiktoken":
        import pickle
        enc = pickle.load(open("encoding.pickle", "rb"))
        return enc.encode_ordinary, enc.eot_token
    from tokenizers import Tokenizer
    tok = Tokenizer.from_file("tokenizer.json")
    return (lambda t: tok.encode(t, add_special_tokens=False).ids), tok.token_to_id("<|endoftext|>")
"""

WAYS = {
    "evenkeel": """
import evenkeel, evenkeel._tokenize.api, pickle, tiktoken
begin()
tok = pickle.load(open("encoding.pickle", "rb")) if LIBRARY == "tiktoken" else "tokenizer.json"
evenkeel.tokenize(files, "out.bin", tok, workers=cores, separator="\\n" if plain else None)
""",
    "nanogpt": """
import datasets
datasets.disable_progress_bars()
import tiktoken
begin()
encode, eot = encoder(LIBRARY)
def process(example):
    ids = encode(example["text"])
    ids.append(eot)
    return {"ids": ids, "len": len(ids)}
dset = datasets.load_dataset("json", data_files=files, split="train", cache_dir="cache")
dset = dset.map(process, remove_columns=dset.column_names, num_proc=cores)
count = np.sum(dset["len"], dtype=np.uint64)
arr = np.memmap("out.bin", dtype=np.uint16, mode="w+", shape=(count,))
total, idx = 1024, 0
for n in range(total):
    batch = dset.shard(num_shards=total, index=n, contiguous=True).with_format("numpy")
    if len(batch) == 0: continue
    arr_batch = np.concatenate(batch["ids"])
    arr[idx : idx + len(arr_batch)] = arr_batch
    idx += len(arr_batch)
arr.flush()
""",
    "megatron": """
import multiprocessing
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
def initializer():
    global encode, eot
    encode, eot = encoder(LIBRARY)
def work(line):
    data = json.loads(line)
    ids = encode(data["text"])
    ids.append(eot)
    return ids, [len(ids)], len(line)
if __name__ == "__main__":
    import tiktoken
    begin()
    builder = IndexedDatasetBuilder("out.bin", dtype=np.uint16)
    pool = multiprocessing.Pool(cores, initializer=initializer)
    for file in files:
        with open(file, encoding="utf-8") as lines:
            for ids, lens, _ in pool.imap(work, lines, 32):
                builder.add_document(ids, lens)
    pool.close(); pool.join()
    builder.finalize("out.idx")
""",
    "datatrove": """
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
if __name__ == "__main__":
    begin()
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader("corpus", glob_pattern="*.jsonl"),
            DocumentTokenizer("trove", tokenizer_name_or_path="tokenizer.json",
                              eos_token="<|endoftext|>", shuffle_documents=False),
        ],
        tasks=cores, workers=cores, logging_dir="logs",
    ).run()
""",
    "alone": """
import multiprocessing, time
def work(n, ready, go, times):
    encode, _ = encoder(LIBRARY)
    texts = [text_of(l) for f in files for l in list(open(f))[n::cores]]
    ready.put(n); go.wait()
    began, cpu = time.perf_counter(), time.process_time()
    for text in texts: encode(text)
    times.put((time.perf_counter() - began, time.process_time() - cpu))
if __name__ == "__main__":
    ready, go, times = multiprocessing.Queue(), multiprocessing.Event(), multiprocessing.Queue()
    all = [multiprocessing.Process(target=work, args=(n, ready, go, times)) for n in range(cores)]
    [one.start() for one in all]; [ready.get() for _ in all]; go.set()
    times = [times.get() for _ in all]; [one.join() for one in all]
    print(max(wall for wall, _ in times), sum(cpu for _, cpu in times))
""",
}


def make_corpus(folder, size, files, plain=False):
    """Words with the frequencies of a language, documents of a few KiB, some of them repeated."""
    draw = random.Random(1)
    letters = "eeeeeettttaaaooooiiiinnnssshhhrrrddlllcuummwfgypbvk"
    words = ["".join(draw.choices(letters, k=draw.randint(1, 11))) for _ in range(40_000)]
    weights = [1 / (n + 3) for n in range(len(words))]
    texts, made = [], 0
    while made < min(size, 8 * MIB):  # drawing words takes longer than tokenizing them
        texts.append(" ".join(draw.choices(words, weights, k=draw.randint(20, 1200))) + ".")
        made += len(texts[-1])
    (folder / "corpus").mkdir()
    for n in range(files):
        written = 0
        with open(folder / "corpus" / f"{n:03}.{'txt' if plain else 'jsonl'}", "w") as file:
            while written < size // files:
                text = draw.choice(texts)
                line = text if plain else json.dumps({"text": text, "id": written})
                file.write(line + "\n")
                written += len(text)


def make_tokenizers(folder):
    """One BPE, in the form of both libraries."""
    import pickle

    import tiktoken
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=30_000,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    first = min((folder / "corpus").iterdir())
    lines = open(first).readlines()[:3000]
    texts = lines if first.suffix == ".txt" else (json.loads(line)["text"] for line in lines)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    visible = {**{chr(n): n for n in [*range(33, 127), *range(161, 173), *range(174, 256)]}}
    rest = [n for n in range(256) if n not in visible.values()]
    visible.update({chr(256 + i): n for i, n in enumerate(rest)})
    ranks = {bytes([n]): n for n in range(256)}
    for pair in json.loads(tokenizer.to_str())["model"]["merges"]:
        joined = "".join(pair if isinstance(pair, list) else pair.split(" "))
        ranks.setdefault(bytes(visible[c] for c in joined), len(ranks))
    encoding = tiktoken.Encoding(
        "made", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": len(ranks)}
    )
    with open(folder / "encoding.pickle", "wb") as file:
        pickle.dump(encoding, file)


def family(pid):
    """A process and all its descendants."""
    found = [pid]
    for one in found:
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{task}/children") as file:
                    found += [int(child) for child in file.read().split()]
        except OSError:
            pass
    return found


def resident(pids):
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm") as file:
                total += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            pass
    return total


def run(folder, way, library, cores):
    for name in ("out.bin", "out.idx", "cache", "trove", "logs", "out.bin.tokenize.json"):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (folder / "way.py").write_text(f"LIBRARY = {library!r}\n{COMMON}{WAYS[way]}")
    environment = {**os.environ, "HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        [sys.executable, "way.py", str(cores)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    peak = [0]

    def watch():
        while process.poll() is None:
            peak[0] = max(peak[0], resident(family(process.pid)))
            time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, errors = process.communicate()
    ended = time.time()
    watcher.join()
    if process.returncode != 0:
        raise RuntimeError(f"{way}: {errors[-2000:]}")
    if way == "alone":
        wall, cpu = map(float, out.split())
    else:
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        began, before_began = json.loads((folder / "began.json").read_text())
        wall = ended - began
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime - before_began
    if way == "datatrove":  # its workers are children of a server process that is not waited for
        cpu = float("nan")
    return wall, cpu, peak[0], answer(folder, way)


def answer(folder, way):
    """The number of tokens, and a checksum of them if their order is that of the texts."""
    import zlib

    if way == "alone":
        return None
    if way == "datatrove":
        return sum(path.stat().st_size for path in (folder / "trove").rglob("*.ds")) // 2, None
    data = (folder / "out.bin").read_bytes()
    return len(data) // 2, zlib.crc32(data)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--size", type=int, default=200, help="MiB of text")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    options.add_argument("--library", choices=["tiktoken", "tokenizers"], default="tiktoken")
    options.add_argument("--only", nargs="*", choices=list(WAYS))
    options.add_argument("--folder", default=None, help="folder for files; on a disk")
    options.add_argument("--plain", action="store_true", help="lines of text instead of JSONL")
    options.add_argument("--json", action="store_true")
    args = options.parse_args()
    if args.plain and not args.only:
        args.only = ["evenkeel", "alone"]  # the others read JSON
    ways = args.only or [w for w in WAYS if (w == "datatrove") <= (args.library == "tokenizers")]
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = pathlib.Path(name)
        make_corpus(folder, args.size * MIB, max(4, args.cores), args.plain)
        make_tokenizers(folder)
        seconds = {way: [] for way in ways}
        cpus = {way: [] for way in ways}
        memory = dict.fromkeys(ways, 0)
        answers = {}
        for _ in range(args.rounds):
            for way in ways:
                took, cpu, peak, answers[way] = run(folder, way, args.library, args.cores)
                seconds[way].append(took)
                cpus[way].append(cpu)
                memory[way] = max(memory[way], peak)
                print(f"{way}: {took:.1f} s, {cpu:.1f} s of cpu", file=sys.stderr, flush=True)
        known = [one for one in answers.values() if one]
        assert len({count for count, _ in known}) == 1, answers
        assert len({crc for _, crc in known if crc is not None}) <= 1, answers
    table = {
        way: {
            "mib_per_second": args.size / statistics.median(seconds[way]),
            "mib_per_cpu_second": args.size / statistics.median(cpus[way]),
            "memory": memory[way],
        }
        for way in ways
    }
    if args.json:
        print(json.dumps(table, indent=1))
        return
    print(f"{args.size} MiB of text, {args.library}, {args.cores} cores, {args.rounds} rounds")
    for way, row in table.items():
        first = table[ways[0]]
        print(
            f"{way:10} {row['mib_per_second']:7.1f} MiB/s"
            f" ({row['mib_per_second'] / first['mib_per_second']:.2f} of {ways[0]})"
            f"  {row['mib_per_cpu_second']:6.2f} MiB per CPU second"
            f" ({row['mib_per_cpu_second'] / first['mib_per_cpu_second']:.2f})"
            f"  {row['memory'] / MIB:6.0f} MiB"
        )


if __name__ == "__main__":
    main()
