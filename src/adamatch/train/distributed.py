"""One run on several processes: of `torchrun --nproc-per-node N -m adamatch ...`, or the caller's process group."""

import atexit
import hashlib
import itertools
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

import adamatch
from adamatch.base import ranks
from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError, Interruption, StoppedElsewhere
from adamatch.config.run import Run
from adamatch.images.tasks import Problem, split_hash
from adamatch.train.heartbeat import BEAT, SUSPECT, Heartbeat

FIRST_SPEAKS = 1.0  # seconds that others wait for rank 0 to say it, when all ranks end for the same reason
_joins = itertools.count()


class Terminated(Exception):  # noqa: N818
    """SIGTERM, before training or after it."""


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Within it, torchrun's processes are the ranks of one run. Does nothing without torchrun.

    They end together: an error or the death of one ends all, with one line that names it.
    """
    _start(device)
    if (
        ranks.count() > 1 or not dist.is_initialized() or dist.get_world_size() == 1
    ):  # already within it, or a single process
        yield
        return
    stopped: Interruption | None = None  # raised when all ranks have left in order
    with ranks.together(), _sigterm_raises():
        names = ranks.everyone(f"rank {ranks.rank()} on {socket.gethostname()}")
        heartbeat = Heartbeat(PrefixStore(f"adamatch/{next(_joins)}", _get_default_store()), ranks.rank(), names)
        heartbeat.start()
        try:
            yield
            ranks.wait()  # for rank 0 to have written everything
        except Interruption as stop:
            stopped = stop
            with suppress(ranks.Silence):
                ranks.wait()
        except (ranks.Silence, Terminated) as error:
            raise _lost(heartbeat, error) from None
        except (Exception, KeyboardInterrupt) as error:
            raise _ended(heartbeat, error) from None
        finally:
            heartbeat.stop()
    if stopped is not None:
        raise stopped


def agree(run: Run, problem: Problem) -> None:
    """Check that all ranks have the same run and images, and that its batch can be divided evenly among them."""
    if ranks.count() == 1:
        return
    hosts = ranks.everyone(socket.gethostname())
    first, *others = ranks.everyone(_facts(run, problem))
    for rank, theirs in enumerate(others, 1):
        for name, wanted in first.items():
            if theirs.get(name) != wanted:
                raise InputError(
                    f"rank {rank} on {hosts[rank]} has {name} {theirs.get(name)}, and rank 0 has {wanted}: start every "
                    "rank with the same versions, command and data"
                )
    check_batch(run.recipe.batch, ranks.count())


def check_batch(batch: int, count: int) -> None:
    if batch % count:
        below = batch // count * count
        near = " or ".join(argument("batch", each) for each in (below, below + count) if each)
        raise InputError(f"a batch of {batch} cannot be shared out evenly over {count} ranks: use {near}")


def same_weights(net: nn.Module) -> None:
    """Give all ranks rank 0's weights: a user's network may have been initialised differently on each."""
    if ranks.count() > 1:
        net.load_state_dict(ranks.from_first(lambda: {name: value.cpu() for name, value in net.state_dict().items()}))


def _facts(run: Run, problem: Problem) -> dict[str, Any]:
    """What has to be the same on all ranks, by name."""
    settings = asdict(run)
    labels = hashlib.sha256(b"".join(pool.labels.tobytes() for pool in problem.labelled)).hexdigest()[:12]
    return {
        "adamatch": adamatch.__version__,
        "torch": torch.__version__,
        **settings.pop("recipe"),
        **settings,
        "pools of": [*map(len, problem.labelled), len(problem.unlabelled)],
        "the labelled subset": split_hash(problem.chosen),
        "labels": labels,
        "classes": list(problem.classes),
    }


def speaks() -> bool:
    """Whether this process prints: torchrun's first, or the only one."""
    return not _under_torchrun() or os.environ["RANK"] == "0"


def _under_torchrun() -> bool:
    return {"RANK", "LOCAL_RANK", "WORLD_SIZE"} <= os.environ.keys() and os.environ["WORLD_SIZE"] != "1"


def _start(device: torch.device) -> None:
    """Start the process group of torchrun's processes, each on its own GPU; it stays for further runs."""
    if not _under_torchrun() or dist.is_initialized():
        return
    if device.type == "cuda":
        local, here, gpus = int(os.environ["LOCAL_RANK"]), socket.gethostname(), torch.cuda.device_count()
        if device.index is not None:
            raise InputError(f"every rank takes a GPU of its own: leave --device at auto, or at cuda (not {device})")
        if local >= gpus:
            raise InputError(
                f"{here} has {gpus} GPUs and more processes than that: start it with --nproc-per-node {gpus}"
            )
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=ranks.PATIENCE)
    atexit.register(dist.destroy_process_group)


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """torchrun sends SIGTERM when it sees a rank die, and a process that ended at once would not say which."""

    def end(*_: object) -> NoReturn:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():  # which alone handles signals
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop_waiting() -> None:
    """Before this process says why it ends: SIGTERM is ignored, and no other rank is waited for."""
    atexit.unregister(dist.destroy_process_group)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _ended(heartbeat: Heartbeat, error: BaseException) -> BaseException:
    """Tell the other ranks why this one ends; returns what is to be raised here."""
    _stop_waiting()
    if heartbeat.rank > 0:
        time.sleep(FIRST_SPEAKS)
    text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}".strip().splitlines()[0]
    line = text if heartbeat.rank == 0 else f"{heartbeat.names[heartbeat.rank]}: {text}"
    if not heartbeat.first_to_end(line):
        return StoppedElsewhere("another rank has ended the run, and says why")
    if isinstance(error, InputError):
        return InputError(line)
    print(f"error: {line}", file=sys.stderr)  # above the traceback, which names no rank
    return error


def _lost(heartbeat: Heartbeat, error: ranks.Silence | Terminated) -> BaseException:
    """Wait until the heartbeat finds out which rank died, and ends this process; else returns what is to be raised."""
    _stop_waiting()
    heartbeat.limit = SUSPECT
    time.sleep((SUSPECT + 5) * BEAT)
    if isinstance(error, Terminated):
        return Interruption("stopped by SIGTERM while not training")
    line = f"the ranks lost each other ({error}): start all of them again with the same command"
    return _ended(heartbeat, InputError(line))
