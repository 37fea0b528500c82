"""The rank of this process, and the number of ranks."""

from __future__ import annotations

import os
import sys

from evenkeel._stepping import whole

# The variables of torchrun, Slurm and Open MPI.
_NAMES = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)


def rank_and_world(rank: int | None, world: int | None) -> tuple[int, int]:
    """As given, otherwise from torch.distributed, otherwise from the environment, otherwise one
    process."""
    if (rank is None) != (world is None):
        raise ValueError("loader: pass both rank and world, or neither")
    if rank is not None and world is not None:
        # Python's integers: products of NumPy's may overflow.
        return whole("loader: rank", rank), whole("loader: world", world)
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    for rank_name, world_name in _NAMES:
        if rank_name in os.environ and world_name in os.environ:
            return _number(rank_name), _number(world_name)
    return 0, 1


def _number(name: str) -> int:
    text = os.environ[name]
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"loader: {name} in the environment is {text!r}, not a number") from None
