"""Threads that outlive the main program, atexit handlers, finalisers: in which order, and what they still see."""

import atexit
import sys
import threading
import time


class Dying:
    def __del__(self):
        sys.stdout.write("deleted\n")


def handler(name):
    print("atexit", name, "__file__" in globals(), threading.current_thread().name)


def slow():
    time.sleep(0.2)
    print("thread", "__file__" in globals(), __name__ in sys.modules)
    atexit.register(handler, "registered by a thread")


dying = Dying()
atexit.register(handler, "first")
atexit.register(handler, "second")
atexit.register(lambda: sys.exit(4))
threading.Thread(target=slow, name="slow").start()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("main ends")
