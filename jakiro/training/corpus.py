"""A corpus that the target writes: answers to prompts, or to its own messages (Magpie, arXiv 2406.08464).

A text is a JSON line with the fields of `Row`, in numbered gzip files ("parts"); a manifest records the settings.
`CorpusWriter` turns texts into parts; `writing.py` generates them with a loaded model, `endpoint.py` with a server.
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
from types import SimpleNamespace

from jakiro.config import About, SamplingParams, is_count, is_number, require, setting
from jakiro.loading import registry
from jakiro.loading.loader import choose_device, choose_dtype, read_target
from jakiro.loading.weights import load_config, load_generation_config, load_tokenizer
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
from jakiro.training.endpoint import Endpoint, read_api_key
from jakiro.training.exclusion import RUN_WORDS, evaluation_runs, word_runs
from jakiro.training.messages import made_messages
from jakiro.training.writing import TextRequest, write_texts

MANIFEST_NAME = "manifest.json"
SELF_WRITTEN = "magpie"
ROW_FIELDS = ("ids", "kind", "temp", "a0", "l0")
REPORT_SECONDS = 10.0
# Texts in one part; an interrupted run loses unfinished parts
PART_ROWS = 64
# Minimum number of words of a text to summarise
_MIN_PASSAGE_WORDS = 40
# The seed of a text has the seed of the corpus in its upper bits and the number of the text in the lower ones
MAX_SEED, _NUMBER_BITS = 2**23, 40
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """Sampling settings of a corpus."""

    seed: int = setting("The same seed writes the same texts.", 0)
    temperatures: tuple[float, ...] = setting(
        "Comma list of temperatures, taken in turn for the answers.", (0.0, 0.0, 0.0, 0.6, 0.8, 1.0)
    )
    top_k: int = setting(About.TOP_K, 64)
    max_new_tokens: int = setting(About.MAX_NEW_TOKENS, 420)
    max_message_tokens: int = setting("At most this many tokens in a question that the target writes.", 200)
    min_distinct: float = setting("Drop answers with a smaller share of distinct 4-grams; 0 keeps all.", 0.4)

    def __post_init__(self) -> None:
        require(0 <= self.seed < MAX_SEED, f"A corpus' seed must be from 0 to {MAX_SEED - 1:,}; got {self.seed}.")
        for temperature in self.temperatures:
            SamplingParams(temperature, top_k=self.top_k, max_new_tokens=self.max_new_tokens)
        require(
            is_number(self.min_distinct) and 0 <= self.min_distinct <= 1,
            f"The smallest share of distinct 4-grams must be from 0 to 1; got {self.min_distinct}.",
        )


@dataclass(frozen=True, slots=True)
class CorpusConfig:
    """All settings of a corpus, as plain data."""

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
    batch_size: int = setting("Texts written at once; with --endpoint, requests at once.", 16)
    exclude: tuple[str, ...] = setting(
        "Prompts in Spec-Bench form that heads are measured on, in addition to our own; may be repeated. Texts that "
        f"share {RUN_WORDS} successive words with one of them are dropped.",
        (),
        repeated=True,
    )
    endpoint: str | None = setting("URL of an OpenAI-compatible server that runs the target and writes the text.", None)
    api_key_file: str | None = setting("File with the key of --endpoint; if not given, OPENAI_API_KEY.", None)
    device: str | None = setting(About.DEVICE, None)
    dtype: str | None = setting(About.DTYPE, None)
    template_arguments: str | None = setting(About.TEMPLATE_ARGUMENTS, None)

    def __post_init__(self) -> None:
        least = min(self.rows, self.batch_size, self.options.max_new_tokens, self.options.max_message_tokens)
        require(least >= 1, "Rows, batch size and lengths must be at least 1.")
        if (self.made and self.prompts is not None) or (self.passages is not None and not self.made):
            raise ValueError("--prompts has no effect with --made, and --passages none without it; leave it out.")
        if self.endpoint is None:
            require(self.api_key_file is None, "--api-key-file has no effect without --endpoint; leave it out.")
        else:
            unused = self.device is not None or self.dtype is not None
            require(not unused, "--device and --dtype have no effect with --endpoint: its server runs the target.")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a corpus.

    Attributes:
        ids: token ids of the whole text.
        kind: "magpie" if the message is the target's too.
        temp: temperature of the answer.
        a0: index of the first answer token.
        l0: first index to learn from.
        place: file and line from which it was read.
    """

    ids: list[int]
    kind: str
    temp: float
    a0: int
    l0: int
    place: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        count = len(self.ids) if isinstance(self.ids, list) else 0
        is_valid = count > 0 and set(map(type, self.ids)) == {int} and min(self.ids) >= 0
        require(is_valid, "ids must be a list of token ids")
        require(isinstance(self.kind, str), f"kind must be a text; got {self.kind!r}")
        require(is_number(self.temp) and self.temp >= 0, f"temp must be a number, 0 or more; got {self.temp!r}")
        for name in ("a0", "l0"):
            value = getattr(self, name)
            require(is_count(value, 0) and value <= count, f"{name} must be an index of {count} ids; got {value!r}")


