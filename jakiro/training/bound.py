"""A head bound to its target, as `calibrate` and `evaluate` read it."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jakiro.heads.base import DraftHead
from jakiro.loading.loader import read_target
from jakiro.system import cache_folder
from jakiro.text import read_arguments, set_template_arguments
from jakiro.training.answers import AnswerFolder


@dataclass(frozen=True, slots=True)
class BoundHead:
    """A head with its target, neither packed.

    Attributes:
        layers: whose states the head reads beside the last one's.
        target: its name. sha256: of its weights, None where that is unknown.
    """

    head: DraftHead
    layers: tuple[int, ...]
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    target: str
    sha256: str | None

    @classmethod
    def read(
        cls,
        head: DraftHead,
        target: str,
        device: torch.device,
        dtype: torch.dtype,
        template_arguments: str | None = None,
    ) -> "BoundHead":
        """Reads the target in this dtype and binds the head to it, in the head's own.

        Args:
            template_arguments: of its chat template, as JSON.

        Raises:
            ValueError, OSError: one sentence.
        """
        told = read_arguments(template_arguments)
        model, tokenizer, sha256 = read_target(target, device, dtype)
        set_template_arguments(tokenizer, told)
        layers = head.config.layers_of(model.config.get_text_config().num_hidden_layers)
        bound = cls(head.eval(), layers, model, tokenizer, target, sha256)
        own = next(head.parameters()).dtype
        head.bind(*(table.to(own) for table in bound.tables))
        return bound

    @property
    def source(self) -> str:
        """What features and answers are kept under."""
        return self.sha256 or self.target

    @property
    def tables(self) -> list[Tensor]:
        """The target's embedding and output rows."""
        return [
            each.weight.detach() for each in (self.model.get_input_embeddings(), self.model.get_output_embeddings())
        ]

    def answers(self, batch_size: int, folder: str | None = None) -> AnswerFolder:
        """The target's written answers; in the user's cache if no folder is given."""
        path = Path(folder) if folder else cache_folder() / "answers"
        return AnswerFolder(self.model, self.tokenizer, self.source, path, batch_size, self.layers)
