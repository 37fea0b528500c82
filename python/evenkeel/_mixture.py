"""Mixtures whose weights change during training, and sets that end."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Union

from evenkeel import _core
from evenkeel._stepping import number, text

Schedule = Union["Mapping[int, Sequence[float]]", "Sequence[tuple[int, Sequence[float]]]"]
MaxEpochs = Union[int, "Sequence[int | None]"]


def set_mixture(
    options: Any,
    sets: int,
    schedule: Schedule | None,
    max_epochs: MaxEpochs | None,
    exhausted: str,
) -> None:
    """Checks and sets the options of a mixture of `sets` sets."""
    mixture = _core.MixtureOptions()
    mixture.exhausted = text("mixture: exhausted", exhausted)
    if schedule is not None:
        mixture.stages = stages(schedule)
    if max_epochs is not None:
        mixture.max_epochs = limits(max_epochs, sets)
    options.mixture = mixture


def stages(schedule: Schedule) -> list[tuple[int, list[float]]]:
    """The stages as pairs; those of a dict are sorted by step."""
    mapped = isinstance(schedule, Mapping)
    if isinstance(schedule, (str, bytes)) or not isinstance(schedule, (Mapping, Sequence)):
        raise _not_a_schedule(schedule)
    pairs: list[Any] = list(schedule.items() if isinstance(schedule, Mapping) else schedule)
    made: list[tuple[int, list[float]]] = []
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise _not_a_schedule(pair)
        step, weights = pair
        if isinstance(weights, (str, bytes)):  # "31" would be 3 and 1
            raise _not_a_schedule(pair)
        try:
            numbers = [*map(float, weights)]
        except (TypeError, ValueError):
            raise _not_a_schedule(pair) from None
        try:
            made.append((number("a stage's step", step, 0, what="mixture"), numbers))
        except TypeError:
            raise _not_a_schedule(pair) from None
    if not made:
        raise ValueError("mixture: the schedule has no stages\nhint: leave out schedule=")
    return sorted(made, key=operator.itemgetter(0)) if mapped else made


def _not_a_schedule(value: object) -> TypeError:
    text = repr(value)
    return TypeError(
        "mixture: a schedule is a dict of steps and weights, {0: [3, 1], 1000: [1, 3]}, or a list"
        f" of such pairs; got {text if len(text) < 60 else text[:57] + '...'}"
    )


def limits(max_epochs: MaxEpochs, sets: int) -> list[int]:
    """The limit of each set; 0 for no limit."""
    if isinstance(max_epochs, Sequence) and not isinstance(max_epochs, (str, bytes)):
        each = list(max_epochs)
        if len(each) != sets:
            raise ValueError(
                f"mixture: max_epochs has {len(each)} numbers for {sets} sets\n"
                "hint: give one for each set, None for no limit, or one number for all"
            )
    else:
        each = [max_epochs] * sets  # type: ignore[list-item]
    return [0 if one is None else number("max_epochs", one, 1, what="mixture") for one in each]
