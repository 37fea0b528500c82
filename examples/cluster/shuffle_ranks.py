"""`evenkeel shuffle` by the ranks of Open MPI, torchrun or srun: each does every n-th part.

    mpirun -np 4 python shuffle_ranks.py 'part_*.npy' all.npy
    torchrun --nproc-per-node 4 shuffle_ranks.py 'part_*.npy' all.npy
    srun --ntasks 4 --kill-on-bad-exit python shuffle_ranks.py 'part_*.npy' all.npy

Ranks do not communicate. Each plans the same work, and checks in the shared scratch folder which
parts are done. Run it again after a failure: finished parts are kept.
"""

import argparse
import os
import time

import evenkeel


def first_of(*names):
    return int(next((os.environ[name] for name in names if name in os.environ), 0))


def main():
    options = argparse.ArgumentParser(description="Shuffles files, by ranks.")
    options.add_argument("files")
    options.add_argument("output")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--parts", type=int, default=64)
    options.add_argument("--budget", default="512MiB", help="memory of each rank")
    args = options.parse_args()
    rank = first_of("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
    world = max(1, first_of("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"))
    plan = evenkeel.plan_shuffle(
        args.files, args.output, parts=args.parts, seed=args.seed, budget=args.budget
    )
    for step in plan.steps:
        for part in step[rank::world]:
            plan.run(part, budget=args.budget)
        while plan.missing_of(step):  # of other ranks
            time.sleep(0.2)
    print(f"rank {rank} of {world}: done", flush=True)
    if rank == 0:
        print(f"{args.output}: {plan.finish()['items']:,} items", flush=True)


if __name__ == "__main__":
    main()
