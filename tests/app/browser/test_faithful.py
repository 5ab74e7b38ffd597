"""The drawing equals the trace: every step and phase, folded and unfolded, live, opened and saved."""

import itertools
import json

import pytest

from app.page import web
from app.serving import packing
from app.tools import replay
from jakiro.config import SamplingParams, TreeConfig
from tests.app.conftest import opened_alone, show
from tests.app.fake import QUESTION, FakeGenerator, finished_race, traces_of
from tests.marks import rarely

pytestmark = pytest.mark.browser
MOUNT = "Jakiro.mountView(document.querySelector('#host'), {}, null, null)"
# Reads the step of the tree, the step of the counter, the tokens of the answer, and the tokens in the plot
DRAWN = """() => [Number(document.querySelector('svg.tree').dataset.step),
  Number(/step (\\d+)/.exec(document.querySelector('.where').textContent)[1]) - 1,
  new Set([...document.querySelectorAll('.answer-text [data-token]')].map((one) => one.dataset.token)).size,
  Number(document.querySelector('.columns .plot-grown [data-name="Jakiro"]')?.dataset.to
    ?? document.querySelector('.columns .plot').data?.find((one) => one.name.split('  ')[0] === 'Jakiro').y.at(-1))]"""
# Draws steps × phases and reads the tree back from the document
READ = """async ([indices, unfolded]) => {
  const drawn = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  const found = [];
  Jakiro.moves.state.showAll = unfolded;
  for (const index of indices) {
    for (const phase of [1, 2, 3]) {
      Jakiro.moves.seek(index);
      Jakiro.moves.state.guess = phase === 1;
      Jakiro.moves.setPhase(phase);
      await drawn();
      const tree = document.querySelector('svg.tree');
      const count = kind => tree.querySelectorAll(kind).length;
      found.push({ index, phase, step: Number(tree.dataset.step),
        nodes: [...tree.querySelectorAll('.node')].map(node => ({
          id: node.dataset.node, states: [...node.classList].slice(1), hue: node.querySelector('.marker').classList[1],
          x: Number(/translate\\((\\S+)/.exec(node.querySelector('.marker').parentNode.getAttribute('transform'))[1]),
          label: node.querySelector('text').textContent })),
        folded: [...tree.querySelectorAll('.pill')].map(pill => Number(pill.dataset.size)),
        crossbars: count('.edge:is(.crossbar, .cross)'), bonus: count('.edge.bonus'), border: count('.verdict .border'),
        answer: document.querySelector('.answer-text').textContent });
      Jakiro.moves.state.guess = false;
    }
  }
  return found;
}"""


def state_of(step: dict, index: int) -> str:
    accepted = {0, *step["accepted_path"]}
    if index == 0:
        return "root"
    if index in accepted:
        return "accepted"
    return "refused" if step["nodes"][index]["parent"] in accepted else "not_reached"


def visible(piece: str) -> str:
    text = bytes.fromhex(piece).decode("utf-8", "replace")
    return text.replace("\n\n", "↵×2").replace("\n", "↵")


def check(drawing: dict, trace: dict, unfolded: bool) -> None:
    """Compare one drawing with its step."""
    step, phase = trace["steps"][drawing["index"]], drawing["phase"]
    assert drawing["step"] == drawing["index"]
    nodes = {node["id"]: node for node in drawing["nodes"]}
    assert len(nodes) == len(drawing["nodes"])
    bonus = nodes.pop("bonus", None)
    assert len(nodes) + sum(drawing["folded"]) == len(step["nodes"])
    assert not (unfolded and drawing["folded"])
    for name, node in nodes.items():
        node_of_step = step["nodes"][int(name)]
        assert node["states"] == ["proposed" if phase == 1 and name != "0" else state_of(step, int(name))]
        ids = [proposer["id"] for proposer in trace["header"]["proposers"]]
        assert node["hue"] == f"hue-{'root' if name == '0' else ids.index(node_of_step['proposer'])}"
        label = node["label"].removesuffix("…")
        if name != "0" and "�" not in visible(node_of_step["piece"]):
            assert visible(node_of_step["piece"]).startswith(label) and label
    columns = {(step["nodes"][int(name)]["depth"], node["x"]) for name, node in nodes.items()}
    assert len(columns) == len({depth for depth, _ in columns}) == len({x for _, x in columns})
    refused = sum(node["states"] == ["refused"] for node in nodes.values())
    assert drawing["crossbars"] == (refused if phase > 1 else 0)
    assert (bonus is not None) == (phase == 3) == (drawing["bonus"] == 1)
    assert drawing["border"] == 0, "only where the answer ends inside the path"
    if phase > 1:
        assert {str(i) for i in step["accepted_path"]} <= set(nodes)
    if phase == 3 and "�" not in visible(step["bonus_piece"]):
        assert visible(step["bonus_piece"]).startswith(bonus["label"].removesuffix("…"))
    text = "".join(part["text"] for part in trace["steps"]) if phase > 1 else text_before(trace, drawing["index"])
    assert drawing["answer"].replace("�", "").startswith(text.rstrip("�")[: len(text) - 2])
    assert len(drawing["answer"]) <= len(text) + 2


