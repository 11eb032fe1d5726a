"""TensorBoard's events beside metrics.jsonl, where TensorBoard is installed."""

import os
import socket
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from adamatch.base import ranks


class Events:
    """Writes every number of a row under `folder`; events after step `start` replace earlier ones.

    Does nothing without TensorBoard, nor on ranks after the first. TensorBoard's own writer has a thread, whose errors
    (a full disk, a removed folder) are tracebacks in the middle of the run, or make it hang; here `add` raises them.
    """

    def __init__(self, folder: Path, start: int) -> None:
        self.path: Path | None = None
        if ranks.rank() == 0 and find_spec("tensorboard") is not None:
            folder.mkdir(exist_ok=True)
            # TensorBoard reads files in the order of their names: a run may be resumed within a second.
            self.path = folder / f"events.out.tfevents.{time.time():.3f}.{socket.gethostname()}.{os.getpid()}.{start}"
            self._write(self.path, file_version="brain.Event:2")
            self._write(self.path, step=start + 1, session_log={"status": 1})  # START

    def add(self, row: Mapping[str, Any]) -> None:
        if self.path is not None:
            values = [{"tag": name, "simple_value": value} for name, value in row.items() if isinstance(value, float)]
            self._write(self.path, step=int(row["step"]), summary={"value": values})

    def _write(self, path: Path, **event: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        with path.open("ab") as file:
            RecordWriter(file).write(Event(wall_time=time.time(), **event).SerializeToString())
