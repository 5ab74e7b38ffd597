from dataclasses import dataclass

import pytest
import typer
from typer.testing import CliRunner

from jakiro.cli.fields import build_config, options_from
from jakiro.config import setting


@dataclass(frozen=True)
class Inner:
    size: int = setting("How large.", 3)


@dataclass(frozen=True)
class Outer:
    places: tuple[str, ...] = setting("Where.", argument=True)
    inner: Inner
    many: tuple[str, ...] = setting("More of them.", (), repeated=True)
    listed: tuple[float, ...] = setting("A comma list.", (0.0, 0.5))
    layers: tuple[int, ...] | None = setting("Another, or none.", None)
    name: str | None = setting("A name.", None, "--called")
    on: bool = setting("A switch.", True)
    silent: int = 7


ALL_OPTIONS = "a b --many x --many y --listed 1,0.25 --layers 2-4 --called z --no-on --size 5 --extra 2"


def answer(*arguments: str, without: tuple[str, ...] = ()):
    app, results = typer.Typer(), []

    @app.command()
    @options_from(Outer, Inner, without=without)
    def command(extra: int = 1, **values) -> None:
        results.append((extra, build_config(Outer, values, inner=build_config(Inner, values))))

    result = CliRunner().invoke(app, arguments)
    return result, *results


@pytest.mark.parametrize(
    ("arguments", "extra", "expected"),
    [
        (("a",), 1, Outer(("a",), Inner())),
        (
            ALL_OPTIONS.split(),
            2,
            Outer(("a", "b"), Inner(5), ("x", "y"), (1.0, 0.25), (2, 3, 4), "z", False),
        ),
    ],
)
def test_config_is_filled_from_options_of_its_fields(arguments, extra, expected):
    _, result = answer(*arguments)
    assert result == (extra, expected)


def test_omitted_field_has_no_option_and_keeps_its_default():
    assert answer("a", "--called", "z", without=("name",))[0].exit_code == 2
    assert answer("a", without=("name",))[1] == (1, Outer(("a",), Inner()))


def test_fields_without_help_have_no_option_and_help_shows_the_others():
    assert answer("a", "--silent", "8")[0].exit_code == 2
    help_text = answer("--help")[0].output
    assert "Where." in help_text and "[default: 0,0.5]" in help_text and "How large." in help_text
    assert str(answer("a", "--listed", "0,warm")[0].exception) == (
        "--listed takes a comma list of numbers; got 'warm' in it."
    )
