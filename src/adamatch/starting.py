"""Ctrl-C while the command imports, which takes seconds: a quiet end, as at any other time. Other programs are left alone.

Imported before all else, it is in force.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

STOPPED = 130  # the exit code of what was ended by Ctrl-C


def quietly() -> None:
    """From now on Ctrl-C in the middle of an import ends the process at once, if it is the command."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual and threading.current_thread() is threading.main_thread() and _is_the_command():
        signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: FrameType | None) -> None:
    above = frame
    while above is not None:
        if above.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(STOPPED)  # an exception would come out of the middle of some library; nothing is under way that is lost
        above = above.f_back
    signal.default_int_handler(number, frame)


def _is_the_command() -> bool:
    """`adamatch ...` or `python -m adamatch ...`."""
    given = sys.orig_argv
    module = given[given.index("-m") + 1 :][:1] == ["adamatch"] if "-m" in given else False
    return module or (bool(sys.argv) and Path(sys.argv[0]).stem == "adamatch")


quietly()
