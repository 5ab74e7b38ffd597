"""The CUDA-graph backend: answers run in buffers at fixed addresses with captured passes."""

from collections.abc import Sequence

from jakiro.backends.cuda_graphs.buffers import MOST_NODES, GraphBuffers
from jakiro.backends.cuda_graphs.pool import TREE, GraphPool
from jakiro.backends.torch_backend import TorchBackend, TorchSession
from jakiro.config import SamplingParams, TreeConfig, TreeSize
from jakiro.drafters.base import Drafter
from jakiro.models.target import TargetModel


class CudaGraphBackend:
    """Backend that captures the reference's passes; see `jakiro.core.backend.Backend`.

    Answers that are too long for the buffers, or whose trees are too large, run in the reference backend.

    Args:
        pool: buffers over one target.

    Attributes:
        num_rejected: answers so far that ran in the reference backend.
    """

    # On a GPU the bits of a prompt's rows depend on how many are read at once
    max_reusable_tokens = 0
    # All trees are padded to the same rows, so all sizes cost the same
    fixed_size: TreeSize | None = TreeSize(TREE.depth, TREE.nodes)

    def __init__(self, pool: GraphPool) -> None:
        self.pool, self.num_rejected = pool, 0

    @property
    def target(self) -> TargetModel:
        return self.pool.target

    @property
    def is_batch_invariant(self) -> bool:
        return self.target.bit_identical

    @property
    def can_profile(self) -> bool:
        return self.pool.is_always_captured

    @property
    def notices(self) -> list[str]:
        notices, failure = [], self.pool.graphs.failure
        if failure:
            notices.append(f"CUDA refused a graph ({failure}): passes run without graphs, one kernel at a time.")
        if self.num_rejected:
            notices.append(
                f"Graphs are for up to {self.pool.tokens:,} tokens of prompt and answer and trees of {MOST_NODES} "
                "nodes; a larger request ran without graphs, one kernel at a time."
            )
        return notices

    @property
    def status(self) -> dict:
        return self.pool.status

    def with_target(self, target: TargetModel, drafter: Drafter) -> "CudaGraphBackend":
        pool = self.pool.for_target(target)
        pool.settle(drafter)
        return CudaGraphBackend(pool)

    def open(
        self, drafter: Drafter, sampling: SamplingParams, tree: TreeConfig, num_prompt_tokens: int, max_length: int
    ) -> GraphBuffers | TorchSession:
        if not self.pool.fits(tree, max_length):
            self.num_rejected += 1
            return TorchBackend(self.target).open(drafter, sampling, tree, num_prompt_tokens, max_length)
        return self.pool.borrow(drafter, sampling, tree, num_prompt_tokens, max_length)

    def close(self, session: GraphBuffers | TorchSession) -> None:
        if isinstance(session, GraphBuffers):
            self.pool.give_back(session)


def create_backend(
    target: TargetModel, drafters: Sequence[Drafter], graphs: bool, side_by_side: int, fewest_steps: int
) -> tuple[CudaGraphBackend | None, str | None]:
    """Return a backend for a target on a GPU, or None, with a notice if a GPU runs the target without graphs.

    See `jakiro.backends.select.select_backend`.
    """
    if target.device.type != "cuda":
        return None, None
    if target.fused is None or not target.fused.is_static:
        return None, (
            f"{target.name} runs without graphs, one kernel at a time: they require layers of Llama's shape, not "
            "quantized, and a rotary embedding that does not change with the length."
        )
    pool = GraphPool(target, graphs, fewest_steps=fewest_steps)
    pool.settle(drafters[-1])
    if fewest_steps == 0:
        pool.prepare(drafters, side_by_side)
    return CudaGraphBackend(pool), None
