"""A corpus that the target writes: answers to prompts, or to messages that it wrote too (Magpie, arXiv 2406.08464).

A text is a JSON line with the fields of `Row`, in numbered gzip files ("parts"); a manifest says how they were made. It
comes from `writing.py`, for `CorpusWriter` a function from requests to texts; `write_corpus(config)` brings
both together.
"""

import gzip
import hashlib
import json
import logging
import time
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from jakiro.config import About, SamplingParams, is_count, is_number, require, setting
from jakiro.loading import registry
from jakiro.loading.loader import choose_device, choose_dtype, read_target
from jakiro.models.families import stop_ids
from jakiro.ops.linear import pack_linears, packing_works, packs_bfloat16
from jakiro.prompts import load_questions
from jakiro.system import atomic_file, write_atomically
from jakiro.text import (
    TokenText,
    merge_template_arguments,
    read_arguments,
    render_messages,
    set_template_arguments,
)
from jakiro.training.exclusion import RUN_WORDS, evaluation_runs, word_runs
from jakiro.training.messages import made_messages
from jakiro.training.writing import TextRequest, write_texts

MANIFEST_NAME = "manifest.json"
SELF_WRITTEN = "magpie"
ROW_FIELDS = ("ids", "kind", "temp", "a0", "l0")
REPORT_SECONDS = 10.0
# Texts in one part; a stopped run loses unfinished ones
PART_ROWS = 64
# Words of a text that is worth a summary
_SHORTEST_PASSAGE = 40
# A text's seed is the corpus' seed in the upper bits and the text's number in the lower ones, 63 together
MAX_SEED, _NUMBER_BITS = 2**23, 40
Write = Callable[[deque[TextRequest]], Iterator[tuple[TextRequest, list[int]]]]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """How text is sampled."""

    seed: int = setting("The same seed writes the same texts.", 0)
    temperatures: tuple[float, ...] = setting(
        "Comma list of temperatures, taken in turn for the answers.", (0.0, 0.0, 0.0, 0.6, 0.8, 1.0)
    )
    top_k: int = setting(About.TOP_K, 64)
    max_new_tokens: int = setting(About.MAX_NEW_TOKENS, 420)
    max_message_tokens: int = setting("At most this many tokens in a question that the target writes.", 200)
    min_distinct: float = setting("Drop answers with a smaller share of distinct 4-grams; 0 keeps all.", 0.4)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < MAX_SEED:
            raise ValueError(f"A corpus' seed must be from 0 to {MAX_SEED - 1:,}; got {self.seed}.")
        for temperature in self.temperatures:
            SamplingParams(temperature, top_k=self.top_k, max_new_tokens=self.max_new_tokens)
        require(
            is_number(self.min_distinct) and 0 <= self.min_distinct <= 1,
            f"The smallest share of distinct 4-grams must be from 0 to 1; got {self.min_distinct}.",
        )


