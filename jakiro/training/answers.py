"""Answers of plain decoding, stored with the target's features in a folder, so that any head can be evaluated on them.

A file has one answer, see `features.py`. Its name is a hash of everything on which the answer depends: the target's
weights and dtype, the prompt's ids, temperature, seed and length.
"""

import hashlib
import json
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from jakiro.config import SamplingParams
from jakiro.models.families import stop_ids
from jakiro.models.features import features_of
from jakiro.prompts import Question
from jakiro.text import encode_messages
from jakiro.training.features import DamagedFeatures, FeatureFile, Text, write_file
from jakiro.training.replay import Answer
from jakiro.training.writing import TextRequest, write_texts

# Tokens after an answer's end, more than the depth of any tree: they evaluate the last tree
OVERHANG = 17
log = logging.getLogger(__name__)


class AnswerFolder:
    """Generates and reads answers.

    Args:
        model: the target.
        tokenizer: of the target.
        sha256: hash of its weights, or its name if the hash is unknown.
        folder: created if it does not exist.
        batch_size: number of answers generated at once.
        feature_layers: layers with stored hidden states, in addition to the last one.
    """

    def __init__(
        self, model, tokenizer, sha256: str, folder: Path, batch_size: int = 16, feature_layers: Sequence[int] = ()
    ) -> None:
        self.model, self.tokenizer, self.sha256 = model, tokenizer, sha256
        self.folder, self.batch_size = Path(folder), batch_size
        self.feature_layers, self.stop_ids = list(feature_layers), stop_ids(model, tokenizer)

    def answers(self, questions: Sequence[Question], sampling: SamplingParams) -> list[Answer]:
        """Return the answers to the first turns of the questions; missing ones are generated."""
        prompts = [encode_messages(self.tokenizer, question.turns[0]) for question in questions]
        answers = self.answers_to_ids(prompts, sampling)
        return [replace(answer, question=question) for answer, question in zip(answers, questions, strict=True)]

    def answers_to_ids(self, prompts: Sequence[list[int]], sampling: SamplingParams) -> list[Answer]:
        """Return the answers to prompts given as token ids, including the start of the answer."""
        paths = [self._path(prompt, sampling) for prompt in prompts]
        answers = [_read(path) for path in paths]
        missing = [number for number, answer in enumerate(answers) if answer is None]
        settings = sampling.seed, sampling.temperature, sampling.max_new_tokens
        queue = deque(TextRequest(number, prompts[number], *settings, overhang=OVERHANG) for number in missing)
        texts = write_texts(self.model, queue, self.batch_size, self.stop_ids)
        for num_done, (request, ids) in enumerate(texts, start=1):
            self._store(paths[request.number], request.ids + ids, len(request.ids), sampling)
            answers[request.number] = _read(paths[request.number])
            log.info("Answer %d of %d at temperature %g written.", num_done, len(missing), sampling.temperature)
        return answers

    @torch.inference_mode()
    def _store(self, path: Path, ids: list[int], start: int, sampling: SamplingParams) -> None:
        inputs = {"input_ids": torch.tensor([ids], device=self.model.device), "use_cache": False}
        features = features_of(self.model.base_model, self.feature_layers, **inputs)[0]
        longest = ids[start : start + sampling.max_new_tokens]
        stops = [index for index, token in enumerate(longest) if token in self.stop_ids]
        end = start + (stops[0] if stops else len(longest) - 1)
        write_file(path, [Text(ids, features, (start, end))])

    def _path(self, prompt: list[int], sampling: SamplingParams) -> Path:
        settings = [
            self.sha256, str(self.model.dtype), prompt, sampling.temperature, sampling.seed, sampling.max_new_tokens,
        ]  # fmt: skip
        settings += [self.feature_layers, "raw"] if self.feature_layers else []
        return self.folder / f"{hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:24]}.safetensors"


def _read(path: Path) -> Answer | None:
    """Return the answer in a file; None if the file does not exist or is corrupted."""
    try:
        ids, features, (start, end) = FeatureFile(path).text(0)
    except FileNotFoundError:
        return None
    except DamagedFeatures as error:
        log.warning("%s The answer is written again.", error)
        return None
    return Answer(torch.from_numpy(ids).long(), features, start, end)
