"""Selection of the backend of a loaded model."""

from collections.abc import Sequence

from jakiro.backends.cuda_graphs.backend import CudaGraphBackend
from jakiro.backends.cuda_graphs.pool import GraphPool
from jakiro.backends.torch_backend import TorchBackend
from jakiro.core.backend import Backend
from jakiro.drafters.base import Drafter
from jakiro.models.target import TargetModel


def select_backend(
    target: TargetModel, drafters: Sequence[Drafter], graphs: bool, side_by_side: int, fewest_steps: int
) -> tuple[Backend, str | None]:
    """Return the backend for a target, with its passes captured, and a notice if a GPU runs without graphs.

    Args:
        drafters: plain decoding's and the default method's, see `GraphPool.prepare`.
        graphs: capture passes as CUDA graphs; False runs the same passes eagerly.
        side_by_side: answers that run at once, as in a race.
        fewest_steps: 0 captures passes now; otherwise passes are captured for answers of so many expected steps.
    """
    if target.device.type != "cuda":
        return TorchBackend(target), None
    if target.fused is None or not target.fused.is_static:
        return TorchBackend(target), (
            f"{target.name} runs without graphs, one kernel at a time: they are for layers of Llama's shape, not "
            "quantized, whose rotary embedding does not change with the length."
        )
    pool = GraphPool(target, graphs, fewest_steps=fewest_steps)
    pool.settle(drafters[-1])
    if fewest_steps == 0:
        pool.prepare(drafters, side_by_side)
    return CudaGraphBackend(pool), None
