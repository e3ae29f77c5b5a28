"""A workload that writes down how many objects Python's garbage collector may have to walk over in an epoch."""

from __future__ import annotations

import gc
from dataclasses import dataclass

from tests.trainer.plugins.input import KnownTime, make_input, make_workload
from trainer.config import Config
from trainer.source import Dataset

WORKLOAD = make_workload("walked")


@dataclass
class Walked(KnownTime):
    """Counts where its parent sleeps: for every batch."""

    def sleep(self, seconds: float) -> None:
        """Count."""
        assert self.file is not None
        with self.file.open("a") as file:
            file.write(f"{len(gc.get_objects())}\n")


def open_data(config: Config) -> Dataset:
    """Return 50 samples; the first number written is of objects that are set aside already."""
    known = Walked()
    known.write_to(config.model_dir)
    assert known.file is not None
    known.file.write_text(f"{gc.get_freeze_count()}\n")
    return make_input(50, stream=True, batch_s=1.0, known=known)
