"""Heartbeats between the ranks of a run: one that dies or fails ends the others, with one line that names it."""

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Any

from rich.console import Console

from adamatch.base.console import say

BEAT = 1.0  # seconds between two heartbeats
SILENT = 20  # beats without one, after which a rank is dead. torchrun kills the others 30 seconds after it saw one die
SUSPECT = 5  # the same, where an exchange has failed already


class Heartbeat:
    """Two threads: one exchanges heartbeats over torch.distributed's store, one counts how long each rank is silent.

    They are two because the first may hang, when the machine that keeps the store goes down. Silence is counted in
    beats of this process, not read from a clock: clocks that jump, and a whole run that is put to sleep, do no harm.
    """

    def __init__(self, store: Any, rank: int, names: list[str]) -> None:
        self.store, self.spare = store.clone(), store.clone()  # a connection is for one thread
        self.rank, self.names = rank, names
        self.silent = {other: 0 for other in range(len(names)) if other != rank}
        self.limit = SILENT
        self.stopped = Event()

    def start(self) -> None:
        self.store.set(f"beat/{self.rank}", "0")
        for work in (self._exchange, self._watch):
            Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        self.stopped.set()

    def first_to_end(self, line: str) -> bool:
        """End the run for all ranks, for this reason. False if another rank has done so before."""
        mine = json.dumps({"rank": self.rank, "line": line})
        held = with_timeout(lambda: self.spare.compare_set("end", "", mine))
        if held is None:  # no reply: this rank prints the reason
            return True
        with_timeout(lambda: self._leave(self.spare))
        return bool(held.decode() == mine)

    def _exchange(self) -> None:
        seen = dict.fromkeys(self.silent, b"")
        beat = 0
        with suppress(RuntimeError):  # the store is gone: all ranks fall silent
            while not self.stopped.wait(BEAT):
                beat += 1
                self.store.set(f"beat/{self.rank}", str(beat))
                if self.store.check(["end"]):
                    self._follow(json.loads(self.store.get("end")))
                for other in self.silent:
                    now = self.store.get(f"beat/{other}")
                    if now != seen[other]:
                        seen[other], self.silent[other] = now, 0

    def _watch(self) -> None:
        while not self.stopped.wait(BEAT):
            for other in self.silent:
                self.silent[other] += 1
            dead = self._dead()
            if len(dead) == len(self.silent) and self.rank > 0:
                dead = [0]  # on whose machine the store is
            if dead:
                line = (
                    f"no sign of life from {' and '.join(self.names[each] for each in dead)}: the run stops here; "
                    "start all ranks again with the same command, it resumes from its last checkpoint"
                )
                end_process(line if self.first_to_end(line) else "")

    def _dead(self) -> list[int]:
        return [other for other, beats in self.silent.items() if beats > self.limit]

    def _follow(self, end: dict[str, Any]) -> None:
        """End with the rank that ended the run. Rank 0 prints its reason, too, if that was on another machine."""
        if end["rank"] == self.rank:
            return
        with_timeout(lambda: self._leave(self.store))
        elsewhere = self.names[end["rank"]].split()[-1] != self.names[self.rank].split()[-1]
        end_process(end["line"] if self.rank == 0 and elsewhere else "")

    def _leave(self, store: Any) -> None:
        """Rank 0, whose process may keep the store, stays until the others have left."""
        store.set(f"left/{self.rank}", "")
        if self.rank == 0:
            dead = self._dead()
            store.wait([f"left/{other}" for other in self.silent if other not in dead])


def with_timeout(call: Callable[[], Any]) -> Any:
    """A call with a timeout; None if it takes longer, or fails."""
    found: list[Any] = []

    def run() -> None:
        with suppress(RuntimeError):
            found.append(call())

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(3 * BEAT)
    return found[0] if found else None


def end_process(line: str = "") -> None:
    """End this process from any thread: the main one may wait for a dead rank for ever."""
    Console(stderr=True).show_cursor(True)  # a progress bar may have hidden it
    if line:
        say(f"error: {line}", stderr=True)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(1)
