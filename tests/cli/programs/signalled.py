"""Waits for a signal; the first argument says what it does about it."""

import atexit
import os
import signal
import sys
import time

kind = sys.argv[1]
atexit.register(print, "atexit")
if kind == "handler":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: (print("got", number), sys.exit(11)))
elif kind == "ignore":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("blocked", signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.getsignal(signal.SIGCHLD))
print("ready", flush=True)
try:
    if kind == "self":
        os.kill(os.getpid(), int(sys.argv[2]))
    time.sleep(2 if kind == "ignore" else 60)
finally:
    print("finally", flush=True)