def read_corpus(paths: Sequence[Path], vocab_size: int | None = None) -> list[Row]:
    """Return the texts of corpus files, and of all parts in corpus folders.

    Args:
        paths: files and folders.
        vocab_size: of the target; None if unknown.

    Raises:
        FileNotFoundError: a path does not exist, or contains no corpus file.
        ValueError: a file is corrupted, a line is invalid, or a folder has fewer texts than its manifest counts.
    """
    files = []
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"There is no corpus at {path}; write one with the corpus command.")
        files += sorted(path.glob("*.jsonl.gz")) if path.is_dir() else [path]
    if not files:
        names = ", ".join(map(str, paths))
        raise FileNotFoundError(f"No *.jsonl.gz in {names}; write a corpus with the corpus command.")
    parts = {file: read_part(file, vocab_size) for file in files}
    for folder in filter(Path.is_dir, paths):
        num_expected = read_manifest(folder).get("counts", {}).get("rows", 0)
        num_rows = sum(len(rows) for file, rows in parts.items() if file.parent == folder)
        require(
            num_rows >= num_expected,
            f"{folder} has {num_rows} rows, its {MANIFEST_NAME} counts {num_expected}; run corpus again, which writes "
            f"missing parts again, or remove {MANIFEST_NAME} if you removed rows.",
        )
    return [row for rows in parts.values() for row in rows]


def read_part(file: Path, vocab_size: int | None = None) -> list[Row]:
    """Return the texts of one corpus file.

    Raises:
        DamagedPart: the file is empty or truncated, or a line is invalid.
        ValueError: a token is not in a vocabulary of this size.
    """
    rows: list[Row] = []
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                values = json.loads(line)
                place = f"{file}, line {len(rows) + 1}"
                rows.append(Row(**{name: values[name] for name in ROW_FIELDS}, place=place))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DamagedPart(f"{file} is corrupted ({error}); run corpus again, which writes it again.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedPart(
            f"{file}, line {len(rows) + 1}: not a corpus row ({error}); run corpus again, which writes it again."
        ) from error
    for row in rows if vocab_size is not None else ():
        require(
            max(row.ids) < vocab_size,
            f"{row.place}: token {max(row.ids)} is not among the target's {vocab_size:,}; use the "
            "target of this corpus.",
        )
    # A part without texts has gzip's header at least
    if not file.stat().st_size:
        raise DamagedPart(f"{file} is empty; run corpus again, which writes it again.")
    return rows


class DamagedPart(ValueError):
    """A corpus file cannot be read; the message is one sentence."""


def read_manifest(folder: Path) -> dict:
    """Return the manifest of a corpus or a head; empty if there is none.

    Raises:
        ValueError: the file is corrupted.
    """
    path = folder / MANIFEST_NAME
    if not path.is_file():
        return {}
    try:
        values = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is corrupted: it is not a JSON object; remove it.") from error
    for name, (is_valid, expected) in _MANIFEST.items():
        valid = name not in values or is_valid(values[name])
        require(valid, f"{path} is corrupted: {name} is not {expected}; remove it.")
    return values


