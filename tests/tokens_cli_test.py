"""evenkeel batches and explain, against NumPy's slices and the reference of the orders."""

import json
import signal
import subprocess

import numpy as np
import pytest
from orders_reference_test import blocks as block_order
from orders_reference_test import random, shuffled

COUNT = 300_000


@pytest.fixture(scope="module")
def tokens(user):
    """Token i has the value i mod 65,536."""
    return user.write("tokens.bin", (np.arange(COUNT) % 65536).astype("<u2").tobytes())


def explain(user, *args):
    return user.json("explain", *args)


def test_random_starts_are_those_of_the_reference(user, tokens):
    rows = explain(user, tokens, "--batch-size", 5, "--block-size", 100, "--seed", 9, "--step", 7)[
        "rows"
    ]
    assert [row["sample"] for row in rows] == list(range(35, 40))
    assert [row["start"] for row in rows] == [
        random(COUNT - 100, 9, 0, row["sample"]) for row in rows
    ]
    assert all(row["offset"] == 2 * row["start"] for row in rows)


def test_shuffled_starts_are_those_of_the_reference(user, tokens):
    blocks = (COUNT - 1) // 100
    step = blocks // 5 + 3  # in the second epoch
    rows = explain(
        user,
        tokens,
        "--batch-size",
        5,
        "--block-size",
        100,
        "--order",
        "shuffled",
        "--seed",
        9,
        "--step",
        step,
    )["rows"]
    for row in rows:
        assert row["epoch"] == row["sample"] // blocks
        assert row["start"] == 100 * shuffled(blocks, 9, row["epoch"], row["sample"] % blocks)


def test_ranks_together_are_the_world(user, tokens):
    def starts(world, rank):
        return [
            row["start"]
            for row in explain(
                user,
                tokens,
                "--batch-size",
                12 // world,
                "--block-size",
                64,
                "--order",
                "covering",
                "--world",
                world,
                "--rank",
                rank,
                "--step",
                3,
            )["rows"]
        ]

    alone = starts(1, 0)
    for world in (2, 3, 4):
        assert sum((starts(world, rank) for rank in range(world)), []) == alone


