"""A task: data, model, loss, metric.

    class MyTask:
        metric = "accuracy"
        higher_is_better = True
        epochs, batch_size = 20, 64         # optional; also `schedule` and `eval_batch_size`

        def data(self):                     # without "valid" a part of "train" is held out for tuning; the random
                                            # numbers that it and the constructor draw are the same in all runs
            return {"train": (x, y), "test": (x_test, y_test)}

        def model(self):                    # called after the run's seed is set
            return torch.nn.Linear(10, 2)

        def loss(self, model, batch):       # the mean loss, and the metric of each example (or its mean)
            x, y = batch
            out = model(x)
            return F.cross_entropy(out, y), out.argmax(1) == y

        def before_step(self, model):       # optional: between backward and step, to clip gradients
            adaxopt.clip_grad_norm_(model.parameters(), 1.0)

        def groups(self, model, options):   # optional: parameter groups; options["lr"] is the run's
            return [{"params": model.parameters(), "lr": options["lr"]}]

        def evaluate(self, model, split):   # optional: metrics of the whole split, such as F1; the first is judged
            out, y = zip(*((model(x).argmax(1), y) for x, y in split))
            return {"accuracy": (torch.cat(out) == torch.cat(y)).float().mean()}

        def digest(self):                   # optional: which data these are; every run's environment has it
            return hashlib.sha256(x.numpy().tobytes()).hexdigest()

A split is a tuple of tensors with one row per example (the runner shuffles, and keeps them on the device), a
Dataset (`len` and `[i]`), or an iterable of batches with a length, such as a DataLoader. No base class is
needed. With `metric = "loss"`, or with `evaluate`, the loss alone may be returned. `model.training` tells training from
evaluation.

The metric that `loss` returns is averaged over examples. That is right for accuracy and loss, and wrong for F1, AUC,
mIoU, BLEU or perplexity: these need `evaluate`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from numbers import Integral, Number
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from adaxlab import option_types, randomness
from adaxlab.errors import LabError, RunError, check_known, unknown
from adaxlab.failures import guarded

BUILT_IN = {
    "digits": "adaxlab.tasks.digits:Digits",
    "sorting": "adaxlab.tasks.sorting:Sorting",
    "cifar10": "adaxlab.tasks.cifar10:Cifar10",
    "language": "adaxlab.tasks.language:Language",
    "gpt": "adaxlab.tasks.gpt:Gpt",
    "voc": "adaxlab.tasks.voc:Voc",
    "imagenet": "adaxlab.tasks.imagenet:ImageNet",
}
VERSIONED = {"torch", "adaxopt", "adaxlab", *sys.stdlib_module_names}
"""Packages whose versions are recorded in a run's environment."""
DATA_SEED, TASK_SEED, FILE_SEED = range(3)
"""The seeds in `data()`, in a task's constructor and while a user's file is executed. If they were random, a division
into "train" and "test" that differed between runs would let tuning see test data. They differ, so that numbers drawn in
two of these places do too."""
CPU = torch.device("cpu")
PROTOCOL = ("metric", "higher_is_better", "data", "model", "loss")


@runtime_checkable
class Task(Protocol):
    """The interface of a task (see the module's docstring for all optional parts)."""

    metric: str
    higher_is_better: bool

    def data(self) -> Mapping[str, Any]: ...

    def model(self) -> torch.nn.Module: ...

    def loss(self, model: torch.nn.Module, batch: Any) -> Any: ...


def load(name: str, options: Mapping[str, Any] | None = None) -> Task:
    """Create the task `name`: a built-in one, `path/to/file.py:Class` or `module:Class`, with `options`.

    >>> load("digits").metric
    'accuracy'
    """
    cls, given = find(name), dict(options or {})
    if name in BUILT_IN:
        option_types.check(cls.__init__, given, f"task {name}:")
    with guarded(f"task {name}"):
        parameters = inspect.signature(cls)
        try:
            parameters.bind(**given)
        except TypeError as error:
            known = list(parameters.parameters)
            has = f"its options are {', '.join(known)}" if known else "it has no options"
            raise LabError(f"task {name}: cannot be made with options {given}: {error}; {has}") from error
        with randomness.seeded(TASK_SEED, CPU):
            made = cls(**given)
        return check(made, name)


