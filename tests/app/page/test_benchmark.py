"""The benchmark tab: live numbers equal the report, Stop keeps finished prompts, answers run between prompts."""

import json
import threading
from collections.abc import Iterator
from dataclasses import asdict

import pytest
from gradio.context import LocalContext

from app.devices.local import LocalDevice
from app.page import benchmark
from app.serving.benchmark_run import BenchmarkRun, Benchmarks
from app.serving.pace import Pace
from app.serving.runs import Visitor
from app.words import benchmark as benchmark_words
from jakiro.bench.report import summarise
from jakiro.bench.runner import Lane, Run
from tests.app.conftest import plotted, ready_service, served
from tests.app.fake import FakeGenerator
from tests.server.served import PATIENCE
from tests.support import tiny_generator

VISITOR = Visitor("tab", "127.0.0.1")


def measured(requested: dict, generator=None, benchmarks: Benchmarks | None = None) -> Iterator[dict]:
    """Yield the updates of a benchmark on its own service."""
    service = ready_service(generator or FakeGenerator())
    return benchmark.measure(service, benchmarks or Benchmarks(), Pace(), VISITOR, requested)


def run_read(values: dict) -> Run:
    """Return a run of a results file as an object of the report."""
    method, _, size = values["lane"].partition(" · ")
    return Run(**values | {"lane": Lane(method, size or None)})


def numbers(groups: list[dict]) -> str:
    return json.dumps(groups, sort_keys=True)


