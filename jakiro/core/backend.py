"""Protocol of a backend, which does all work of an answer that runs on a device.

The loop in `jakiro/decode/loop.py` calls only these methods. `jakiro/backends/torch_backend.py` is the readable
reference; `jakiro/backends/cuda_graphs/` captures the same passes at fixed addresses. `jakiro/backends/native/` is no
backend: it contains kernels for CPUs that the reference's passes call.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig, TreeSize
from jakiro.core.logits_processors import LogitsProcessorList
from jakiro.core.noise import NoiseSource
from jakiro.core.tree import DraftTree
from jakiro.core.verify import Outcome


class BackendSession(Protocol):
    """Target-side state of one answer: the KV cache, the noise and the tensors of the last pass.

    Attributes:
        root: (1,) int64, the last committed token.
        cache: the target's KV cache. If the backend has no `fixed_size`, it must have the method `extend` of
            `jakiro.ops.cache.RowCache`: `device_profile` adds rows without a pass, to time passes after a long text.
        drafter: the answer's `jakiro.drafters.base.Drafter`, or a version of it for CUDA graphs.
        draft_noise: the noise with which the target samples; drafters add it to their own scores, so that they predict
            the sample.
        can_draft_ahead: whether drafting returns before the device is done, so that the next draft can be launched
            while the host records a step.
        note: a sentence for the plan of every step; empty if there is nothing to report.
    """

    root: Tensor
    cache: Any
    drafter: Any
    draft_noise: NoiseSource
    can_draft_ahead: bool
    note: str

    def load_cache(self, rows: Tensor) -> None:
        """Fill the empty cache with rows of `export_cache`; call before `prefill`."""

    def export_cache(self, length: int) -> Tensor:
        """Return a copy of the first cache rows, (layers, 2, kv_heads, length, head_dim)."""

    def prefill(self, prompt_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Read the prompt, or the part of it that follows the loaded rows.

        Args:
            prompt_ids: (n,) int64.

        Returns:
            (n, feature_size) features and the (1, vocab_size) logits at the last position.
        """

    def begin(self, root: Tensor, processors: LogitsProcessorList | None = None) -> None:
        """Set the first token, (1,) int64, and the logits processors of the answer."""

    def root_tree(self) -> DraftTree:
        """Return the tree of plain decoding: the last committed token."""

    def place_tree(self, tree: DraftTree) -> DraftTree:
        """Return the tree in the memory that `score` reads; `score` calls it if necessary."""

    def score(self, tree: DraftTree) -> None:
        """Run the target over all nodes of a tree in one pass.

        It may be called again without a `commit`; then the rows of the earlier tree are dropped.
        """

    def verify(self, tree: DraftTree, whole_vocabulary: bool = False) -> Outcome:
        """Compare the scored tree with the target's choices and copy the outcome to the host, the step's one copy.

        This runs no pass of the target: `Step.verify_ms` is the time of `score`, and this time is in `Step.other_ms`.

        Args:
            whole_vocabulary: sort all logits for top-k and top-p, as `Outcome.needs_full_sort` requests.
        """

    def logits(self, num_nodes: int) -> Tensor:
        """Return the target's logits of the scored tree, (num_nodes, vocab_size); valid until the next pass."""

    def processed_logits(self, num_nodes: int) -> Tensor:
        """Return the same logits after the logits processors; call between `verify` and `commit`."""

    def commit(self, outcome: Outcome) -> tuple[Tensor, Tensor]:
        """Keep the cache rows of the accepted path.

        Returns:
            The (n,) int64 committed tokens, and (n, feature_size) features. Row i has the features of the position
            before token i, from which the target chose this token.
        """


class Backend(Protocol):
    """Runs passes on a device; selected once, when a model is loaded.

    Attributes:
        target: the `jakiro.models.target.TargetModel` that it runs.
        is_batch_invariant: whether plain passes and tree passes give the same bits.
        max_reusable_tokens: maximum number of cache rows of an earlier answer that a prompt can reuse without changing
            a bit of the new answer; 0 for none.
        fixed_size: the one tree size worth drafting, if all sizes cost the same; else None.
        can_profile: whether measured pass times predict later ones.
        notices: sentences for the user about how passes run.
        status: counts and bytes in JSON's types; None if there is nothing to report.
    """

    target: Any
    is_batch_invariant: bool
    max_reusable_tokens: int
    fixed_size: TreeSize | None
    can_profile: bool
    notices: list[str]
    status: dict | None

    def with_target(self, target: Any, drafter: Any) -> "Backend":
        """Return a backend of the same kind for the same weights under other numerics.

        Args:
            drafter: the drafter of plain decoding, used for trial passes.
        """

    def open(
        self, drafter: Any, sampling: SamplingParams, tree: TreeConfig, num_prompt_tokens: int, max_length: int
    ) -> BackendSession:
        """Return the state of a new answer.

        Args:
            drafter: a `jakiro.drafters.base.Drafter`; plain decoding has one too.
            tree: the largest tree that the answer drafts.
            num_prompt_tokens: tokens of the prompt, with the given beginning of the answer.
            max_length: upper bound of the tokens of prompt and answer together.
        """

    def close(self, session: BackendSession) -> None:
        """Release the state of an answer; a second call has no effect."""


class CreateBackend(Protocol):
    """Signature of `create_backend`, which every module in `jakiro.backends.select.BACKENDS` has."""

    def __call__(
        self, target: Any, drafters: Sequence, graphs: bool, side_by_side: int, fewest_steps: int
    ) -> tuple[Backend | None, str | None]:
        """Return a backend for the target, or None, and a notice for the user, or None.

        `jakiro.backends.select.select_backend` documents the arguments.
        """
