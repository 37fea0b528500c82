"""The command line of the benches that check goals: which scenarios run, and what they print."""

import argparse
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def arguments(description, scenarios):
    """A parser for the options that all of them have. Processes of contestants have their own
    options."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("scenario", nargs="*", help=f"{', '.join(scenarios)}; default: all")
    parser.add_argument("--dir", type=pathlib.Path, default=ROOT / ".cache/bench")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    return parser


def run(parser, options, scenarios, make_bench):
    """Runs the requested scenarios, then prints a line for each result of the bench."""
    unknown = set(options.scenario) - set(scenarios)
    if unknown:
        parser.error(f"unknown scenario {', '.join(unknown)}; known: {', '.join(scenarios)}")
    options.dir.mkdir(parents=True, exist_ok=True)
    bench = make_bench(options)
    for name in options.scenario or scenarios:
        scenarios[name](bench)
    for result in bench.results:
        verdict = {True: "met", False: "MISSED", None: "-"}[result["met"]]
        print(f"{result['what']:<75}  {result['figure']:<45}  {result['wanted']:<18}  {verdict}")
    if options.json:
        options.json.write_text(json.dumps(bench.results, indent=2) + "\n")
    return 0