# Fields of a manifest that are read, with a check and a description
_MANIFEST = {
    "counts": (lambda value: isinstance(value, dict) and all(is_count(count, 0) for count in value.values()), "counts"),
    "settings": (lambda value: isinstance(value, dict), "the settings of a corpus"),
    "held_out": (lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value), "hashes"),
    "minutes": (lambda value: is_number(value) and value >= 0, "a number of minutes"),
}


@dataclass(frozen=True, slots=True)
class TextSource:
    """The target, which writes the texts.

    Attributes:
        write: generates the texts of requests, in any order.
        stop_ids: ids that end a turn.
        tokenizer: of the target.
        target: its name.
        sha256: hash of its weights; None if unknown.
    """

    write: Callable[[deque[TextRequest]], Iterator[tuple[TextRequest, list[int]]]]
    stop_ids: Collection[int]
    tokenizer: object
    target: str = ""
    sha256: str | None = None

    @classmethod
    def load(cls, config: CorpusConfig) -> "TextSource":
        """Load the target, or connect to the server that runs it.

        Raises:
            ValueError: the target cannot be loaded, or the server cannot be reached.
        """
        name = config.target or registry.DEFAULT_TARGET
        if config.endpoint is not None:
            model = SimpleNamespace(
                config=load_config(config.target), generation_config=load_generation_config(config.target)
            )
            tokenizer, key = load_tokenizer(config.target), read_api_key(config.api_key_file)
            server = Endpoint(config.endpoint, tokenizer, config.batch_size, key)
            return cls(server.write_texts, stop_ids(model, tokenizer), tokenizer, name)
        device = choose_device(config.device)
        model, tokenizer, sha256 = read_target(config.target, device, choose_dtype(config.dtype, device))
        ends = stop_ids(model, tokenizer)
        if packing_works(model.device, model.dtype) or packs_bfloat16(model.device, model.dtype):
            pack_linears(model)
        write = partial(write_texts, model, batch_size=config.batch_size, stop_ids=ends)
        return cls(write, ends, tokenizer, name, sha256)


def write_corpus(config: CorpusConfig) -> int:
    """Write the text that a head is trained on, with the target or with a server that runs it.

    Returns:
        The number of tokens that this call added.

    Raises:
        ValueError, OSError: one sentence.
    """
    prompts = None
    if config.prompts is not None:
        prompts = [question.turns[0] for question in load_questions(Path(config.prompts))]
    excluded = evaluation_runs(map(Path, config.exclude))
    source = TextSource.load(config)
    set_template_arguments(source.tokenizer, read_arguments(config.template_arguments))
    if config.made:
        passages = [] if config.passages is None else _passages(Path(config.passages), source.tokenizer)
        prompts = made_messages(config.rows, config.options.seed, passages)
    return CorpusWriter(source, Path(config.out), config.options, prompts, excluded).write(config.rows)


def _passages(corpus: Path, tokenizer) -> list[str]:
    """Return a corpus' answers that are long enough to be summarised, without the template."""
    rows = read_corpus([corpus], len(tokenizer))
    texts = [tokenizer.decode(row.ids[row.a0 :], skip_special_tokens=True).strip() for row in rows]
    return [text for text in texts if len(text.split()) >= _MIN_PASSAGE_WORDS]


