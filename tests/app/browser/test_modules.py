"""The page's scripts in Chromium without a server: pieces, units, layout, metrics, files."""

import json
from dataclasses import replace

import pytest

from app.serving.packing import Packer, to_json
from app.words import page as words
from jakiro.config import SamplingParams, TreeConfig
from jakiro.trace import Trace, acceptance_by_depth
from tests.app.conftest import load_scripts, set_option, show
from tests.app.fake import QUESTION, FakeGenerator, finished_race, traces_of
from tests.marks import rarely

pytestmark = pytest.mark.browser


@pytest.fixture
def race_tab(modules):
    """Return a tab that shows a finished fake race, without a server."""
    show(modules, traces_of(), step=0)
    return modules


@pytest.mark.parametrize(
    ("piece", "label"),
    [
        (b" because", "␣because"),
        (b"    ", "␣×4"),
        (b"\t", "⇥"),
        (b"\n", "↵"),
        (b"\n\n", "↵×2"),
        ("\u200b".encode(), "‹U+200B›"),
        (b"", "‹empty›"),
        (b"\xf0\x9f", "‹F0 9F›"),
        (b"<script>", "<script>"),
        (b"<|im_end|>", "<|im_end|>"),
    ],
)
def test_pieces_are_named_with_visible_white_space(functions, piece, label):
    assert functions.evaluate("hex => Jakiro.label(Jakiro.fromHex(hex))", piece.hex()) == label


@pytest.mark.parametrize(
    "pieces",
    [
        [b"Hi", b" there", b"\n\n", b"you"],
        ["🌍".encode()[:2], "🌍".encode()[2:], b" ok"],
        [b"a", "é".encode()[:1], "é".encode()[1:] + b"b", "👩‍🚀".encode()[:5], "👩‍🚀".encode()[5:]],
        ["مرحبا".encode(), " بالعالم".encode(), b" mixed"],
        [b"broken \xff\xfe", b"\xc3", b"(", b"\xe2\x82"],
        [b"e", "\u0301".encode(), b"!"],
        [b"ab\xe2\x82", b"\xac\xff"],
        [b"\xef\xbb\xbf", b"\xef\xbf\xbd\xf0\x9f"],
        [b"\xed\xa0\x80" * 3],
    ],
)
def test_units_hold_every_character_once_and_cover_every_byte(functions, pieces):
    units = functions.evaluate("pieces => Jakiro.units(pieces.map(Jakiro.fromHex))", [piece.hex() for piece in pieces])
    assert "".join(unit["text"] for unit in units) == b"".join(pieces).decode("utf-8", "replace")
    covered = {token for unit in units for token in range(unit["first"], unit["last"] + 1)}
    assert covered == set(range(len(pieces)))
    # An incomplete character at the end is open; other invalid bytes are grouped as in browsers
    assert [unit["state"] for unit in units].count("open") == b"".join(pieces).endswith((b"\x9f", b"\xe2\x82"))


@pytest.mark.parametrize("nodes", [1, 2, 8, 24, 40, 64])
def test_layouts_give_every_visible_node_its_own_place_and_fold_to_fit(functions, nodes):
    steps = traces_of(nodes=nodes)["jakiro"]["steps"]
    plans = functions.evaluate(
        """steps => steps.map(step => [1, 2, 3].map(phase => {
             const plan = Jakiro.layoutTree(step, {phase, most: 18});
             return {places: [...plan.places].map(([i, p]) => [i, p.column, p.row]), rows: plan.rows,
                     hidden: plan.pills.reduce((sum, pill) => sum + pill.size, 0), bonus: plan.bonus}; }))""",
        steps,
    )
    for step, phases in zip(steps, plans, strict=True):
        for phase, plan in enumerate(phases, start=1):
            spots = [(column, row) for _, column, row in plan["places"]]
            spots += [(plan["bonus"]["column"], plan["bonus"]["row"])] if plan["bonus"] else []
            assert len(set(spots)) == len(spots)
            assert len(plan["places"]) + plan["hidden"] == len(step["nodes"])
            assert plan["rows"] <= 18
            visible = {i for i, _, _ in plan["places"]}
            if phase > 1:
                assert set(step["accepted_path"]) <= visible
            assert (plan["bonus"] is not None) == (phase == 3)


