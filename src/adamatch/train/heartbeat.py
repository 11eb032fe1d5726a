"""Signs of life between the ranks of a run: one that dies or gives up ends the others, with one line that names it."""

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Any

from rich.console import Console

from adamatch.base.errors import shown

BEAT = 1.0  # seconds between two signs of life
SILENT = 20  # beats without one, after which a rank is dead. torchrun kills the others 30 seconds after it saw one die
SUSPECT = 5  # the same, where an exchange has failed already


class Pulse:
    """Two threads: one exchanges signs of life over torch.distributed's store, the other counts how long each rank is silent.

    They are two because the first may hang, when the machine that keeps the store goes down. Silence is counted in beats of
    this process, not read from a clock: clocks that jump, and a whole run that is put to sleep, do no harm.
    """

    def __init__(self, store: Any, rank: int, names: list[str]) -> None:
        self.store, self.rank, self.names = (
            store.clone(),
            rank,
            names,
        )  # a connection of its own: each is for one thread
        self.spare = store.clone()
        self.silent = {other: 0 for other in range(len(names)) if other != rank}
        self.limit = SILENT
        self.gone = Event()

    def start(self) -> None:
        self.store.set(f"beat/{self.rank}", "0")
        for work in (self._talk, self._judge):
            Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        self.gone.set()

    def first_to_end(self, line: str) -> bool:
        """End the run for all ranks, for this reason; whether no other rank did so before, and said why."""
        mine = json.dumps({"rank": self.rank, "line": line})
        held = answer(lambda: self.spare.compare_set("end", "", mine))
        if held is None:  # no answer: somebody has to say it
            return True
        answer(lambda: self._part(self.spare))
        return bool(held.decode() == mine)

    def _talk(self) -> None:
        seen = dict.fromkeys(self.silent, b"")
        beat = 0
        with suppress(RuntimeError):  # the store is gone: all ranks fall silent
            while not self.gone.wait(BEAT):
                beat += 1
                self.store.set(f"beat/{self.rank}", str(beat))
                if self.store.check(["end"]):
                    self._follow(json.loads(self.store.get("end")))
                for other in self.silent:
                    now = self.store.get(f"beat/{other}")
                    if now != seen[other]:
                        seen[other], self.silent[other] = now, 0

    def _judge(self) -> None:
        while not self.gone.wait(BEAT):
            for other in self.silent:
                self.silent[other] += 1
            dead = self._dead()
            if len(dead) == len(self.silent) and self.rank > 0:
                dead = [0]  # on whose machine the store is
            if dead:
                line = (
                    f"no sign of life from {' and '.join(self.names[each] for each in dead)}: the run stops here; start all "
                    "ranks again with the same command, it resumes from its last checkpoint"
                )
                leave(line if self.first_to_end(line) else "")

    def _dead(self) -> list[int]:
        return [other for other, beats in self.silent.items() if beats > self.limit]

    def _follow(self, end: dict[str, Any]) -> None:
        """Another rank has ended the run, and has said why on its machine; if that is another one, rank 0 says it here too."""
        if end["rank"] == self.rank:
            return
        answer(lambda: self._part(self.store))
        elsewhere = self.names[end["rank"]].split()[-1] != self.names[self.rank].split()[-1]
        leave(end["line"] if self.rank == 0 and elsewhere else "")

    def _part(self, store: Any) -> None:
        """Take leave. Rank 0, whose process may keep the store, stays until the others have done so."""
        store.set(f"left/{self.rank}", "")
        if self.rank == 0:
            dead = self._dead()
            store.wait([f"left/{other}" for other in self.silent if other not in dead])


def answer(call: Callable[[], Any]) -> Any:
    """What a call gives that may hang; None if it does, or fails."""
    found: list[Any] = []

    def ask() -> None:
        with suppress(RuntimeError):
            found.append(call())

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(3 * BEAT)
    return found[0] if found else None


def leave(line: str = "") -> None:
    """End this process from any thread: the main one may wait for a dead rank, and never come back."""
    console = Console(stderr=True)
    console.show_cursor(True)  # a progress bar may have hidden it
    if line:
        console.print(f"error: {shown(line)}", markup=False, emoji=False, highlight=False, soft_wrap=True)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(1)
