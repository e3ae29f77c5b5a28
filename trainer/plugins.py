"""Workloads of your own: a Python file or a `.keras` file, given instead of the name of a workload.

`--workload path/to/my_model.py`, `path/to/model.keras` or `my_package.my_module`. A Python file defines

    build_model(image_shape, classes)   returns a keras.Model; called inside the strategy's scope
    open_data                           optional; `open_data(config) -> trainer.data.source.Dataset`: its own samples
    batch_size = 64                     and the other settings of `trainer.user_settings`, where they differ

Settings are read from its text; it runs with the rights of the trainer when the model is built. docs/your-model.md.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from trainer.errors import CodeError, ConfigError, TrainerError, first_line
from trainer.keras_file import SUFFIX, Architecture, read_architecture, reduced, refused_by
from trainer.user_code import CodeTree, imported_tree
from trainer.user_settings import BUILD_MODEL, OPEN_DATA, read_user_file
from trainer.workloads import Workload, get_workload
from trainer.workloads.base import PrepareOptions
from trainer.workloads.signature import images

_BY_CHANNELS = {1: "mnist", 3: "photos"}


@dataclass(frozen=True)
class OwnWorkload:
    """A user's workload as it was read. `name`: as it was given; `entry`: its file, below the folder of `tree`."""

    name: str
    workload: Workload
    tree: CodeTree
    entry: str
    opens_data: bool
    note: str

    def refused_by(self, keras: str) -> str:
        """Why Keras of that version may not load a `.keras` file; empty where it does, and for a Python file."""
        return refused_by(Path(self.name), keras) if self.entry.endswith(SUFFIX) else ""


def find_workload(name: str) -> Workload:
    """Return the workload that `--workload` means: a name, a file or a module. Raises ConfigError, CodeError."""
    found = find_own(name)
    return get_workload(name) if found is None else found.workload


def own_input(name: str) -> Callable[[Any], Any] | None:
    """Return the `open_data` of a workload that is a user's file or module, or None without one."""
    found = find_own(name)
    return partial(_call, name, OPEN_DATA) if found is not None and found.opens_data else None


@cache
def find_own(name: str) -> OwnWorkload | None:
    """Read a user's file without executing it; None for the name of a packaged workload. Raises CodeError."""
    if name.endswith(SUFFIX):
        return _of_keras(Path(name))
    if not (name.endswith(".py") or "." in name or "/" in name):
        return None
    path, root = _place(name)
    read = read_user_file(path)
    settings = read.settings
    workload = _workload(
        path.name,
        partial(_build, name),
        data_kind=settings.data_kind,
        outputs=settings.outputs,
        default_batch_size=settings.batch_size,
        default_epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        optimizer=settings.optimizer,
        metrics=settings.metrics,
        prepare=settings.prepare,
    )
    return OwnWorkload(name, workload, imported_tree(path, root), str(path.relative_to(root)), read.opens_data, "")


def _workload(name: str, build: Callable[[tuple[int, ...], int], Any], **settings: Any) -> Workload:
    defaults = {"signature": images((28, 28, 1), 10), "xla_on_cpu": False}
    return Workload(name=name, title=f"your own: {name}", build_model=build, **{**defaults, **settings})


def _of_keras(path: Path) -> OwnWorkload:
    found = read_architecture(path)
    shape: tuple[int, ...] = found.input_shape or ()
    kind = "clips" if len(shape) == 4 else _BY_CHANNELS.get(shape[-1]) if len(shape) == 3 else None
    if kind is None or len(set(shape[-3:-1])) != 1:
        problem = f"its input is {found.input_shape}, and square images [side, side, 1 or 3] or clips of them are known"
        raise CodeError(path, problem, "write a .py file whose build_model returns this model, with its data_kind")
    workload = _workload(
        path.name,
        partial(_build_keras, path, found),
        data_kind=kind,
        outputs=found.outputs,
        default_batch_size=128,
        default_epochs=5,
        learning_rate=1e-3,
        prepare=PrepareOptions(image_size=shape[-2], frames=shape[0]),
    )
    note = "the architecture of a .keras file; weights are initialised from the seed"
    return OwnWorkload(str(path), workload, CodeTree({path.name: reduced(path)}), path.name, False, note)


def _place(name: str) -> tuple[Path, Path]:
    """The file of a path or of a module, and the folder that its imports begin in."""
    if name.endswith(".py") or "/" in name:
        path = Path(os.path.realpath(name))  # does not raise where links go in a circle
        return path, path.parent
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise ConfigError("--workload", name, f"cannot be imported ({first_line(error)})") from error
    if found is None or not found.origin or not found.origin.endswith(".py"):
        problem = "there is no such workload and no such module; a file is given by its path, such as ./my_model.py"
        raise ConfigError("--workload", name, problem)
    path = Path(found.origin).resolve()
    return path, path.parents[name.count(".")]