def test_the_first_layout_does_not_depend_on_the_verdict(functions):
    step = traces_of(nodes=40)["jakiro"]["steps"][3]
    layout = "step => JSON.stringify([...Jakiro.layoutTree(step, {phase: 1, most: 12}).places])"
    before = functions.evaluate(layout, step)
    assert functions.evaluate(layout, step | {"accepted_path": [], "bonus_token_id": 1}) == before


def test_metrics_equal_those_of_the_library(functions):
    race = finished_race()
    plain, drafted = race.traces["autoregressive"], race.traces["jakiro"]
    traces = {method: trace.to_dict() for method, trace in race.traces.items()}
    metrics = functions.evaluate(
        """traces => { const run = Jakiro.runFromTraces('x', 'opened', traces); const m = Jakiro.metrics;
           return {tau: m.tau(run.main.steps), drafted: m.tauDrafted(run.main.steps),
                   acceptance: m.acceptance(run.main.steps),
                   rate: m.speed(run.main), speedup: m.speedup(run.main, run.plain),
                   text: Jakiro.textOf(run.main, run.main.tokens.length)}; }""",
        traces,
    )
    assert metrics["tau"] == pytest.approx(drafted.delivered_tau)
    assert metrics["drafted"] == pytest.approx(drafted.tau)
    assert metrics["rate"] == pytest.approx(drafted.tokens_per_second)
    assert metrics["speedup"] == pytest.approx(plain.decode_seconds / drafted.decode_seconds)
    accepted, tested = map(sum, zip(*acceptance_by_depth(drafted.steps), strict=True))
    assert metrics["acceptance"] == pytest.approx(accepted / tested)
    assert metrics["text"] == drafted.text


def test_a_tokens_margin_is_that_of_the_node_which_it_was_chosen_after(functions):
    trace = traces_of(nodes=40)["jakiro"]
    expected = [None]
    for step in trace["steps"]:
        for number, node in enumerate(step["nodes"]):
            node["margin"] = 1000 * step["index"] + number
        chosen_after = [0, *step["accepted_path"]]
        expected += [1000 * step["index"] + node for node in chosen_after[: len(step["committed_ids"])]]
    margins = functions.evaluate(
        """trace => { const { main } = Jakiro.runFromTraces('x', 'opened', { jakiro: trace });
           return main.tokens.map((_, index) => Jakiro.metrics.marginAt(main, index)); }""",
        trace,
    )
    assert any(len(step["accepted_path"]) > 1 for step in trace["steps"]) and margins == expected


def test_speeds_and_places_of_two_answers_counted_by_hand(functions):
    """Three steps end with 4, 8 and 12 tokens after 0.5, 1 and 4 s; plain decoding gets slower with each token."""
    result = functions.evaluate(
        """() => {
          const { metrics } = Jakiro;
          const lane = (counts, seconds, secondsTo) => ({ counts, seconds, secondsTo, lead: 1, steps: counts,
            endReason: "eos", tokens: Array.from({ length: counts.at(-1) }, (_, id) => ({ id })),
            countAfter: (step) => (step < 0 ? 1 : counts[step]),
            countAt: (time) => counts.findLast((_, step) => seconds[step] <= time) || 1 });
          const main = lane([4, 8, 12], [0.5, 1, 4], (count) => [0.5, 1, 4][count / 4 - 1]);
          const plain = lane([16], [16], (count) => count ** 2 / 16);
          return { smooth: [0, 2].map((step) => metrics.smoothSpeed(main, step)),
            parts: metrics.partsAt({ main, plain }), speed: [1, 2, 3].map((count) => metrics.speed(main, count)),
            speedup: [1, 2, 3].map((steps) => metrics.speedup(main, plain, steps)) };
        }"""
    )
    assert result == {
        "smooth": [6, 2],
        "parts": 12,
        "speed": [None, 7, 2.75],
        "speedup": [None, 4, 9 / 4],
    }


