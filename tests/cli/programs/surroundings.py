"""What a script can see of the way in which it was started."""

import inspect
import os
import sys

print("argv", sys.argv, sys.orig_argv)
print("path", sys.path)
print("main", {name: repr(value) for name, value in globals().items() if name not in ("__builtins__", "__loader__")})
print("loader", type(__loader__), type(__builtins__), sys.modules["__main__"].__dict__ is globals())
print("flags", sys.flags, sys.warnoptions, sys._xoptions)
print("environment", sorted(item for item in os.environ.items() if item[0] != "UNSTUCK_TEST"))
print("folder", os.getcwd(), os.umask(0))
print("stack", len(inspect.stack()), sys.getrecursionlimit())
ours = ("unstuck", "atexit", "gc", "__future__")
print("modules", [name for name in sys.modules if name.partition(".")[0] not in ours])
print("hooks", sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.path_hooks)
print("streams", [(stream.fileno(), stream.encoding, stream.line_buffering) for stream in (sys.stdin, sys.stdout)])


def depth(count=0):
    try:
        return depth(count + 1)
    except RecursionError:
        return count


print("depth", depth())