def text_before(trace: dict, index: int) -> str:
    return "".join(step["text"] for step in trace["steps"][:index]) or trace["header"]["first_text"]


def check_all(tab, trace: dict, every: int = 1) -> None:
    # The last step is cut by the end of the answer
    indices = list(range(0, len(trace["steps"]) - 1, every))
    for unfolded in (False, True):
        drawings = tab.evaluate(READ, [indices, unfolded])
        assert len(drawings) == 3 * len(indices)
        assert unfolded or any(drawing["folded"] for drawing in drawings)
        for drawing in drawings:
            check(drawing, trace, unfolded)


def ticks_of(nodes: int = 40) -> tuple[list[str], dict]:
    """Return the updates of a race, one event each, and the trace of its Jakiro lane."""
    race = FakeGenerator().race(QUESTION, SamplingParams(max_new_tokens=60), tree=TreeConfig(nodes=nodes, depth=6))
    events = [("header", method, trace.header) for method, trace in race.traces.items()]
    events += [("step", *step) for step in race]
    events += [("end", method, trace.end_reason) for method, trace in race.traces.items()] + [("done", None, None)]
    packer = packing.Packer()
    return [packing.to_json([packer.pack(event)]) for event in events], race.traces["jakiro"].to_dict()


@pytest.mark.rare
def test_updates_that_a_busy_browser_did_not_see_are_fetched(modules):
    ticks, trace = ticks_of()
    seen = [0, 1, 2, 7, 8, 20, len(ticks) - 1]
    modules.evaluate(
        """async ([ticks, seen, id]) => {
             window.asked = [];
             let sent = 0;
             const missed = async ({ run, first }) => {
               window.asked.push([run === id, first]);
               const found = ticks.slice(first, sent);
               await new Promise(done => setTimeout(done, 30));
               return found;
             };
             const server = { missed, recording_names: async () => [] };
             Jakiro.mountView(document.querySelector('#host'), {}, null, server);
             for (const number of seen) {
               sent = number + 1;
               Jakiro.receive({ run: id, ticks: { [number]: ticks[number] } });
               await new Promise(done => setTimeout(done, 20));
             } }""",
        [ticks, seen, "a" * 32],
    )
    modules.wait_for_selector('.jk-view[data-finished="true"]')
    requests = modules.evaluate("window.asked")
    assert all(right for right, _ in requests) and len(requests) >= 2 and requests[0][1] == 3
    check_all(modules, trace, every=3)
    assert modules.evaluate("Object.keys(Jakiro.moves.state.run.lanes).length") == 2


@pytest.mark.parametrize("unknown", [0, rarely(10)])
def test_an_answer_that_begins_while_the_server_is_asked_for_it_is_not_taken_for_gone(modules, unknown):
    """The server looks before the question arrives; its reply arrives after the first words."""
    made, trace = ticks_of(nodes=64)
    ticks = dict(enumerate(made))
    first_ticks = {number: ticks[number] for number in range(20)}
    result = modules.evaluate(
        """async ([begun, rest, unknown, id]) => {
             let answer;
             const server = { missed: () => new Promise((done) => (answer = done)), recording_names: async () => [] };
             Jakiro.mountView(document.querySelector('#host'), {}, null, server);
             const run = Jakiro.begin(id, { typed: 'Why?' });
             run.unknown = unknown;
             const asked = Jakiro.fetchMissed(run);
             Jakiro.receive({ run: id, ticks: begun });
             answer(null);
             await asked;
             const seen = [run.finished, Jakiro.notice.hidden];
             Jakiro.receive({ run: id, ticks: rest });
             return seen; }""",
        [first_ticks, {number: ticks[number] for number in range(20, len(ticks))}, unknown, "a" * 32],
    )
    assert result == [False, True]
    modules.wait_for_selector('.jk-view[data-finished="true"]')
    check_all(modules, trace, every=12)


@pytest.mark.rare
def test_an_opened_file_and_the_page_saved_from_it_draw_the_trace(modules, open_tab, tmp_path):
    traces = finished_race(length=60, nodes=64, depth=6).traces
    trace, text = traces["jakiro"].to_dict(), web.recording_text(traces)
    modules.evaluate(
        f"""text => {{ {MOUNT}; Jakiro.showRecording('opened', {{...Jakiro.readTraceFile(text), text}},
                                                     {{playNow: false, source: 'opened'}}); }}""",
        text,
    )
    modules.wait_for_selector("svg.tree")
    check_all(modules, trace, every=5)
    assert modules.evaluate("Jakiro.asJson(Jakiro.moves.state.run)") == text
    path = tmp_path / "replay.html"
    path.write_text(replay.replay_page(text, "x"))  # as saved by the browser
    tab = opened_alone(open_tab, path)
    tab.wait_for_selector("svg.tree")
    check_all(tab, trace, every=8)
    assert json.loads(tab.text_content("#jakiro-recording"))["traces"]["jakiro"] == trace