def agrees(value, expected) -> bool:
    """Return whether an unpacked value equals that of the trace, up to the transferred digits."""
    if isinstance(expected, float) and isinstance(value, (int, float)):
        return value == pytest.approx(expected, abs=0.051, rel=0.01)
    if isinstance(expected, dict):
        return set(value) == set(expected) and all(agrees(value[name], expected[name]) for name in expected)
    if isinstance(expected, list):
        return len(value) == len(expected) and all(map(agrees, value, expected))
    return value == expected


@pytest.mark.parametrize("nodes", [1, 24, rarely(64), rarely(120)])
def test_packed_steps_unpack_to_those_of_the_trace(functions, nodes):
    stream = FakeGenerator().stream(QUESTION, SamplingParams(max_new_tokens=40), tree=TreeConfig(nodes=nodes, depth=8))
    packer = Packer()
    packer.pack(("header", "jakiro", stream.trace.header))
    packed = [json.loads(to_json(packer.pack(("step", "jakiro", step))))[2] for step in stream]
    read = """([header, steps]) => { const reader = new Jakiro.StepReader(header);
              return steps.map((step, i) => reader.read(step, i)); }"""
    unpacked = functions.evaluate(read, [stream.trace.to_dict()["header"], packed])
    for step, step_of_trace in zip(unpacked, stream.trace.to_dict()["steps"], strict=True):
        assert agrees(step, step_of_trace), (step, step_of_trace)
        for node, expected in zip(step["nodes"], step_of_trace["nodes"], strict=True):
            assert node["score"] == pytest.approx(expected["score"], abs=0.0006)
            for name in ("draft_prob", "target_prob"):
                assert node[name] == pytest.approx(expected[name], abs=0.000006)


@pytest.mark.parametrize("nodes", [8, 24])
def test_a_step_that_no_token_can_follow_is_read_and_shown_without_a_bonus_token(modules, nodes):
    race = finished_race(nodes=nodes)
    trace, steps = race.traces["jakiro"], race.traces["jakiro"].steps
    index = next(i for i, step in enumerate(steps) if i and len(step.accepted_path) == 2)
    accepted = tuple(steps[index].nodes[node].token_id for node in (1, 2))
    assert steps[index].accepted_path == (1, 2)
    last = replace(steps[index], bonus_token_id=None, bonus_piece=b"", committed_ids=accepted)
    race.traces["jakiro"] = trace = Trace(trace.header, [*steps[:index], last], "no_token")
    assert Trace.from_json(trace.to_json()) == trace
    packer = Packer()
    packer.pack(("header", "jakiro", trace.header))
    packed = [json.loads(to_json(packer.pack(("step", "jakiro", step))))[2] for step in trace.steps]
    saved = {method: trace.to_dict() for method, trace in race.traces.items()}
    show(modules, saved, step=index)
    read = """([header, steps]) => { const reader = new Jakiro.StepReader(header);
              return steps.map((step) => reader.read(step)).at(-1); }"""
    unpacked, expected = modules.evaluate(read, [saved["jakiro"]["header"], packed]), saved["jakiro"]["steps"][-1]
    for name in ("bonus_token_id", "bonus_piece", "committed_ids"):
        assert unpacked[name] == expected[name], name
    assert said_of(modules, json.dumps(saved["jakiro"])) == "read"
    modules.wait_for_selector(f'svg.tree.phase-3[data-step="{index}"]')
    assert modules.locator('svg.tree [data-node="1"]').count() == 1
    assert modules.locator('[data-node="bonus"]').count() == 0
    assert "No token can follow." in modules.locator("svg.tree").get_attribute("aria-label")
    assert "no token can follow: 2 tokens kept" in modules.inner_text("#host")


def test_every_refusal_has_its_reason(race_tab):
    steps = traces_of()["jakiro"]["steps"]
    index = next(i for i, step in enumerate(steps) if len(step["accepted_path"]) == 2)
    race_tab.evaluate("index => Jakiro.moves.seek(index)", index)
    race_tab.wait_for_selector(f'svg.tree[data-step="{index}"]')
    for state, start in (("refused", "The model chose “"), ("accepted", words.BROWSER["why_accepted"])):
        race_tab.hover(f'.tree .node[data-state="{state}"] .reach')
        assert start in race_tab.inner_text(".jk-card")
        race_tab.mouse.move(2, 2)
    race_tab.locator('.tree .node[data-state="not_reached"] .reach').first.hover()
    card = race_tab.inner_text(".jk-card")
    assert "before it was wrong" in card or words.BROWSER["why_would_agree"] in card