@pytest.mark.parametrize(
    ("requested", "sentence"),
    [
        ([], "A benchmark request has “count”"),
        ({"count": 0}, "must be a whole number from 1 to 96; got 0"),
        ({"count": float("nan")}, "got nan"),
        ({"temperatures": []}, "Choose at least one temperature"),
        ({"temperatures": [0, 3]}, "Temperatures must be among 0, 0.7, 1; got 3"),
        ({"methods": [["jakiro"]]}, "Methods must be among jakiro, jakiro+prompt_lookup, prompt_lookup"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_with_a_sentence(requested, sentence):
    updates = list(measured(requested))
    assert len(updates) == 1 and sentence in updates[0]["error"]


def test_every_prompt_is_measured_and_the_groups_are_the_reports():
    benchmarks = Benchmarks()
    requested = {"count": 3, "temperatures": [1, 0], "methods": ["context", "jakiro"]}
    *_, last = measured(requested, benchmarks=benchmarks)
    assert (last["state"], last["done"], last["total"]) == ("finished", 3, 3)
    saved = json.loads(benchmarks.results(last["run"]))
    assert saved["schema_version"] == 1 and len(saved["runs"]) == 3 * 2 * 3
    assert saved["settings"]["methods"] == ["autoregressive", "jakiro", "prompt_lookup"]
    assert len({run["lane"] for run in saved["runs"][::3]}) == 3, "lanes take turns in going first"
    assert numbers(saved["groups"]) == numbers(last["groups"])
    assert numbers(summed_up_again(saved)) == numbers(saved["groups"])


def summed_up_again(saved: dict) -> list[dict]:
    """Return the groups of a results file, computed again from its runs."""
    return [asdict(group) for group in summarise([run_read(run) for run in saved["runs"]])]


def test_a_stop_ends_the_answer_it_is_in_and_keeps_finished_prompts():
    generator, benchmarks, values = FakeGenerator(pace=0.1), Benchmarks(), []
    for value in measured({"count": 96}, generator, benchmarks):
        values.append(value)
        if value["done"] == 1 and value["state"] == "running":
            benchmarks.stop(VISITOR.session)
    assert values[-1]["state"] == "stopped" and 1 <= values[-1]["done"] < 96
    assert {group["num_runs"] for group in values[-1]["groups"] if group["category"] == "overall"} == {
        values[-1]["done"]
    }
    assert generator.active == 0


def test_a_benchmark_runs_in_its_visitors_context(monkeypatch):
    """ZeroGPU uses this context to find the visitor and charges the quota of that visitor."""
    seen, service = [], ready_service(FakeGenerator())
    answer = LocalDevice.answer

    def noted(device, *arguments):
        seen.append(LocalContext.request.get(None))
        return answer(device, *arguments)

    monkeypatch.setattr(LocalDevice, "answer", noted)
    visitor = LocalContext.request.set("this visitor")
    try:
        run = BenchmarkRun(service, *benchmark.read_request({"count": 1}))
    finally:
        LocalContext.request.reset(visitor)
    Benchmarks().start("tab", run)
    while run.events.get(timeout=PATIENCE)[0] != "done":
        pass
    assert set(seen) == {"this visitor"}


def test_a_closed_tab_ends_its_benchmark():
    benchmarks = Benchmarks()
    updates = measured({"count": 96}, FakeGenerator(pace=0.1), benchmarks)
    first = next(updates)
    updates.close()
    (run,) = [run for run in benchmarks._stored() if run.id == first["run"]]
    while (event := run.events.get(timeout=PATIENCE))[0] == "state" and event[2]["state"] != "stopped":
        continue
    assert event[0] == "state"


def test_a_benchmark_counts_as_an_answer_and_a_chosen_session_does_not_escape_the_address_s_limits():
    service = ready_service(
        FakeGenerator(pace=0.1), answers_per_minute=3, answers_per_minute_address=5, benchmarks_address=2
    )
    benchmarks, seconds = Benchmarks(), [0.0]
    pace = Pace(lambda: seconds[0])

    def start(session, address="10.0.0.1"):
        updates = benchmark.measure(service, benchmarks, pace, Visitor(session, address), {"count": 96})
        started.append(updates)
        return next(updates)

    started = []
    try:
        assert [start("a")["state"], start("b")["state"]] == ["running", "waiting"]
        refusal = benchmark_words.TOO_MANY.format(count=2)
        assert start("c") == start("d") == {"error": refusal}
        assert start("e", "10.0.0.2")["state"] == "waiting"
        assert start("a")["state"] in ("running", "waiting"), "a new one takes the place of the session's own"
        assert start("f")["error"].startswith("You requested 5 answers within a minute")
        assert start("e", "10.0.0.2")["state"] and start("e", "10.0.0.2")["state"]
        assert start("e", "10.0.0.2")["error"].startswith("You requested 3 answers within a minute")
    finally:
        for updates in started:
            updates.close()


def test_an_answer_comes_between_two_prompts():
    service = ready_service(FakeGenerator(pace=0.05))
    run = BenchmarkRun(service, *benchmark.read_request({"count": 96}))
    run.start()
    while run.events.get(timeout=PATIENCE)[2]["done"] < 1:
        pass
    with service.turns.take(threading.Event(), lambda _: None) as may_run:
        assert may_run
        assert run.prompts_done < 96
    run.stop()


def test_a_model_without_a_head_says_what_it_cannot_do():
    *_, last = measured({"count": 1}, tiny_generator(None))
    assert last["state"] == "stopped"
    assert "No draft head fits this model" in last["error"]


def test_a_model_loaded_meanwhile_ends_the_benchmark_with_a_sentence():
    generator, values = FakeGenerator(), []
    for value in measured({"count": 96}, generator):
        values.append(value)
        generator.target = "Second"
    assert values[-1]["error"] == benchmark_words.MODEL_CHANGED
    assert values[-1]["state"] == "stopped"


@pytest.mark.skipif(not benchmark.RECORDED.is_file(), reason="no results are shipped with this copy")
def test_the_shipped_results_are_in_the_form_of_the_bench():
    recorded = json.loads(benchmark.RECORDED.read_text(encoding="utf-8"))
    assert recorded["schema_version"] == 1
    # Older files do not have the newest column
    groups = [
        {name: group[name] for name in saved_group}
        for group, saved_group in zip(summed_up_again(recorded), recorded["groups"], strict=True)
    ]
    assert numbers(groups) == numbers(recorded["groups"])
    assert recorded["environment"]["date"] and recorded["environment"]["cpu"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Replace the shipped results file, so that no test depends on measurements; yield its content."""
    benchmarks = Benchmarks()
    *_, last = measured({"count": 16, "temperatures": [0, 1]}, benchmarks=benchmarks)
    path = tmp_path_factory.mktemp("results") / "bench.json"
    path.write_text(benchmarks.results(last["run"]), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark, "RECORDED", path)
        yield json.loads(path.read_text(encoding="utf-8"))


def open_benchmark(tab) -> None:
    tab.wait_for_selector(".jk-view[data-tab=watch]")
    tab.click('[role="tab"][data-tab="benchmark"]')
    tab.wait_for_selector("#benchmark .bench-table", state="attached")
    tab.evaluate("document.querySelectorAll('#benchmark details').forEach((one) => (one.open = true))")


def table(tab) -> dict:
    """Return the text of each cell of the table by category and column."""
    return tab.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.bench-table tbody tr')].map(row => [row.dataset.category,"
        " Object.fromEntries([...row.querySelectorAll('td')].map(cell => [cell.dataset.column, cell.innerText]))]))"
    )


def assert_equals(rows: dict, groups: list[dict], temperature: float) -> None:
    """Check that every number of the table equals the report, to the digits shown."""
    group_of = {(group["category"], group["lane"]): group for group in groups if group["temperature"] == temperature}
    assert set(rows) == {category for category, _ in group_of}
    for category, cells in rows.items():
        plain, drafted = group_of[category, "autoregressive"], group_of[category, "jakiro · auto"]
        for name, group in (("plain", plain), ("lane", drafted)):
            speed = group["speed"]
            assert cells[name].split()[0] == f"{speed:,.{0 if speed >= 100 else 1}f}"
        assert cells["speedup"].startswith(f"{drafted['speedup']:.2f}×")
        if drafted["speedup_interval"]:
            low, high = drafted["speedup_interval"]
            assert cells["speedup"].endswith(f"{low:.2f}–{high:.2f}")
        assert float(cells["tau"]) == pytest.approx(drafted["tau"], abs=0.0051)
        assert cells["same"] == ("100 %" if drafted["identical"] == 1 else cells["same"])
        assert cells["prompts"] == str(drafted["num_runs"])


@pytest.mark.browser
def test_the_tab_opens_on_recorded_results_with_device_and_date(open_tab, fake_address, recorded):
    tab = open_tab(fake_address)
    open_benchmark(tab)
    badge = tab.inner_text("#benchmark .badge")
    assert recorded["environment"]["date"][:10] in badge
    assert (recorded["environment"]["gpu"] or recorded["environment"]["cpu"]) in badge
    temperature = recorded["groups"][0]["temperature"]
    assert_equals(table(tab), recorded["groups"], temperature)
    _, dots = plotted(tab, ".bench-plot-host")
    drafted = [group for group in recorded["groups"] if group["temperature"] == temperature and group["tau"] != 1]
    groups = [group for group in drafted if group["lane"] == "jakiro · auto"]
    assert dots["x"] == pytest.approx([group["speedup"] for group in groups]) and dots["y"] == list(range(len(groups)))
    with tab.expect_download() as download:
        tab.click('[data-control="bench-save"]')
    assert json.loads(download.value.path().read_text(encoding="utf-8")) == recorded


@pytest.mark.rare
@pytest.mark.browser
def test_a_live_run_fills_the_table_and_a_stop_keeps_its_rows(open_tab, recorded):
    with served(lambda: FakeGenerator(pace=1), max_new_tokens=10) as (_, address):
        tab = open_tab(address)
        open_benchmark(tab)
        ask_for = (
            "count => { const own = Jakiro.benchmarkRequest; Jakiro.benchmarkRequest = () => ({...own(), count}); }"
        )
        tab.evaluate(ask_for, 3)
        tab.click('[data-control="bench-run"]')
        tab.wait_for_selector('.bench-progress:text-matches("^Finished: 3 prompts")')
        with tab.expect_download() as download:
            tab.click('[data-control="bench-save"]')
        saved = json.loads(download.value.path().read_text(encoding="utf-8"))
        assert_equals(table(tab), saved["groups"], 0)
        assert len(saved["runs"]) == 6
        assert {group["identical"] for group in saved["groups"]} == {1.0}

        tab.evaluate(ask_for, 96)
        tab.click('[data-control="bench-run"]')
        tab.wait_for_selector('.bench-progress:text-matches("^prompt ([2-9]|[0-9]{2}) of 96")')
        tab.evaluate("document.querySelector('[data-control=bench-stop]').click()")
        tab.wait_for_selector('.bench-progress:text-matches("^Stopped after")')
        done = int(tab.inner_text(".bench-progress").split()[2])
        assert 1 <= done < 96
        assert table(tab)["overall"]["prompts"] == str(done)
        tab.click('[data-control="bench-which"][data-value="recorded"]')
        assert "Recorded on" in tab.inner_text("#benchmark .badge")
