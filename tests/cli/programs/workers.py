"""Functions and classes of the main program, in worker processes of every kind."""

import multiprocessing
import os
import pickle
import subprocess
import sys


class Thing:
    def __init__(self, value):
        self.value = value


def double(thing):
    return thing.value * 2, __name__, sorted(name for name in os.environ if "UNSTUCK" in name or name == "PYTHONPATH")


def child():
    print("forked child", flush=True)
    sys.exit(6)


if __name__ == "__main__":
    print("pickled as", pickle.loads(pickle.dumps(Thing)).__module__)
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, pool.map(double, [Thing(value) for value in range(3)]))
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    print("exit code", process.exitcode)
    command = [sys.executable, "-c", "import os, sys; print(sorted(n for n in os.environ if 'UNSTUCK' in n), sys.path)"]
    print(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    sys.stdout.flush()
    if os.fork() == 0:
        print("a child that ends like a program")
        sys.exit(0)
    print("status", os.wait()[1])
