"""The orders, implemented in plain Python from docs/orders.md, compared with its golden vectors."""

import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "orders.md"
MASK32, MASK64 = 2**32 - 1, 2**64 - 1


def philox(seed, epoch, counter):
    c0, c1, c2, c3 = counter & MASK32, counter >> 32, epoch & MASK32, epoch >> 32
    k0, k1 = seed & MASK32, seed >> 32
    for _ in range(10):
        p, q = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = q >> 32 ^ c1 ^ k0, q & MASK32, p >> 32 ^ c3 ^ k1, p & MASK32
        k0, k1 = k0 + 0x9E3779B9 & MASK32, k1 + 0xBB67AE85 & MASK32
    return c0 + (c1 << 32), c2 + (c3 << 32)


def random(n, seed, epoch, position):
    low, high = philox(seed, epoch, position)
    return (low + (high << 64)) * n >> 128


def permuted(n, seed, epoch, position, first_key):
    width = max(8, (n - 1).bit_length())
    high_bits = width // 2
    low_bits = width - high_bits
    keys = [philox(seed, epoch, first_key + i) for i in range(12 if width < 16 else 8)]

    def mix(key, v):
        z = v * key[0] + key[1] & MASK64
        z ^= z >> 32
        return z * 0x9E3779B97F4A7C15 & MASK64

    x = position
    while True:
        high, low = divmod(x, 2**low_bits)
        for i, key in enumerate(keys):
            if i % 2 == 0:
                high ^= mix(key, low) >> 64 - high_bits
            else:
                low ^= mix(key, high) >> 64 - low_bits
        x = high * 2**low_bits + low
        if x < n:
            return x


def shuffled(n, seed, epoch, position):
    return permuted(n, seed, epoch, position, 2**63)


def blocks(n, seed, epoch, position, block, window, streams):
    low, high = philox(seed, epoch, 2**63 + 2**32 + 16)
    phase = (low + (high << 64)) * n >> 128
    entries = -(-n // block)
    window = -(-entries // -(-entries // window))
    number, y = divmod(position, window * block)
    rows = min(window * block, n - number * window * block)
    size, longer = divmod(rows, streams)
    turn, section = divmod(y, streams)

    def key(i):
        return 2**63 + 2**62 + 16 * (number * (streams + 2) + i)

    if section < longer:
        begin = permuted(longer, seed, epoch, section, key(0)) * (size + 1)
        length = size + 1
    else:
        place = permuted(streams - longer, seed, epoch, section - longer, key(1))
        begin, length = (longer + place) * size + longer, size
    x = begin + permuted(length, seed, epoch, turn, key(2 + section))
    entry, within = divmod(number * window * block + x, block)
    if entry < n // block:
        entry = permuted(n // block, seed, epoch, entry, 2**63 + 2**32)
    return (entry * block + within + phase) % n


def vectors(kind):
    found = []
    for line in PAGE.read_text().splitlines():
        if re.match(rf"{kind} \w+=", line):
            head, values = line.split(":")
            inputs = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", head)}
            found.append((inputs, [int(value) for value in values.split()]))
    return found


@pytest.mark.parametrize("order", [shuffled, random, blocks])
def test_the_prose_gives_the_vectors(order):
    golden = vectors(order.__name__)
    assert len(golden) >= 8
    for inputs, values in golden:
        first = inputs.pop("first")
        assert [order(position=first + i, **inputs) for i in range(len(values))] == values, inputs


def test_the_prose_gives_philox():
    golden = vectors("philox")
    assert len(golden) >= 3
    for inputs, values in golden:
        assert list(philox(**inputs)) == values, inputs
