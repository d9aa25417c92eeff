"""gatewise learns compact Boolean networks from data and turns them into circuits.

Public names are resolved when they are first used, so that `import gatewise` costs nothing and loads no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "LogicDense": "layers",
    "LogicConv2d": "layers",
    "GroupSum": "layers",
    "Resampler": "resample",
    "Hardener": "harden",
    "discretize": "discretization",
    "own_threads": "kernels",
    "BooleanModel": "model",
    "Head": "model",
    "load": "model",
    "GatewiseError": "errors",
}

__all__ = ["BooleanModel", "GatewiseError", "GroupSum", "Hardener", "Head", "LogicConv2d", "LogicDense", "Resampler"]
__all__ += ["__version__", "discretize", "load", "own_threads"]

if TYPE_CHECKING:
    from gatewise.discretization import discretize
    from gatewise.errors import GatewiseError
    from gatewise.harden import Hardener
    from gatewise.kernels import own_threads
    from gatewise.layers import GroupSum, LogicConv2d, LogicDense
    from gatewise.model import BooleanModel, Head, load
    from gatewise.resample import Resampler


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gatewise' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"gatewise.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
