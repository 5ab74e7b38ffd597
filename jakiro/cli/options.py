"""Options that several commands share and that stand in no config; a command's own are declared there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from jakiro.config import About, Grammar, SamplingParams, TreeConfig, require, setting
from jakiro.text import as_messages

DEPTH = "A fixed tree whose deepest node has this depth."


def option(text: str, *names: str, **settings):
    """typer's option with its help text first; `names` replace the parameter's own name."""
    return typer.Option(*names, help=text, **settings)


def argument(text: str):
    """typer's argument with its help text."""
    return typer.Argument(help=text)


Target = Annotated[str | None, option(About.TARGET)]
MethodsFrom = Annotated[list[str] | None, option(About.METHODS_FROM, metavar="MODULE")]

# Of the commands around training
Threads = Annotated[int | None, option("CPU threads; all if not given.", min=1)]
CorpusPaths = Annotated[list[Path], argument(About.CORPORA)]
Prompts = Annotated[Path | None, option(About.PROMPTS)]


def fixed_tree(**given: int | None) -> TreeConfig | None:
    """A fixed tree with what was given; None, where nothing was, leaves the size to measured costs."""
    given = {name: value for name, value in given.items() if value is not None}
    return TreeConfig(**given) if given else None


@dataclass(frozen=True)
class Asked:
    """What every command takes that answers a prompt."""

    prompt: str = setting("The user's message, or with --raw the text to continue.")
    raw: bool = setting("Continue the prompt as it is, without the chat template.", False, "--raw")
    makers: bool = setting("Take the model's makers' settings where you give none.", False, "--makers")
    nodes: int | None = setting("A fixed tree of this many nodes, root included; 1 is plain decoding.", None)
    depth: int | None = setting(DEPTH, None)
    width: int | None = setting(About.WIDTH, None)
    methods_from: tuple[str, ...] = setting(About.METHODS_FROM, (), repeated=True)

    def __post_init__(self) -> None:
        as_messages(self.prompt)
        _ = self.tree

    @property
    def tree(self) -> TreeConfig | None:
        return fixed_tree(nodes=self.nodes, depth=self.depth, width=self.width)

    def sampling(self, generator, given: SamplingParams) -> SamplingParams:
        """With what the model's makers ask for where that is wanted."""
        return given.with_makers(generator.target.makers_settings) if self.makers else given


@dataclass(frozen=True)
class AnswerForm:
    """The grammar of an answer as options; none of them is free text.

    Attributes:
        json_schema, lark: a text, or a file that holds it.
    """

    json_schema: str | None = setting("Answer in JSON of this schema: a file, or the schema itself.", None)
    json: bool = setting("Answer in JSON.", False, "--json")
    regex: str | None = setting("Answer with a text that this regular expression matches.", None)
    choice: tuple[str, ...] = setting("Answer with one of these texts; may be repeated.", (), repeated=True)
    lark: str | None = setting("Answer with a text of this Lark grammar: a file, or the grammar itself.", None)

    @property
    def grammar(self) -> Grammar | None:
        """The one form that was asked for; None for free text.

        Raises:
            ValueError: several were, or it is none.
        """
        from jakiro.core.grammar import check

        sources = {
            "json_schema": _read(self.json_schema),
            "json": "" if self.json else None,
            "regex": self.regex,
            "choice": self.choice or None,
            "lark": _read(self.lark),
        }
        asked = [Grammar(kind, source) for kind, source in sources.items() if source is not None]
        require(len(asked) < 2, f"An answer has one form; you gave {' and '.join(each.kind for each in asked)}.")
        for each in asked:
            check(each)
        return asked[0] if asked else None


def _read(given: str | None) -> str | None:
    """A text, or what a file of this name holds; no text of several lines or in brackets is a name."""
    if given is None or "\n" in given or given.lstrip().startswith("{"):
        return given
    return Path(given).read_text(encoding="utf-8") if Path(given).is_file() else given