class CorpusWriter:
    """Writes a corpus part by part.

    Args:
        source: the target.
        folder: created if it does not exist; an unfinished corpus with the same settings is continued.
        options: sampling settings.
        prompts: user messages to answer; None lets the target write them too.
        excluded: word sequences that no text may contain, see `exclusion.py`; texts of earlier calls are checked too.

    Raises:
        ValueError: the folder has a corpus with other settings, or the tokenizer has no chat template.
    """

    def __init__(
        self,
        source: TextSource,
        folder: Path,
        options: CorpusOptions,
        prompts: Sequence[str] | None = None,
        excluded: Collection[str] = (),
    ) -> None:
        require(
            bool(source.tokenizer.chat_template),
            "The target has no chat template, as base models have none; give its instruction-tuned version, or "
            "save a template as chat_template.jinja in the model's folder.",
        )
        self.source, self.tokenizer = source, source.tokenizer
        self._encode = TokenText(source.tokenizer).encode
        self.folder, self.options = folder, options
        self.prompts, self.kind = prompts, "prompts" if prompts else SELF_WRITTEN
        self.excluded = frozenset(excluded)
        self.before, self.after = turn_ids(self.tokenizer)
        self.settings = self._settings()
        self.counts = {"rows": 0, "tokens": 0, "learned_tokens": 0, "dropped_as_evaluation": 0}
        self.seen: set[tuple[int, ...]] = set()
        self._continue_folder()
        self._write_manifest()

    def _settings(self) -> dict:
        """Return the settings on which the texts depend, in JSON's types."""
        prompts = self.prompts
        settings = {
            "target": self.source.target,
            "target_sha256": self.source.sha256,
            "kind": self.kind,
            "num_prompts": prompts and len(prompts),
            "prompts_sha256": prompts and hashlib.sha256("\0".join(prompts).encode()).hexdigest(),
            "part_rows": PART_ROWS,
            **asdict(self.options),
        }
        if arguments := merge_template_arguments(self.tokenizer, None):
            settings["template_arguments"] = arguments
        return json.loads(json.dumps(settings))

    def _continue_folder(self) -> None:
        """Read the parts of an unfinished corpus; corrupted parts are removed and written again."""
        folder = self.folder
        if manifest := read_manifest(folder):
            stored = manifest.get("settings", {})
            names = {*self.settings, *{"template_arguments"}.intersection(stored)}
            different = sorted(name for name in names if stored.get(name) != self.settings.get(name))
            if different:
                raise ValueError(
                    f"{folder} has a corpus made with other settings ({', '.join(different)}); name an empty folder."
                )
            self.counts["dropped_as_evaluation"] = manifest.get("counts", {}).get("dropped_as_evaluation", 0)
        for part in sorted(folder.glob("*.jsonl.gz")):
            try:
                rows = read_part(part)
            except DamagedPart:
                if not part.name.startswith("part-"):
                    raise
                log.warning("%s is corrupted and is written again.", part)
                part.unlink()
                continue
            kept = [row for row in rows if not self._is_evaluation(row)]
            if len(kept) < len(rows):
                write_part(part, kept)
            self._count(kept)

    def write(self, num_rows: int) -> int:
        """Write the missing ones of the texts 0 … num_rows − 1; return the number of tokens that were added."""
        num_rows = min(num_rows, len(self.prompts)) if self.prompts else num_rows
        missing = deque(
            (path, range(first, min(first + PART_ROWS, num_rows)))
            for first in range(0, num_rows, PART_ROWS)
            if not (path := self.folder / f"part-{first // PART_ROWS:05d}.jsonl.gz").is_file()
        )
        queue = deque(self._first_request(number) for _, numbers in missing for number in numbers)
        before, done = self.counts["tokens"], {}
        for row_number, row in _logged(self._rows(queue), len(queue)):
            done[row_number] = row
            # Parts are written in order, so that the first of two equal texts is kept, whichever finished first
            while missing and all(number in done for number in missing[0][1]):
                path, numbers = missing.popleft()
                kept = [row for number in numbers if self._is_kept(row := done.pop(number))]
                write_part(path, kept)
                self._count(kept)
                self._write_manifest()
        return self.counts["tokens"] - before

    def _rows(self, queue: deque[TextRequest]) -> Iterator[tuple[int, Row]]:
        """Yield finished texts with their numbers. Request 2n writes the message of text n, 2n + 1 its answer."""
        for request, ids in self.source.write(queue):
            number, is_answer = divmod(request.number, 2)
            if is_answer:
                start = len(self.before) if self.prompts is None else len(request.ids)
                yield number, Row(request.ids + ids, self.kind, request.temperature, len(request.ids), start)
            else:
                message = [token for token in ids if token not in self.source.stop_ids]
                queue.appendleft(self._answer_request(number, message))

    def _first_request(self, number: int) -> TextRequest:
        if self.prompts is not None:
            return self._answer_request(number, self._encode(self.prompts[number]))
        options = self.options
        # Message and answer have different seeds, because their positions overlap
        seed = (options.seed << _NUMBER_BITS) + 2 * number
        return TextRequest(2 * number, self.before, seed, 1.0, options.max_message_tokens, options.top_k)

    def _answer_request(self, number: int, message: list[int]) -> TextRequest:
        options = self.options
        temperature = options.temperatures[number % len(options.temperatures)]
        seed = (options.seed << _NUMBER_BITS) + 2 * number + 1
        ids = self.before + message + self.after
        return TextRequest(2 * number + 1, ids, seed, temperature, options.max_new_tokens, options.top_k)

    def _is_kept(self, row: Row) -> bool:
        key = tuple(row.ids)
        if key in self.seen or distinct_share(row.ids[row.a0 :]) < self.options.min_distinct:
            return False
        self.seen.add(key)
        return not self._is_evaluation(row)

    def _is_evaluation(self, row: Row) -> bool:
        """Return whether message or answer, without the template, contain an excluded word sequence."""
        spans = row.ids[len(self.before) : row.a0 - len(self.after)], row.ids[row.a0 :]
        texts = [self.tokenizer.decode(ids, skip_special_tokens=True) for ids in spans] if self.excluded else []
        is_excluded = any(not self.excluded.isdisjoint(word_runs(text)) for text in texts)
        self.counts["dropped_as_evaluation"] += is_excluded
        return is_excluded

    def _count(self, rows: Sequence[Row]) -> None:
        """Add kept texts to the counts."""
        self.seen.update(tuple(row.ids) for row in rows)
        for name, count in row_counts(rows).items():
            self.counts[name] += count

    def _write_manifest(self) -> None:
        """Write the settings of the corpus, the counts of its rows, and the number of excluded rows."""
        exclusion = {"words": RUN_WORDS, "runs": len(self.excluded)}
        manifest = {"settings": self.settings, "exclusion": exclusion, "counts": self.counts}
        write_atomically(self.folder / MANIFEST_NAME, json.dumps(manifest, indent=2) + "\n")


