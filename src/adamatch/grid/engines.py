"""The engines: where a grid's runs are done. Each is one function of the job and of what was asked for.

All that they know of each other is on disk (results and leases in the run folders), so that they may be mixed and exchanged.
"""

from collections.abc import Callable
from dataclasses import fields

from adamatch.base.errors import InputError, unknown
from adamatch.grid import local_engine, ray_engine, slurm_engine
from adamatch.grid.spread import Resources
from adamatch.grid.work import Job

Engine = Callable[[Job, Resources], None]

ENGINES: dict[str, Engine] = {
    "local": local_engine.run,
    "ray": ray_engine.run,
    "slurm": slurm_engine.run,
}


def choose(name: str, job: Job, asked: Resources) -> Engine:
    """The engine of that name, if it can do what was asked."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    if name == "local":
        usual = Resources(processes=asked.processes)
        others = [each.name for each in fields(asked) if getattr(asked, each.name) != getattr(usual, each.name)]
        if others:
            raise InputError(f"{', '.join(others)}: these are for a cluster, give --engine ray or slurm with them")
        return ENGINES[name]
    if asked.processes != 1:
        raise InputError(f"--processes is for --engine local: {name} has as many workers as its cluster has room for")
    if job.device not in ("auto", "cpu", "cuda"):
        raise InputError(
            f"--engine {name} chooses the GPU by itself: give --device auto, cpu or cuda, not {job.device}"
        )
    if asked.cpus_per_run < 1:
        raise InputError(f"--cpus-per-run: give 1 or more, not {asked.cpus_per_run}")
    return ENGINES[name]