def test_each_draw_of_a_growing_answer_is_one_moment_everywhere(modules):
    """Tree, step counter, text and plot show the same step, for any updates since the last draw."""
    modules.evaluate(MOUNT)
    modules.wait_for_function("window.Plotly")
    moments = modules.evaluate(
        """async ticks => { const found = [], view = document.querySelector('.jk-view'), read = DRAWN;
          new MutationObserver(() => {
            const tree = document.querySelector('.tree-host:not([hidden]) svg.tree');
            const plot = document.querySelector('.columns .plot').data;
            if (tree && plot && view.dataset.finished === 'false') found.push([read(), Jakiro.lane().counts]);
          }).observe(view, { attributeFilter: ['data-drawn'] });
          for (let i = 0; i < 48; i += 1) {
            const { drawn } = view.dataset;
            Jakiro.receive({ run: 'd'.repeat(32), ticks: { [i]: ticks[i] } });
            do await new Promise((done) => setTimeout(done, 120));
            while (i % 12 === 11 && view.dataset.drawn === drawn); // a busy browser draws later
          }
          return found.map(([[step, ...drawn], counts]) => [step, drawn, counts[step]]); }""".replace("DRAWN", DRAWN),
        ticks_of(nodes=8)[0],
    )
    assert len({step for step, *_ in moments}) >= 3
    for step, shown_counts, written in moments:
        assert shown_counts == [step, written, written]


@pytest.mark.parametrize("key", ["Enter", " "])
def test_a_folded_branch_opens_with_enter_and_with_space_after_its_step_is_redrawn(modules, key):
    show(modules, traces_of(length=60, nodes=64, depth=6), step=1)
    modules.wait_for_function("document.querySelector('.columns .plot')?.data && document.querySelector('.tree .pill')")
    parent = modules.get_attribute(".tree .pill", "data-parent")
    pill_of = "at => Jakiro.screen.parts.tree.plan.pills.find(({ parent }) => parent === at)"
    members = modules.evaluate(f"at => ({pill_of})(at).members", int(parent))
    assert not any(modules.locator(f'.tree [data-node="{i}"]').count() for i in members)
    modules.focus(f'.tree .pill[data-parent="{parent}"]')
    modules.evaluate("() => { const { tree } = Jakiro.screen.parts; tree.draw(tree.shown); }")
    modules.keyboard.press(key)
    for i in members:
        modules.wait_for_selector(f'.tree [data-node="{i}"]', state="attached")


@pytest.mark.rare
@pytest.mark.parametrize("pace", ["slow", "normal"])
def test_a_replay_shows_one_step_everywhere_and_no_word_flies_into_the_next_one(modules, pace):
    """Tree, counter, text and plot agree in samples every 100 ms; a movement ends within its phase."""
    show(modules, traces_of(nodes=8), source="opened", step=0)
    modules.wait_for_function("document.querySelector('.columns .plot')?.data")
    samples = modules.evaluate(
        """async (pace) => { const found = [], { state, moves } = Jakiro;
          moves.setPace(pace);
          moves.play(true);
          for (let i = 0; i < 80; i += 1) {
            await new Promise((done) => setTimeout(done, 100));
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
            if (!state.playing) break;
            const index = Number(document.querySelector('svg.tree').dataset.step);
            const phase = Number(document.querySelector('.phases :has(> input:checked)').dataset.phase);
            const tokens = [...document.querySelectorAll('.answer-text [data-token]:not(.later)')];
            found.push({ index, phase, now: performance.now(),
              counter: Number(/step (\\d+)/.exec(document.querySelector('.where').textContent)[1]) - 1,
              tokens: new Set(tokens.map((one) => one.dataset.token)).size,
              expected: Jakiro.lane().countAfter(index - (phase < 3 ? 1 : 0)),
              flying: document.querySelectorAll('.flying').length }); }
          return found; }""",
        pace,
    )
    assert len({sample["index"] for sample in samples}) >= (2 if pace == "slow" else 4)
    for sample in samples:
        assert sample["counter"] == sample["index"] and sample["tokens"] == sample["expected"], sample
        assert sample["phase"] == 3 or not sample["flying"], sample
    # Each pace keeps its tempo to the end
    begins = {}
    for sample in samples:
        begins.setdefault(sample["index"], sample["now"])
    times = [later - earlier for earlier, later in itertools.pairwise(list(begins.values())[:-1])]
    assert min(times) > (2400 if pace == "slow" else 700)
