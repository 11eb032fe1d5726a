"""TensorBoard's events beside metrics.jsonl, where TensorBoard is installed."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from adamatch import ranks


class Events:
    """Writes every number of a row under `folder`; events after `start` are made anew.

    Does nothing without TensorBoard, nor on ranks after the first.
    """

    def __init__(self, folder: Path, start: int) -> None:
        self.writer: Any = None
        if ranks.rank() == 0 and find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter  # here: it takes a second

            self.writer = SummaryWriter(str(folder), purge_step=start + 1)

    def add(self, row: Mapping[str, Any]) -> None:
        if self.writer is not None:
            for name, value in row.items():
                if isinstance(value, float):
                    self.writer.add_scalar(name, value, int(row["step"]))

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
