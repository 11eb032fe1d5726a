"""Step times that were measured, in milliseconds: what a grid costs is said from them wherever it is planned.

GPU: `python benchmarks/step.py`, torch 2.11, 2026-11-15 (results/step28.json, step34.json, step101.json in the repository).
CPU: the medians of the runs in results/handwriting, nine processes of one thread each, torch 2.11, 2026-11-16.
"""

H200, CPU = "NVIDIA H200, bf16, compiled, CUDA graph", "1 CPU thread (x86_64), fp32"

# Machine; network, side, batch, uratio, method, labelled pools, strong view; milliseconds.
MEASURED: tuple[tuple[str, tuple[str, int, int, int, str, int, str], float], ...] = (
    (H200, ("wrn-28-2", 32, 64, 3, "adamatch", 1, "cta"), 6.80),
    (H200, ("wrn-28-2", 32, 64, 3, "fixmatch+", 1, "cta"), 5.75),
    (H200, ("wrn-28-2", 32, 64, 3, "mcd", 1, "cta"), 6.90),
    (H200, ("wrn-28-2", 32, 64, 3, "baseline_bn", 1, "cta"), 5.75),
    (H200, ("wrn-28-2", 32, 64, 3, "supervised", 1, "cta"), 3.03),
    (H200, ("wrn-34-2", 64, 64, 3, "adamatch", 1, "cta"), 23.80),
    (H200, ("resnetv2-101", 224, 32, 3, "adamatch", 1, "cta"), 68.33),
    (CPU, ("wrn-tiny", 8, 32, 3, "adamatch", 1, "cutout"), 30.2),
    (CPU, ("wrn-tiny", 8, 32, 3, "adamatch", 1, "cta"), 60.2),
    (CPU, ("wrn-tiny", 8, 32, 3, "adamatch", 2, "cutout"), 41.9),
    (CPU, ("wrn-tiny", 8, 32, 3, "baseline_bn", 1, "cutout"), 25.7),
    (CPU, ("wrn-tiny", 8, 32, 3, "baseline_bn", 2, "cutout"), 32.4),
    (CPU, ("wrn-tiny", 8, 32, 3, "fixmatch+", 1, "cutout"), 25.0),
    (CPU, ("wrn-tiny", 8, 32, 3, "fixmatch+", 2, "cutout"), 31.2),
    (CPU, ("wrn-tiny", 8, 32, 3, "mcd", 1, "cutout"), 30.2),
    (CPU, ("wrn-tiny", 8, 32, 3, "mcd", 2, "cutout"), 32.2),
    (CPU, ("wrn-tiny", 8, 32, 3, "supervised", 1, "cutout"), 11.2),
    (CPU, ("wrn-tiny", 8, 32, 3, "supervised", 2, "cutout"), 15.8),
)
