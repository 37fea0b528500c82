"""`evenkeel tokenize` by the ranks of Open MPI, torchrun or srun: each does every n-th part.

    mpirun -np 4 python tokenize_ranks.py 'corpus/*.jsonl' train.bin gpt2
    torchrun --nproc-per-node 4 tokenize_ranks.py 'corpus/*.jsonl' train.bin gpt2
    srun --ntasks 4 python tokenize_ranks.py 'corpus/*.jsonl' train.bin gpt2

Ranks do not talk to each other. Each plans the same work, and the manifest tells which parts are
done; the rank that finds that all are joins them. Run it again after a failure: what is done stays.
"""

import argparse
import fcntl
import os

import evenkeel


def first_of(*names):
    return int(next((os.environ[name] for name in names if name in os.environ), 0))


def main():
    options = argparse.ArgumentParser(description="Text to a token file, by ranks.")
    options.add_argument("files")
    options.add_argument("output")
    options.add_argument("tokenizer")
    options.add_argument("--parts", type=int, default=64)
    told = options.parse_args()
    rank = first_of("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
    world = max(1, first_of("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"))
    plan = evenkeel.plan(told.files, told.output, told.tokenizer, parts=told.parts)
    for part in range(rank, len(plan), world):
        plan.run(part, workers=0, budget="256MiB")  # this process is the worker
    print(f"rank {rank} of {world}: done", flush=True)
    folder = os.open(os.path.dirname(os.path.abspath(told.output)), os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)  # one rank at a time; the last one finds no part missing
    if not plan.missing:
        made = plan.finish()
        print(f"{told.output}: {made['tokens']:,} tokens", flush=True)


if __name__ == "__main__":
    main()
