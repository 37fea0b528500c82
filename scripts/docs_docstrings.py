"""Turns doctests in docstrings into code blocks, for the reference of the documentation site."""

from __future__ import annotations

import re
from typing import Any

import griffe

# A line with a prompt, and what follows it up to an empty line.
DOCTEST = re.compile(r"^([ ]*)>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


def fence_doctests(text: str) -> str:
    def fenced(match: re.Match[str]) -> str:
        indent = match[1]
        return f"{indent}```pycon\n{match[0]}\n{indent}```"

    return DOCTEST.sub(fenced, text)


class FencedDoctests(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fence_doctests(obj.docstring.value)
