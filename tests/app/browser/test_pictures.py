"""The saved picture of a tree is a self-contained drawing."""

import xml.etree.ElementTree as ElementTree

import pytest

from tests.app.conftest import opened_alone, show
from tests.app.fake import traces_of

pytestmark = pytest.mark.browser
SVG = "{http://www.w3.org/2000/svg}"
ELEMENTS = {"svg", "g", "rect", "path", "text", "title"}
ATTRIBUTES = {
    "style", "x", "y", "width", "height", "d", "transform", "viewBox", "preserveAspectRatio", "rx", "direction",
    "aria-label",
}  # fmt: skip
# Throws an error if the browser cannot draw the file
WIDTH = """async file => { const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(file)}`;
  await image.decode();
  return image.naturalWidth; }"""


def texts(file: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(file).iter(f"{SVG}text")]


def stands_alone(file: str) -> None:
    """Check that the file has drawings and text only: no scripts, no loads, no links."""
    for element in ElementTree.fromstring(file).iter():
        assert element.tag.removeprefix(SVG) in ELEMENTS, element.tag
        names = {name for name in element.attrib if not name.startswith("data-")}
        assert names <= ATTRIBUTES, names
        assert "url(" not in element.get("style", ""), element.get("style")


def test_a_saved_picture_is_self_contained_and_its_hostile_text_is_text(open_tab, modules, tmp_path):
    hostile = [
        "<script>window.ran=1</script>",
        "</text><image href='http://198.51.100.7/x'/>",
        "]]><svg onload='window.ran=2'>",
    ]
    pieces = [f" {text}".encode() for text in hostile] + [b"&amp;", b" <b>"]
    pieces += [b"a\x00b\x07c\x1b", "\ufffe\uffff".encode()]  # characters that are invalid in XML
    traces = traces_of(pieces)
    for trace in traces.values():
        trace["header"]["messages"][-1]["content"] = "".join(hostile)
        trace["header"]["target"]["name"] = trace["header"]["device"] = hostile[0]
        trace["header"]["special_tokens"] |= {"1001": hostile[1], "1002": hostile[2]}
        trace["header"]["proposers"] = [proposer | {"label": hostile[2]} for proposer in trace["header"]["proposers"]]
    show(modules, traces, step=0)
    modules.wait_for_selector('svg.tree[data-step="0"]')
    file = modules.evaluate("Jakiro.treePicture()")
    stands_alone(file)
    labels = modules.evaluate("[...document.querySelectorAll('.tree-host .node text')].map(label => label.textContent)")
    assert labels and set(labels) <= set(texts(file))
    assert modules.evaluate(WIDTH, file) >= modules.evaluate("document.querySelector('svg.tree').clientWidth")
    assert any("<script>" in words for words in texts(file))
    path = tmp_path / "tree.svg"
    path.write_text(file, encoding="utf-8")
    alone = opened_alone(open_tab, path)
    assert alone.evaluate("window.ran") is None
    assert alone.loaded == [path.as_uri()]
