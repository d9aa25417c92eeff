"""A model is what turns features into a class: encoder, circuit and head, in one file.

n samples, M circuit outputs.
"""

from __future__ import annotations

import math
import operator
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gatewise.circuit import Circuit, Program
from gatewise.circuit.store import arrays_of, circuit_from
from gatewise.encode import Encoder, encoder_from
from gatewise.engine import Engine, count
from gatewise.errors import CircuitError, ConfigError, EncodingError, FileError, GatewiseError
from gatewise.files import Arrays, brief, read_arrays, write_arrays

FORMAT, VERSION = "gatewise-model", 1

MAX_CLASSES = 1 << 20
"""A sample has a score for each class, so a damaged file must not be able to ask for any number of them."""


@dataclass(frozen=True)
class Head:
    """Popcount per class over equal groups of the circuit's outputs, in order.

    A group has ceil(M / classes) outputs; where the outputs end early, zeros are counted.
    """

    classes: int
    tau: float = 1.0

    def __post_init__(self) -> None:
        try:
            classes, tau = operator.index(self.classes), float(self.tau)
        except (TypeError, ValueError):
            raise ConfigError(f"the head has classes={self.classes!r} and tau={self.tau!r}: expected numbers") from None
        if not 1 <= classes <= MAX_CLASSES:
            raise ConfigError(f"the head has {classes} classes: expected 1 to {MAX_CLASSES}")
        if not (tau > 0 and math.isfinite(tau)):
            raise ConfigError(f"the head has tau={tau}: expected a number above 0")
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "tau", tau)

    def group_size(self, outputs: int) -> int:
        """How many outputs a class counts, padding among them."""
        return -(-outputs // self.classes)

    def count(self, bits: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Outputs [n, M] to counts [n, classes]."""
        return count(bits, self.classes)

    def scores(self, bits: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Outputs [n, M] to count / tau, [n, classes]."""
        return self.count(bits) / self.tau


@dataclass(frozen=True, eq=False)
class BooleanModel:
    """From raw features to a class. `notes` is for whatever else should travel with the file, such as accuracies."""

    encoder: Encoder
    circuit: Circuit
    head: Head
    class_names: tuple[str, ...] | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = tuple(self.encoder.bit_shape)
        bits, inputs = math.prod(shape), self.circuit.inputs
        if bits != inputs:
            raise CircuitError(f"the encoder makes {bits} bits (shape {shape}): the circuit has {inputs} inputs")
        if self.class_names is not None:
            object.__setattr__(self, "class_names", tuple(self.class_names))
            if len(self.class_names) != self.head.classes or not all(isinstance(n, str) for n in self.class_names):
                raise ConfigError(f"class_names is {self.class_names!r}: expected {self.head.classes} texts")

    def predict(self, x: ArrayLike) -> NDArray[np.int64]:
        """The class of each of n samples, from features [n, *encoder.input_shape]; of equal scores the lowest."""
        return self._engine.classes(self._features(x))

    def predict_scores(self, x: ArrayLike) -> NDArray[np.float64]:
        """The scores [n, classes], from features [n, *encoder.input_shape]."""
        return self._engine.counts(self._features(x)) / self.head.tau

    def predict_bits(self, bits: ArrayLike, *, packed: bool = False) -> NDArray[np.int64]:
        """The class of each of n samples, from bits [n, …] that are already encoded, flattened in C order.

        With `packed`, from uint8 [n, ⌈bits / 8⌉], eight bits a byte, the first in the lowest place.
        """
        return self._engine.classes_of_bits(np.asarray(bits), packed)

    def _features(self, x: ArrayLike) -> NDArray[Any]:
        features, shape = _features(x), tuple(self.encoder.input_shape)
        if features.shape[1:] != shape or features.ndim != 1 + len(shape):
            raise EncodingError(
                f"the features have shape {features.shape}: expected (n, {', '.join(map(str, shape))}); "
                "for one sample, pass a batch of one"
            )
        return features

    @property
    def program(self) -> Program | None:
        """What predicts: the circuit planned for the C core; None where the simulator has to."""
        return self._engine.program

    @cached_property
    def _engine(self) -> Engine:
        return Engine(self.encoder, self.circuit, self.head.classes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file, which `load` reads; a file at `path` is replaced at once or not at all."""
        header = {
            "format": FORMAT,
            "version": VERSION,
            "encoder": self.encoder.header(),
            "circuit": {"inputs": self.circuit.inputs},
            "head": {"classes": self.head.classes, "tau": self.head.tau},
            "class_names": self.class_names,
            "notes": self.notes,
        }
        arrays = {f"encoder.{name}": array for name, array in self.encoder.arrays().items()}
        arrays |= {f"circuit.{name}": array for name, array in arrays_of(self.circuit).items()}
        write_arrays(path, arrays, header)


def file_of(path: str | os.PathLike[str]) -> Path:
    """The model file that is named by its own path, or by the folder of the run that made it."""
    named = Path(path)
    return named / "model.gatewise" if named.is_dir() else named


def load(path: str | os.PathLike[str]) -> BooleanModel:
    """The model that `BooleanModel.save` wrote to `path`, or that a run left in the folder `path`."""
    file = file_of(path)
    arrays, header = read_arrays(file, FORMAT, VERSION)
    try:
        return _build(arrays, header)
    except (GatewiseError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise FileError(f"{file} holds no sound model: {brief(what)}") from error


def _build(arrays: Arrays, header: dict[str, Any]) -> BooleanModel:
    parts: dict[str, Arrays] = {"encoder": {}, "circuit": {}}
    for name, array in arrays.items():
        part, _, rest = name.partition(".")
        if part not in parts:
            raise ConfigError(f"there is an array {name!r}: expected those of encoder and circuit alone")
        parts[part][rest] = array
    encoder = encoder_from(header["encoder"], parts["encoder"])
    circuit = circuit_from(header["circuit"]["inputs"], parts["circuit"])
    classes, tau = header["head"]["classes"], header["head"]["tau"]
    if type(classes) is not int or type(tau) not in (int, float):  # True is no number here, though Python has it so
        raise ConfigError(f"the head has classes={classes!r} and tau={tau!r}: expected numbers")
    head = Head(classes, tau)
    names, notes = header["class_names"], header["notes"]
    if not isinstance(names, list | None) or not isinstance(notes, dict):
        raise ConfigError("class_names is no list of texts, or notes is no table")
    return BooleanModel(encoder, circuit, head, None if names is None else tuple(names), notes)


def _features(x: ArrayLike) -> NDArray[Any]:
    """`x` as an array; what its numbers or texts may be, the encoder decides."""
    try:
        features = np.asarray(x)
        # A list with texts in it would become text, numbers and all.
        return np.asarray(x, object) if features.dtype.kind == "U" and not isinstance(x, np.ndarray) else features
    except ValueError as error:
        raise EncodingError(f"the features are no array of equal rows: {error}") from None
