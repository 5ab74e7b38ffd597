"""Selection of the backend of a loaded model.

Compiled code for CPUs is no backend: `jakiro.ops.kernels` selects it, and the torch backend's passes call it.
"""

from collections.abc import Sequence
from importlib import import_module

from jakiro.backends.torch_backend import TorchBackend
from jakiro.core.backend import Backend, CreateBackend
from jakiro.drafters.base import Drafter
from jakiro.models.target import TargetModel

# Modules with a function `create_backend`, see `CreateBackend`; the first that returns a backend is used, else the
# reference backend.
# A backend is removed with its folder and its line here
BACKENDS = (
    "jakiro.backends.cuda_graphs.backend",
)  # fmt: skip


def select_backend(
    target: TargetModel, drafters: Sequence[Drafter], graphs: bool, side_by_side: int, fewest_steps: int
) -> tuple[Backend, list[str]]:
    """Return the backend for a target, and notices about faster backends that cannot run it.

    Args:
        drafters: plain decoding's and the default method's.
        graphs: capture passes as CUDA graphs on a GPU; False runs the same passes eagerly.
        side_by_side: number of answers that run at once, as in a race.
        fewest_steps: 0 captures passes now; otherwise an answer with at least so many expected steps captures them.
    """
    notices = []
    if target.weights.is_spread:
        return TorchBackend(target), notices
    for module in BACKENDS:
        create_backend: CreateBackend = import_module(module).create_backend
        backend, notice = create_backend(target, drafters, graphs, side_by_side, fewest_steps)
        notices += [notice] if notice else []
        if backend is not None:
            return backend, notices
    return TorchBackend(target), notices
