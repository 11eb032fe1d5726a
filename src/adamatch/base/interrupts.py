"""Ctrl-C while the command imports, which takes seconds: it ends at once, without a traceback.

In force from the import of this module, which comes before all others, until something is under way (`working`). Other
programs that import the package are left alone.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from adamatch.base.errors import Interruption

STOPPED = 130  # the exit code after Ctrl-C


def quietly() -> None:
    """From now on Ctrl-C in the middle of an import ends the process at once, if it is the command."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual and threading.current_thread() is threading.main_thread() and _is_the_command():
        signal.signal(signal.SIGINT, _end)


@contextmanager
def working(run: Path | None = None) -> Iterator[None]:
    """Something is under way, perhaps a run in its folder: Ctrl-C in an import is an ordinary interruption again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        if run is None:
            raise
        finished = (run / "result.json").is_file()
        raise Interruption("stopped" + (f", the model is finished and is in {run}" if finished else "")) from None


def _end(number: int, frame: FrameType | None) -> None:
    above = frame
    while above is not None:
        if above.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(STOPPED)  # an exception would come out of the middle of some library
        above = above.f_back
    signal.default_int_handler(number, frame)


def _is_the_command() -> bool:
    """`adamatch ...` or `python -m adamatch ...`."""
    line = sys.orig_argv
    module = "-m" in line and line[line.index("-m") + 1 :][:1] == ["adamatch"]
    return module or (bool(sys.argv) and Path(sys.argv[0]).stem == "adamatch")


quietly()
