"""The description of a kind of draft head: config, network, published files, and training rules.

A kind is a subpackage of `jakiro.heads`, or a module outside of it; `kinds.py` registers the package's own kinds.
Training calls `levels`, `start` and `whitening` with tensors only, so a kind does not depend on caches and batches.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

from torch import Tensor

from jakiro.heads.base import DraftHead
from jakiro.heads.config import DraftConfig

# (tokens,) int64 ids of a text and the target's (tokens, feature_size) float32 features
Texts = Sequence[tuple[Tensor, Tensor]]
Tensors = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class HeadKind:
    """A kind of draft head.

    Attributes:
        config: Config class; its `kind` is the name in config.json and in `Needs.head`.
        network: Creates a head with random weights.
        recognise: Returns whether a published config.json and its tensors are of this kind. None if such heads are not
            published.
        convert: Returns config and tensors in the format of this package from published ones. Raises ValueError if
            something in them is not supported.
        speculators: `speculators_model_type` of such heads, which `convert` supports, too.
        levels: Yields the predictions of each level, (batch, length − 1, hidden), from a head, (batch, length) ids and
            (batch, length − 1, feature_size) features. Row s is the feature at s + 1. Row s of level d comes from a
            tree with root row s − d + 1 and must be ignored if that row does not exist. None for a head that continues
            from its own features, level by level.
        start: Initializes a bound head from texts; the same seed gives the same weights. None if such heads are not
            trained here.
        whitening: Returns, by parameter name, the matrix that whitens the inputs of each weight that reads features;
            Muon learns in those coordinates.
    """

    config: type[DraftConfig]
    network: Callable[[DraftConfig], DraftHead]
    recognise: Callable[[dict, Tensors], bool] | None = None
    convert: Callable[[dict, Tensors], tuple[DraftConfig, Tensors]] | None = None
    speculators: str | None = None
    levels: Callable[[DraftHead, Tensor, Tensor], Iterator[Tensor]] | None = None
    start: Callable[[DraftHead, Texts, int], None] | None = None
    whitening: Callable[[DraftHead, Texts], Tensors] = lambda head, texts: {}

    @classmethod
    def of(
        cls, config: type[DraftConfig], network: Callable[[DraftConfig], DraftHead], *modules: ModuleType, **fields
    ) -> "HeadKind":
        """Return the kind with the functions that modules define or import under the names of fields.

        A later module overrides an earlier one.
        """
        names = ("recognise", "convert", "levels", "start", "whitening")
        functions = {name: vars(module)[name] for module in modules for name in names if hasattr(module, name)}
        return cls(config=config, network=network, **functions, **fields)

    @property
    def name(self) -> str:
        return self.config.kind


Kinds = Mapping[str, HeadKind]
