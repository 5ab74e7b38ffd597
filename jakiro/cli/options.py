"""Options that several commands share and that belong to no config of the library."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from jakiro.cli.loading import say
from jakiro.config import About, Grammar, SamplingParams, TreeConfig, require, setting
from jakiro.text import as_messages

DEPTH = "Use fixed trees of this depth."


def option(text: str, *names: str, **settings):
    """Return a `typer.Option` with this help text; `names` replace the parameter's name."""
    return typer.Option(*names, help=text, **settings)


def argument(text: str):
    """Return a `typer.Argument` with this help text."""
    return typer.Argument(help=text)


Target = Annotated[str | None, option(About.TARGET)]
MethodsFrom = Annotated[list[str] | None, option(About.METHODS_FROM, metavar="MODULE")]
Port = Annotated[int, option("Port to listen on.", min=1, max=65535)]

# Used by the training commands
Threads = Annotated[int | None, option("CPU threads; all if not given.", min=1)]
CorpusPaths = Annotated[list[Path], argument(About.CORPORA)]
Prompts = Annotated[Path | None, option(About.PROMPTS)]


def fixed_tree(**sizes: int | None) -> TreeConfig | None:
    """Return a fixed tree with the sizes that are not None; None if all are, so that measured costs choose."""
    chosen = {name: value for name, value in sizes.items() if value is not None}
    return TreeConfig(**chosen) if chosen else None


@dataclass(frozen=True)
class PromptOptions:
    """Options of the commands that answer a prompt."""

    message: str | None = setting("The user's message, or with --raw the text to continue.", None, argument=True)
    prompt: str | None = setting("The prompt as an option.", None)
    raw: bool = setting("Continue the prompt as it is, without the chat template.", False, "--raw")
    makers: bool = setting("Use the model's recommended sampling settings where you give none.", False, "--makers")
    nodes: int | None = setting("Use fixed trees of this many nodes, root included; 1 is plain decoding.", None)
    depth: int | None = setting(DEPTH, None)
    width: int | None = setting(About.WIDTH, None)
    methods_from: tuple[str, ...] = setting(About.METHODS_FROM, (), repeated=True)

    def __post_init__(self) -> None:
        both = self.message is not None and self.prompt is not None
        require(not both, "Give the prompt once, as an argument or with --prompt.")
        require(self.text is not None, 'There is no prompt; give it in quotes, such as "Why is the sky blue?".')
        as_messages(self.text)
        _ = self.tree

    @property
    def text(self) -> str | None:
        """The prompt."""
        return self.message if self.prompt is None else self.prompt

    @property
    def tree(self) -> TreeConfig | None:
        """The fixed tree, or None for trees sized by measured costs."""
        return fixed_tree(nodes=self.nodes, depth=self.depth, width=self.width)

    def with_recommended(self, generator, sampling: SamplingParams) -> SamplingParams:
        """Return the settings, completed with the model's recommended ones if --makers is given."""
        recommended = generator.target.makers_settings if self.makers else {}
        if self.makers and not recommended:
            say("The model has no recommended sampling settings, so --makers has no effect.", "yellow")
        return sampling.with_makers(recommended)


@dataclass(frozen=True)
class GrammarOptions:
    """Options for the grammar of an answer; without any of them the answer is free text.

    Attributes:
        json_schema, lark: the text, or the path of a file that contains it.
    """

    json_schema: str | None = setting("Answer with JSON of this schema: a file, or the schema itself.", None)
    json: bool = setting("Answer with JSON.", False, "--json")
    regex: str | None = setting("Answer with a text that matches this regular expression.", None)
    choice: tuple[str, ...] = setting("Answer with one of these texts; may be repeated.", (), repeated=True)
    lark: str | None = setting("Answer with a text of this Lark grammar: a file, or the grammar itself.", None)

    @property
    def grammar(self) -> Grammar | None:
        """The requested grammar; None for free text.

        Raises:
            ValueError: several grammars are requested, or one is invalid.
        """
        from jakiro.core.grammar import check

        sources = {
            "json_schema": _read(self.json_schema),
            "json": "" if self.json else None,
            "regex": self.regex,
            "choice": self.choice or None,
            "lark": _read(self.lark),
        }
        grammars = [Grammar(kind, source) for kind, source in sources.items() if source is not None]
        kinds = " and ".join(grammar.kind for grammar in grammars)
        require(len(grammars) < 2, f"An answer has one grammar; got {kinds}.")
        for grammar in grammars:
            check(grammar)
        return grammars[0] if grammars else None


@dataclass(frozen=True)
class HeadOptions:
    """Options of `doctor` for a head, see `jakiro.cli.head_report`."""

    quick: bool = setting("With --head, only check whether the pair fits; do not run the target.", False, "--quick")
    prompts: str | None = setting(About.PROMPTS, None)
    corpus: str | None = setting("Corpus on which the head was trained; its template and length are compared.", None)

    def __post_init__(self) -> None:
        is_unused = self.quick and (self.prompts is not None or self.corpus is not None)
        require(not is_unused, "--prompts and --corpus have no effect with --quick; leave out one of them.")


def _read(text_or_path: str | None) -> str | None:
    """Return the content of a file, or the text if it is no path of a file."""
    if text_or_path is None or "\n" in text_or_path or text_or_path.lstrip().startswith("{"):
        return text_or_path
    path = Path(text_or_path)
    return path.read_text(encoding="utf-8") if path.is_file() else text_or_path
