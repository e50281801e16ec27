import sys

from . import helper

print(__name__, __package__, __spec__.name, sys.argv[1:], sys.path[0], helper.where())
