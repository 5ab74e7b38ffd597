// The race as one small curve for pictures: tokens over each method's own seconds, with names and speeds above.
(() => {
  const { s, say, rate, metrics } = Jakiro;
  const { line } = Jakiro.drawing;

  const MOST_POINTS = 400;
  const ROW = 30;

  // Round values from 0 up to `top`, at most `most` steps of 1, 2 or 5 times a power of ten
  function ticks(top, most) {
    const power = 10 ** Math.floor(Math.log10(top / most));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => top / one <= most);
    return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
  }

  // A lane's line: plain decoding rises token by token, drafting in stairs
  function path(lane, x, y) {
    const every = Math.max(1, Math.ceil(lane.steps.length / MOST_POINTS));
    let d = `M${x(0)},${y(1)}`;
    lane.seconds.forEach((seconds, i) => {
      if (i % every && i !== lane.seconds.length - 1) return;
      const [right, up] = [x(seconds).toFixed(1), y(lane.counts[i]).toFixed(1)];
      d += lane.isPlain ? `L${right},${up}` : `H${right}V${up}`;
    });
    return d;
  }

  // The lanes' names, two in a row
  function names(run, { x, y, width }) {
    const room = width / 2;
    return run.ordered.map((lane, i) => {
      const speed = metrics.speed(lane);
      const words = `${lane.title} ${speed === null ? "–" : `${rate(speed)} tokens/s`}`;
      const [left, top] = [x + (i % 2) * room, y + (i >> 1) * ROW];
      return s("g", null, s("path", { class: `curve lane-${run.roleOf(lane)}`, d: `M${left},${top - 8}h38` }),
        line(words, left + 48, top, { size: 22, least: 15, weight: 600, room: room - 60 }));
    });
  }

  function curveInBox(run, box) {
    const [left, right, top, bottom] = [box.x + 78, box.x + box.width - 12, box.y + 12 + ROW * Math.ceil(run.ordered.length / 2), box.y + box.height - 56];
    const topX = Math.max(0.1, ...run.ordered.map((lane) => lane.clock)) * 1.02;
    const topY = Math.max(8, ...run.ordered.map((lane) => lane.tokens.length)) * 1.04;
    const x = (value) => left + (value / topX) * (right - left);
    const y = (value) => bottom - (value / topY) * (bottom - top);
    const group = s("g", null, names(run, { x: left, y: box.y + 20, width: right - left }));
    for (const value of ticks(topY, 4)) {
      group.append(s("path", { class: "grid", d: `M${left},${y(value)}H${right}` }),
        s("text", { class: "muted tick-y", x: left - 10, y: y(value) + 6 }, String(value)));
    }
    for (const value of ticks(topX, 8)) group.append(s("text", { class: "muted tick-x", x: x(value), y: bottom + 24 }, String(value)));
    group.append(s("text", { class: "muted tick-x", x: (left + right) / 2, y: bottom + 50 }, say("curve_x")),
      s("text", { class: "muted tick-x", transform: `translate(${box.x + 12} ${(top + bottom) / 2}) rotate(-90)` }, say("curve_y")));
    // What the tree shows is drawn last, over the others
    for (const lane of [...run.ordered.filter((one) => one !== run.main), run.main]) {
      group.append(s("path", { class: `curve lane-${run.roleOf(lane)}`, d: path(lane, x, y) }));
    }
    return group;
  }

  Object.assign(Jakiro, { curveInBox });
})();
