import sys

from .helper import where

print(__name__, __package__, __spec__.name, sys.argv[1:], sys.path[0], where())
if len(sys.argv) > 1:
    raise ValueError("from a module")
