"""`python -m orchestrator COMMAND ...` is the console script `orchestrator`."""

import sys

from orchestrator.run import console

if __name__ == "__main__":
    sys.exit(console())