def test_before_the_reveal_nothing_of_the_verdict_is_on_screen(race_tab):
    steps = traces_of()["jakiro"]["steps"]
    race_tab.evaluate("Jakiro.moves.guessFirst(true); Jakiro.moves.seek(6)")
    race_tab.wait_for_selector('svg.tree.phase-1[data-step="6"]')
    tree = race_tab.evaluate("document.querySelector('svg.tree').outerHTML")
    assert "accepted" not in tree and "refused" not in tree and "bonus" not in tree
    race_tab.hover('.tree .node[data-node="1"] .reach')
    card = race_tab.inner_text(".jk-card")
    assert "target" not in card and "Wrong" not in card
    before = 1 + sum(len(step["committed_ids"]) for step in steps[:6])
    assert race_tab.locator(".answer-text [data-token]").count() == before
    race_tab.evaluate("document.querySelector('.jk-view').focus()")
    race_tab.keyboard.press("Space")
    race_tab.wait_for_selector('svg.tree.phase-3[data-step="6"]')
    race_tab.keyboard.press("Space")
    race_tab.wait_for_selector('svg.tree.phase-1[data-step="7"]')


def test_a_saved_trace_reads_back_the_same_and_tables_hold_one_row_per_candidate(race_tab):
    text = race_tab.evaluate("Jakiro.asJson(Jakiro.moves.state.run)")
    saved = json.loads(text)
    assert saved["traces"] == json.loads(json.dumps(traces_of()))
    assert race_tab.evaluate("text => Object.keys(Jakiro.readTraceFile(text).traces)", text) == list(saved["traces"])
    rows = race_tab.evaluate("Jakiro.asCsv(Jakiro.moves.state.run)").split("\r\n")
    candidates = sum(len(step["nodes"]) - 1 for step in saved["traces"]["jakiro"]["steps"])
    assert len(rows) == 1 + candidates
    # Some programs use semicolons or tabs as separators
    named = """method => { Object.values(Jakiro.state.run.lanes).forEach((lane) => (lane.method = method));
      return Jakiro.asCsv(Jakiro.state.run); }"""
    for method in ("a;b", "a\tb"):
        assert f'\r\n"{method}",' in race_tab.evaluate(named, method)


def chain_of(trace: dict, length: int) -> list[dict]:
    """Return copies of the first step's root as a chain of candidates."""
    root = trace["steps"][0]["nodes"][0]
    below = [root | {"parent": depth - 1, "depth": depth, "proposer": "expert_0"} for depth in range(1, length)]
    return [root, *below]


def said_of(tab, text: str) -> str:
    """Return the error message of a refused file, or "read"."""
    return tab.evaluate(
        "text => { try { Jakiro.readTraceFile(text); return 'read'; } catch (error) { return error.message; } }", text
    )


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda trace: trace.pop("steps"), "is not a saved answer: the field “steps” is missing or invalid."),
        (lambda trace: trace["header"].update(schema_version=9), "This saved answer has format 9; this page reads 1."),
        (lambda trace: trace["steps"][1]["nodes"][2].update(parent=7), "“steps.1.nodes.2.parent”"),
        (lambda trace: trace["steps"][0]["nodes"][0].update(piece="zz"), "“steps.0.nodes.0.piece”"),
        (lambda trace: trace["steps"][1]["accepted_path"].append(0), "“steps.1.accepted_path”"),
        (lambda trace: trace["steps"][1]["committed_ids"].pop(), "“steps.1.committed_ids”"),
        (lambda trace: trace["steps"][2].update(index=3), "“steps.2.index”"),
        (lambda trace: trace["steps"][2]["plan"].update(curve=[[1]]), "“steps.2.plan.curve.0”"),
        (lambda trace: trace["steps"][0]["nodes"][1].update(draft_prob="x"), "“steps.0.nodes.1.draft_prob”"),
        (lambda trace: trace["steps"][0].update(alternatives=[[1, []]]), "“steps.0.alternatives”"),
        (lambda trace: trace["header"].update(prefix_ids=[1]), "“header.prefix_pieces”"),
        (lambda trace: trace["header"].pop("device"), "“header.device”"),
        (lambda trace: trace["header"].update(proposers=2000 * trace["header"]["proposers"]), "“header.proposers”"),
        (lambda trace: trace["steps"][1].update(draft_ms=1e300), "“steps.1.draft_ms”"),
        (lambda trace: trace["steps"][1].update(verify_ms=-5), "“steps.1.verify_ms”"),
        (lambda trace: trace["steps"][1].update(committed_ids=[7, 7, 7]), "“steps.1.committed_ids”"),
        (lambda trace: trace["steps"][2].update(committed_ids=[]), "“steps.2.committed_ids”"),
        (lambda trace: trace["steps"][0].update(nodes=chain_of(trace, 300)), "“steps.0.nodes.65.parent”"),
        (lambda trace: trace["steps"][0]["nodes"].extend(chain_of(trace, 2)[1:] * 2000), "“steps.0.nodes”"),
        (lambda trace: trace.update(end_reason={"toString": 1}), "“end_reason”"),
    ],
)
def test_files_that_are_no_traces_are_refused_in_words(functions, spoil, sentence):
    trace = traces_of(length=8)["jakiro"]
    spoil(trace)
    assert sentence in said_of(functions, json.dumps(trace))


