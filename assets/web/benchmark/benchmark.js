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
const setupOf = ({ environment: where, settings }, which) => [
  h(
    "span.badge",
    say(which === "here" ? "bench_badge_here" : "bench_badge_recorded", {
      device: deviceOf(where),
      date: where.date.slice(0, 10),
    }),
  ),
  h(
    "p.muted.small.bench-setup",
    say("bench_setup", {
      ...where,
      head: where.head || say("bench_no_head"),
      tokens: settings.max_new_tokens,
    }),
  ),
];

const COUNTS = [8, 16, 40];

// Radio buttons or checkboxes; those after the first `few` are folded
function boxes(type, name, label, options, chosen, few = options.length) {
  const all = options.map(([value, words]) =>
    h(
      "label",
      { title: trainedWords(given.benchmarkForm.minutes[value]) },
      h("input", { type, name, value, checked: chosen.includes(value) }),
      words,
    ),
  );
  return h(
    "fieldset.bench-field",
    h("legend", label),
    all.slice(0, few),
    few < all.length && h("details", h("summary", say("bench_more_methods")), all.slice(few)),
  );
}

function buildForm(on) {
  const {
    count,
    most,
    known_temperatures: known,
    temperatures,
    known_methods: names,
    methods,
    titles,
    categories,
    tokens,
  } = given.benchmarkForm;
  const counts = [...new Set([...COUNTS.filter((n) => n <= most), count])].sort((a, b) => a - b);
  const problem = h("p.bench-problem", { role: "alert", hidden: true });
  const progress = h("p.bench-progress.tabular", { "data-result": "progress" });
  const bar = h("progress", { max: 1, value: 0, "aria-label": say("tab_benchmark"), hidden: true });
  const run = primary(button("bench-run", say("bench_run"), on.run));
  const stop = button("bench-stop", say("bench_stop"), on.stop);
  stop.disabled = true;
  const form = h(
    "form",
    { onsubmit: (event) => event.preventDefault() },
    h("p.muted.small", say("bench_set", { categories, tokens })),
    boxes(
      "radio",
      "bench-count",
      say("bench_count"),
      counts.map((n) => [n, String(n)]),
      [count],
    ),
    boxes(
      "checkbox",
      "bench-temperature",
      say("bench_temperatures"),
      known.map((value) => [value, String(value)]),
      temperatures,
    ),
    boxes(
      "checkbox",
      "bench-method",
      say("bench_methods"),
      names.map((name) => [name, titles[name]]),
      methods,
      1,
    ),
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
    spokenAt: 0,
    running: false,
    loaded: false,
  };
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
      Object.assign(state, {
        running: true,
        which: "here",
        here: null,
        spokenAt: performance.now(),
      });
      voice.textContent = say("bench_starting");
      draw();
      here.run();
    },
    stop: () => here.stop(),
  });
  request = form.values;

  // Keeps the focus and the scroll position of the table
  function draw() {
    const left = body.querySelector(".bench-scroll")?.scrollLeft;
    keepingFocus(element, drawResults);
    if (left) body.querySelector(".bench-scroll").scrollLeft = left;
  }

  const pick = (name, label, options, value, set) =>
    choice({
      name,
      label,
      options,
      value,
      onPick: (chosen) => {
        set(chosen);
        draw();
      },
    }).element;
  // Of whole numbers as keys an object would change the order
  const pickTemperature = (name, known, now, set) =>
    pick(
      name,
      say("bench_temperature"),
      Object.fromEntries(known.map((value) => [`T ${value}`, String(value)])),
      `T ${now}`,
      (key) => set(Number(key.slice(2))),
    );
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
    if (!state.running || performance.now() - state.spokenAt > SPOKEN_EVERY_MS) {
      voice.textContent = state.running
        ? say("bench_spoken", { n: value.done, total: value.total })
        : words;
      state.spokenAt = performance.now();
    }
    if (state.which !== "board") draw();
  }

  async function save() {
    const text =
      state.which === "board"
        ? JSON.stringify(board.results)
        : state.which === "recorded"
          ? state.text
          : await server.benchmark_saved(state.here.run);
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
    const { group } = total;
    const interval = intervalOf(group);
    return [
      say("bench_headline", {
        method: laneWords(total.lane),
        times: times(group.speedup),
        prompts: counted("bench_prompt", group.num_runs),
      }),
      interval &&
        say("bench_headline_interval", {
          low: number(interval[0], 2),
          high: number(interval[1], 2),
        }),
      group.identical === 1
        ? say("bench_headline_all_same")
        : say("bench_headline_same", { share: shareWords(group.identical) }),
    ]
      .filter(Boolean)
      .join(", ");
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
    head.replaceChildren(
      h("h2.bench-headline", shown ? headlineOf(shown) : say("bench_results")),
      ...(results ? setupOf(results, state.which) : []),
      h(
        "div.lesson-buttons",
        which,
        results && !shown && board.choices(),
        known.length > 1 &&
          pickTemperature(
            "bench-shown",
            known,
            state.temperature,
            (value) => (state.temperature = value),
          ),
        results && button("bench-save", say("bench_save"), () => orRetry(save)),
      ),
    );
  }

  function drawResults() {
    if (state.which === "board") {
      drawHead(board.results);
      const empty = board.loaded ? [h("p.muted.empty", say("board_missing"))] : [];
      body.replaceChildren(...(board.results ? board.body() : empty));
      return;
    }
    const measured = state.which === "recorded" ? state.recorded : state.here;
    const results = measured && measured.groups.length ? measured : null;
    const known = results ? temperaturesOf(results) : [];
    if (!known.includes(state.temperature)) state.temperature = known[0] ?? null;
    drawHead(results);
    if (!known.length) {
      const words =
        state.which === "here" ? "bench_waiting" : state.loaded ? "bench_missing" : null;
      body.replaceChildren(...(words ? [h("p.muted.empty", say(words))] : []));
      return;
    }
    if (!body.contains(plotHost)) body.replaceChildren(plotHost, below);
    plotHost.hidden = !plot.draw(results, state.temperature);
    numbers.replaceChildren(
      h("summary", say("ask_numbers")),
      h(
        "div.bench-scroll",
        { tabindex: 0, role: "region", "aria-label": say("bench_results") },
        benchmarkTable(results, state.temperature),
      ),
      h("p.muted", say("bench_definitions")),
    );
    below.replaceChildren(
      numbers,
      h("p.unequal-heads", unequalRows(results.groups.map((group) => group.lane.split(" · ")[0]))),
    );
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

  root.append(
    h("section.bench-results", { "aria-label": say("bench_results") }, head, body),
    form.element,
    voice,
  );
  onTab.push(tabChanged);
  if (watch) watch("value", () => receive(props.value));
  tabChanged();
}

export const benchmarkRequest = () => request();
