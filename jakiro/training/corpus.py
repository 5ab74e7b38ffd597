"""A corpus the target writes itself: answers to prompts, or to messages it also writes itself (Magpie, 2406.08464).

Rows are JSON lines as `ids`, `kind`, `temp` and `a0` (index of the first answer token), in numbered parts of gzip; a
manifest beside them says how they were made. Sampling is keyed by (seed, row), so a row does not depend on its batch.
"""

import gzip
import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from jakiro.sampling import KeyedNoise

MANIFEST_NAME = "manifest.json"
SELF_WRITTEN = "magpie"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """How text is sampled.

    Attributes:
        seed: keys every row together with its number.
        temperatures: of the answers, taken in turn.
        top_k: tokens to sample from.
        max_new_tokens: longest answer; a self-written message has at most `max_message_tokens`.
        batch_size: rows written at once.
        part_rows: rows in one file; a stopped run loses at most this many.
        min_distinct: smallest share of distinct 4-grams in an answer that is kept.
    """

    seed: int = 0
    temperatures: tuple[float, ...] = (0.0, 0.0, 0.0, 0.6, 0.8, 1.0)
    top_k: int = 64
    max_new_tokens: int = 420
    max_message_tokens: int = 200
    batch_size: int = 16
    part_rows: int = 256
    min_distinct: float = 0.4


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a corpus."""

    ids: list[int]
    kind: str
    temp: float
    a0: int

    @property
    def loss_start(self) -> int:
        """A self-written message may be learned from as well; its template prefix is the first 22 tokens or fewer."""
        return min(22, self.a0) if self.kind == SELF_WRITTEN else self.a0


def read_corpus(paths: Sequence[Path]) -> list[Row]:
    """Rows of corpus files and of all files in corpus folders.

    Raises:
        FileNotFoundError: a path does not exist, or no file was found.
        ValueError: a line is no corpus row.
    """
    files = []
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"There is no corpus at {path}; write one with the corpus command.")
        files += sorted(path.glob("*.jsonl.gz")) if path.is_dir() else [path]
    if not files:
        raise FileNotFoundError(
            f"No *.jsonl.gz in {', '.join(map(str, paths))}; write a corpus with the corpus command."
        )
    rows = []
    for file in files:
        with gzip.open(file, "rt") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    values = json.loads(line)
                    row = Row(values["ids"], values["kind"], values["temp"], values["a0"])
                except (ValueError, KeyError, TypeError) as error:
                    raise ValueError(f"{file}, line {number}: not a corpus row ({error}).") from error
                rows.append(row)
    return rows


class CorpusWriter:
    """Writes a corpus part by part.

    Args:
        model, tokenizer: the target.
        folder: made if missing; an unfinished corpus with the same settings is continued.
        options: how text is sampled.
        prompts: user messages to answer, or None to let the target write them too.
        kind: stored with every row that answers a prompt.

    Raises:
        ValueError: the folder holds a corpus made with other settings, or the tokenizer has no chat template.
    """

    def __init__(
        self,
        model,
        tokenizer,
        folder: Path,
        options: CorpusOptions,
        prompts: Sequence[str] | None = None,
        kind: str = "prompts",
    ) -> None:
        if not tokenizer.chat_template:
            raise ValueError("The target's tokenizer has no chat template, so there is no user turn to write from.")
        self.model, self.tokenizer, self.folder, self.options = model, tokenizer, folder, options
        self.prompts, self.kind = prompts, kind if prompts else SELF_WRITTEN
        self.stop_ids = stop_ids(model, tokenizer)
        self.before, self.after = _turn_ids(tokenizer)
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = json.loads(
            json.dumps({"kind": self.kind, "num_prompts": prompts and len(prompts), **asdict(options)})
        )
        manifest = folder / MANIFEST_NAME
        if manifest.is_file():
            stored = json.loads(manifest.read_text())
            if stored["settings"] != settings:
                raise ValueError(f"{folder} holds a corpus made with other settings; name an empty folder.")
        else:
            manifest.write_text(json.dumps({"settings": settings}, indent=2) + "\n")
        self.seen = {tuple(row.ids) for row in self._kept_rows()}

    def _kept_rows(self) -> list[Row]:
        return read_corpus([self.folder]) if list(self.folder.glob("*.jsonl.gz")) else []

    def write(self, num_rows: int) -> int:
        """Samples rows 0 … num_rows − 1 that are not there yet; returns the number of tokens kept in this call."""
        options, kept_tokens, begun = self.options, 0, time.monotonic()
        num_rows = min(num_rows, len(self.prompts)) if self.prompts else num_rows
        for first in range(0, num_rows, options.part_rows):
            part = self.folder / f"part-{first // options.part_rows:05d}.jsonl.gz"
            last = min(first + options.part_rows, num_rows)
            if part.is_file():
                continue
            rows = []
            for start in range(first, last, options.batch_size):
                for row in self._sample(range(start, min(start + options.batch_size, last))):
                    if self._worth_keeping(row):
                        self.seen.add(tuple(row.ids))
                        rows.append(row)
                        kept_tokens += len(row.ids)
                done = min(start + options.batch_size, last)
                speed = kept_tokens / max(time.monotonic() - begun, 1e-9)
                left = (num_rows - done) * (time.monotonic() - begun) / max(done - first, 1) / 60
                log.info("%d of %d rows, %.0f tokens/s, about %.0f min left", done, num_rows, speed, left)
            _write_part(part, rows)
        return kept_tokens

    def _sample(self, numbers: range) -> list[Row]:
        """Rows by number, in order."""
        options = self.options
        temperatures = [options.temperatures[number % len(options.temperatures)] for number in numbers]
        # Message and answer of a row are keyed apart: positions repeat, seeds don't.
        message_seeds = [(options.seed << 40) + 2 * number for number in numbers]
        answer_seeds = [seed + 1 for seed in message_seeds]
        if self.prompts is None:
            written = sample_batch(
                self.model, [self.before] * len(numbers), message_seeds, [1.0] * len(numbers), options.top_k,
                options.max_message_tokens, self.stop_ids,
            )  # fmt: skip
            messages = [[token for token in ids if token not in self.stop_ids] for ids in written]
        else:
            encode = self.tokenizer.encode
            messages = [encode(self.prompts[number], add_special_tokens=False) for number in numbers]
        prompts = [self.before + message + self.after for message in messages]
        answers = sample_batch(
            self.model, prompts, answer_seeds, temperatures, options.top_k, options.max_new_tokens, self.stop_ids
        )
        return [
            Row(prompt + answer, self.kind, temperature, len(prompt))
            for prompt, answer, temperature in zip(prompts, answers, temperatures, strict=True)
        ]

    def _worth_keeping(self, row: Row) -> bool:
        return tuple(row.ids) not in self.seen and distinct_share(row.ids[row.a0 :]) >= self.options.min_distinct


@torch.inference_mode()
def sample_batch(
    model,
    prompts: Sequence[list[int]],
    seeds: Sequence[int],
    temperatures: Sequence[float],
    top_k: int,
    max_new_tokens: int,
    stop_ids: set[int],
) -> list[list[int]]:
    """Continues prompts together until each has ended; finished rows leave the batch.

    Returns:
        The new ids of each prompt, with the stop id where one came.
    """
    device, longest = model.device, max(map(len, prompts))
    ids = torch.zeros(len(prompts), longest, dtype=torch.int64, device=device)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    cache, active, written = None, list(range(len(prompts))), [[] for _ in prompts]
    for _ in range(max_new_tokens):
        output = model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
        )
        cache = output.past_key_values
        top = output.logits[:, -1].float().topk(min(top_k, output.logits.shape[-1]), dim=-1)
        next_ids = []
        for place, row in enumerate(active):
            values, tokens = top.values[place], top.indices[place]
            if temperatures[row] > 0:
                position = torch.tensor(len(prompts[row]) + len(written[row]), device=device)
                values = values / temperatures[row] + KeyedNoise(seeds[row]).at(position, tokens)
            next_ids.append(int(tokens[values.argmax()]))
            written[row].append(next_ids[-1])
        going = [place for place, token in enumerate(next_ids) if token not in stop_ids]
        if not going:
            break
        positions = positions[:, -1:] + 1
        mask = torch.cat([mask, mask.new_ones(len(active), 1)], dim=1)
        ids = torch.tensor(next_ids, device=device)[:, None]
        if len(going) < len(active):
            keep = torch.tensor(going, device=device)
            cache.batch_select_indices(keep)
            ids, mask, positions = ids[keep], mask[keep], positions[keep]
            active = [active[place] for place in going]
    return written


def distinct_share(ids: Sequence[int], size: int = 4) -> float:
    """Share of distinct n-grams; 1 for texts too short to have two."""
    grams = [tuple(ids[start : start + size]) for start in range(len(ids) - size + 1)]
    return len(set(grams)) / len(grams) if len(grams) > 1 else 1.0


def stop_ids(model, tokenizer) -> set[int]:
    """Every id that ends a turn, by the model's generation config and the tokenizer."""
    named = model.generation_config.eos_token_id
    named = named if isinstance(named, list) else [named]
    return {token for token in [*named, tokenizer.eos_token_id] if token is not None}


def _turn_ids(tokenizer) -> tuple[list[int], list[int]]:
    """The template's ids before and after a user's message, with the start of the answer."""
    marker = "\u2603MESSAGE\u2603"
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": marker}], tokenize=False, add_generation_prompt=True
    )
    before, after = text.split(marker)
    return tuple(tokenizer.encode(part, add_special_tokens=False) for part in (before, after))


def _write_part(part: Path, rows: list[Row]) -> None:
    partial = part.with_suffix(".partial")
    with gzip.open(partial, "wt") as file:
        for row in rows:
            file.write(json.dumps({"ids": row.ids, "kind": row.kind, "temp": row.temp, "a0": row.a0}) + "\n")
    os.replace(partial, part)
