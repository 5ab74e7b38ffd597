"""Runs of a benchmark: their number, order and prompts."""

import pytest

from jakiro.bench.peers import PeerAnswer
from jakiro.bench.runner import Bench, BenchSettings, Lane, loadable
from jakiro.drafters.registry import METHODS
from jakiro.prompts import Question, load_questions
from tests.bench.scripted import ScriptedGenerator
from tests.support import tiny_generator


def test_every_method_runs_with_every_prompt_temperature_and_seed():
    settings = BenchSettings(methods=("autoregressive", "jakiro"), temperatures=(0.0, 1.0), seeds=(3, 4), nodes=(8, 16))
    assert settings.lanes == (Lane("autoregressive"), Lane("jakiro", 8), Lane("jakiro", 16))
    questions = [Question("1", "a", ("x",)), Question("2", "b", ("y",))]
    runs = list(Bench(ScriptedGenerator(), settings).runs(questions))
    assert len(runs) == 3 * 2 * 2 * 2
    assert len({(run.lane, run.key) for run in runs}) == len(runs)


def test_lanes_alternate_in_running_first():
    settings = BenchSettings(methods=("autoregressive", "jakiro"), temperatures=(0.0,), nodes=(24,))
    runs = list(Bench(ScriptedGenerator(), settings).runs([Question(str(i), "a", ("x",)) for i in range(3)]))
    first = [run.lane.method for run in runs[::2]]
    assert first == ["autoregressive", "jakiro", "autoregressive"]


def test_alias_is_measured_under_the_name_of_its_method():
    assert BenchSettings(methods=("plain", "jakiro")).lanes[0] == Lane("autoregressive")


def test_methods_that_cannot_be_loaded_are_omitted_with_a_sentence():
    generator = tiny_generator(None)
    settings, sentences = loadable(generator, BenchSettings(methods=("all", "autoregressive-fast")))
    assert settings.methods == (*(method.name for method in generator.methods), "autoregressive-fast")
    assert len(sentences) == len([method for method in METHODS.values() if method.needs.head])
    assert sentences[0].startswith("jakiro takes no part: No draft head fits this model")
    with pytest.raises(ValueError, match="jakiro takes no part"):
        loadable(generator, BenchSettings(methods=("jakiro",)))


def test_later_turns_have_the_same_history_in_every_lane():
    generator = ScriptedGenerator()
    settings = BenchSettings(methods=("autoregressive", "jakiro"), temperatures=(0.0,), nodes=(24,))
    runs = list(Bench(generator, settings).runs([Question("1", "a", ("first", "second"))]))
    assert [run.turn for run in runs] == [0, 0, 1, 1]
    histories = [call[0] for call in generator.calls[2:]]
    assert histories[0] == histories[1]
    assert [message["role"] for message in histories[0]][:3] == ["user", "assistant", "user"]


def test_runs_of_transformers_are_included():
    peers = {"hf-generate": lambda messages, sampling: PeerAnswer((1, 2), 0.1, False, "text")}
    settings = BenchSettings(methods=("hf-generate",), temperatures=(1.0,))
    (run,) = Bench(ScriptedGenerator(), settings, peers=peers).runs([Question("1", "a", ("x",))])
    assert run.tokens_per_second == pytest.approx(10)
    assert (run.decoded, run.num_steps, run.comparable) == (1, 0, False), "its steps are unknown"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"methods": ("magic",)}, "Unknown method “magic”; names are autoregressive"),
        ({"temperatures": (-1.0,)}, "Temperature must be between 0 and 2; got -1"),
        ({"seeds": ()}, "Seeds must have at least one value"),
        ({"seeds": (1, 1)}, "no value twice"),
        ({"methods": ("context", "prompt_lookup")}, "no value twice"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        BenchSettings(**settings)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: expected question_id, category and turns"),
        ('{"question_id": 1, "turns": ["x"]}', "expected question_id, category and turns"),
        ('{"question_id": 1, "category": "a", "turns": "x"}', "turns must be a list of texts"),
        ('{"question_id": 1, "category": "a", "turns": [" "]}', "turns must be a list of texts"),
        ("", "holds no prompts"),
    ],
)
def test_invalid_prompt_file_is_refused_with_its_line(tmp_path, line, message):
    path = tmp_path / "prompts.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_questions(path)
