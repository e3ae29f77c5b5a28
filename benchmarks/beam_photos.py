"""A large folder of photos through the direct runner of Apache Beam: the same bytes as by the local converter?

    PYTHONPATH=.venv/beam python -m benchmarks.beam_photos --data FOLDER [--samples 50000]

The photos of FOLDER/CLASS are repeated, as hard links, until there are so many. Both write shards of 64 x 64 pixels;
every file is compared. `make verify STEPS=beam` installs Beam in .venv/beam.
"""

from __future__ import annotations

import argparse
import filecmp
import itertools
import os
import resource
import tempfile
import time
from pathlib import Path

from trainer.data.pipeline import write_shards_by_beam
from trainer.data.prepare import PreparedDataset, Runner, prepare_dataset
from trainer.workloads.base import PrepareOptions

OPTIONS = PrepareOptions(image_size=64, shard_mb=4)


def _repeat(source: Path, target: Path, samples: int) -> None:
    photos = sorted(path for path in source.glob("*/*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    for number, photo in zip(range(samples), itertools.cycle(photos), strict=False):
        (target / photo.parent.name).mkdir(parents=True, exist_ok=True)
        os.link(photo, target / photo.parent.name / f"{number:06d}{photo.suffix}")


def _timed(name: str, folder: Path, out: Path, samples: int, run: Runner | None) -> PreparedDataset:
    start_s = time.perf_counter()
    made = prepare_dataset(folder, "photos", out, options=OPTIONS, run=run)
    taken_s = time.perf_counter() - start_s
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name}: {taken_s:.1f} s, {samples / taken_s:,.0f} photos/s; memory so far at most {peak_mib:,.0f} MiB")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=50_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.data.parent) as work:
        folder, threads, beam = (Path(work) / name for name in ("photos", "threads", "beam"))
        _repeat(arguments.data, folder, arguments.samples)
        first = _timed("threads", folder, threads, arguments.samples, None)
        second = _timed("Beam's direct runner", folder, beam, arguments.samples, write_shards_by_beam)
        names = sorted(path.name for path in threads.iterdir())
        same, differing, missing = filecmp.cmpfiles(threads, beam, names, shallow=False)
        print(
            f"{len(same)} of {len(names)} files are the same, byte for byte; fingerprint {second.manifest.fingerprint}"
        )
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        assert not differing, differing
        assert not missing, missing
        assert first.manifest == second.manifest


if __name__ == "__main__":
    main()
