// Controls that the stops share: sliders with their value in words, switches, small charts, and the check question.
(() => {
  const { h, s, say, number } = Jakiro;

  let used = 0;
  const nextId = (name) => `lesson-${name}-${(used += 1)}`;

  // A slider that says its value in words; `set` moves it without calling `onInput`
  function slider({ name, label, min, max, step = 1, value, format, onInput }) {
    const id = nextId(name);
    const output = h("output", { class: "tabular", for: id });
    const input = h("input", { type: "range", id, min, max, step, value, "data-control": name });
    const show = () => {
      const words = format(Number(input.value));
      output.textContent = words;
      input.setAttribute("aria-valuetext", words);
    };
    input.addEventListener("input", () => {
      show();
      onInput(Number(input.value));
    });
    show();
    return {
      element: h("div", { class: "lesson-slider" }, h("label", { for: id }, label), input, output),
      input,
      get value() {
        return Number(input.value);
      },
      set(next) {
        input.value = next;
        show();
      },
    };
  }

  // A row of buttons of which one is pressed: {value: words}
  function choice({ name, label, options, value, onPick }) {
    const buttons = Object.entries(options).map(([key, words]) =>
      h(
        "button",
        {
          class: "choice",
          type: "button",
          "data-control": name,
          "data-value": key,
          "aria-pressed": String(key === String(value)),
          onclick: () => {
            set(key);
            onPick(key);
          },
        },
        words,
      ),
    );
    const set = (key) =>
      buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.value === String(key))));
    const id = nextId(name);
    return {
      element: h(
        "div",
        { class: "lesson-choice", role: "group", "aria-labelledby": id },
        h("span", { id }, label),
        h("span", { class: "segments" }, buttons),
      ),
      set,
    };
  }

  const onOff = (name, label, onPick) =>
    choice({
      name,
      label,
      options: { on: say("on"), off: say("off") },
      value: "on",
      onPick: (value) => onPick(value === "on"),
    });

  // The sentence that says what a control has done
  const result = (name, more = "") => h("p", { class: `result ${more}`, role: "status", "data-result": name });

  const button = (name, words, onclick) =>
    h("button", { type: "button", class: "lesson-button", "data-control": name, onclick }, words);

  // A number with its name above and its definition below
  function figure(name, title, note) {
    const value = h("div", { class: "figure-value tabular", "data-figure": name });
    const small = h("div", { class: "figure-note" }, note || "");
    return {
      element: h("div", { class: "figure" }, h("div", { class: "figure-name" }, title), value, small),
      set(words, noteWords) {
        value.textContent = words;
        if (noteWords !== undefined) small.textContent = noteWords;
      },
    };
  }

  // How wide a drawing in this box may be, so that its words keep their size
  const scale = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
  // A plot's width in its own units: in a hall it is drawn larger with everything in it
  const widthOf = (host) => Math.max(300, Math.min((host.clientWidth || 560) / scale(), 900));

  // A round step of 1, 2 or 5 times a power of ten with at most `count` steps up to `top`
  function roundStep(top, count) {
    const rough = top / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
  }

  // A chart of lines over [x, y] points, a grey grid, and one marked point. `lines`: [{points, name, dashed}]
  function chart({ wide = 560, high = 250, lines, mark, xTicks, xName, yName, label, top }) {
    const [left, right, bottom, head] = [46, 16, 38, 22];
    const lastX = Math.max(...lines.flatMap((line) => line.points.map((point) => point[0])));
    const highest = top || Math.max(...lines.flatMap((line) => line.points.map((point) => point[1]))) * 1.08;
    const x = (value) => left + ((value - xTicks[0]) / Math.max(1e-9, lastX - xTicks[0])) * (wide - left - right);
    const y = (value) => high - bottom - (Math.min(value, highest) / highest) * (high - bottom - head);
    const step = roundStep(highest, 4);
    const svg = s("svg", { class: "lesson-chart", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": label });
    for (let tick = 0; tick <= highest; tick += step) {
      svg.append(
        s("path", { class: "grid", d: `M${left},${y(tick)}H${wide - right}` }),
        s("text", { class: "y", x: left - 6, y: y(tick) + 4 }, number(tick, step < 1 ? 1 : 0)),
      );
    }
    xTicks.forEach((tick) => svg.append(s("text", { class: "x", x: x(tick), y: high - bottom + 17 }, String(tick))));
    svg.append(
      s("text", { class: "x", x: (left + wide - right) / 2, y: high - 4 }, xName),
      s("text", { class: "y-name", x: 4, y: 12 }, yName),
    );
    lines.forEach((line) => {
      const inside = line.points.filter((point) => point[1] <= highest * 1.001);
      const path = line.points.slice(0, inside.length + 1).map(([a, b], i) => {
        const clipped = b > highest && i ? clip(line.points[i - 1], [a, b], highest) : [a, b];
        return `${i ? "L" : "M"}${x(clipped[0]).toFixed(1)},${y(clipped[1]).toFixed(1)}`;
      });
      svg.append(s("path", { class: line.dashed ? "line dashed" : "line", d: path.join("") }));
      if (line.name) {
        const [a, b] = line.nameAt || inside[inside.length - 1];
        svg.append(
          s(
            "text",
            {
              class: "line-name",
              x: x(a) + (line.nameSide || -6),
              y: y(b) - 8,
              "text-anchor": line.nameSide > 0 ? "start" : "end",
            },
            line.name,
          ),
        );
      }
    });
    if (mark) {
      svg.append(
        s("path", { class: "drop", d: `M${x(mark[0])},${y(0)}V${y(mark[1])}` }),
        s("circle", { class: "mark", cx: x(mark[0]), cy: y(mark[1]), r: 6 }),
      );
    }
    return svg;
  }

  function clip([x0, y0], [x1, y1], highest) {
    return [x0 + ((x1 - x0) * (highest - y0)) / (y1 - y0), highest];
  }

  const table = (summary, heads, rows) =>
    h("details", { class: "lesson-table" }, h("summary", null, summary), Jakiro.table(null, heads, rows));

  // One question: choosing never blocks the way on; a wrong answer gives its reason and another try
  function question(stop, text) {
    const name = nextId("answer");
    const feedback = h("p", { class: "feedback", role: "status" });
    const inputs = text.options.map(([words], i) => {
      const id = nextId("option");
      return h(
        "div",
        { class: "option" },
        h("input", { type: "radio", name, id, value: i, "data-option": i }),
        h("label", { for: id }, words),
      );
    });
    const act = h("button", { type: "submit", class: "lesson-button", "data-control": "check" }, say("lesson_check"));
    const form = h(
      "form",
      { class: "lesson-question", "data-question": stop + 1 },
      h("fieldset", null, h("legend", null, h("b", null, say("lesson_check_title")), " ", text.question), inputs),
      act,
      feedback,
    );
    const clear = () => {
      form.dataset.result = "";
      feedback.replaceChildren();
      act.textContent = say("lesson_check");
    };
    form.addEventListener("change", clear);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (form.dataset.result === "wrong") {
        form.reset();
        clear();
        inputs[0].querySelector("input").focus();
        return;
      }
      const chosen = form.querySelector("input:checked");
      if (!chosen) {
        feedback.replaceChildren(say("lesson_pick"));
        return;
      }
      const right = Number(chosen.value) === text.right;
      form.dataset.result = right ? "right" : "wrong";
      feedback.replaceChildren(
        h("b", null, `${right ? "✓" : "✗"} ${say(right ? "lesson_right" : "lesson_wrong")}`),
        ` ${text.options[Number(chosen.value)][1]}`,
      );
      act.textContent = say(right ? "lesson_check" : "lesson_again");
    });
    return form;
  }

  Object.assign(Jakiro, { lessonControls: { slider, choice, onOff, button, result, figure, chart, widthOf, table, question } });
})();
