"""Answers rendered as Markdown contain every character and token, for any text of a model."""

import re

import pytest

from app.page import web
from app.words import benchmark as benchmark_words
from app.words import lesson as lesson_words
from app.words import page as words
from tests.app.fake import traces_of as fake_traces
from tests.faults import ROOT

pytestmark = pytest.mark.browser
WEB = ROOT / "assets" / "web"

ANSWER = """Here is a **short list** of what *matters*:

1. The `loop` reads.
2. It draws **one
   frame**.

   - deeper

## A heading

```python
def draw(moment):
    pane.draw(moment)
```

| Size | Speed |
| --- | --- |
| 8 | 1.3 |

> A quote, [a link](https://example.org) and \\( x_1 \\).

---
The end &amp; more.
"""
HOSTILE = {
    "html": "<script>window.ran=1</script>\n\n<img src=x onerror='window.ran=2'>\n\n<b>bold</b> <!-- c -->\n",
    "links": "[a](javascript:window.ran=3) ![b](javascript:window.ran=4) <javascript:window.ran=5> [c]\n\n[c]: x\n",
    "quotes": "> " * 10_000 + "a",
    "lists": "".join("  " * depth + "- a\n" for depth in range(60)),
    "fence": "```<img src=x onerror=window.ran=6>\n<b>\n````\n</code></pre>",
    "signs": "**a*b_c`d~~~|e\n|-|\n|\\|`|\n\n###### \n*\n1.\n\x00\ufffe &lt;b&gt; \\* \r\n\tend",
    "brackets": "[" * 3000 + "![" * 2000,
}


def traces_of(text: str, every: int = 3) -> dict:
    """Return the traces of an answer in which each token has `every` characters of the text."""
    pieces = [text[start : start + every].encode() for start in range(0, len(text), every)]
    return fake_traces(pieces, 20_000, nodes=8)


def draw(tab, text: str, every: int = 3) -> dict:
    return tab.evaluate(
        """async traces => {
          const lane = Jakiro.runFromTraces('x', 'opened', traces).main;
          const host = document.createElement('div');
          document.querySelector('.jk-view').replaceChildren(host);
          const view = new Jakiro.AnswerView(host);
          view.draw(lane, lane.tokens.length, { live: false, tail: '', formatted: true });
          let copied = null;
          Object.defineProperty(navigator, 'clipboard', { configurable: true,
            value: { writeText: async (text) => (copied = text) } });
          view.text.querySelector('.copy-code')?.click();
          await new Promise((done) => setTimeout(done, 50));
          return { text: view.text.textContent, shown: view.text.innerText, ran: window.ran ?? null,
            copied, tail: view.tail.textContent,
            names: [...new Set([...view.text.querySelectorAll('*')].map((one) => one.localName))],
            tokens: new Set([...view.text.querySelectorAll('[data-token]')].map((one) => one.dataset.token)).size,
            num_tokens: lane.tokens.filter(({ special }) => !special).length }; }""",
        traces_of(text, every),
    )


def test_code_lists_tables_and_headings_keep_every_token_and_code_is_copied_as_written(functions):
    result = draw(functions, ANSWER)
    assert result["text"] == ANSWER and result["tokens"] >= result["num_tokens"]
    assert result["copied"] == "def draw(moment):\n    pane.draw(moment)"
    elements = {"ol", "ul", "li", "strong", "em", "code", "pre", "table", "th", "td", "h4", "blockquote"}
    assert elements <= set(result["names"])
    assert "a" not in result["names"], "a link stays text"
    for hidden in ("**", "```", "| ---", "##", "---"):
        assert hidden not in result["shown"]
    for text in ("def draw(moment):\n    pane.draw(moment)", "[a link](https://example.org)", "\\( x_1 \\)", "&amp;"):
        assert text in result["shown"]


GROWING = (
    [b"Hi", b" there", b"\r", b"\n", b" you", "\u0301".encode(), b" e", "é".encode()[:1], "é".encode()[1:], b" z"],
    ["🌍".encode()[:2], "🌍".encode()[2:], b" ok", "👩".encode(), "\u200d".encode(), "🚀".encode(), b"a", b"b"],
    [b"broken \xff\xfe", b"\xc3", b"(", b"", b"x", b"\xe2\x82", b" y", "مرحبا".encode(), b"1", b"2"],
)


@pytest.mark.parametrize(
    ("formatted", "traces"),
    [(True, traces_of(ANSWER)), *((False, fake_traces(pieces, nodes=8)) for pieces in GROWING)],
    ids=["formatted", "signs", "emoji", "broken"],
)
def test_an_answer_that_grows_or_shrinks_looks_like_one_drawn_at_once(functions, formatted, traces):
    grown, fresh = functions.evaluate(
        """([formatted, traces]) => {
          const lane = Jakiro.runFromTraces('x', 'opened', traces).main;
          const view = () => new Jakiro.AnswerView(document.createElement('div'), { onPick() {}, onPreview() {} });
          const look = (one, count) => {
            one.draw(lane, count, { live: count < lane.tokens.length, selected: count % 3, tail: '', formatted });
            return one.text.innerHTML.replace(/ +"/g, '"'); // a class that went may leave a space
          };
          const kept = view();
          const counts = [...lane.tokens.keys()].map(i => i + 1);
          const order = [...counts, ...counts.slice().reverse(), 1, counts.length, 2, counts.length - 1, 5];
          return [order.map(count => look(kept, count)), order.map(count => look(view(), count))]; }""",
        [formatted, traces],
    )
    assert grown == fresh


@pytest.mark.rare
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_markdown_is_text(functions, name):
    result = draw(functions, HOSTILE[name], every=20)
    assert result["ran"] is None
    assert result["text"] == HOSTILE[name]
    assert not {"script", "img", "a", "b", "iframe"} & set(result["names"])


def test_a_line_that_is_repeated_three_times_has_a_note(functions):
    twice, thrice = (draw(functions, "The same line here.\n" * times)["tail"] for times in (2, 3))
    assert words.BROWSER["repeats_itself"] in thrice and words.BROWSER["repeats_itself"] not in twice


def test_the_modules_load_by_themselves_as_a_browser_loads_them(open_tab):
    """Load the modules without bundling, so that a missing export is an error."""
    tab = open_tab(None)
    data = re.match(r"window\.Jakiro = (.*);\n", web.script())[1]

    def served(route) -> None:
        name = route.request.url.removeprefix("http://localhost/")
        text = (WEB / name).read_text(encoding="utf-8") if name else "<!doctype html><div class='jk-view'></div>"
        route.fulfill(body=text, content_type="text/javascript" if name else "text/html")

    tab.route("http://localhost/**", served)
    tab.goto("http://localhost/")
    more = web.for_script(lesson_words.BROWSER | benchmark_words.FIRST | benchmark_words.BROWSER)
    tab.evaluate(
        f"() => {{ window.Jakiro = {data}; Object.assign(Jakiro.words, {more}); Jakiro.benchmarkForm = {{}}; }}"
    )
    loaded = tab.evaluate(
        "async names => { for (const name of names) await import('/' + name); return names.length; }",
        [path.relative_to(WEB).as_posix() for path in sorted(WEB.rglob("*.js"))],
    )
    assert loaded > 60
