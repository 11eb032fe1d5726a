"""Trackers of a run: TensorBoard, where it is installed, and W&B or MLflow, where `log` names one.

Each gets the configuration, the numbers of every evaluation, and the result. A resumed run goes on in the same record.
"""

import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from adamatch.base import ranks
from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError, Interruption, reason, unknown
from adamatch.base.files import write_atomically
from adamatch.base.regular_files import read_own
from adamatch.config.run import Run

T = TypeVar("T")
Track = Callable[[Mapping[str, Any]], None]  # takes an evaluation's row, and at the end one without a step: the result
End = Callable[[str], None]  # takes FINISHED, KILLED or FAILED


def check(log: str | None) -> None:
    """Whether there is such a tracker, before anything else is done."""
    if log is not None and log not in TRACKERS:
        raise unknown("tracker", log, TRACKERS)
    if log is not None and find_spec(log) is None:
        raise InputError(f"{argument('log', log)} needs {log}: pip install 'adamatch[{log}]'")


@contextmanager
def tracker(log: str | None, folder: Path, run: Run, start: int, warn: Callable[[str], None]) -> Iterator[Track]:
    """Gives the function that takes rows. Those after step `start`, of a run that is resumed, replace earlier ones.

    W&B and MLflow may fail on the way: that is a warning, and the run goes on. On ranks after the first: nothing.
    """
    tracks: list[Track] = []
    ends: list[End] = []
    if ranks.rank() == 0 and find_spec("tensorboard") is not None:
        tracks.append(_tensorboard(_made(folder / "events"), start))
    if ranks.rank() == 0 and log is not None:
        try:
            track, end = TRACKERS[log](_made(folder / "events"), run)
        except Exception as error:  # of many kinds: no key, no server, no disk
            raise InputError(f"{argument('log', log)} cannot begin ({reason(error)})") from None
        tracks.append(_guarded(track, log, warn))
        ends.append(_guarded(end, log, warn))

    def track_all(row: Mapping[str, Any]) -> None:
        for each in tracks:
            each(row)

    status = "FAILED"
    try:
        yield track_all
        status = "FINISHED"
    except (Interruption, KeyboardInterrupt):
        status = "KILLED"
        raise
    finally:
        for close in ends:
            close(status)


def _tensorboard(folder: Path, start: int) -> Track:
    """Events after step `start` replace earlier ones.

    TensorBoard's own writer has a thread, whose errors (a full disk, a removed folder) are tracebacks in the middle of
    the run, or make it hang; here they are raised.
    """
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    # TensorBoard reads files in the order of their names: a run may be resumed within a second.
    path = folder / f"events.out.tfevents.{time.time():.3f}.{socket.gethostname()}.{os.getpid()}.{start}"

    def write(**event: Any) -> None:
        with path.open("ab") as file:
            RecordWriter(file).write(Event(wall_time=time.time(), **event).SerializeToString())

    def track(row: Mapping[str, Any]) -> None:
        if "step" in row:
            values = [{"tag": name, "simple_value": value} for name, value in _numbers(row).items()]
            write(step=int(row["step"]), summary={"value": values})

    write(file_version="brain.Event:2")
    write(step=start + 1, session_log={"status": 1})  # START
    return track


def _wandb(folder: Path, run: Run) -> tuple[Track, End]:
    """In the mode, project and account of W&B's own settings."""
    import wandb

    settings = wandb.Settings(  # it gets what is logged here, and nothing else
        console="off",  # what is printed names files
        disable_git=True,
        save_code=False,
        silent=True,
        x_disable_meta=True,  # names of the machine, of its user and of folders
        x_disable_stats=True,
        x_save_requirements=False,
    )
    record = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "adamatch"),
        dir=folder,
        id=_kept(folder / "wandb.txt", lambda: uuid.uuid4().hex[:8]),
        resume="allow",
        reinit="create_new",  # beside what a notebook may have begun
        name=run.name,
        config=_facts(run),
        settings=settings,
    )

    def track(row: Mapping[str, Any]) -> None:
        if "step" in row:
            record.log(_numbers(row), step=int(row["step"]))
        else:
            record.summary.update(_numbers(row))

    return track, lambda status: record.finish(exit_code=0 if status == "FINISHED" else 1)


def _mlflow(folder: Path, run: Run) -> tuple[Track, End]:
    """Where MLflow's own settings say: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    client, experiment, last = MlflowClient(), os.environ.get("MLFLOW_EXPERIMENT_NAME", "adamatch"), 0

    def create() -> str:
        found = client.get_experiment_by_name(experiment)
        where = found.experiment_id if found else client.create_experiment(experiment)
        made: str = client.create_run(where, run_name=run.name).info.run_id
        client.log_batch(made, params=[Param(name, str(value)) for name, value in _flat(_facts(run)).items()])
        return made

    name = _kept(folder / "mlflow.txt", create)
    client.update_run(name, "RUNNING")

    def track(row: Mapping[str, Any]) -> None:
        nonlocal last
        last, now = int(row.get("step", last)), int(1000 * time.time())
        client.log_batch(name, [Metric(key, value, now, last) for key, value in _numbers(row).items()])

    return track, lambda status: client.set_terminated(name, status)


TRACKERS: dict[str, Callable[[Path, Run], tuple[Track, End]]] = {"wandb": _wandb, "mlflow": _mlflow}


def _guarded(function: Callable[[T], None], log: str, warn: Callable[[str], None]) -> Callable[[T], None]:
    """The same, until it fails once: a tracker's trouble is not the run's."""
    works = True

    def guarded(given: T) -> None:
        nonlocal works
        try:
            if works:
                function(given)
        except Exception as error:
            works = False
            warn(f"{log} failed and gets no more of this run, which goes on ({reason(error)})")

    return guarded


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def _kept(path: Path, create: Callable[[], str]) -> str:
    """The name of the tracker's record, kept beside the run: resumed, it goes on in the same one."""
    if not path.exists():
        write_atomically(path, create())
    return read_own(path).decode()


def _facts(run: Run) -> dict[str, Any]:
    """The configuration, without digests of images and the place of a file of weights."""
    facts = asdict(run) | {"id": run.id}
    if not run.weights.startswith("timm:"):
        facts["weights"] = Path(run.weights).name
    return {name: value for name, value in facts.items() if name not in ("digests", "test")}


def _flat(facts: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Settings inside of settings by names with a dot: recipe.lr."""
    found: dict[str, Any] = {}
    for name, value in facts.items():
        found |= _flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return found


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in row.items() if isinstance(value, float)}
