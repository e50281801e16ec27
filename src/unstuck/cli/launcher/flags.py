"""The flags that the user gave to Python itself: with ``python -O -m unstuck run ...`` the script gets ``-O``."""

from __future__ import annotations

__all__ = ["interpreter_flags"]


def interpreter_flags(original: list[str]) -> list[str]:
    """The interpreter's own options in ``sys.orig_argv``: all before ``-m``, ``-c`` or the script.

    Settings that come by environment variables aren't among them; the script's interpreter reads those itself.
    """
    flags: list[str] = []
    arguments = iter(original[1:])
    for argument in arguments:
        if not argument.startswith("-") or argument in ("-", "--"):
            break
        if argument.startswith("--"):
            flags.append(argument)
            if argument == "--check-hash-based-pycs":
                flags += [next(arguments)]
            continue
        # Single letters may stand together; the value of -W and -X follows, in the same word or as the next one.
        position = next((index for index, letter in enumerate(argument) if letter in "cmWX"), None)
        if position is None:
            flags.append(argument)
        elif argument[position] in "cm":
            flags += [argument[:position]] if position > 1 else []
            break
        else:
            flags.append(argument)
            if position == len(argument) - 1:
                flags += [next(arguments)]
    return flags
