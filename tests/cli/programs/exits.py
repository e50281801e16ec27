"""Ends as its first argument says."""

import os
import sys
import threading

kind = sys.argv[1]
print("ends by", kind)
if kind == "zero":
    sys.exit(0)
elif kind == "seven":
    sys.exit(7)
elif kind == "large":
    sys.exit(300)
elif kind == "negative":
    sys.exit(-1)
elif kind == "text":
    sys.exit("it's over: [red]über[/red]")
elif kind == "none":
    sys.exit(None)
elif kind == "bool":
    raise SystemExit(True)
elif kind == "object":
    raise SystemExit(["a", 1])
elif kind == "hard":
    sys.stdout.flush()
    os._exit(9)
elif kind == "abort":
    sys.stdout.flush()
    os.abort()
elif kind == "thread":
    worker = threading.Thread(target=sys.exit, args=(5,))
    worker.start()
    worker.join()
elif kind == "end":
    pass