def test_blocks_are_those_of_the_reference_for_every_world(user, tokens):
    numbers = {"block": 16, "window": 40, "streams": 12}
    options = ["--block-size", 100, "--order", "blocks", "--seed", 9]
    options += [word for name, value in numbers.items() for word in (f"--{name}", value)]
    crops = (COUNT - 100) // 100
    step, epoch = crops // 24 + 3, 1  # in the second epoch
    phase = shuffled(100, 9 ^ 0x70686173655F6F66, 0, epoch)
    wanted = [phase + 100 * block_order(crops, 9, epoch, 3 * 24 + i, **numbers) for i in range(24)]
    for world in (1, 3, 4):
        for rank in range(world):
            batch = ["--batch-size", 24 // world, "--world", world, "--rank", rank]
            found = explain(user, tokens, *options, *batch, "--step", step)
            assert found["order"] == "blocks" and found["epoch_samples"] == crops
            assert [row["start"] for row in found["rows"]] == wanted[rank::world]
    figures = user.json("batches", tokens, *options, "--batch-size", 24, "--steps", 200)
    assert figures["block_crops"] == 16 and figures["window_blocks"] == 40
    assert "order=blocks block_rows=16 window_blocks=40 streams=12" in figures["state"]
    mapped = ["--engine", "map", "--prefetch", 0]
    same = user.json("batches", tokens, *options, "--batch-size", 24, "--steps", 200, *mapped)
    direct = ["--engine", "direct"]
    read = user.json("batches", tokens, *options, "--batch-size", 24, "--steps", 200, *direct)
    assert figures["checksum"] == same["checksum"] == read["checksum"]
    shown = user.run("batches", tokens, *options, "--steps", 3).stdout
    assert "16 crops (3.12 KiB) in a block, 40 blocks in a window, 12 streams" in shown


def test_print_shows_what_slicing_gives(user, tokens):
    done = user.run(
        "batches", tokens, "--batch-size", 3, "--block-size", 8, "--steps", 2, "--print"
    )
    data = np.fromfile(tokens, "<u2").astype(np.int64)
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * 3 * 3
    for head, x, y in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        start = int(head.split()[-1])
        assert x.split()[1:] == [str(v) for v in data[start : start + 8]]
        assert y.split()[1:] == [str(v) for v in data[start + 1 : start + 9]]
    assert "evenkeel explain" in done.stderr


def test_figures_do_not_depend_on_how_it_is_read(user, tokens):
    def checksum(*more):
        figures = user.json(
            "batches",
            tokens,
            "--batch-size",
            4,
            "--block-size",
            32,
            "--steps",
            50,
            "--order",
            "shuffled",
            *more,
        )
        assert figures["steps"] == 50 and figures["crops_per_s"] > 0
        assert figures["budget_peak_bytes"] <= figures["budget_bytes"]
        return figures["checksum"]

    first = checksum()
    for more in (
        ["--prefetch", 0],
        ["--engine", "direct"],
        ["--engine", "read", "--budget", "2MiB"],
        ["--cold"],
        ["--engine", "map"],
    ):
        assert checksum(*more) == first
    assert checksum("--from", 1) != first


def test_shards_are_one_stream(user):
    data = (np.arange(5000) % 65536).astype("<u2")
    header = np.zeros(256, "<i4")
    for number, part in enumerate(np.split(data, [1200, 1201, 4000])):
        header[:3] = 20240520, 1, len(part)
        user.write(f"shard_{number:06d}.bin", header.tobytes() + part.tobytes())
    pattern = user.folder / "shard_*.bin"
    figures = user.json("batches", pattern, "--batch-size", 2, "--block-size", 900, "--steps", 20)
    assert figures["format"].startswith("llm.c") and figures["tokens"] == 5000
    user.write("whole.bin", data.tobytes())
    whole = user.json("batches", "whole.bin", "--batch-size", 2, "--block-size", 900, "--steps", 20)
    assert figures["checksum"] == whole["checksum"]


@pytest.mark.parametrize(
    "args, code, words",
    [
        (["missing.bin"], 1, "No such file"),
        (["tokens.bin", "--block-size", "300000"], 1, "need at least"),
        (["tokens.bin", "--order", "sorted"], 2, "random, shuffled, covering, blocks"),
        (["tokens.bin", "--window", "9"], 1, "belong to --order blocks"),
        (["tokens.bin", "--mixed-windows", "9"], 1, "belongs to --documents packed"),
        (["tokens.bin", "--eos", "9"], 1, "--documents mask, start, packed or whole selects"),
        (
            ["tokens.bin", "--order", "blocks", "--documents", "packed", "--block", "9"],
            1,
            "set --window",
        ),
        (["tokens.bin", "--rank", "2", "--world", "2"], 1, "must be 0 or 1 for world=2; got 2"),
        (["tokens.bin", "--batch-size", "0"], 2, "whole number of 1 or more"),
        (["tokens.bin", "--budget", "100KiB"], 1, "smallest"),
        (["odd.bin"], 1, "odd.bin"),
        ([], 2, "FILE"),
    ],
)
def test_mistakes_are_told(user, tokens, args, code, words):
    user.write("odd.bin", b"abc")
    for command in ("batches", "explain"):
        done = user.run(command, *args, code=code)
        assert words in done.stderr, done.stderr
        assert done.stdout == ""


def test_json_is_json(user, tokens):
    done = user.run("explain", tokens, "--json")
    assert json.loads(done.stdout)["step"] == 0


@pytest.mark.parametrize("option", ["--bos", "--eos"])
def test_documents_between_tokens_are_found_and_their_index_goes_where_it_is_wanted(user, option):
    """Token 9 begins or ends each document; others are above it."""
    lengths = np.random.default_rng(1).integers(2, 60, 300)
    numbers = np.full(lengths.sum(), 100, "<u2")
    ends = np.cumsum(lengths)
    starts = ends - lengths
    numbers[starts if option == "--bos" else ends - 1] = 9
    name = f"sep{option[2:]}.bin"
    user.write(name, numbers.tobytes())
    folder = user.folder / f"index{option}"
    folder.mkdir()
    user.own(folder)
    options = [name, "--batch-size", 6, "--block-size", 16, option, 9, "--documents-index", folder]
    rows = explain(user, *options, "--documents", "start", "--step", 3)["rows"]
    assert len(rows) == 6
    for row in rows:
        first = row["documents"][0]
        assert row["start"] == starts[first["document"]] and first["from"] == 0
    (index,) = folder.iterdir()
    assert index.name.startswith(name) and index.name.endswith(f".{option[2:]}9.documents")
    assert not list(user.folder.glob(f"{name}.*"))
    done = user.run("batches", *options, "--documents", "mask", "--steps", 1)
    assert f"{option} 9 --documents-index {folder}" in done.stderr  # the next command is whole
    assert list(folder.iterdir()) == [index]


def test_samples_are_those_of_a_number_for_megatron(user):
    from shuffle_cli_test import megatron

    megatron(user, "corpus", np.arange(1, 60))
    options = ["corpus.idx", "--order", "megatron", "--batch-size", 3, "--block-size", 16]
    figures = user.json("batches", *options, "--samples", 900, "--steps", 300)
    assert "megatron samples=900 " in figures["state"]
    assert user.json("batches", *options, "--steps", 30)["state"] != figures["state"]
    done = user.run("batches", *options, "--samples", 900, "--steps", 1)
    assert "--samples 900" in done.stderr
    assert len(explain(user, *options, "--samples", 900, "--step", 299)["rows"]) == 3


def test_documents_are_shown_and_explained(user):
    """Documents of 10, 20, 30, ... tokens; the boundaries are those of the index."""
    lengths = np.arange(10, 400, 10)
    user.write("d.ds", np.arange(lengths.sum(), dtype="<u2").tobytes())
    user.write("d.ds.index", np.cumsum(lengths).astype("<u8").tobytes())
    starts = [0, *np.cumsum(lengths)[:-1].tolist()]
    options = ("d.ds", "--batch-size", 3, "--block-size", 64, "--documents")
    shown = user.run("batches", *options, "mask", "--print", "--steps", 1).stdout.splitlines()
    rows = explain(user, *options, "mask", "--step", 0)["rows"]
    lines = [line for line in shown if line.startswith("  documents")]
    assert len(lines) == len(rows) == 3
    for line, row in zip(lines, rows, strict=True):
        inside = [s - row["start"] for s in starts if row["start"] < s < row["start"] + 64]
        assert [int(part.split()[-1]) for part in line.split(",")] == [0, *inside]
        for document in row["documents"]:
            assert starts[document["document"]] + document["from"] == document["start"]
    figures = user.json("batches", *options, "packed", "--steps", 20)
    assert figures["documents"] == "packed"
    assert figures["cut"] == 0
    cropped = user.json("batches", *options, "packed", "--crop-long", "--steps", 20)
    over = int(np.maximum(0, lengths - 64).sum())
    assert cropped["cut"] == pytest.approx(over / lengths.sum())
    # Windows of packed rows, and of documents, in the order blocks.
    blocks = ("--order", "blocks", "--window")
    for mode, words, sizes in (
        ("packed", (*blocks, 4, "--mixed-windows", 2), (4, 2)),
        ("whole", (*blocks, 16, "--block", 8), (8, 2)),
    ):
        figures = user.json("batches", *options, mode, *words, "--steps", 3)
        assert (figures["block_crops"], figures["window_blocks"]) == sizes
        assert explain(user, *options, mode, *words, "--step", 2)["rows"]
    table = user.run("explain", *options, "mask", "--step", 0).stdout
    assert "documents" in table
    assert f"{rows[0]['documents'][0]['document']}" in table
    # Batches of whole documents: the first tokens of each, up to the block size.
    shown = user.run("batches", *options, "whole", "--print", "--steps", 2).stdout.splitlines()
    steps = [explain(user, *options, "whole", "--step", step) for step in (0, 1)]
    rows = [row for step in steps for row in step["rows"]]
    assert len(shown) == 3 * len(rows) == 18
    for head, x, row in zip(shown[::3], shown[1::3], rows, strict=True):
        (document,) = row["documents"]
        start, tokens = starts[document["document"]], min(64, lengths[document["document"]])
        assert f"document {document['document']}, {tokens} tokens" in head
        assert x.split()[1:3] == [str(start % 65536), str((start + 1) % 65536)]


@pytest.mark.parametrize(
    "option",
    [["--samples", 5], ["--crop-long"], ["--bos", 3], ["--eos", 3], ["--documents-index", "."]],
)
def test_options_of_other_orders_and_documents_are_refused(user, tokens, option):
    for command in ("batches", "explain"):
        message = user.run(command, tokens, *option, code=1).stderr
        assert option[0] in message


def test_a_token_beyond_64_bits_is_refused(user, tokens):
    said = user.run("batches", tokens, "--documents", "mask", "--bos", 2**64, code=2).stderr
    assert "is not a token" in said


def test_more_batches_ahead_than_32_bits_count_are_as_many_as_fit(user, tokens):
    def buffers(prefetch):
        facts = user.json("batches", tokens, "--steps", 1, "--prefetch", prefetch)
        return facts["buffers"]

    assert buffers(2**32) == buffers(2**32 + 1) == buffers(2**32 - 1) > 2


def test_batches_end_at_once_when_they_are_interrupted_in_a_pause(user, tokens):
    rows = ["--batch-size", 5000, "--block-size", 16]  # more than a buffer of stdout holds
    command = user.command("batches", tokens, *rows, "--print", "--pause", 3_600_000_000)
    with subprocess.Popen(command, cwd=user.folder, stdout=subprocess.PIPE) as tool:
        tool.stdout.readline()
        tool.send_signal(signal.SIGINT)
        tool.communicate(timeout=120)
    assert tool.returncode == 128 + signal.SIGINT
