"""Pictures that leave the page: the result card and the tree, as svg files that stand alone and as png."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from app.page import web
from app.words import page as words
from jakiro.config import SamplingParams, TreeConfig
from jakiro.trace import Trace
from tests.app.conftest import given
from tests.app.fake import FakeGenerator

pytestmark = pytest.mark.browser
SVG = "{http://www.w3.org/2000/svg}"
ELEMENTS = {"svg", "g", "rect", "path", "text"}
ATTRIBUTES = {
    "style",
    "x",
    "y",
    "width",
    "height",
    "d",
    "transform",
    "viewBox",
    "preserveAspectRatio",
    "rx",
    "direction",
}
PNG = """async file => { const canvas = await Jakiro.drawing.canvasOf(file);
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  for (let i = 0; i < data.length; i += 4) colours.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
  return { width: canvas.width, height: canvas.height, colours: [...colours] }; }"""


def shown(tab, recording: dict):
    """The tab with a recording on screen, without a server."""
    given(
        tab,
        "recording => { Jakiro.mountView(document.querySelector('#host'), {}, null, null);"
        " Jakiro.showRecording('recording-x', recording, { playNow: false }); }",
        recording,
    )
    tab.wait_for_selector("svg.tree")
    return tab


def race(pieces=None, question="Why is the sky blue?", methods=("autoregressive", "jakiro"), **tree) -> dict:
    asked = [{"role": "user", "content": question}]
    run = FakeGenerator(pieces).race(asked, SamplingParams(max_new_tokens=200), methods, TreeConfig(**tree))
    list(run)
    return {"title": question, "traces": {method: trace.to_dict() for method, trace in run.traces.items()}}


def result(tab) -> str:
    return tab.evaluate("Jakiro.resultPicture(Jakiro.moves.state.run)")


def tree(tab, step: int) -> str:
    tab.evaluate("step => Jakiro.moves.seek(step)", step)
    tab.wait_for_selector(f'svg.tree[data-step="{step}"]')
    return tab.evaluate("step => Jakiro.treePicture(Jakiro.moves.state.run, step)", step)


def texts(file: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(file).iter(f"{SVG}text")]


def stands_alone(file: str) -> None:
    """The file holds drawings and text, nothing that runs, loads or links."""
    for element in ElementTree.fromstring(file).iter():
        assert element.tag.removeprefix(SVG) in ELEMENTS, element.tag
        names = {name for name in element.attrib if not name.startswith("data-")}
        assert names <= ATTRIBUTES | {"aria-label"}, names
        assert "url(" not in element.get("style", ""), element.get("style")


def test_the_result_picture_holds_the_best_steps_tree_the_race_and_the_coloured_text(modules):
    recording = json.loads(web.recording(web.recording_names()[0]))
    shown(modules, recording)
    file = result(modules)
    stands_alone(file)
    said = texts(file)
    trace = Trace.from_dict(recording["traces"]["jakiro"])
    best = modules.evaluate("Jakiro.highlight(Jakiro.moves.state.run.main)")
    nodes = trace.steps[best].nodes
    assert recording["title"] in said
    assert any(words.startswith(f"Draft tree · step {best + 1} of {len(trace.steps)} · ") for words in said)
    for i in trace.steps[best].accepted_path:
        assert nodes[i].piece.decode() in said
    assert {"Jakiro", "Plain decoding", f"{trace.decode_seconds:.1f} s"} <= set(said)
    assert sum(words.endswith(" tokens/s") for words in said) == 2
    lines = [element for element in ElementTree.fromstring(file).iter(f"{SVG}text") if element.get("direction")]
    written = " ".join(" ".join((line.text or "").split()) for line in lines)
    assert trace.text.split()[:20] == written.split()[:20]
    picture = modules.evaluate(PNG, file)
    assert (picture["width"], picture["height"]) == (1920, 1080)
    assert {"10,124,224", "176,58,6", "186,130,0"} <= set(picture["colours"])


def test_a_long_answer_ends_in_dots_and_a_plain_one_has_no_tree(modules):
    shown(modules, race([b"word "] * 300, nodes=64, depth=6))
    assert "…" in texts(result(modules))
    modules.evaluate(
        "recording => Jakiro.showRecording('recording-y', recording, { playNow: false })",
        race(methods=["autoregressive"]),
    )
    file = result(modules)
    stands_alone(file)
    assert "No draft tree: plain decoding" in texts(file) and "–" in texts(file)


def test_slower_than_plain_is_said_in_full(modules):
    recording = race()
    for step in recording["traces"]["jakiro"]["steps"]:
        step["draft_ms"] *= 20
    shown(modules, recording)
    said = texts(result(modules))
    speedup, verdict = modules.evaluate(
        "(({ speedup, verdict }) => [speedup, verdict])(Jakiro.resultOf(Jakiro.moves.state.run))"
    )
    assert speedup.startswith("0.") and speedup.endswith("×") and "did not pay" in verdict
    assert speedup in said and verdict in said


def test_every_lane_has_its_bar_and_its_name(modules):
    shown(modules, race(methods=["autoregressive", "jakiro", "recycling", "prompt_lookup"]))
    said = texts(result(modules))
    for title in modules.evaluate("Jakiro.moves.state.run.ordered.map(lane => lane.title)"):
        assert any(words.startswith(title[:8]) for words in said), title


def test_right_to_left_text_keeps_its_letters_joined_and_starts_at_the_right(modules):
    pieces = ["مرح".encode(), "با ".encode(), "بالعالم".encode(), b"\n", b"left ", b"again"]
    shown(modules, race(pieces))
    lines = [
        element for element in ElementTree.fromstring(result(modules)).iter(f"{SVG}text") if element.get("direction")
    ]
    assert [(line.get("direction"), line.text) for line in lines[:2]] == [
        ("rtl", "مرحبا بالعالم"),
        ("ltr", "left again"),
    ]
    assert float(lines[0].get("x")) > 500 and float(lines[1].get("x")) < 5


def test_the_tree_picture_is_the_tree_on_screen_with_its_legend(modules):
    shown(modules, race(nodes=16, depth=4))
    file = tree(modules, 1)
    stands_alone(file)
    said = texts(file)
    assert "Why is the sky blue?" in said and any("step 2 of " in words for words in said)
    labels = modules.evaluate("[...document.querySelectorAll('.tree-host .node text')].map(label => label.textContent)")
    assert set(labels) <= set(said)
    assert {"Expert 1", "Expert 2", words.BROWSER["target"]} <= set(said)
    assert modules.evaluate(PNG, file)["width"] == 1920


def test_nothing_of_a_picture_stays_on_the_page(modules):
    shown(modules, race())
    trees = "document.querySelector('.tree-host').innerHTML"
    before = modules.evaluate(trees)
    result(modules)
    assert modules.evaluate(trees) == before
    assert modules.evaluate("document.querySelectorAll('.jk-stage, .stage-text, .picture').length") == 0


def test_characters_that_no_xml_may_hold_are_replaced(modules):
    shown(modules, race([b"a\x00b\x07c\x1b", "\ufffe\uffff".encode(), b" end"], question="one \x01 two"))
    for file in (result(modules), tree(modules, 0)):
        stands_alone(file)
        assert "one \ufffd two" in texts(file)
        assert modules.evaluate(PNG, file)["width"] == 1920


def test_a_saved_picture_opens_alone_and_hostile_text_in_it_is_text(open_tab, modules, tmp_path):
    hostile = [
        "<script>window.ran=1</script>",
        "</text><image href='http://198.51.100.7/x'/>",
        "]]><svg onload='window.ran=2'>",
    ]
    pieces = [f" {text}".encode() for text in hostile] + [b"&amp;", b" <b>"]
    recording = race(pieces, question="".join(hostile))
    for trace in recording["traces"].values():
        trace["header"]["target"]["name"] = trace["header"]["device"] = hostile[0]
        trace["header"]["special_tokens"] |= {"1001": hostile[1], "1002": hostile[2]}
        trace["header"]["proposers"] = [one | {"label": hostile[2]} for one in trace["header"]["proposers"]]
    shown(modules, recording)
    for name, file in (("result", result(modules)), ("tree", tree(modules, 0))):
        stands_alone(file)
        assert any(hostile[0] in words for words in texts(file))
        path = tmp_path / f"{name}.svg"
        path.write_text(file, encoding="utf-8")
        alone = open_tab(None)
        loaded = []
        alone.on("request", lambda request, loaded=loaded: loaded.append(request.url))
        alone.goto(path.as_uri())
        assert alone.evaluate("window.ran") is None
        assert loaded == [path.as_uri()]
