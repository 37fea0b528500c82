"""Runs the tool as `evenkeel` and as `python -m evenkeel`: the program beside this file.

`evenkeel tokenize` runs in Python, because tokenizers are Python libraries. The tool defines its
options, for help, and calls this Python.
"""

import os
import signal
import sys


def main() -> None:
    if sys.argv[1:2] == ["tokenize"] and not {"-h", "--help"} & set(sys.argv[2:]):
        from evenkeel._tokenize.command import main as tokenize

        sys.exit(tokenize(sys.argv[2:]))
    tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "evenkeel")
    if not os.path.exists(tool):
        sys.exit(f"evenkeel: the tool was left out of this build: there is no {tool}")
    # Python ignores these signals. The tool, and commands that it runs, would inherit that.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    os.execv(tool, ["evenkeel", *sys.argv[1:]])


if __name__ == "__main__":
    main()
