"""Memory: an estimate of what a step needs, and errors with a remedy where it is not enough."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from adamatch.base import ranks
from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError, is_out_of_memory
from adamatch.config.recipe import Recipe
from adamatch.images.feed import choose_place, free_host
from adamatch.images.tasks import Labelled, Problem, Unlabelled
from adamatch.methods.contract import Batch, Method
from adamatch.networks.norm import keep_statistics
from adamatch.train.batches import labelled_counts
from adamatch.train.speed import Machine
from adamatch.train.step import Step

TRIED = 2  # labelled images in the step that is measured; larger steps are in proportion
VIEWS = 8  # float32 copies of the images while views are made
BACKWARD = 1.2  # the backward pass frees activations, and needs room for gradients meanwhile
HALF = 0.5  # in bf16; measured with kernels and compilation: 0.37 to 0.43
PER_PIXEL = 2**16  # bytes, an upper bound for any network: where that fits, nothing is measured
FILLED = 0.8  # part of the free memory that a chosen batch may fill
SURELY = 1.5  # a step of more than this times the free memory is refused; below, there is a warning


class Need(NamedTuple):
    """Peak memory of a step in bytes, without the network and its average."""

    fixed: int
    each: int  # for each labelled image, with the unlabelled ones that go with it

    def of(self, batch: int) -> int:
        return self.fixed + batch * self.each

    def largest(self, room: int) -> int:
        """The largest power of two that fits as a batch; 0 where none does."""
        most = (room - self.fixed) // self.each
        return 1 << most.bit_length() - 1 if most > 0 else 0


def need(net: nn.Module, method: Method, recipe: Recipe, problem: Problem, machine: Machine) -> Need | None:
    """What a step needs, from a forward pass on the meta device; `net` and `method` are not changed.

    None for a user's network whose forward pass depends on values.
    """
    batches = sum(labelled_counts(recipe, problem.labelled, len(problem.classes))) / recipe.batch
    labelled, unlabelled = max(TRIED, round(TRIED * batches)), TRIED * recipe.uratio if method.unlabelled else 0
    *_, height, width, channels = problem.labelled[0].parts[0].shape
    batch = _empty_batch(labelled, unlabelled, (channels, height, width), len(problem.classes))
    try:
        with torch.random.fork_rng(devices=[]):
            meta_net, meta_method = _on_meta(net).train(), _on_meta(method)
            if recipe.batch_norm == "kept":
                keep_statistics(meta_net)
            saved = max(_saved_bytes(meta_net, meta_method, phase, batch) for phase in range(len(method.phases)))
    except Exception:  # whatever a user's module may raise
        return None
    weights = sum(each.nbytes for each in net.parameters() if each.requires_grad)
    moments = len(method.phases) * (2 if recipe.optimiser == "adamw" else 1)
    half = HALF if machine.precision == "bf16" else 1.0
    images = batch.x_sl_w.nbytes + batch.x_tu_w.nbytes
    return Need((1 + moments) * weights, max(1, round((saved * BACKWARD * half + images * VIEWS) / TRIED)))


def check(step: Step, recipe: Recipe, problem: Problem, warn: Callable[[str], None]) -> None:
    """Refuse a run whose step cannot fit, and warn of one that may not; naming a batch that would."""
    room, batch = free(step.machine.device), recipe.batch // ranks.count()
    if _fits_by_far(step.net, recipe, room):
        return
    needed = need(step.net, step.method, recipe, problem, step.machine)
    if needed is None or needed.of(batch) <= room:
        return
    smaller = needed.largest(room) * ranks.count()
    remedy = f"{argument('batch')} {smaller} would" if smaller else f"a smaller network or {argument('size')} may"
    line = (
        f"a step of {recipe.batch} labelled images needs about {needed.of(batch) / 2**30:,.1f} GiB of memory, "
        f"and {room / 2**30:,.1f} GiB are free: {remedy} fit"
    )
    if needed.of(batch) > SURELY * room:
        raise InputError(line)
    warn(line)


def fitting(net: nn.Module, method: Method, recipe: Recipe, problem: Problem, machine: Machine) -> int:
    """The recipe's batch, or the largest below it whose step fits the free memory of every rank; at least 1 for each.

    Nothing is on the device yet: network and average will be, and on a GPU the images.
    """
    room = free(machine.device) - 2 * sum(each.nbytes for each in (*net.parameters(), *net.buffers()))
    if machine.device.type == "cuda":
        pools: list[Labelled | Unlabelled] = [*problem.labelled, *problem.probes, problem.unlabelled]
        on_device = [pool for pool in pools if choose_place(pool, machine.device) == "device"]
        room -= sum(part.nbytes for pool in on_device for part in pool.parts)
    room, largest = int(FILLED * room), recipe.batch
    if not _fits_by_far(net, recipe, room) and (needed := need(net, method, recipe, problem, machine)) is not None:
        fits = needed.of(recipe.batch // ranks.count()) <= room
        largest = recipe.batch if fits else max(1, needed.largest(room)) * ranks.count()
    return min(ranks.everyone(largest))


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turns out-of-memory errors into one line: what is saved, and what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        steps = [int(path.stem.removeprefix("step-")) for path in folder.glob("**/checkpoints/step-*.json")]
        saved = f"it resumes from step {max(steps)}" if steps else "nothing of it was saved yet"
        where = " of the GPU" if "cuda" in str(error).lower() else ""
        raise InputError(
            f"out of memory{where}: end what else uses it and run the same command again ({saved}), or start over with "
            f"{argument('overwrite', True)} and a smaller {argument('batch')}"
        ) from None


def free(device: torch.device) -> int:
    """Free memory of a device in bytes; of the host's, this process' share."""
    if device.type != "cuda":
        return free_host()
    room, _ = torch.cuda.mem_get_info(device)
    return room + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _fits_by_far(net: nn.Module, recipe: Recipe, room: int) -> bool:
    images = recipe.batch // ranks.count() * (8 + 2 * recipe.uratio)  # the most that a method sends through the network
    return images * recipe.size**2 * PER_PIXEL + 8 * sum(each.nbytes for each in net.parameters()) < room


def _on_meta(module: nn.Module) -> nn.Module:
    """A copy on the meta device, made without copying on this one first."""
    memo: dict[int, object] = {id(each): each.to("meta") for each in module.buffers()}
    for each in module.parameters():
        memo[id(each)] = nn.Parameter(each.detach().to("meta"), each.requires_grad)
    return copy.deepcopy(module, memo)


def _saved_bytes(net: nn.Module, method: nn.Module, phase: int, batch: Batch) -> int:
    """Bytes that a phase's forward pass saves for its backward pass, each storage counted once."""
    own = [*net.parameters(), *net.buffers(), *method.parameters(), *method.buffers()]
    seen = {each.untyped_storage()._cdata for each in own}
    saved: list[torch.UntypedStorage] = []  # held, so that no address is used again

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in seen:
            seen.add(storage._cdata)
            saved.append(storage)
        return tensor

    with saved_tensors_hooks(save, lambda tensor: tensor):
        method.phases[phase].loss(net, batch)  # type: ignore[index, union-attr]
    return sum(storage.nbytes() for storage in saved)


def _empty_batch(labelled: int, unlabelled: int, image: tuple[int, int, int], classes: int) -> Batch:
    sl, tu, y_sl, y_tu = (labelled, *image), (unlabelled, *image), (labelled, classes), (unlabelled, classes)
    shapes: list[tuple[int, ...]] = [sl, sl, y_sl, tu, tu, (), (2 * labelled, classes), y_tu]
    return Batch(*(torch.empty(shape, device="meta") for shape in shapes))
