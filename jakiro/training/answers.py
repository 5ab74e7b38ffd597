"""Answers that plain decoding writes once, kept with the target's features in a folder for all heads to come.

A file holds one answer. Its name is a hash of all that the answer depends on: the target's weights and dtype, the
prompt's ids, temperature, seed and length.
"""

import hashlib
import json
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from jakiro.config import SamplingParams
from jakiro.heads.checkpoint import write_tensors
from jakiro.prompts import Question
from jakiro.system import atomic_file
from jakiro.target.families import stop_ids
from jakiro.target.features import features_of
from jakiro.text import encode_messages
from jakiro.training.writing import TextRequest, write_texts

# Deeper than any tree: the tokens after an answer's end show what its last tree got right.
OVERHANG = 17
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """One written answer.

    Attributes:
        question: only its first turn was asked; None where the prompt was given as ids.
        ids: (length,) int64, prompt, answer and `OVERHANG` more tokens.
        features: (length, feature_size), the target's, in its own dtype.
        start, end: indices of the answer's first and last token.
    """

    question: Question | None
    ids: Tensor
    features: Tensor
    start: int
    end: int


class AnswerFolder:
    """Writes and reads answers.

    Args:
        model, tokenizer: the target.
        sha256: of its weights, or its name where that is unknown.
        folder: made if missing.
        batch_size: answers written at once.
        feature_layers: layers whose hidden states are kept besides the last one's.
    """

    def __init__(
        self, model, tokenizer, sha256: str, folder: Path, batch_size: int = 16, feature_layers: Sequence[int] = ()
    ) -> None:
        self.model, self.tokenizer, self.sha256 = model, tokenizer, sha256
        self.folder, self.batch_size = Path(folder), batch_size
        self.feature_layers, self.stop_ids = list(feature_layers), stop_ids(model, tokenizer)

    def answers(self, questions: Sequence[Question], sampling: SamplingParams) -> list[Answer]:
        """The answers to the questions' first turns; missing ones are written first."""
        prompts = [encode_messages(self.tokenizer, question.turns[0]) for question in questions]
        found = self.answers_to_ids(prompts, sampling)
        return [replace(answer, question=question) for answer, question in zip(found, questions, strict=True)]

    def answers_to_ids(self, prompts: Sequence[list[int]], sampling: SamplingParams) -> list[Answer]:
        """The same for prompts as token ids, the start of the answer included."""
        paths = [self._path(prompt, sampling) for prompt in prompts]
        missing = [number for number, path in enumerate(paths) if not _is_whole(path)]
        settings = sampling.seed, sampling.temperature, sampling.max_new_tokens
        queue = deque(TextRequest(number, prompts[number], *settings, overhang=OVERHANG) for number in missing)
        texts = write_texts(self.model, queue, self.batch_size, self.stop_ids)
        for done, (request, ids, _) in enumerate(texts, start=1):
            self._store(paths[request.number], request.ids + ids, len(request.ids), sampling)
            log.info("Answer %d of %d at temperature %g written.", done, len(missing), sampling.temperature)
        return [_read(path) for path in paths]

    @torch.inference_mode()
    def _store(self, path: Path, ids: list[int], start: int, sampling: SamplingParams) -> None:
        tensor = torch.tensor(ids, device=self.model.device)
        inputs = {"input_ids": tensor[None], "use_cache": False}
        features = features_of(self.model.base_model, self.feature_layers, **inputs)[0]
        longest = ids[start : start + sampling.max_new_tokens]
        stops = [index for index, token in enumerate(longest) if token in self.stop_ids]
        end = start + (stops[0] if stops else len(longest) - 1)
        tensors = {"ids": tensor.int(), "features": features.contiguous(), "span": torch.tensor([start, end])}
        with atomic_file(path) as unfinished:
            write_tensors({name: value.cpu() for name, value in tensors.items()}, unfinished)

    def _path(self, prompt: list[int], sampling: SamplingParams) -> Path:
        settings = [
            self.sha256, str(self.model.dtype), prompt, sampling.temperature, sampling.seed, sampling.max_new_tokens,
        ]  # fmt: skip
        settings += [self.feature_layers, "raw"] if self.feature_layers else []
        return self.folder / f"{hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:24]}.safetensors"


def _is_whole(path: Path) -> bool:
    """Whether there is a file of an answer that can be read."""
    try:
        with safe_open(path, "numpy") as file:
            return {"ids", "features", "span"} <= set(file.keys())
    except FileNotFoundError:
        return False
    except (OSError, SafetensorError) as error:
        log.warning("The answer in %s can't be read and is written again: %s", path, error)
        return False


def _read(path: Path) -> Answer:
    tensors = load_file(path)
    start, end = tensors["span"].tolist()
    return Answer(None, tensors["ids"].long(), tensors["features"], start, end)