def _build(name: str, image_shape: tuple[int, ...], classes: int) -> Any:
    model, own = _call(name, BUILD_MODEL, image_shape, classes), find_own(name)
    path, root = _place(name)
    if own is not None:
        with _in_their_words(path, root):
            _check_model(path, model, own.workload.outputs, (image_shape, classes))
    return model


def _check_model(path: Path, model: Any, outputs: str, asked: tuple[tuple[int, ...], int]) -> None:
    """Raises CodeError for what would train wrongly or fail later: no model, a wrong width, logits that are none."""
    import keras

    shape, units = asked
    if not isinstance(model, keras.Model):
        raise CodeError(path, f"{BUILD_MODEL} returned a {type(model).__name__}", "return a keras.Model")
    if not model.built:
        model.build((None, *shape))
    dtype = model.inputs[0].dtype if getattr(model, "inputs", None) else "float32"
    found = model.compute_output_spec(keras.KerasTensor((None, *shape), dtype))
    width = getattr(found, "shape", None)
    if width is None or len(width) < 2 or width[-1] != units:
        said = "several outputs" if width is None else f"outputs of shape {list(width)}"
        problem = f"the model for samples {shape} has {said}, not [batch, .., {units}]"
        fix = f"end it with keras.layers.Dense({units}): a unit for each class, token or number of a target of the data"
        raise CodeError(path, problem, fix)
    if outputs == "logits" and _ends_in_softmax(model):
        fix = 'say outputs = "probabilities" in the file, or take the softmax away'
        raise CodeError(path, 'its last layer is a softmax, and outputs is "logits" (the default)', fix)


def _ends_in_softmax(model: Any) -> bool:
    last = model.layers[-1] if model.layers else model
    activation = getattr(last, "activation", None)
    return "Softmax" in type(last).__name__ or getattr(activation, "__name__", "") == "softmax"


def _build_keras(path: Path, found: Architecture, image_shape: tuple[int, ...], classes: int) -> Any:
    if image_shape != found.input_shape:
        problem = f"its input is {found.input_shape}, and the samples are {image_shape}"
        raise CodeError(path, problem, "give data of that shape, or a .py file whose build_model takes the shape")
    try:
        model = found.build()
    except Exception as error:
        fix = "save it with the Keras that is installed here, or write a .py file"
        raise CodeError(path, f"Keras cannot load it ({first_line(error)})", fix) from error
    _check_model(path, model, found.outputs, (image_shape, classes))
    return model


def _call(name: str, function: str, *arguments: Any) -> Any:
    """Call what the user's file defines. Raises CodeError with the line of their file."""
    path, root = _place(name)
    with _in_their_words(path, root):
        return getattr(_module(path, root), function)(*arguments)


@contextmanager
def _in_their_words(path: Path, root: Path) -> Iterator[None]:
    """Whatever the user's code raises is said in one sentence, with the line of their file."""
    try:
        yield
    except TrainerError:
        raise
    except Exception as error:
        said = _fields(error) if isinstance(error, ValidationError) else f"{type(error).__name__}: {first_line(error)}"
        problem = f"{_where(error, path, root)}{said}"
        raise CodeError(path, problem, "correct the file") from error


def _fields(error: ValidationError) -> str:
    """`Data: note is required, source must be 'sample' or 'plugin'`: every field that is wrong, and what it takes."""
    said = {"missing": "is required", "extra_forbidden": "is not one of its fields"}
    wrong = (
        (".".join(map(str, each["loc"])) or "it", said.get(each["type"]) or each["msg"].replace("Input should", "must"))
        for each in error.errors()
    )
    return f"{error.title}: {', '.join(f'{field} {problem}' for field, problem in wrong)}"


def _where(error: BaseException, path: Path, root: Path) -> str:
    """`line 7, in build_model: `: the last line of the user's own files that led to the error."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(Path(frame.filename), root)]
    if not own:
        return ""
    last = own[-1]
    file = "" if Path(last.filename) == path else f"{Path(last.filename).relative_to(root)} "
    return f"{file}line {last.lineno}, in {last.name}: "


def _is_own(file: Path, root: Path) -> bool:
    """Whether it is the user's: environments may lie in their folder too."""
    return file.is_relative_to(root) and not {"site-packages", "dist-packages"} & set(file.parts)


@cache
def _module(path: Path, root: Path) -> ModuleType:
    """The user's file, imported; its folder comes first on the path, as for any Python program."""
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # where dataclasses and pickling look for it
    spec.loader.exec_module(module)
    return module