def find(name: str) -> Any:
    """The class (or function) that creates the task `name`."""
    if name in BUILT_IN:
        name = BUILT_IN[name]
    place, _, attribute = name.rpartition(":")
    if not place:
        if name.endswith(".py") or Path(f"{name}.py").is_file():
            offer(name, "task", _like_a_task)
        raise unknown("task", name, BUILT_IN, ", or your own as file.py:Class, module:Class")
    if not attribute:
        offer(place, "task", _like_a_task)
    found = module(place, "task")
    if not hasattr(found, attribute):
        own = _own(found, inspect.isclass)
        raise unknown(f"class in {place}", attribute, own or ["(no class at all)"])
    made = getattr(found, attribute)
    if not callable(made):
        raise LabError(
            f"task {name}: is a {type(made).__name__} object; name its class, or a function that makes a task"
        )
    return made


def plain(name: str) -> str:
    """The name by which a task is stored: a file's without `./`.

    >>> plain("./my//task.py:Mine"), plain("digits")
    ('my/task.py:Mine', 'digits')
    """
    place, colon, attribute = name.rpartition(":")
    return f"{Path(place).as_posix()}:{attribute}" if colon else name


def source_digest(name: str) -> str | None:
    """A digest of the file of a user's task, so that an edited task gives new runs; None for a built-in task."""
    if name in BUILT_IN:
        return None
    return file_digest(find(name))


def file_digest(what: Any) -> str | None:
    """A digest of the files in which a class (and its base classes) or a function is defined; None if all of them
    belong to torch, the standard library or this package. Files that they import are not included."""
    contents = b"".join(Path(file).read_bytes() for file in _files(what))
    return hashlib.sha256(contents).hexdigest()[:16] if contents else None


def _files(what: Any) -> list[str]:
    what = inspect.unwrap(what)
    found: dict[str, None] = {}
    for each in inspect.getmro(what) if inspect.isclass(what) else (what,):
        try:
            file = inspect.getsourcefile(each)
        except TypeError:  # built in
            continue
        if file and getattr(each, "__module__", "").partition(".")[0] not in VERSIONED:
            found[file] = None
    return list(found)


def module(place: str, kind: str) -> Any:
    """The module at `place`, a file or a name to import, which holds the user's task or optimizer."""
    return _from_file(Path(place), kind) if place.endswith(".py") else import_module(place, kind)


def offer(place: str, kind: str, fits: Callable[[Any], bool]) -> None:
    """The error for a file or module that is named without a class: it names those that fit."""
    own = _own(module(place, kind), fits)
    what = f"name one of its classes: {', '.join(f'{place}:{name}' for name in own)}"
    raise LabError(f"{kind} {place}: {what if own else f'it has no {kind}; give one as {place}:Class'}")


def _own(module: Any, fits: Callable[[Any], bool]) -> list[str]:
    """Names of the objects that a module defines itself and that satisfy `fits`."""
    return [
        key
        for key, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and fits(value)
    ]


def _like_a_task(value: Any) -> bool:
    """A class with the methods of a task; the rest of the protocol may be set in its constructor."""
    return inspect.isclass(value) and all(hasattr(value, key) for key in ("data", "model", "loss"))


def _from_file(path: Path, kind: str) -> Any:
    path = path.resolve()
    if not path.is_file():
        raise LabError(f"{kind} file {path}: no such file; give it as path/to/file.py:Class")
    name = f"adaxopt_task_{path.stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        with guarded(f"{kind} file {path}"), randomness.seeded(FILE_SEED, CPU):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        with suppress(ValueError):  # the file may have changed the path
            sys.path.remove(str(path.parent))
    return module


def import_module(place: str, kind: str) -> Any:
    """Import `place`, also from the current folder, as `python -m` does."""
    added = "" not in sys.path
    if added:
        sys.path.insert(0, "")
    try:
        with guarded(f"{kind} {place!r}: cannot be imported"), randomness.seeded(FILE_SEED, CPU):
            return importlib.import_module(place)
    finally:
        if added:
            with suppress(ValueError):
                sys.path.remove("")


