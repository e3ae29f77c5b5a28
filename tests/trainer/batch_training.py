"""Many small trainings in one process, for the price of one import of TensorFlow.

`python -m tests.trainer.batch_training FOLDER`, with `{"name": {flag: value, ..}, ..}` as JSON on stdin: each run is
written to FOLDER/name. A run that fails leaves its record, and the next one starts.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

from trainer.config import make_config
from trainer.errors import TrainerError
from trainer.run import train

if __name__ == "__main__":
    for name, values in json.load(sys.stdin).items():
        with suppress(TrainerError):
            train(make_config(**values, model_dir=str(Path(sys.argv[1], name))))
