"""Evenkeel's loader of rows with the exact order, which reads every row by itself."""

from . import evenkeel_loader

TITLE = "Evenkeel, exact order"
PACKAGES = ("evenkeel", "numpy")


def cells(work):
    return evenkeel_loader.cells(work, order="shuffled")


def labelled(work):
    return evenkeel_loader.labelled(work, order="shuffled")
