// The tab "Benchmark": results, and a form below them. It opens with the recorded results; the results of a new run appear
// prompt by prompt and stay when it is stopped.

import { counted, given, h, keepingFocus, number, say } from "../base/dom.js";
import { oneAtATime, orRetry } from "../base/server.js";
import { Leaderboard } from "./leaderboard.js";
import { BenchmarkPlot } from "./plot.js";
import {
  OVERALL,
  benchmarkTable,
  categoryWords,
  intervalOf,
  laneWords,
  rowsOf,
  scrolling,
  shareWords,
  temperaturesOf,
  times,
  unequalRows,
} from "./table.js";
import { trainedWords } from "../data/methods.js";
import { button, choice, primary } from "../lesson/controls.js";
import { onTab } from "../page/machine.js";
import { download } from "../page/save.js";

const SPOKEN_EVERY_MS = 10000;
let request = () => ({});

const deviceOf = ({ device, gpu, cpu, cores }) =>
  String(device).startsWith("cuda") && gpu
    ? gpu
    : `${cpu}, ${say(cores === 1 ? "bench_core" : "bench_cores", { n: cores })}`;

// Date and device of a measurement
function setupOf({ environment, settings }, which) {
  const device = deviceOf(environment);
  const date = environment.date.slice(0, 10);
  const key = which === "here" ? "bench_badge_here" : "bench_badge_recorded";
  const head = environment.head || say("bench_no_head");
  const setup = say("bench_setup", { ...environment, head, tokens: settings.max_new_tokens });
  return [h("span.badge", say(key, { device, date })), h("p.muted.small.bench-setup", setup)];
}

const COUNTS = [8, 16, 40];

// Radio buttons or checkboxes
function boxes(type, name, values, chosen, wordsOf = String) {
  const { minutes } = given.benchmarkForm;
  return values.map((value) => {
    const input = h("input", { type, name, value, checked: chosen.includes(value) });
    return h("label", { title: trainedWords(minutes[value]) }, input, wordsOf(value));
  });
}

const field = (label, ...content) => h("fieldset.bench-field", h("legend", label), content);

function buildForm(on) {
  const { count, most, temperatures, methods, titles, ...offered } = given.benchmarkForm;
  const counts = [...new Set([...COUNTS.filter((n) => n <= most), count])].sort((a, b) => a - b);
  const [firstMethod, ...moreMethods] = boxes(
    "checkbox",
    "bench-method",
    offered.known_methods,
    methods,
    (name) => titles[name],
  );
  const folded = h("details", h("summary", say("bench_more_methods")), moreMethods);
  const problem = h("p.bench-problem", { role: "alert", hidden: true });
  const progress = h("p.bench-progress.tabular", { "data-result": "progress" });
  const bar = h("progress", { max: 1, value: 0, "aria-label": say("tab_benchmark"), hidden: true });
  const run = primary(button("bench-run", say("bench_run"), on.run));
  const stop = button("bench-stop", say("bench_stop"), on.stop);
  stop.disabled = true;
  const form = h(
    "form",
    { onsubmit: (event) => event.preventDefault() },
    h("p.muted.small", say("bench_set", offered)),
    field(say("bench_count"), boxes("radio", "bench-count", counts, [count])),
    field(
      say("bench_temperatures"),
      boxes("checkbox", "bench-temperature", offered.known_temperatures, temperatures),
    ),
    field(say("bench_methods"), firstMethod, moreMethods.length > 0 && folded),
    problem,
    h("div.lesson-buttons", run, stop),
    bar,
    progress,
    h("p.muted.small", say("bench_turns")),
  );
  const element = h("details.question-line.bench-form", h("summary", say("bench_form")), form);
  return {
    element,
    values() {
      const chosen = new FormData(form);
      return {
        count: Number(chosen.get("bench-count")),
        temperatures: chosen.getAll("bench-temperature").map(Number),
        methods: chosen.getAll("bench-method"),
      };
    },
    problem(words) {
      problem.hidden = !words;
      problem.replaceChildren(...(words ? [h("b", `⚠ ${say("error_word")}`), ` ${words}`] : []));
    },
    // State of the current run, or of the last one
    running(on, words, part) {
      run.disabled = on;
      stop.disabled = !on;
      bar.hidden = !on;
      bar.value = part;
      progress.textContent = words;
    },
  };
}

function progressWords({ state, waiting, number, total, done, category }) {
  if (state === "waiting") return waiting;
  if (state === "running")
    return `${say("bench_progress", { n: number, total })} · ${categoryWords(category)}`;
  if (!done) return say("bench_nothing");
  return say(state === "finished" ? "bench_finished" : "bench_stopped", { n: done, total });
}