@dataclass(frozen=True, slots=True)
class CorpusConfig:
    """All that a corpus is, as plain data; `options` are how its texts are sampled."""

    out: str = setting("Folder for the corpus; an unfinished one is continued.", argument=True)
    rows: int = setting("How many rows to write, each a question and its answer.", 5000)
    options: CorpusOptions = CorpusOptions()
    target: str | None = setting(About.TARGET, None)
    prompts: str | None = setting("Questions in Spec-Bench form; if not given, the target writes its own.", None)
    made: bool = setting(
        "Answer messages of many kinds, generated from word lists; else the target writes them.", False
    )
    passages: str | None = setting(
        "With --made, a corpus whose answers are the texts to summarise, rewrite and ask about.", None
    )
    batch_size: int = setting("Texts written at once.", 16)
    exclude: tuple[str, ...] = setting(
        "Prompts in Spec-Bench form that heads are measured on, besides our own; may be repeated. Texts that share "
        f"{RUN_WORDS} successive words with one of them are dropped.",
        (),
        repeated=True,
    )
    device: str | None = setting(About.DEVICE, None)
    dtype: str | None = setting(About.DTYPE, None)
    template_arguments: str | None = setting(About.TEMPLATE_ARGUMENTS, None)

    def __post_init__(self) -> None:
        if min(self.rows, self.batch_size, self.options.max_new_tokens, self.options.max_message_tokens) < 1:
            raise ValueError("Rows, batch size and lengths must be at least 1.")
        if (self.made and self.prompts is not None) or (self.passages is not None and not self.made):
            raise ValueError("--made takes no --prompts, and --passages are texts for --made: leave one of them out.")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a corpus.

    Attributes:
        ids: the whole text.
        kind: "magpie" where the target wrote the message too.
        temp: temperature of the answer.
        a0: index of the first answer token.
        l0: first index to learn from.
        place: file and line that it was read from.
    """

    ids: list[int]
    kind: str
    temp: float
    a0: int
    l0: int
    place: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        count = len(self.ids) if isinstance(self.ids, list) else 0
        whole = count > 0 and set(map(type, self.ids)) == {int} and min(self.ids) >= 0
        require(whole, "its ids are no list of token numbers")
        require(isinstance(self.kind, str), f"its kind is {self.kind!r}, no text")
        require(is_number(self.temp) and self.temp >= 0, f"its temperature is {self.temp!r}, no number from 0 on")
        for name in ("a0", "l0"):
            value = getattr(self, name)
            require(is_count(value, 0) and value <= count, f"its {name} is {value!r}, no place among {count} ids")


def read_corpus(paths: Sequence[Path], vocab_size: int | None = None) -> list[Row]:
    """The texts of corpus files, and of all parts in corpus folders.

    Args:
        vocab_size: of the target; None where it is not known.

    Raises:
        FileNotFoundError: a path does not exist, or no file was found.
        ValueError: a file is damaged, a line is no text, or a folder lacks texts that its manifest counts.
    """
    files = []
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"There is no corpus at {path}; write one with the corpus command.")
        files += sorted(path.glob("*.jsonl.gz")) if path.is_dir() else [path]
    if not files:
        found = ", ".join(map(str, paths))
        raise FileNotFoundError(f"No *.jsonl.gz in {found}; write a corpus with the corpus command.")
    parts = {file: read_part(file, vocab_size) for file in files}
    for folder in filter(Path.is_dir, paths):
        counted = read_manifest(folder).get("counts", {}).get("rows", 0)
        found = sum(len(rows) for file, rows in parts.items() if file.parent == folder)
        if found < counted:
            raise ValueError(
                f"{folder} holds {found} rows, its {MANIFEST_NAME} counts {counted}; run corpus again, which writes "
                f"missing parts again, or remove {MANIFEST_NAME} if you took rows out."
            )
    return [row for rows in parts.values() for row in rows]


def read_part(file: Path, vocab_size: int | None = None) -> list[Row]:
    """The texts of one corpus file.

    Raises:
        DamagedPart: it is empty or cut off, or a line is no text.
        ValueError: a token is not in a vocabulary of this size.
    """
    rows = []
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                values = json.loads(line)
                place = f"{file}, line {len(rows) + 1}"
                rows.append(Row(**{name: values[name] for name in ROW_FIELDS}, place=place))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DamagedPart(f"{file} is damaged ({error}); run corpus again, which writes it again.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedPart(
            f"{file}, line {len(rows) + 1}: not a corpus row ({error}); run corpus again, which writes it again."
        ) from error
    for row in rows if vocab_size is not None else ():
        if max(row.ids) >= vocab_size:
            raise ValueError(
                f"{row.place}: token {max(row.ids)} is not among the target's {vocab_size:,}; give the target that "
                "wrote this corpus."
            )
    # A part of which no text was kept has gzip's header at least
    if not file.stat().st_size:
        raise DamagedPart(f"{file} is empty; run corpus again, which writes it again.")
    return rows


class DamagedPart(ValueError):
    """A corpus file that cannot be read; the message is one sentence."""


def read_manifest(folder: Path) -> dict:
    """What the manifest of a corpus or a head says; empty where there is none.

    Raises:
        ValueError: it is no manifest.
    """
    path = folder / MANIFEST_NAME
    if not path.is_file():
        return {}
    try:
        values = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged: it is no JSON object; remove it.") from error
    for name, (fits, wanted) in _MANIFEST.items():
        require(name not in values or fits(values[name]), f"{path} is damaged: {name} is not {wanted}; remove it.")
    return values


# What training and writing read of a manifest, and what each must be
_MANIFEST = {
    "counts": (lambda value: isinstance(value, dict) and all(is_count(each, 0) for each in value.values()), "counts"),
    "settings": (lambda value: isinstance(value, dict), "a corpus' settings"),
    "held_out": (lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value), "hashes"),
    "minutes": (lambda value: is_number(value) and value >= 0, "a number of minutes"),
}


def write_corpus(config: CorpusConfig) -> int:
    """Lets a target write the text that a head is trained on.

    Returns:
        How many tokens this call kept.

    Raises:
        ValueError, OSError: one sentence.
    """
    prompts = None
    if config.prompts is not None:
        prompts = [question.turns[0] for question in load_questions(Path(config.prompts))]
    excluded = evaluation_runs(map(Path, config.exclude))
    target, device = config.target or registry.DEFAULT_TARGET, choose_device(config.device)
    model, tokenizer, sha256 = read_target(config.target, device, choose_dtype(config.dtype, device))
    ends = stop_ids(model, tokenizer)
    if packing_works(model.device, model.dtype) or packs_bfloat16(model.device, model.dtype):
        pack_linears(model)
    write = partial(write_texts, model, batch_size=config.batch_size, stop_ids=ends)
    set_template_arguments(tokenizer, read_arguments(config.template_arguments))
    if config.made:
        passages = [] if config.passages is None else _passages(Path(config.passages), tokenizer)
        prompts = made_messages(config.rows, config.options.seed, passages)
    out, options = Path(config.out), config.options
    writer = CorpusWriter(write, ends, tokenizer, out, options, prompts, target, sha256, excluded)
    return writer.write(config.rows)


def _passages(corpus: Path, tokenizer) -> list[str]:
    """A corpus' answers that are long enough to be summarised, without the template."""
    rows = read_corpus([corpus], len(tokenizer))
    texts = [tokenizer.decode(row.ids[row.a0 :], skip_special_tokens=True).strip() for row in rows]
    return [text for text in texts if len(text.split()) >= _SHORTEST_PASSAGE]


