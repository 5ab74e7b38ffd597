"""A head bound to its target, for `calibrate` and `evaluate`."""

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
    """A head with its target, both without packed weights.

    Attributes:
        layers: layers that the head reads, in addition to the last one.
        target: name of the target.
        sha256: hash of the target's weights; None if unknown.
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
        """Load the target and bind the head to it, with tables in the head's dtype.

        Args:
            head: the head.
            target: name of the target.
            device: of the target.
            dtype: of the target.
            template_arguments: arguments of its chat template, as JSON.

        Raises:
            ValueError, OSError: one sentence.
        """
        arguments = read_arguments(template_arguments)
        model, tokenizer, sha256 = read_target(target, device, dtype)
        set_template_arguments(tokenizer, arguments)
        layers = head.config.layers_of(model.config.get_text_config().num_hidden_layers)
        bound = cls(head.eval(), layers, model, tokenizer, target, sha256)
        head_dtype = next(head.parameters()).dtype
        head.bind(*(table.to(head_dtype) for table in bound.tables))
        return bound

    @property
    def source(self) -> str:
        """Return the key of the target's features and answers."""
        return self.sha256 or self.target

    @property
    def tables(self) -> list[Tensor]:
        """Return the target's embedding and output matrix."""
        layers = self.model.get_input_embeddings(), self.model.get_output_embeddings()
        return [layer.weight.detach() for layer in layers]

    def answers(self, batch_size: int, folder: str | None = None) -> AnswerFolder:
        """Return the target's stored answers, by default in the user's cache."""
        path = Path(folder) if folder else cache_folder() / "answers"
        return AnswerFolder(self.model, self.tokenizer, self.source, path, batch_size, self.layers)