export function mountBenchmark(element, props, watch, server, here) {
  const root = element.querySelector(".jk-benchmark");
  const state = {
    recorded: null,
    here: null,
    which: "recorded",
    temperature: null,
    running: false,
    loaded: false,
  };
  let spokenAt = 0;
  const voice = h("div.voice", { role: "status" });
  const head = h("div.bench-head");
  const body = h("div.bench-body");
  const plotHost = h("div.plot-host.bench-plot-host");
  const plot = new BenchmarkPlot(plotHost, () => draw());
  const below = h("div.bench-body");
  const numbers = h("details.question-line");

  const form = buildForm({
    run() {
      form.problem(null);
      form.running(true, say("bench_starting"), 0);
      Object.assign(state, { running: true, which: "here", here: null });
      announce(say("bench_starting"));
      draw();
      here.run();
    },
    stop: () => here.stop(),
  });
  request = form.values;

  function announce(words) {
    voice.textContent = words;
    spokenAt = performance.now();
  }

  // Keeps the focus and the scroll position of the table
  function draw() {
    const left = body.querySelector(".bench-scroll")?.scrollLeft;
    keepingFocus(element, drawResults);
    if (left) body.querySelector(".bench-scroll").scrollLeft = left;
  }

  function pick(name, label, options, value, set) {
    const onPick = (chosen) => {
      set(chosen);
      draw();
    };
    return choice({ name, label, options, value, onPick }).element;
  }
  // Keys are no whole numbers, because an object would change their order
  function pickTemperature(name, known, now, set) {
    const options = Object.fromEntries(known.map((value) => [`T ${value}`, String(value)]));
    const setNumber = (key) => set(Number(key.slice(2)));
    return pick(name, say("bench_temperature"), options, `T ${now}`, setNumber);
  }
  const board = new Leaderboard({ redraw: draw, pickTemperature });

  function receive(value) {
    if (!value || !(value.error || value.run)) return;
    if (value.error) form.problem(value.error);
    if (!value.run) {
      Object.assign(state, { running: false, which: state.here ? "here" : "recorded" });
      form.running(false, "", 0);
      return draw();
    }
    state.here = value;
    state.running = value.state === "running" || value.state === "waiting";
    const words = progressWords(value);
    form.running(state.running, words, value.done / value.total);
    if (!state.running) announce(words);
    else if (performance.now() - spokenAt > SPOKEN_EVERY_MS)
      announce(say("bench_spoken", { n: value.done, total: value.total }));
    if (state.which !== "board") draw();
  }

  const texts = {
    board: () => JSON.stringify(board.results),
    recorded: () => state.text,
    here: () => server.benchmark_saved(state.here.run),
  };

  async function save() {
    const text = await texts[state.which]();
    if (!text) return form.problem(say("bench_gone"));
    const { date } = JSON.parse(text).environment;
    const name = state.which === "board" ? "leaderboard" : "benchmark";
    download(`jakiro-${name}-${date.slice(0, 10)}.json`, text, "application/json");
  }

  async function loadBoard() {
    board.take(JSON.parse(await server.benchmark_board()));
    if (state.which === "board") draw();
  }

  // The whole in one sentence
  function headlineOf(results) {
    const total = rowsOf(results, state.temperature).find(({ category }) => category === OVERALL);
    if (!total || total.group.speedup === null) return say("bench_results");
    const { speedup, identical, num_runs } = total.group;
    const prompts = counted("bench_prompt", num_runs);
    const [low, high] = intervalOf(total.group)?.map((value) => number(value, 2)) ?? [];
    return [
      say("bench_headline", { method: laneWords(total.lane), times: times(speedup), prompts }),
      ...(low ? [say("bench_headline_interval", { low, high })] : []),
      identical === 1
        ? say("bench_headline_all_same")
        : say("bench_headline_same", { share: shareWords(identical) }),
    ].join(", ");
  }

  function drawHead(results) {
    const shown = state.which === "board" ? null : results; // the board has a verdict of its own
    const sources = {
      recorded: say("bench_recorded"),
      ...((state.here || state.running) && { here: say("bench_here") }),
      board: say("board"),
    };
    const which = pick("bench-which", say("bench_which"), sources, state.which, (value) => {
      state.which = value;
      if (value === "board" && !board.loaded) orRetry(loadBoard);
    });
    const known = shown ? temperaturesOf(shown) : [];
    const setTemperature = (value) => (state.temperature = value);
    head.replaceChildren(
      h("h2.bench-headline", shown ? headlineOf(shown) : say("bench_results")),
      ...(results ? setupOf(results, state.which) : []),
      h(
        "div.lesson-buttons",
        which,
        results && !shown && board.choices(),
        known.length > 1 &&
          pickTemperature("bench-shown", known, state.temperature, setTemperature),
        results && button("bench-save", say("bench_save"), () => orRetry(save)),
      ),
    );
  }

  const empty = (key) => h("p.muted.empty", say(key));

  function drawBoard() {
    drawHead(board.results);
    if (board.results) body.replaceChildren(...board.body());
    else body.replaceChildren(board.loaded ? empty("board_missing") : "");
  }

  function drawResults() {
    if (state.which === "board") return drawBoard();
    const measured = state.which === "recorded" ? state.recorded : state.here;
    const results = measured && measured.groups.length ? measured : null;
    const known = results ? temperaturesOf(results) : [];
    if (!known.includes(state.temperature)) state.temperature = known[0] ?? null;
    drawHead(results);
    if (!known.length && state.which === "here")
      return body.replaceChildren(empty("bench_waiting"));
    if (!known.length) return body.replaceChildren(state.loaded ? empty("bench_missing") : "");
    if (!body.contains(plotHost)) body.replaceChildren(plotHost, below);
    plotHost.hidden = !plot.draw(results, state.temperature);
    numbers.replaceChildren(
      h("summary", say("ask_numbers")),
      scrolling(say("bench_results"), benchmarkTable(results, state.temperature)),
      h("p.muted", say("bench_definitions")),
    );
    const methods = results.groups.map((group) => group.lane.split(" · ")[0]);
    below.replaceChildren(numbers, h("p.unequal-heads", unequalRows(methods)));
  }

  const load = oneAtATime(async () => {
    state.text = await server.benchmark_recorded();
    state.recorded = JSON.parse(state.text);
    state.loaded = true;
    draw();
  });
  function tabChanged() {
    if (document.body.dataset.jakiroTab !== "benchmark") return;
    if (!state.loaded) load();
    draw();
  }

  const section = h("section.bench-results", { "aria-label": say("bench_results") }, head, body);
  root.append(section, form.element, voice);
  onTab.push(tabChanged);
  if (watch) watch("value", () => receive(props.value));
  tabChanged();
}

export const benchmarkRequest = () => request();