class CorpusWriter:
    """Writes a corpus part by part.

    Args:
        write: continues requests, in any order.
        stop_ids: ids that end a turn.
        folder: made if missing; an unfinished corpus with the same settings is continued.
        prompts: user messages to answer, or None to let the target write them too.
        target, target_sha256: the target's name and the hash of its weights, None where it is not known.
        excluded: runs of words that no text may contain, see `exclusion.py`; those of an earlier call are checked too.

    Raises:
        ValueError: the folder holds a corpus made with other settings, or the tokenizer has no chat template.
    """

    def __init__(
        self,
        write: Write,
        stop_ids: Collection[int],
        tokenizer,
        folder: Path,
        options: CorpusOptions,
        prompts: Sequence[str] | None = None,
        target: str = "",
        target_sha256: str | None = None,
        excluded: Collection[str] = (),
    ) -> None:
        if not tokenizer.chat_template:
            raise ValueError("The target's tokenizer has no chat template, so there is no user turn to write from.")
        self._write, self.stop_ids, self.tokenizer = write, stop_ids, tokenizer
        self._encode = TokenText(tokenizer).encode
        self.folder, self.options = folder, options
        self.prompts, self.kind = prompts, "prompts" if prompts else SELF_WRITTEN
        self.excluded = frozenset(excluded)
        self.before, self.after = turn_ids(tokenizer)
        asked = prompts and hashlib.sha256("\0".join(prompts).encode()).hexdigest()
        settings = {
            "target": target,
            "target_sha256": target_sha256,
            "kind": self.kind,
            "num_prompts": prompts and len(prompts),
            "prompts_sha256": asked,
            "part_rows": PART_ROWS,
            **asdict(options),
        }
        if told := merge_template_arguments(tokenizer, None):
            settings["template_arguments"] = told
        self.settings = json.loads(json.dumps(settings))
        self.counts = {"rows": 0, "tokens": 0, "learned_tokens": 0, "dropped_as_evaluation": 0}
        self.seen: set[tuple[int, ...]] = set()
        if stored := read_manifest(folder):
            begun = stored.get("settings", {})
            names = {*self.settings, *{"template_arguments"}.intersection(begun)}
            different = sorted(name for name in names if begun.get(name) != self.settings.get(name))
            if different:
                raise ValueError(
                    f"{folder} holds a corpus made with other settings ({', '.join(different)}); name an empty folder."
                )
            self.counts["dropped_as_evaluation"] = stored.get("counts", {}).get("dropped_as_evaluation", 0)
        for part in sorted(folder.glob("*.jsonl.gz")):
            try:
                rows = read_part(part)
            except DamagedPart:
                if not part.name.startswith("part-"):
                    raise
                log.warning("%s is damaged and is written again.", part)
                part.unlink()
                continue
            kept = [row for row in rows if not self._is_evaluation(row)]
            if len(kept) < len(rows):
                write_part(part, kept)
            self._count(kept)
        self._write_manifest()

    def write(self, num_rows: int) -> int:
        """Writes the missing ones of texts 0 … num_rows − 1; returns the number of tokens that this call kept."""
        num_rows = min(num_rows, len(self.prompts)) if self.prompts else num_rows
        missing = deque(
            (path, range(first, min(first + PART_ROWS, num_rows)))
            for first in range(0, num_rows, PART_ROWS)
            if not (path := self.folder / f"part-{first // PART_ROWS:05d}.jsonl.gz").is_file()
        )
        queue = deque(self._first_request(number) for _, numbers in missing for number in numbers)
        before, done, progress = self.counts["tokens"], {}, _Progress(len(queue))
        for row_number, row in self._rows(queue):
            done[row_number] = row
            progress.add(len(row.ids) - row.l0)
            # Parts are closed in order, so that the first of two equal texts stays, whichever was finished first.
            while missing and all(number in done for number in missing[0][1]):
                path, numbers = missing.popleft()
                kept = [row for number in numbers if self._worth_keeping(row := done.pop(number))]
                write_part(path, kept)
                self._count(kept)
                self._write_manifest()
        return self.counts["tokens"] - before

    def _rows(self, queue: deque[TextRequest]) -> Iterator[tuple[int, Row]]:
        """Finished texts with their numbers. Request 2n writes the message of text n, 2n + 1 its answer."""
        for request, written in self._write(queue):
            number, is_answer = divmod(request.number, 2)
            if is_answer:
                start = len(self.before) if self.prompts is None else len(request.ids)
                yield number, Row(request.ids + written, self.kind, request.temperature, len(request.ids), start)
            else:
                message = [token for token in written if token not in self.stop_ids]
                queue.appendleft(self._answer_request(number, message))

    def _first_request(self, number: int) -> TextRequest:
        if self.prompts is not None:
            return self._answer_request(number, self._encode(self.prompts[number]))
        options = self.options
        # The positions of message and answer overlap, so each has its own seed.
        seed = (options.seed << _NUMBER_BITS) + 2 * number
        return TextRequest(2 * number, self.before, seed, 1.0, options.max_message_tokens, options.top_k)

    def _answer_request(self, number: int, message: list[int]) -> TextRequest:
        options = self.options
        temperature = options.temperatures[number % len(options.temperatures)]
        seed = (options.seed << _NUMBER_BITS) + 2 * number + 1
        ids = self.before + message + self.after
        return TextRequest(2 * number + 1, ids, seed, temperature, options.max_new_tokens, options.top_k)

    def _worth_keeping(self, row: Row) -> bool:
        key = tuple(row.ids)
        if key in self.seen or distinct_share(row.ids[row.a0 :]) < self.options.min_distinct:
            return False
        self.seen.add(key)
        return not self._is_evaluation(row)

    def _is_evaluation(self, row: Row) -> bool:
        """Whether message or answer, without the template, contain an excluded run of words."""
        spoken = row.ids[len(self.before) : row.a0 - len(self.after)], row.ids[row.a0 :]
        texts = [self.tokenizer.decode(ids, skip_special_tokens=True) for ids in spoken] if self.excluded else []
        found = any(not self.excluded.isdisjoint(word_runs(text)) for text in texts)
        self.counts["dropped_as_evaluation"] += found
        return found

    def _count(self, rows: Sequence[Row]) -> None:
        """Adds texts that are kept to the counts."""
        self.seen.update(tuple(row.ids) for row in rows)
        self.counts["rows"] += len(rows)
        self.counts["tokens"] += sum(len(row.ids) for row in rows)
        self.counts["learned_tokens"] += sum(len(row.ids) - row.l0 for row in rows)

    def _write_manifest(self) -> None:
        """How the corpus was made, what is in it, and what was left out."""
        exclusion = {"words": RUN_WORDS, "runs": len(self.excluded)}
        manifest = {"settings": self.settings, "exclusion": exclusion, "counts": self.counts}
        write_atomically(self.folder / MANIFEST_NAME, json.dumps(manifest, indent=2) + "\n")


