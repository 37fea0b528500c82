"""`evenkeel tokenize` by the ranks of Open MPI, torchrun or srun: each does every n-th part.

    mpirun -np 4 python tokenize_ranks.py 'corpus/*.jsonl' train.bin gpt2
    torchrun --nproc-per-node 4 tokenize_ranks.py 'corpus/*.jsonl' train.bin gpt2
    srun --ntasks 4 python tokenize_ranks.py 'corpus/*.jsonl' train.bin gpt2

Ranks do not communicate. Each plans the same work, and the manifest knows which parts are done. The
rank that finds all parts done joins them. Run it again after a failure: finished parts are kept.
"""

import argparse
import contextlib
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
    options.add_argument("--budget", default="256MiB", help="memory of each rank")
    args = options.parse_args()
    rank = first_of("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
    world = max(1, first_of("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"))
    plan = evenkeel.plan(args.files, args.output, args.tokenizer, parts=args.parts)
    for part in range(rank, len(plan), world):
        plan.run(part, workers=0, budget=args.budget)  # this process is the worker
    print(f"rank {rank} of {world}: done", flush=True)
    # One rank at a time; the last one finds no part missing. The file is writable, because NFS
    # locks only such files for all nodes.
    with open(args.output + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not plan.missing:
            made = plan.finish()
            print(f"{args.output}: {made['tokens']:,} tokens", flush=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(lock.name)  # a rank that still waits for it finds all done


if __name__ == "__main__":
    main()
