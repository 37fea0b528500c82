"""The tool, as `evenkeel` and as `python -m evenkeel`: the program that lies beside this file."""

import os
import sys


def main() -> None:
    tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "evenkeel")
    if not os.path.exists(tool):
        sys.exit(f"evenkeel: the tool was left out of this build: there is no {tool}")
    os.execv(tool, ["evenkeel", *sys.argv[1:]])


if __name__ == "__main__":
    main()