def check(task: Any, name: str) -> Task:
    """Return the task, or raise an error that names everything that is missing."""
    missing = [key for key in PROTOCOL if not hasattr(task, key)]
    if missing:
        raise LabError(
            f"task {name}: lacks {', '.join(missing)}; a task has {', '.join(PROTOCOL)} (adaxlab.task)"
        )
    for key in ("data", "model", "loss", "evaluate"):
        if hasattr(task, key) and not callable(getattr(task, key)):
            raise LabError(f"task {name}: {key} must be a method, not {type(getattr(task, key)).__name__}")
    if not isinstance(task.metric, str) or not task.metric:
        raise LabError(f"task {name}: metric={task.metric!r}: must be the metric's name, such as 'accuracy'")
    if not isinstance(task.higher_is_better, bool):
        raise LabError(f"task {name}: higher_is_better={task.higher_is_better!r}: must be True or False")
    size = getattr(task, "eval_batch_size", 1)
    if not isinstance(size, Integral) or size < 1:
        raise LabError(f"task {name}: eval_batch_size={size!r}: must be a whole number >= 1")
    return task


def parameters(task: Task, model: torch.nn.Module, options: Mapping[str, Any]) -> Iterable[Any]:
    """The parameters that the optimizer receives, in the task's groups if it has `groups`."""
    groups = getattr(task, "groups", None)
    return groups(model, options) if groups else model.parameters()


def check_data(data: Any, name: str) -> Mapping[str, Any]:
    """Return the result of `data()`, or raise an error that describes the expected form."""
    if not isinstance(data, Mapping) or not {"train", "test"} <= set(data):
        given = f"the keys {', '.join(map(str, data))}" if isinstance(data, Mapping) else type(data).__name__
        raise LabError(
            f"task {name}: data() gave {given}; it must be a dict with 'train', 'test' and perhaps 'valid'"
        )
    check_known(f"split in data() of task {name}", ("train", "valid", "test"), *data)
    return data


def check_model(model: Any, name: str) -> torch.nn.Module:
    """Return the result of `model()`, or raise an error."""
    if not isinstance(model, torch.nn.Module):
        raise LabError(f"task {name}: model() gave {type(model).__name__}; it must be a torch.nn.Module")
    if not any(p.requires_grad for p in model.parameters()):
        raise LabError(
            f"task {name}: model() has no parameter that requires a gradient; there is nothing to train"
        )
    return model


def check_loss(result: Any, task: Task, name: str) -> None:
    """Check the result of `loss()` for the first batch; later batches are assumed to have the same form."""
    alone = task.metric == "loss" or hasattr(task, "evaluate")
    shape = "loss" if alone else "(loss, metric)"
    pair = isinstance(result, tuple)
    if (pair and len(result) != 2) or (not pair and not alone):
        given = f"{len(result)} values" if pair else type(result).__name__
        raise LabError(f"task {name}: loss() gave {given}; it must return {shape}")
    loss = result[0] if pair else result
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        given = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise LabError(f"task {name}: the loss must be a tensor with one value, not {given}; take its mean")
    if not loss.requires_grad:
        raise LabError(
            f"task {name}: the loss does not depend on the model's parameters; return it undetached"
        )
    if pair and not isinstance(result[1], torch.Tensor | Number | np.generic):
        given = type(result[1]).__name__
        raise LabError(
            f"task {name}: loss() gave the {task.metric} as {given}; it must be a tensor or a number"
        )


def check_metrics(given: Any, task: Task, name: str) -> dict[str, float]:
    """Return the result of `evaluate()` as numbers, or raise an error that describes the expected form."""
    if not isinstance(given, Mapping) or not given or not all(isinstance(key, str) for key in given):
        kind = "an empty dict" if isinstance(given, Mapping) and not given else type(given).__name__
        raise RunError(f"task {name}: evaluate() gave {kind}; it must return a dict of named numbers")
    if next(iter(given)) != task.metric:
        raise RunError(
            f"task {name}: evaluate() gave {', '.join(given)}; the first must be the task's metric, {task.metric}"
        )
    try:
        return {key: float(value) for key, value in given.items()}
    except (TypeError, ValueError) as error:
        raise RunError(f"task {name}: evaluate() must give one number for each name: {error}") from error


def data_digest(task: Any) -> dict[str, str]:
    """{"data": which data the task has, wherever they lie}, for tasks with a `digest()`; {} for others.

    >>> class Mine:
    ...     def digest(self):
    ...         return "a1b2"
    >>> data_digest(Mine()), data_digest(object())
    ({'data': 'a1b2'}, {})
    """
    ask = getattr(task, "digest", None)
    with guarded(f"task {type(task).__name__}: digest()"):
        return {"data": str(ask())} if callable(ask) else {}
