"""Ctrl-C and SIGTERM while something is trained: it stops after its step, on all ranks after the same, and is saved."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from adamatch.base import ranks

ASK_EVERY = 8  # steps after which ranks ask each other whether one of them was told to stop


@contextmanager
def signals() -> Iterator[list[int]]:
    """SIGINT and SIGTERM are noted in the list, for a loop to stop after its step."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: signals are somebody else's
        before = {}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def agreed(stopped: list[int], done: int, last: bool) -> bool:
    """Whether the run is to stop after this step, on all ranks."""
    if ranks.count() == 1:
        return bool(stopped)
    return (last or done % ASK_EVERY == 0) and bool(ranks.total(torch.tensor(len(stopped))))
