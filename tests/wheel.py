"""`make wheel`: the package as others get it: built, checked, installed into an empty environment, and used there."""

import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).parent.parent
COLOURS = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}
FIT = ["--size", "16", "--images", "1200", "--batch", "16", "--network", "wrn-tiny", "--device", "cpu"]


def run(*command: str | Path, cwd: Path) -> str:
    """Print the command and what it says; a failure ends the script. Only the environment's own packages are seen."""
    shown = " ".join(Path(each).name if isinstance(each, Path) else each for each in command)
    began = time.monotonic()
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        command, cwd=cwd, env=kept, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(f"$ {shown}  ({time.monotonic() - began:.0f} s)", flush=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{shown} failed with {done.returncode}")
    return done.stdout


def write_images(folder: Path, count: int, light: int) -> None:
    """`count` images of every colour, one folder per class, in several formats; `light` distinguishes domains."""
    rng = np.random.default_rng(abs(light))
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.clip(rng.normal(np.array(colour) + light, 30, (24, 32, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.{('png', 'jpg', 'webp')[number % 3]}")


def build(out: Path) -> Path:
    """The wheel, made from the source archive; both are checked, and the README as PyPI would show it."""
    run(sys.executable, "-m", "build", "--outdir", out, ROOT, cwd=out)
    run(sys.executable, "-m", "twine", "check", "--strict", *out.iterdir(), cwd=out)
    (wheel,) = out.glob("*.whl")
    return wheel


def install(wheel: Path, env: Path) -> Path:
    """Into an empty environment, with the extra that exports; returns where its commands are."""
    venv.create(env, with_pip=True)
    programs = env / ("Scripts" if os.name == "nt" else "bin")
    pip = (programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "-c", ROOT / "constraints.txt", "torch", cwd=env)
    run(*pip, "-c", ROOT / "constraints.txt", f"adamatch[export] @ {wheel.as_uri()}", cwd=env)
    return programs


def use(programs: Path, work: Path) -> None:
    """What a new user does: the demonstration, a model for their own images, its predictions, an export."""
    adamatch = programs / "adamatch"
    where = run(programs / "python", "-c", "import adamatch; print(adamatch.__file__)", cwd=work)
    assert Path(where.strip()).is_relative_to(programs.parent), f"{where} is not of the wheel"
    version = run(adamatch, "--version", cwd=work).strip()
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text(), version
    assert "accuracy on handwriting" in run(adamatch, "demo", "--images", "2000", cwd=work)
    assert (work / "runs/demo/report.html").is_file()
    write_images(work / "day", 30, 0)
    write_images(work / "dusk", 20, -30)
    run(adamatch, "fit", "--source", "day", "--target", "dusk", "--out", "runs/dusk", *FIT, cwd=work)
    run(adamatch, "predict", "runs/dusk", "dusk", "--csv", "dusk.csv", cwd=work)
    rows = [row.split(",") for row in (work / "dusk.csv").read_text().splitlines()[1:]]
    right = sum(Path(path).parent.name == label for path, label, *_ in rows)
    assert len(rows) == 60, rows
    assert right > 40, f"{right} of 60 images are right"
    assert "largest difference" in run(adamatch, "export", "runs/dusk", "--to", "onnx", cwd=work)
    assert (work / "runs/dusk/model.onnx").is_file()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        made, work = Path(folder, "dist"), Path(folder, "work")
        made.mkdir()
        work.mkdir()
        use(install(build(made), Path(folder, "env")), work)
    print("the wheel works in an empty environment")


if __name__ == "__main__":
    main()
