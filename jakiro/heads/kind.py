"""What a kind of draft head is: a config, a network, other people's files of it, and how it learns.

A kind is one folder beside this file, or one module outside the package; `kinds.py` registers ours. Training calls
`levels`, `start` and `whitening` with tensors alone, so a kind knows nothing of caches and batches.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

from torch import Tensor

from jakiro.heads.base import DraftHead
from jakiro.heads.config import DraftConfig

# A text's (tokens,) int64 ids, and the (tokens, feature_size) float32 features that the target had for them
Texts = Sequence[tuple[Tensor, Tensor]]
Tensors = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class HeadKind:
    """A kind of draft head.

    Attributes:
        config: whose `kind` is its name, in config.json and in `Needs.head`.
        network: makes a head with random weights.
        recognise: whether a published config.json and its tensors are of this kind. None: nobody publishes such heads.
        convert: a config and tensors in our own form from them.

            Raises:
                ValueError: something in them is not supported.
        speculators: the `speculators_model_type` of such heads; `convert` reads them, too.
        levels: from a head, (batch, length) ids and (batch, length − 1, feature_size) features yields what each level
            predicts, (batch, length − 1, hidden): row s the feature at s + 1. Row s of level d comes from a tree whose
            root's row is s − d + 1; where there is none, it is not to be used. None: the head goes on with its own
            features, level by level.
        start: gives a bound head its first weights. None: such heads are not trained here.

            Args:
                head, texts: the head, and texts that it may read.
                seed: the same seed gives the same weights.
        whitening: by parameter name, what whitens the inputs of each matrix that reads features; Muon learns in those
            coordinates.
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
        """The kind whose functions stand in modules, imported ones too, by their fields' names.

        A later module's functions count.
        """
        names = ("recognise", "convert", "levels", "start", "whitening")
        found = {name: vars(module)[name] for module in modules for name in names if hasattr(module, name)}
        return cls(config=config, network=network, **found, **fields)

    @property
    def name(self) -> str:
        return self.config.kind


Kinds = Mapping[str, HeadKind]
