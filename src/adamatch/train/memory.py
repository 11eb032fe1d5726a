"""Memory: what a step will need, known before it is taken; and one line with the remedy where there was not enough."""

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

TRIED = 2  # labelled images in the step that is looked at; a step of more needs as many times more
VIEWS = 8  # copies of the images in float32 while views are made of them
BACKWARD = 1.2  # a backward pass frees what a forward pass kept, and needs room for gradients meanwhile
HALF = 0.5  # in bf16; measured with kernels and compilation 0.37 to 0.43
PER_PIXEL = 2**16  # bytes of any network, generously: where that fits, nothing needs to be looked at
FILLED = 0.8  # of what is free, where the batch is left to be chosen
SURELY = 1.5  # times what is free is refused; up to there it is said, as it may fit after all


class Need(NamedTuple):
    """Bytes of a step, at its most, beside the network and its average."""

    fixed: int
    each: int  # for each labelled image, with the unlabelled ones that go with it

    def of(self, batch: int) -> int:
        return self.fixed + batch * self.each

    def largest(self, room: int) -> int:
        """The largest batch, a power of two, that fits; 0 where none does."""
        most = (room - self.fixed) // self.each
        return 1 << most.bit_length() - 1 if most > 0 else 0


def need(net: nn.Module, method: Method, recipe: Recipe, problem: Problem, machine: Machine) -> Need | None:
    """What a step of this recipe takes: found by a forward pass that computes nothing. `net` and `method` stay as they are.

    None for a network of somebody's own that cannot do without numbers.
    """
    batches = sum(labelled_counts(recipe, problem.labelled, len(problem.classes))) / recipe.batch
    labelled, unlabelled = max(TRIED, round(TRIED * batches)), TRIED * recipe.uratio if method.unlabelled else 0
    *_, height, width, channels = problem.labelled[0].parts[0].shape
    batch = _batch(labelled, unlabelled, (channels, height, width), len(problem.classes))
    try:
        with torch.random.fork_rng(devices=[]):
            bare, its = _bare(net).train(), _bare(method)
            if recipe.batch_norm == "kept":
                keep_statistics(bare)
            kept = max(_kept(bare, its, phase, batch) for phase in range(len(method.phases)))
    except Exception:  # whatever somebody else's module may raise
        return None
    weights = sum(each.nbytes for each in net.parameters() if each.requires_grad)
    memories = len(method.phases) * (2 if recipe.optimiser == "adamw" else 1)
    half = HALF if machine.precision == "bf16" else 1.0
    images = sum(each.nbytes for each in (batch.x_sl_w, batch.x_tu_w))
    return Need((1 + memories) * weights, max(1, round((kept * BACKWARD * half + images * VIEWS) / TRIED)))


def check(step: Step, recipe: Recipe, problem: Problem, warn: Callable[[str], None]) -> None:
    """Refuse a run whose step cannot fit, and say of one that may not; with a batch that would."""
    room, batch = free(step.machine.device), recipe.batch // ranks.count()
    if _fits_by_far(step.net, recipe, room):
        return
    needed = need(step.net, step.method, recipe, problem, step.machine)
    if needed is None or needed.of(batch) <= room:
        return
    smaller = needed.largest(room) * ranks.count()
    remedy = (
        f"{argument('batch')} {smaller} would fit" if smaller else f"a smaller network or {argument('size')} may fit"
    )
    takes = f"a step of {recipe.batch} labelled images needs about {_size(needed.of(batch))} of memory"
    line = f"{takes}, and {_size(room)} are free: {remedy}"
    if needed.of(batch) > SURELY * room:
        raise InputError(line)
    warn(line)


def fitting(net: nn.Module, method: Method, recipe: Recipe, problem: Problem, machine: Machine) -> int:
    """The recipe's batch, or the largest below it whose step fits the memory that is free, on every rank; at least 1 for each.

    Nothing is on the device yet: network and average will be, and on a GPU the images.
    """
    room = free(machine.device) - 2 * sum(each.nbytes for each in (*net.parameters(), *net.buffers()))
    if machine.device.type == "cuda":
        pools: list[Labelled | Unlabelled] = [*problem.labelled, *problem.probes, problem.unlabelled]
        for pool in pools:
            room -= sum(part.nbytes for part in pool.parts) if choose_place(pool, machine.device) == "device" else 0
    room, largest = int(FILLED * room), recipe.batch
    if not _fits_by_far(net, recipe, room) and (needed := need(net, method, recipe, problem, machine)) is not None:
        fits = needed.of(recipe.batch // ranks.count()) <= room
        largest = recipe.batch if fits else max(1, needed.largest(room)) * ranks.count()
    return min(ranks.everyone(largest))


@contextmanager
def explained(recipe: Recipe, folder: Path) -> Iterator[None]:
    """Out of memory, at whatever step, is one line: what is saved, and what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        saved = max(
            (int(path.stem.removeprefix("step-")) for path in folder.glob("**/checkpoints/step-*.json")), default=0
        )
        again = f"it resumes from step {saved}" if saved else "nothing of it was saved yet"
        halved = f"{argument('batch')} {recipe.batch // 2}"
        smaller = f", or start over with {argument('overwrite', True)} and {halved}" if recipe.batch > 1 else ""
        where = " of the GPU" if "cuda" in str(error).lower() else ""
        raise InputError(
            f"out of memory{where}: end what else uses it and run the same command again ({again}){smaller}"
        ) from None


def free(device: torch.device) -> int:
    """Bytes that can be had on a device; of the host's memory, this process' share."""
    if device.type != "cuda":
        return free_host()
    room, _ = torch.cuda.mem_get_info(device)
    return room + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _fits_by_far(net: nn.Module, recipe: Recipe, room: int) -> bool:
    images = recipe.batch // ranks.count() * (8 + 2 * recipe.uratio)  # the most that a method sends through the network
    return images * recipe.size**2 * PER_PIXEL + 8 * sum(each.nbytes for each in net.parameters()) < room


def _bare(module: nn.Module) -> nn.Module:
    """A copy whose tensors have shapes alone, and take no memory."""
    memo: dict[int, object] = {
        id(each): nn.Parameter(each.detach().to("meta"), each.requires_grad) for each in module.parameters()
    }
    return copy.deepcopy(module, memo | {id(each): each.to("meta") for each in module.buffers()})


def _kept(net: nn.Module, method: nn.Module, phase: int, batch: Batch) -> int:
    """Bytes that a phase's forward pass keeps for its backward pass, each piece of memory counted once."""
    own = [*net.parameters(), *net.buffers(), *method.parameters(), *method.buffers()]
    seen = {each.untyped_storage()._cdata for each in own}
    pieces: list[torch.UntypedStorage] = []  # held, so that no address comes twice

    def keep(tensor: Tensor) -> Tensor:
        piece = tensor.untyped_storage()
        if piece._cdata not in seen:
            seen.add(piece._cdata)
            pieces.append(piece)
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        method.phases[phase].loss(net, batch)  # type: ignore[index, union-attr]
    return sum(piece.nbytes() for piece in pieces)


def _batch(labelled: int, unlabelled: int, image: tuple[int, int, int], classes: int) -> Batch:
    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, device="meta")

    sl, tu = (labelled, *image), (unlabelled, *image)
    return Batch(
        empty(*sl),
        empty(*sl),
        empty(labelled, classes),
        empty(*tu),
        empty(*tu),
        empty(),
        empty(2 * labelled, classes),
        empty(unlabelled, classes),
    )


def _size(count: float) -> str:
    return f"{count / 2**30:,.1f} GiB"
