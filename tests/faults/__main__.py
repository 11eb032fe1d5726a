"""`python -m faults`, from tests/: a table of every place and its outcomes; exit code 1 where one is bad."""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from faults import runner
from faults.runner import HOWS, Fault, Outcome

if "FAULTS" not in os.environ:  # again, with the shim
    library = runner.build()
    os.execvpe(
        sys.executable,
        [sys.executable, "-m", "faults", *sys.argv[1:]],
        os.environ | {"LD_PRELOAD": str(library), "FAULTS": "1", "OMP_NUM_THREADS": "1"},
    )

from faults.commands import COMMANDS


def faults(name: str, base: Path, every: int) -> tuple[list[Fault], dict[str, Any]]:
    """The first and the last operation of each place, in both ways; and what the command writes without any."""
    command = COMMANDS[name]
    runner.fresh(command, base)
    said = runner.run(command, base)
    assert said == "done", said
    runner.import_as_it_did(base)
    places: dict[str, list[int]] = {}
    for number, place in enumerate(runner.operations(base), 1):
        places.setdefault(place, []).append(number)
    chosen = [
        Fault(name, place, number, which, how)
        for place, numbers in places.items()
        for number, which in {numbers[-1]: "last", numbers[0]: "first"}.items()
        for how in HOWS
    ]
    print(f"{name}: {len(places)} places, {len(chosen)} faults", flush=True)
    return chosen[::every], runner.digest(base / "work" / command.out)


def outcome(fault: Fault, base: Path, expected: dict[str, Any]) -> Outcome:
    command = COMMANDS[fault.command]
    runner.fresh(command, base)
    said = runner.run(command, base, fault.number, HOWS[fault.how])
    again = runner.run(command, base)
    for _ in range(2):  # a grid that was killed says that its run is taken, until it sees that nobody holds it
        if again == "done":
            break
        again = runner.run(command, base)
    if again != "done":
        return Outcome(said, again)
    try:
        found = runner.digest(base / "work" / command.out)
    except Exception as error:
        return Outcome(said, f"{error!r}")
    differ = [name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)]
    return Outcome(said, f"differs: {', '.join(sorted(differ))}" if differ else "the same")


def main() -> int:
    asked = argparse.ArgumentParser(prog="python -m faults")
    asked.add_argument("--command", action="append", choices=COMMANDS)
    asked.add_argument("--every", type=int, default=1, help="every how many-th fault")
    asked.add_argument("--write", type=Path, help="a file for all outcomes")
    given = asked.parse_args()
    rows, bad = [], 0
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        base = Path(folder) / "case"
        for name in given.command or COMMANDS:
            chosen, expected = faults(name, base, given.every)

            for fault in chosen:
                found = outcome(fault, base, expected)
                wrong = found.then != "the same" or found.said.startswith("code ")
                bad += wrong
                rows.append({**fault._asdict(), **found._asdict()})
                if wrong:
                    print(json.dumps(rows[-1], indent=1), flush=True)
    print(f"{len(rows)} faults, {bad} bad")
    if given.write:
        given.write.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