def test_a_file_may_end_in_every_way_in_which_an_answer_can(functions):
    for reason in ("eos", "length", "context", "stop", "stopped"):
        assert said_of(functions, json.dumps(traces_of(length=8)["jakiro"] | {"end_reason": reason})) == "read"


def test_text_that_is_no_saved_answer_is_refused_in_words(functions):
    lanes = json.dumps({"traces": {f"lane {n}": {} for n in range(33)}})
    for text, said in (("{", "it is not JSON."), (lanes, "the field “traces” is")):
        assert said_of(functions, text).startswith(f"This file is not a saved answer: {said}")


def test_the_mask_reads_as_a_table(race_tab):
    steps = traces_of()["jakiro"]["steps"]
    assert race_tab.locator(".mask-host table").count() == 0, "a closed panel is not drawn"
    race_tab.click('[data-action="about"]')
    race_tab.click(".panel-mask summary")
    race_tab.wait_for_selector(".mask-host table")
    seen = "[...document.querySelectorAll('.mask-host tbody tr')].map(r => r.querySelectorAll('.seen, .self').length)"
    assert race_tab.evaluate(seen) == [node["depth"] + 1 for node in steps[0]["nodes"]]


@pytest.mark.rare
def test_a_long_answer_is_whole_in_both_views(modules):
    show(modules, traces_of([b" word"] * 1600, nodes=8, length=1700), step=0)
    for _ in range(2):
        modules.wait_for_function("() => document.querySelector('.answer-text')?.textContent === ' word'.repeat(1600)")
        set_option(modules, "as_written")


def test_a_page_without_storage_still_watches_its_connection(modules):
    refused = "() => { try { return sessionStorage.getItem('x'); } catch (error) { return error.name; } }"
    assert modules.evaluate(refused) == "SecurityError"
    waiting = modules.evaluate(
        """async () => {
          const waiting = [];
          window.setTimeout = (look) => waiting.push(look);
          await Jakiro.watchConnection();
          window.dispatchEvent(new Event("pagehide"));
          return waiting.length;
        }"""
    )
    assert waiting == 1


def test_moving_to_a_step_ends_the_replay(open_tab):
    tab = open_tab(None, clock=True)
    load_scripts(tab)
    show(tab, traces_of(length=60))
    tab.clock.pause_at(tab.evaluate("Date.now()") / 1000 + 60)
    tab.evaluate("Jakiro.moves.play(true)")
    while not tab.locator("svg.tree.phase-1").count():
        tab.clock.run_for(500)
    tab.evaluate("Jakiro.moves.seek(7)")
    tab.clock.run_for(6000)
    state = tab.evaluate("(({ index, phase, playing }) => [index, phase, playing])(Jakiro.moves.state)")
    assert state == [7, 3, False], "no later phase is drawn"
