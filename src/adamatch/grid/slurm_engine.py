"""The engine `slurm`: batches of runs as job arrays, submitted through submitit. Nothing waits for them."""

import importlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adamatch.base.errors import InputError
from adamatch.grid.state import one_line
from adamatch.grid.work import Job, Resources, batches, do_batch, library, say, write_token

MAX_ARRAY_SIZE = 1001  # SLURM's own default
TIMEOUTS = 1000  # a job may run into its time limit so often; each time it goes back to the queue


@dataclass(frozen=True)
class Task:
    """A batch; called in the job. Shortly before the time limit submitit asks for `checkpoint`: do the same again."""

    job: Job
    token: Path
    threads: int

    def __call__(self) -> None:
        do_batch(self.job, self.token, self.threads)

    def checkpoint(self) -> Any:
        return importlib.import_module("submitit").helpers.DelayedSubmission(self)


def run(job: Job, asked: Resources) -> None:
    """An engine: returns once the runs that are not done wait in SLURM's queue."""
    submitit = library("slurm", "submitit")
    if missing := [command for command in ("sbatch", "srun", "scontrol") if shutil.which(command) is None]:
        says = f"{missing[0]} is not here: start it on a login node"
        raise InputError(f"--engine slurm needs SLURM's commands, and {says}")
    if job.deadline != float("inf"):
        raise InputError("--seconds is for the other engines: SLURM's own limit is --minutes")
    gpus = asked.gpus_per_run or 0
    if gpus != int(gpus) or gpus < 0:
        raise InputError(f"--gpus-per-run: SLURM gives whole GPUs, not {gpus}; parts of one need --engine ray")
    limit = asked.array_limit or _array_limit()
    job = job.absolute()
    if not (left := job.left()):
        return
    logs = job.folders.out / "slurm"
    made = batches(left, asked.at_once or 1)
    executor = submitit.SlurmExecutor(folder=logs, max_num_timeout=TIMEOUTS)
    token = write_token(logs)
    executor.update_parameters(**_parameters(asked, int(gpus), len(made), token))
    tasks = [Task(replace(job, runs=batch), token, asked.cpus_per_run) for batch in made]
    ids = _submit(executor, tasks, limit)
    jobs = f"{len(tasks)} tasks of {len(ids)} SLURM job{'s' * (len(ids) > 1)}: {', '.join(ids)}"
    say(f"submitted {len(left)} runs as {jobs}")
    say(f"look with `squeue -j {','.join(ids)}` and `adamatch grid status`; what they say is in {logs}")


def _submit(executor: Any, tasks: Sequence[Task], limit: int) -> list[str]:
    """Arrays of at most `limit` tasks; their ids."""
    ids: list[str] = []
    for start in range(0, len(tasks), limit):
        part = tasks[start : start + limit]
        try:
            with executor.batch():
                jobs = [executor.submit(task) for task in part]
        except Exception as error:  # submitit hands on what sbatch says in errors of several kinds
            lines = [line for line in str(error).splitlines() if "sbatch: error" in line] or [one_line(error)]
            queued = f"{start} of {len(tasks)} tasks are in the queue ({', '.join(ids)}); " if ids else ""
            remedy = "run the same command later to submit the rest"
            raise InputError(f"{queued}SLURM takes no more: {lines[-1].strip()}; {remedy}") from None
        ids.append(str(jobs[0].job_id).partition("_")[0])
    return ids


def _parameters(asked: Resources, gpus: int, count: int, token: Path) -> dict[str, Any]:
    return {
        "job_name": "adamatch",
        "time": asked.minutes,
        "cpus_per_task": asked.cpus_per_run,
        "array_parallelism": asked.at_once or count,
        "setup": [_seen(token)],
        "additional_parameters": {"requeue": True, **asked.options},
        **({"partition": asked.partition} if asked.partition else {}),
        **({"gpus_per_node": gpus} if gpus else {}),
    }


def _seen(token: Path) -> str:
    """For the shell of a job: one that cannot see the folder cannot start Python, so its shell says so."""
    path, folder = (shlex.quote(str(each)) for each in (token, token.parent))
    return f'test -e {path} || {{ echo "error: $(hostname) does not see "{folder} >&2; exit 1; }}'


def _array_limit() -> int:
    """How many tasks an array of this SLURM may have."""
    found = re.search(r"MaxArraySize\s*=\s*(\d+)", _ask("scontrol", "show", "config"))
    return int(found[1]) if found else MAX_ARRAY_SIZE


def _ask(*words: str) -> str:
    try:
        shown = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        raise InputError("SLURM's controller does not answer: is slurmctld running?") from None
    if shown.returncode:
        reason = (shown.stderr.strip() or shown.stdout.strip() or "no message").splitlines()[-1]
        raise InputError(f"SLURM's controller does not answer ({reason}): is slurmctld running?")
    return shown.stdout
