"""What Windows lacks, taken away: before adamatch is imported, or for whole tests by `pytest -p no_posix`."""

import os
import sys

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty")
FUNCTIONS = (
    "fork",
    "forkpty",
    "posix_fallocate",
    "sched_getaffinity",
    "sysconf",
    "getuid",
    "geteuid",
    "killpg",
    "setsid",
)

import concurrent.futures.process  # noqa: E402, F401  # the standard library asks its own questions at its first import
import multiprocessing.util  # noqa: E402, F401
import subprocess  # noqa: E402, F401
import tempfile  # noqa: E402, F401

import torch  # noqa: E402, F401

for name in MODULES:
    sys.modules[name] = None  # type: ignore[assignment]
for name in FUNCTIONS:
    if hasattr(os, name):
        delattr(os, name)
