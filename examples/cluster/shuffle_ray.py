"""`evenkeel shuffle` on a Ray cluster: each part is a task.

    python shuffle_ray.py 'part_*.npy' all.npy
    ray job submit -- python shuffle_ray.py 'part_*.npy' all.npy

All nodes must see the files. Without a cluster, Ray starts one on this machine.
"""

import argparse

import evenkeel
import evenkeel.ray


def main():
    options = argparse.ArgumentParser(description="Shuffles files, by Ray.")
    options.add_argument("files")
    options.add_argument("output")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--parts", type=int, default=64)
    args = options.parse_args()
    plan = evenkeel.plan_shuffle(args.files, args.output, parts=args.parts, seed=args.seed)
    made = evenkeel.ray.shuffle(plan, budget="512MiB")
    print(f"{args.output}: {made['items']:,} items")


if __name__ == "__main__":
    main()
