"""The training loop: feeds, steps, evaluations, checkpoints; from a checkpoint it goes on as if nothing had happened."""

import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from types import FrameType
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from adamatch import ranks
from adamatch.data.feed import Feed, Place
from adamatch.data.tasks import Labelled, Problem, Unlabelled
from adamatch.errors import InputError
from adamatch.methods.parts import Method
from adamatch.train import checkpoint
from adamatch.train.events import Events
from adamatch.train.folder import RunFolder
from adamatch.train.optim import learning_rate
from adamatch.train.progress import Progress
from adamatch.train.run import Recipe, Run
from adamatch.train.signals import warnings_of
from adamatch.train.speed import WARM_STEPS, Captured, Inputs, Machine
from adamatch.train.step import Step

MEDIAN_OF = 10  # the reported accuracy is the median of the last ten evaluations (section 4)
SECONDS_PER_CHECKPOINT = 30.0
ASK_EVERY = 8  # steps after which ranks ask each other whether one of them was told to stop

Evaluate = Callable[[nn.Module], dict[str, float]]


class Interruption(Exception):  # noqa: N818
    """The run was asked to stop and wrote a checkpoint."""


@dataclass
class History:
    """What a run has measured so far; saved with every checkpoint."""

    evaluations: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0  # of training, without evaluations and start-up
    wall: float = 0.0  # with them
    machines: list[str] = field(default_factory=list)  # one after the other, where it went on elsewhere
    at_a_time: int = 1  # the most runs that shared a GPU with it, itself counted

    def accuracy(self, name: str = "target") -> float | None:
        """Median of the last ten evaluations, in percent."""
        values = [row[name] for row in self.evaluations if name in row]
        return statistics.median(values[-MEDIAN_OF:]) if values else None


def train(
    run: Run,
    problem: Problem,
    folder: RunFolder,
    net: nn.Module,
    method: Method,
    *,
    machine: Machine,
    evaluate: Evaluate,
    progress: Progress,
    place: Place = "auto",
    seconds_per_checkpoint: float = SECONDS_PER_CHECKPOINT,
) -> tuple[nn.Module, History]:
    """Train `net` with `method` on the problem's pools; returns the averaged network and what was measured on the way."""
    recipe, device = run.recipe, machine.device
    step = Step(net, method, recipe, machine, progress.say)
    captured = Captured(step, machine)
    classes = len(problem.classes)
    feeds = feeds_of(run, problem, method, device, place)
    progress.say(f"images wait on: {', '.join(dict.fromkeys(feed.place for feed in feeds))}")
    generator = torch.Generator(device).manual_seed(run.seed)
    history, start = History(), 0

    found = ranks.from_first(lambda: checkpoint.load(folder.checkpoints, progress.warn))
    if found is not None:
        tensors, facts = found
        if not _restored(generator, tensors.pop("generator"), run.seed + facts["step"]):
            progress.say(
                f"the run was on another kind of device before and is on {device.type} now: its draws are others from here on, "
                "and it is not the same bit for bit"
            )
        step.restore(tensors)
        for feed in feeds:
            feed.seek(facts["step"])
        kept = {each.name: facts[each.name] for each in fields(History) if each.name in facts}
        history, start = History(**kept), facts["step"]
        progress.say(f"going on from step {start} of {recipe.last_step}")
        if facts.get("ranks", 1) != ranks.count():
            progress.say(
                f"the run was on {facts.get('ranks', 1)} ranks before and is on {ranks.count()} now: it takes sums in another "
                "order, and is not the same bit for bit"
            )
    before, entered = history.wall, time.monotonic()
    history.machines = list(dict.fromkeys([*history.machines, str(machine)]))
    history.at_a_time = max(history.at_a_time, machine.at_a_time)
    folder.rewind(start)
    events = Events(folder.path / "events", start)

    def save(done: int) -> None:
        if ranks.rank() > 0:
            return  # all ranks have the same state
        history.wall = before + time.monotonic() - entered
        facts = asdict(history) | {"ranks": ranks.count()}
        try:
            checkpoint.save(folder.checkpoints, done, step.state() | {"generator": generator.get_state()}, facts)
        except (OSError, SafetensorError) as error:
            reason = "the disk is full" if checkpoint.disk_is_full(error) else str(error)
            raise InputError(
                f"{folder.checkpoints}: the checkpoint of step {done} could not be written ({reason}): make room and resume; "
                "the one before it is whole"
            ) from None

    with _stop_signals() as stopped:
        began = saved = time.monotonic()
        for done in range(start, recipe.last_step):
            if machine.graph and done == start + WARM_STEPS + 1:
                torch.cuda.synchronize(device)
                progress.say(f"compiled and captured in {time.monotonic() - began:.0f} s")
                began = time.monotonic()  # what went before compiled and captured the step
            captured(inputs_of(run, done, feeds, len(problem.labelled), generator, classes, step.views.draws))
            last = done + 1 == recipe.last_step
            if (done + 1) % recipe.evaluate_every == 0 or last:
                row = _measured(step, done + 1, start, folder)
                step.meter.clear()
                history.seconds += time.monotonic() - began
                row |= {
                    "step": done + 1,
                    "images": (done + 1) * recipe.batch,
                    "seconds": history.seconds,
                    **evaluate(step.average),
                }
                history.evaluations.append({key: value for key, value in row.items() if isinstance(value, (int, float))})
                folder.append(row)
                events.add(row)
                # In the first quarter, while unlabelled images hardly count, every run looks like trouble.
                progress.report(row, warnings_of(row, problem.classes) if 4 * done > recipe.last_step else [])
                began = time.monotonic()
                if last or began - saved > seconds_per_checkpoint:
                    save(done + 1)
                    began = saved = time.monotonic()
            elif progress.due(done + 1 - start):
                progress.step(done + 1, step.meter.read()[0])
            if _agreed(stopped, done + 1, last):
                if not last:
                    _measured(step, done + 1, start, folder)  # a spoilt network is not saved
                    history.seconds += time.monotonic() - began
                    save(done + 1)
                raise Interruption(f"stopped at step {done + 1} of {recipe.last_step}, all of it saved in {folder.path}")
    events.close()
    history.wall = before + time.monotonic() - entered
    return step.average.net, history


