"""Where the tests of the GPU's kernels run: on a GPU where there is one, else in Triton's interpreter, on the CPU.

Triton looks at its environment when a kernel is defined, so this has to be imported before any of them.
"""

import pytest
import torch

from gatewise import kernels

if reason := kernels.why_no_triton():
    pytest.skip(reason, allow_module_level=True)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
_ENVIRONMENT = {} if DEVICE.type == "cuda" else {"TRITON_INTERPRET": "1"}

with pytest.MonkeyPatch.context() as patch:
    for name, value in _ENVIRONMENT.items():
        patch.setenv(name, value)
    from gatewise.kernels import triton_batch, triton_gpu, triton_mix

__all__ = ["DEVICE", "interpreted", "triton_batch", "triton_gpu", "triton_mix"]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Let gatewise take the interpreter for a GPU, in the tests that import this alone."""
    for name, value in _ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
