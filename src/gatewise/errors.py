"""Every error a user can cause.

GatewiseError
├── ConfigError      an unknown preset, option or combination of options
├── WiringError      a layer whose shape cannot be wired
├── DataError        a dataset that is missing, damaged or of another shape
├── EncodingError    feature values that cannot be turned into bits
├── CircuitError     arrays that are no circuit, or bits that do not fit one
├── FileError        a file that cannot be read or written
└── KernelError      a kernel that was asked for by name and is not available

A message says what came, what was expected and what to do, in one sentence.
"""


class GatewiseError(Exception):
    """The base of all errors below; the command line prints it without a traceback."""


class ConfigError(GatewiseError):
    """An unknown preset, option or combination of options."""


class WiringError(GatewiseError):
    """A layer whose shape cannot be wired."""


class DataError(GatewiseError):
    """A dataset that is missing, damaged or of another shape."""


class EncodingError(GatewiseError):
    """Feature values that cannot be turned into bits."""


class CircuitError(GatewiseError):
    """Arrays that are no circuit, or bits that do not fit one."""


class FileError(GatewiseError):
    """A file that cannot be read or written."""


class KernelError(GatewiseError):
    """A kernel that was asked for by name and is not available."""
