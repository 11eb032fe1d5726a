"""The training loop: batches, steps, evaluations, checkpoints; a resumed run equals an uninterrupted one."""

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Self

import torch
from torch import Tensor, nn

from adamatch.base import ranks
from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError, Interruption
from adamatch.config.run import Run
from adamatch.images.tasks import Problem
from adamatch.train import checkpoint, memory
from adamatch.train.batches import Batches
from adamatch.train.execution import Execution, stop_agreed, stop_signals
from adamatch.train.meter import warnings_of
from adamatch.train.progress import Progress
from adamatch.train.run_folder import RunFolder
from adamatch.train.speed import WARM_STEPS, Captured
from adamatch.train.step import Step
from adamatch.train.trackers import Track, tracker

MEDIAN_OF = (
    10  # the reported accuracy is the median of the last ten evaluations (section 4), but never of more than a quarter
)
NO_METRICS: Mapping[str, Tensor] = MappingProxyType({})

Evaluate = Callable[[nn.Module, int], dict[str, float]]  # the averaged network, and after how many steps


@dataclass
class History:
    """What a run has measured so far; saved with every checkpoint."""

    evaluations: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0  # of training, without evaluations and start-up
    wall: float = 0.0  # with them, and with what came before the first step
    machines: list[str] = field(default_factory=list)  # several, if it was resumed on another machine
    at_a_time: int = 1  # the most runs that shared a GPU with it, itself counted

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """From a checkpoint's facts."""
        return cls(**{each.name: facts[each.name] for each in fields(cls)})

    @property
    def median_of(self) -> int:
        """How many evaluations count at the end: ten, or the last quarter, rounded up, of fewer than forty."""
        taken = sum(row.get("step") != 0 for row in self.evaluations)
        return max(1, min(MEDIAN_OF, -(-taken // 4)))

    def accuracy(self, name: str = "target") -> float | None:
        """Median of the last evaluations, in percent."""
        values = [row[name] for row in self.evaluations if name in row]
        return statistics.median(values[-self.median_of :]) if values else None


def train(
    run: Run, problem: Problem, folder: RunFolder, step: Step, evaluate: Evaluate, execution: Execution
) -> tuple[nn.Module, History]:
    """Take the run's steps on the problem's pools; returns the averaged network and what was measured on the way."""
    recipe, machine = run.recipe, execution.machine
    captured, batches = Captured(step, machine), Batches(run, problem, step, execution)
    with Progress(recipe, execution) as progress, stop_signals() as stopped, ExitStack() as opened:
        if not execution.brief:
            execution.say(f"images are read {batches.places}")
        if recipe.last_step:  # a linear probe alone takes none
            memory.check(step, recipe, problem, execution.warn)
        history, start = _resumed(folder, step, batches, execution)
        history.machines = list(dict.fromkeys([*history.machines, str(machine)]))
        history.at_a_time = max(history.at_a_time, machine.at_a_time)
        folder.rewind(start or -1)  # the first evaluation is of step 0
        track = opened.enter_context(tracker(execution.log, folder.path, run, start, execution.warn))
        before, entered = history.wall, execution.began
        began = saved = time.monotonic()
        if start == 0 and (recipe.linear_probe_init or not recipe.last_step):
            _evaluated({"step": 0, "images": 0, "seconds": 0.0}, step, evaluate, history, folder, track)
            began = time.monotonic()
        for done in range(start + 1, recipe.last_step + 1):
            if machine.graph and done == start + WARM_STEPS + 2:
                torch.cuda.synchronize(machine.device)
                execution.say(f"the training step was compiled in {time.monotonic() - began:.0f} s")
                began = time.monotonic()  # what went before compiled and captured the step
                progress.begin()
            captured(batches.next(done - 1))
            last, due = done == recipe.last_step, progress.due(done)
            if done % recipe.evaluate_every == 0 or last:
                row = _measured(step, done, start, folder)
                folder.check()
                step.meter.clear()
                history.seconds += time.monotonic() - began
                row |= {"step": done, "images": done * recipe.batch, "seconds": history.seconds}
                row = _evaluated(row, step, evaluate, history, folder, track)
                # In the first quarter, while unlabelled images hardly count, every run looks like trouble.
                progress.report(row, warnings_of(row, problem.classes) if 4 * (done - 1) > recipe.last_step else [])
                began = time.monotonic()
                history.wall = before + began - entered
                if last or began - saved > execution.seconds_per_checkpoint:  # by each rank's own clock
                    _save(folder, done, step, batches, history)
                    began = saved = time.monotonic()
            elif due:
                progress.step(done, step.meter.read()[0])
            if stop_agreed(stopped, done, last):
                if not last:
                    _measured(step, done, start, folder)  # a network with nan or inf is not saved
                    history.seconds += time.monotonic() - began
                    history.wall = before + time.monotonic() - entered
                    _save(folder, done, step, batches, history, step.meter.state())
                raise Interruption(f"stopped at step {done} of {recipe.last_step}, all of it saved in {folder.path}")
        history.wall = before + time.monotonic() - entered
        track({"accuracy": history.accuracy("target"), "source_accuracy": history.accuracy("source")})
    return step.average.net, history


def _evaluated(
    row: dict[str, Any], step: Step, evaluate: Evaluate, history: History, folder: RunFolder, track: Track
) -> dict[str, Any]:
    """A row of metrics with the evaluation of its step, written down."""
    row = row | evaluate(step.average, row["step"])
    history.evaluations.append({key: value for key, value in row.items() if isinstance(value, (int, float))})
    folder.append(row)
    track(row)
    return row


def _resumed(folder: RunFolder, step: Step, batches: Batches, execution: Execution) -> tuple[History, int]:
    """What was measured and how many steps were done before: those of the newest checkpoint, or nothing."""
    found = ranks.from_first(lambda: checkpoint.load(folder.checkpoints, execution.warn))
    if found is None:
        return History(), 0
    tensors, facts = found
    start = facts["step"]
    try:
        history = History.of(facts)
        if not 0 <= start <= batches.run.recipe.last_step:
            raise ValueError(f"it has no step {start}")
        same_device = batches.seek(start, tensors.pop("generator"))
        step.restore(tensors)
        step.meter.restore(tensors)
        checkpoint.set_randoms(tensors, step.machine.device)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        why = str(error).strip().splitlines()[-1].strip()
        raise InputError(
            f"{folder.checkpoints} holds a checkpoint that this run cannot have written ({why}): "
            f"give {argument('overwrite', True)} to begin "
            "anew"
        ) from None
    if not same_device:
        execution.say(
            f"the run was on another kind of device before, now on {step.machine.device.type}: its draws differ from "
            "here on, and it is not the same bit for bit"
        )
    execution.say(f"resuming from step {start} of {batches.run.recipe.last_step}")
    if facts.get("ranks", 1) != ranks.count():
        execution.say(
            f"the run was on {facts.get('ranks', 1)} ranks before and is on {ranks.count()} now: "
            "it takes sums in another order, and is not the same bit for bit"
        )
    return history, start


def _save(
    folder: RunFolder,
    done: int,
    step: Step,
    batches: Batches,
    history: History,
    metrics: Mapping[str, Tensor] = NO_METRICS,
) -> None:
    """`metrics` are those since the last evaluation, of all ranks."""
    if ranks.rank() > 0:
        return  # all ranks have the same state
    folder.check()
    tensors = {**step.state(), **metrics, "generator": batches.generator.get_state()}
    tensors |= checkpoint.randoms(step.machine.device)
    checkpoint.save(folder.checkpoints, done, tensors, asdict(history) | {"ranks": ranks.count()})


def _measured(step: Step, done: int, start: int, folder: RunFolder) -> dict[str, Any]:
    """The metrics since the last evaluation; a loss or a network that is not finite ends the run."""
    metrics, bad = step.meter.read(together=True)
    spoilt = f"the loss is not finite since step {start + bad + 1}" if bad >= 0 else ""
    if not spoilt and not step.finite():
        spoilt = f"the network is not finite at step {done}"
    if spoilt:
        raise InputError(
            f"{spoilt}: the learning rate is likely too high (try a smaller {argument('lr')}); "
            f"the last good checkpoint is {checkpoint.newest(folder.checkpoints) or 'none: it happened too early'}"
        )
    return dict(metrics)
