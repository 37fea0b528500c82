"""Hugging Face datasets as an iterable: shards and a shuffle buffer of 10,000 rows."""

import datasets

from . import _labelled, hf_datasets

TITLE = "Hugging Face datasets, iterable"
PACKAGES = ("datasets", "pyarrow", "numpy")
CONVERTS = ("labelled",)
CONVERTED = "hf_datasets"

convert = hf_datasets.convert


def labelled(work):
    stored = datasets.Dataset.from_file(f"{work.converted}/data.arrow")
    shuffled = stored.to_iterable_dataset(num_shards=64).shuffle(work.seed, buffer_size=10_000)
    while True:
        yield from _labelled.collated(shuffled.with_format("torch").iter(batch_size=work.batch))
