"""The calls for a GPU run on a CPU with tiny sizes, so that a moved module fails a test and not a GPU session."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from jakiro.generator import JakiroGenerator
from tests.backends.static import COSTS
from tests.gpu import carried, work
from tests.gpu.calls import CALLS, SECONDS, Setup, Sizes
from tests.gpu.items import DONE, FAILED, NO_TIME, TOO_LONG, Item, run_items
from tests.marks import rarely

ROOT = Path(__file__).resolve().parent.parent.parent
WORKS = {"identity": " 0 texts different", "costs": "jakiro+prompt_lookup at 1: ", "race": "a stopped race: "}


@pytest.mark.parametrize("command", [rarely(name) if name == "identity" else name for name in WORKS])
def test_measurements_run_on_a_cpu(command, monkeypatch, capsys):
    options = ["--shape", "tiny", "--device", "cpu", "--tokens", "300", "--long-prompt", "40", "--new-tokens", "32"]
    monkeypatch.setattr(sys, "argv", ["work", command, *options])
    monkeypatch.setattr(JakiroGenerator, "profile_of", lambda generator, method: COSTS)
    assert work.main() == 0
    assert WORKS[command] in capsys.readouterr().out


@pytest.mark.rare
@pytest.mark.parametrize("call", CALLS)
def test_call_runs_with_tiny_sizes(call, tmp_path):
    command = [sys.executable, "-m", "tests.gpu", call, "--device", "cpu", "--tiny", "--out", tmp_path / "out"]
    run = subprocess.run(
        [*command, "--scratch", tmp_path / "scratch"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    results = json.loads((tmp_path / "out" / call / "results.json").read_text())
    assert results and {result["state"] for result in results} == {DONE}


def test_first_two_calls_take_at_most_ten_minutes_and_start_with_the_most_important_items(tmp_path):
    setup = Setup("cuda", tmp_path, tmp_path, Sizes())
    assert SECONDS["first"] + SECONDS["second"] <= 600 >= SECONDS["third"]
    for call, items in CALLS.items():
        items_of_call = items(setup)
        assert len({item.name for item in items_of_call}) == len(items_of_call)
        assert max(item.seconds for item in items_of_call) < SECONDS[call]
    assert [item.name for item in CALLS["first"](setup)][:3] == ["environment", "one-read", "identity-tiny"]


def python_item(name: str, code: str, seconds: float = 60) -> Item:
    return Item(name, f"Does {name} print?", (sys.executable, "-c", code), seconds)


def test_failing_or_slow_item_does_not_stop_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.gpu.items.SHORTEST_SECONDS", 0)
    items = [
        python_item("failing", "print('before'); raise SystemExit(3)"),
        python_item("slow", "import time; time.sleep(600)", 0.2),
        Item("missing", "Is it there?", ("/nowhere/at/all",), 60),
        python_item("good", "print('good')"),
    ]
    results = list(run_items(items, tmp_path, 600))
    assert [result.state for result in results] == [FAILED, TOO_LONG, FAILED, DONE]
    assert results[0].last_lines == "before"
    assert "| good | done |" in (tmp_path / "summary.md").read_text()


def test_results_are_written_after_each_item_and_finished_items_are_not_repeated(tmp_path):
    count = tmp_path / "count"
    code = (
        f"import pathlib; p = pathlib.Path({str(count)!r}); p.write_text((p.read_text() if p.exists() else '') + 'x')"
    )
    items = [python_item("first", code), python_item("second", "raise SystemExit(1)"), python_item("third", code)]
    running = run_items(items, tmp_path / "results", 600, archive=tmp_path / "results.tgz")
    assert next(running).state == DONE
    # Killed here: the archive and the summary have the first item
    running.close()
    with tarfile.open(tmp_path / "results.tgz") as packed:
        assert {"results/first.log", "results/results.json", "results/summary.md"} <= set(packed.getnames())
    assert "| second | not run yet |" in (tmp_path / "results" / "summary.md").read_text()
    states = [result.state for result in run_items(items, tmp_path / "results", 600)]
    assert states == [DONE, FAILED, DONE] and count.read_text() == "xx"


def test_item_without_time_is_named(tmp_path):
    (result,) = run_items([python_item("late", "print(1)")], tmp_path, 5)
    assert result.state == NO_TIME
    assert "| late | no time left |" in (tmp_path / "summary.md").read_text()


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """Return a repository with the default head, another one, and a cached wheel."""
    root = tmp_path / "checkout"
    for name in (
        carried.DEFAULT_HEAD / "head.safetensors",
        Path("assets/heads/other/head.safetensors"),
        Path("code.py"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"weights")
    for name in ("docs", "lab/assets", "tests/app/vendor"):
        (root / name).mkdir(parents=True)
        (root / name / "file.png").write_bytes(b"picture")
    author = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    for command in (("init", "-q"), ("add", "."), (*author, "commit", "-qm", "start")):
        subprocess.run(("git", *command), cwd=root, check=True)
    monkeypatch.setenv("JAKIRO_CACHE", str(tmp_path / "cache"))
    wheel = tmp_path / "cache" / "wheels" / carried.WHEEL
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(bytes(range(251)) * 40)
    monkeypatch.setattr(carried, "download_wheels", lambda folder: None)
    monkeypatch.chdir(root)
    return root


def test_other_heads_and_pictures_are_removed_and_restored(checkout, capsys):
    carried.prepare(checkout)
    assert not (checkout / "assets/heads/other").exists() and not (checkout / "docs/file.png").exists()
    assert (checkout / carried.DEFAULT_HEAD / "head.safetensors").is_file()
    assert capsys.readouterr().out.count("MiB of 64") == 3
    assert ".gpu" not in subprocess.run(("git", "status", "--short"), capture_output=True, text=True).stdout
    carried.restore(checkout)
    assert (checkout / "assets/heads/other/head.safetensors").read_bytes() == b"weights"
    assert not subprocess.run(("git", "status", "--short"), capture_output=True, text=True).stdout
    assert not (checkout / carried.FOLDER).exists()


def test_uncommitted_changes_prevent_the_removal(checkout):
    (checkout / "docs/file.png").write_bytes(b"changed")
    with pytest.raises(SystemExit, match="Commit or discard your changes"):
        carried.prepare(checkout)
    assert (checkout / "assets/heads/other/head.safetensors").is_file()


def test_wheel_is_joined_from_the_halves_of_two_calls(checkout, tmp_path):
    carried.prepare(checkout)
    wheel, scratch = tmp_path / "cache" / "wheels" / carried.WHEEL, tmp_path / "scratch"
    sha256 = carried.hashlib.sha256(wheel.read_bytes()).hexdigest()
    second = (checkout / carried.FOLDER / "part1").rename(tmp_path / "part1")
    variables = carried.unpack(checkout, scratch, sha256)
    joined = Path(variables["JAKIRO_CACHE"]) / "wheels" / carried.WHEEL
    assert not joined.exists()
    second.rename(checkout / carried.FOLDER / "part1")
    carried.unpack(checkout, scratch, sha256)
    assert joined.read_bytes() == wheel.read_bytes()
    with pytest.raises(SystemExit, match="not the expected wheel"):
        carried.unpack(checkout, tmp_path / "another", "0" * 64)


def test_without_carried_files_nothing_changes(tmp_path):
    assert carried.unpack(tmp_path, tmp_path / "scratch") == {}
