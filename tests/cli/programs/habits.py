"""Things that scripts do to their own surroundings."""

import argparse
import inspect
import linecache
import os
import sys
import tempfile
import warnings

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1)
parser.add_argument("--json")
print(parser.format_usage(), parser.parse_args(), end="\n")


def function():
    """Its source can be read."""
    warnings.warn("shown with the caller's line", stacklevel=2)
    warnings.warn("shown with a line beyond the module's", stacklevel=4)


function()
print(inspect.getsource(function), linecache.getline(__file__, 1), inspect.getmodule(function).__name__)
print("stdin", sys.stdin.read())
sys.argv = ["something", "else"]
os.chdir(tempfile.gettempdir())
os.environ["PYTHONPATH"] = "changed"
print("after", sys.argv, os.getcwd())