def feeds_of(run: Run, problem: Problem, method: Method, device: torch.device, place: Place) -> list[Feed]:
    """A feed for each labelled pool, then the unlabelled one's where the method looks at it."""
    classes, recipe = len(problem.classes), run.recipe
    pools: list[tuple[Labelled | Unlabelled, int]] = list(zip(problem.labelled, labelled_counts(recipe, problem), strict=True))
    if method.unlabelled:
        pools.append((problem.unlabelled, recipe.batch * recipe.uratio))
    return [
        Feed(pool, batch=count, classes=classes, seed=run.seed * 10 + number, device=device, place=place)
        for number, (pool, count) in enumerate(pools)
    ]


def labelled_counts(recipe: Recipe, problem: Problem) -> list[int]:
    """How many images of each labelled pool are in a step: a batch, or, of a small pool after the first, each image once.

    (Of several ranks, as many as they can share evenly.)
    """
    shared = ranks.count()
    small = [recipe.batch if recipe.repeat else max(shared, len(pool) // shared * shared) for pool in problem.labelled[1:]]
    return [recipe.batch, *(min(recipe.batch, count) for count in small)]


def inputs_of(
    run: Run, done: int, feeds: list[Feed], labelled: int, generator: torch.Generator, classes: int, draws: int
) -> Inputs:
    """The next step's input, from `labelled` feeds with labels and perhaps one without: all of its randomness is drawn here.

    Every rank draws for all ranks, from the same seed, and takes its rows: together they do what one process would.
    """
    batches = [feed.next() for feed in feeds]
    x_sl = torch.cat([images for images, _ in batches[:labelled]])
    y_sl = torch.cat([labels for _, labels in batches if labels is not None])
    x_tu = batches[labelled][0] if len(batches) > labelled else x_sl[:0]
    progress = done / run.recipe.steps
    n_sl, n_tu, device = len(x_sl) * ranks.count(), len(x_tu) * ranks.count(), generator.device
    return Inputs(
        x_sl=x_sl,
        y_sl=y_sl,
        x_tu=x_tu,
        u=ranks.share(torch.rand(2 * n_sl + n_tu, draws, generator=generator, device=device)),
        lam=ranks.share(torch.rand(2 * n_sl, classes, generator=generator, device=device)),
        progress=torch.full((), progress, device=device),
        lr=torch.full((), learning_rate(run.recipe.lr, run.recipe.lr_end, progress), device=device),
    )


def _restored(generator: torch.Generator, state: torch.Tensor, seed: int) -> bool:
    """Whether the generator goes on from a state; that of another kind of device means nothing to it, and it starts anew."""
    if len(state) == len(generator.get_state()):
        generator.set_state(state)
        return True
    generator.manual_seed(seed)
    return False


def _measured(step: Step, done: int, start: int, folder: RunFolder) -> dict[str, Any]:
    """The metrics since the last evaluation; a loss or a network that is not finite ends the run."""
    metrics, bad = step.meter.read(together=True)
    spoilt = f"the loss is not finite since step {start + bad + 1}" if bad >= 0 else ""
    if not spoilt and not step.finite():
        spoilt = f"the network is not finite at step {done}"
    if spoilt:
        raise InputError(
            f"{spoilt}: the learning rate is likely too high here (try a smaller --lr); the last good checkpoint is "
            f"{checkpoint.newest(folder.checkpoints) or 'none: it happened too early'}"
        )
    return dict(metrics)


def _agreed(stopped: list[int], done: int, last: bool) -> bool:
    """Whether the run is to stop after this step, on all ranks."""
    if ranks.count() == 1:
        return bool(stopped)
    return (last or done % ASK_EVERY == 0) and bool(ranks.total(torch.tensor(len(stopped))))


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """SIGINT and SIGTERM are noted in the list, for the loop to stop after its step."""
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
