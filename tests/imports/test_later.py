"""Stand-ins for modules: they know what they were given, become the real module when asked for more, and go."""

import importlib
import sys

import pytest

from jakiro.imports.later import call_of, imported_later


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `slow_one` with a module `part`; both say when they are imported."""
    folder = tmp_path / "slow_one"
    folder.mkdir()
    (folder / "__init__.py").write_text("print('package')\nname = 'real'\n")
    (folder / "part.py").write_text("print('part')\n\n\nclass Thing(list):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("slow_one", "slow_one.part"):
        sys.modules.pop(name, None)


def test_a_stand_in_answers_what_it_was_given_and_nothing_is_imported(package, capsys):
    with imported_later({"slow_one": {"name": "given"}, "slow_one.part": {"Thing": call_of("slow_one.part", "Thing")}}):
        from slow_one import name
        from slow_one.part import Thing
    assert name == "given" and not capsys.readouterr().out
    assert not {"slow_one", "slow_one.part"} & set(sys.modules)
    assert Thing([1]) == [1] and type(Thing()).__name__ == "Thing"
    assert capsys.readouterr().out == "package\npart\n"


def test_whoever_asks_a_stand_in_for_more_gets_the_real_module(package, capsys):
    with imported_later({"slow_one": {}, "slow_one.part": {}}):
        import slow_one

        assert slow_one.name == "real"
        assert importlib.import_module("slow_one").__file__
        assert importlib.import_module("slow_one.part").Thing
    assert capsys.readouterr().out == "package\npart\n" and "slow_one.part" in sys.modules
    assert slow_one.name == "real"


def test_a_stand_in_that_is_kept_asks_the_real_module_later(package, capsys):
    with imported_later({"slow_one": {}}):
        import slow_one
    assert not capsys.readouterr().out
    assert slow_one.name == "real" and capsys.readouterr().out == "package\n"


def test_a_module_within_a_package_is_found_there_too_and_no_trace_stays(package, capsys):
    import slow_one

    with imported_later({"slow_one.part": {"word": "given"}}):
        import slow_one.part

        assert slow_one.part.word == "given"
    assert not hasattr(slow_one, "part") and capsys.readouterr().out == "package\n"


def test_what_is_imported_already_has_no_stand_in(package):
    import slow_one

    with imported_later({"slow_one": {"name": "given"}}):
        assert importlib.import_module("slow_one") is slow_one and slow_one.name == "real"
    assert sys.modules["slow_one"] is slow_one