def _logged(rows: Iterator[tuple[int, Row]], total: int) -> Iterator[tuple[int, Row]]:
    """Yield finished texts with their numbers; log the progress every `REPORT_SECONDS`, and after the last text."""
    start = last_report = time.monotonic()
    num_tokens = 0
    for num_rows, (number, row) in enumerate(rows, start=1):
        num_tokens += len(row.ids) - row.l0
        now = time.monotonic()
        if now - last_report >= REPORT_SECONDS or num_rows == total:
            last_report, seconds = now, max(now - start, 1e-9)
            speed, minutes = num_tokens / seconds, (total - num_rows) * seconds / num_rows / 60
            log.info("%d of %d rows, %.0f tokens/s, %.1f min left", num_rows, total, speed, minutes)
        yield number, row


def row_counts(rows: Sequence[Row]) -> dict[str, int]:
    """Return the numbers of texts, of their tokens, and of the tokens to learn from."""
    num_tokens = sum(len(row.ids) for row in rows)
    return {"rows": len(rows), "tokens": num_tokens, "learned_tokens": num_tokens - sum(row.l0 for row in rows)}


def distinct_share(ids: Sequence[int]) -> float:
    """Return the share of distinct 4-grams; 1 for texts with fewer than two."""
    grams = [tuple(ids[start : start + 4]) for start in range(len(ids) - 3)]
    return len(set(grams)) / len(grams) if len(grams) > 1 else 1.0


def turn_ids(tokenizer) -> tuple[list[int], list[int]]:
    """Return the template's ids before a user's message, and the ids between message and answer.

    Raises:
        ValueError: the template fails, or does not write the message exactly once.
    """
    marker = "\u2603MESSAGE\u2603"
    parts = render_messages(tokenizer, [{"role": "user", "content": marker}]).split(marker)
    require(len(parts) == 2, "The model's chat template must write a user's message once; choose another model.")
    return tuple(tokenizer.encode(part, add_special_tokens=False) for part in parts)


def write_part(part: Path, rows: Sequence[Row]) -> None:
    """Write a corpus file atomically."""
    with atomic_file(part) as unfinished, gzip.open(unfinished, "wt") as file:
        for row in rows:
            file.write(json.dumps({name: getattr(row, name) for name in ROW_FIELDS}) + "\n")
