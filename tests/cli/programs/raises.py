"""An uncaught exception: as its first argument says."""

import sys


class Custom(Exception):
    def __str__(self):
        return "several\nlines of [bold]text[/bold]"


def inner(value):
    return 1 / value


def outer():
    try:
        inner(0)
    except ZeroDivisionError as error:
        raise Custom from error


def context():
    try:
        inner(0)
    except ZeroDivisionError:
        {}["missing"]


def noted():
    error = ValueError("with a note")
    error.__notes__ = ["a note", "another"]
    raise error


def failing_hook(kind, error, trace):
    raise RuntimeError("the hook fails")


def own_hook(kind, error, trace):
    names = []
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    print("own hook", kind.__name__, names)


def recursion():
    recursion()


kind = sys.argv[1]
if kind == "hook":
    sys.excepthook = own_hook
elif kind == "failing-hook":
    sys.excepthook = failing_hook
{
    "cause": outer,
    "context": context,
    "note": noted,
    "hook": outer,
    "failing-hook": outer,
    "recursion": recursion,
    "interrupt": lambda: (_ for _ in ()).throw(KeyboardInterrupt),
    "group": lambda: (_ for _ in ()).throw(__builtins__.ExceptionGroup("several", [ValueError(1), TypeError(2)])),
    "generator-exit": lambda: (_ for _ in ()).throw(GeneratorExit),
}[kind]()
