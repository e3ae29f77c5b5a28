"""A Python that imports TensorFlow once, for three seconds of CPU, and then runs program after program.

`python -m tests.trainer.warm_python`: each line of stdin is the JSON list of what would follow `python`, as
["-m", "trainer", FLAG, ..] or ["-c", PROGRAM, ARGUMENT, ..]; each answer is a line with returncode, stdout and stderr.
A run that ends its process, kills it or measures a start needs one of its own.
"""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from tests.trainer.process import PATIENCE_S, trainer_environment
from trainer.__main__ import main
from trainer.environment import prepare_environment
from trainer.errors import Interrupted
from trainer.log import complain


class WarmPython:
    """The process, for who asks it. `environ` is what its environment has besides; `python` may be forked."""

    def __init__(self, folder: Path, environ: dict[str, str], python: Path) -> None:
        self._log = folder / "stderr.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [python, "-m", __name__],
                env=trainer_environment(PYTHONFAULTHANDLER="1", **environ),
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run `python ARGUMENTS`; raises AssertionError when that ends the process, or it does not end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        program = [str(argument) for argument in arguments]
        self._process.stdin.write(json.dumps(program) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], PATIENCE_S)[0]:
            self._process.send_signal(signal.SIGABRT)  # then its last words are the stack of each thread
        answer = self._process.stdout.readline()
        assert answer, f"{program} ended its process with {self._process.wait()}: {self._log.read_text()[-5000:]}"
        return subprocess.CompletedProcess(program, **json.loads(answer))

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.communicate()


def _serve() -> None:
    engine = os.environ.get("KERAS_BACKEND", "tensorflow")
    prepare_environment("default", None, engine=engine)
    if engine == "jax":
        import jax

        jax.config.update(
            "jax_platforms", "cpu"
        )  # as trainers do; a program would wait minutes for libtpu, if it is here
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # where TensorFlow's own C++ prints to
    for line in sys.stdin:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = _run(json.loads(line))
        answers.write(json.dumps({"returncode": code, "stdout": out.getvalue(), "stderr": err.getvalue()}) + "\n")
        answers.flush()
        _as_before()


def _run(arguments: Sequence[str]) -> Any:
    kind, program, *rest = arguments
    try:
        if kind == "-m":
            assert program == "trainer"
            return main(rest)
        sys.argv = ["-c", *rest]
        exec(compile(program, "-c", "exec"), {"__name__": "__main__"})
        return 0
    except Interrupted as stop:
        complain(stop)
        return stop.exit_code
    except SystemExit as end:
        return end.code or 0
    except Exception:
        traceback.print_exc()
        return 1


def _as_before() -> None:
    """Take back what a program may have set for the whole process."""
    if "keras" in sys.modules:
        import keras

        keras.mixed_precision.set_dtype_policy("float32")
        keras.utils.clear_session()


if __name__ == "__main__":
    _serve()
