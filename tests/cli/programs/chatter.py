"""Megabytes of output on both streams."""

import sys

for number in range(40_000):
    print(f"line {number} [red]{'x' * 40}\x1b[0m")
sys.stdout.write("no newline at the end")
sys.stderr.write("error \x00\x07\n")