class _Progress:
    """Logs the progress of writing from time to time."""

    def __init__(self, total: int) -> None:
        self.total, self.rows, self.tokens = total, 0, 0
        self.begun = self.said = time.monotonic()

    def add(self, tokens: int) -> None:
        self.rows, self.tokens = self.rows + 1, self.tokens + tokens
        now = time.monotonic()
        if now - self.said < REPORT_SECONDS and self.rows < self.total:
            return
        self.said, seconds = now, max(now - self.begun, 1e-9)
        speed, left = self.tokens / seconds, (self.total - self.rows) * seconds / self.rows / 60
        log.info("%d of %d rows, %.0f tokens/s, %.1f min left", self.rows, self.total, speed, left)


def distinct_share(ids: Sequence[int]) -> float:
    """Share of distinct 4-grams; 1 for texts too short to have two."""
    grams = [tuple(ids[start : start + 4]) for start in range(len(ids) - 3)]
    return len(set(grams)) / len(grams) if len(grams) > 1 else 1.0


def turn_ids(tokenizer) -> tuple[list[int], list[int]]:
    """Return the template's ids before a user's message, and those from its end to the start of the answer.

    Raises:
        ValueError: the template fails, or does not write the message exactly once.
    """
    marker = "\u2603MESSAGE\u2603"
    parts = render_messages(tokenizer, [{"role": "user", "content": marker}]).split(marker)
    require(len(parts) == 2, "The model's chat template must write a user's message once; choose another model.")
    return tuple(tokenizer.encode(part, add_special_tokens=False) for part in parts)


def write_part(part: Path, rows: Sequence[Row]) -> None:
    """Writes a corpus file, whole or not at all."""
    with atomic_file(part) as unfinished, gzip.open(unfinished, "wt") as file:
        for row in rows:
            file.write(json.dumps({name: getattr(row, name) for name in ROW_FIELDS}) + "\n")
