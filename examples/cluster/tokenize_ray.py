"""`evenkeel tokenize` on a Ray cluster: each part is a task.

    python tokenize_ray.py 'corpus/*.jsonl' train.bin gpt2
    ray job submit -- python tokenize_ray.py 'corpus/*.jsonl' train.bin gpt2

All nodes must see the files. Without a cluster, Ray starts one on this machine.
"""

import argparse

import evenkeel
import evenkeel.ray


def main():
    options = argparse.ArgumentParser(description="Text to a token file, by Ray.")
    options.add_argument("files")
    options.add_argument("output")
    options.add_argument("tokenizer")
    options.add_argument("--parts", type=int, default=64)
    args = options.parse_args()
    plan = evenkeel.plan(args.files, args.output, args.tokenizer, parts=args.parts)
    made = evenkeel.ray.tokenize(plan, budget="512MiB")
    print(f"{args.output}: {made['tokens']:,} tokens")


if __name__ == "__main__":
    main()
