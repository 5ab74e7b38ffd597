// The benchmark's dot plot: speedup by category with its interval, and a line where both are equally fast. Methods differ
// by shape, and from the fourth on by a number beside it; the table beside it holds the same numbers.
(() => {
  const { h, s, say, benchmarkRows } = Jakiro;

  const ROW = 30;
  const LANE = 15;
  const TOP = 30;
  const BOTTOM = 40;
  const TICK = 56;
  const SHAPES = [
    (x, y) => s("circle", { class: "dot-mark solid", cx: x, cy: y, r: 5.5 }),
    (x, y) => s("rect", { class: "dot-mark hollow", x: x - 4.5, y: y - 4.5, width: 9, height: 9 }),
    (x, y) => s("path", { class: "dot-mark grey", d: `M${x},${y - 6.5}L${x + 6.5},${y}L${x},${y + 6.5}L${x - 6.5},${y}Z` }),
  ];
  const markOf = (place, x, y) => s("g", null, SHAPES[place % SHAPES.length](x, y),
    place < SHAPES.length ? null : s("text", { class: "dot-number", x: x + 7, y: y + 3 }, String(place + 1)));

  // From the lowest to the highest value that is drawn, the line at 1× included, in quarters
  function rangeOf(rows) {
    const values = rows.flatMap(({ group }) => [group.speedup, ...(benchmarkRows.intervalOf(group) || [])]).filter((v) => v !== null);
    return [Math.floor(Math.min(0.75, ...values) * 4) / 4, Math.ceil(Math.max(1.5, ...values) * 4) / 4];
  }

  function key(lanes) {
    if (lanes.length < 2) return null;
    return h(
      "p",
      { class: "bench-key small" },
      lanes.map((lane, place) =>
        h("span", null, s("svg", { width: place < SHAPES.length ? 16 : 24, height: 16, "aria-hidden": "true" }, markOf(place, 8, 8)),
          benchmarkRows.laneWords(lane)),
      ),
    );
  }

  function benchmarkPlot(results, temperature, wide) {
    const rows = benchmarkRows.rowsOf(results, temperature).filter((row) => row.group.speedup !== null);
    const lanes = [...new Set(rows.map((row) => row.lane))];
    const categories = [...new Set(rows.map((row) => row.category))];
    if (!rows.length) return null;
    const scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
    const rowHigh = Math.max(ROW, LANE * lanes.length + 12) * scale;
    const [left, right] = [Math.min(140 * scale, wide * 0.32), wide - 64 * scale];
    const [top, high] = [TOP * scale, TOP * scale + rowHigh * categories.length + BOTTOM * scale];
    const [low, most] = rangeOf(rows);
    const x = (value) => left + ((value - low) / (most - low)) * (right - left);
    const svg = s("svg", { class: "bench-plot", width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, role: "img",
      "aria-label": say("bench_plot", { temperature }) });
    const step = [0.25, 0.5, 1, 2, 5].find((one) => ((most - low) / one) * TICK * scale < right - left) || 10;
    for (let tick = Math.ceil(low / step) * step; tick <= most + 1e-9; tick += step) {
      svg.append(s("path", { class: "grid", d: `M${x(tick)},${top}V${high - BOTTOM * scale}` }),
        s("text", { class: "x", x: x(tick), y: high - 24 * scale }, benchmarkRows.times(tick)));
    }
    svg.append(
      s("path", { class: "even", "data-even": "1", d: `M${x(1)},${top - 6 * scale}V${high - BOTTOM * scale}` }),
      s("text", { class: "even-words", x: x(1), y: top - 12 * scale }, say("bench_even")),
      s("text", { class: "x", x: (left + right) / 2, y: high - 6 * scale }, say("bench_axis")),
    );
    categories.forEach((category, at) => {
      const middle = top + rowHigh * (at + 0.5);
      svg.append(s("text", { class: at ? "category" : "category all", x: left - 12 * scale, y: middle + 4 * scale },
        benchmarkRows.categoryWords(category)));
      if (at === 1) svg.append(s("path", { class: "grid", d: `M0,${middle - rowHigh / 2}H${wide}` }));
      rows.filter((row) => row.category === category).forEach(({ lane, group }) => {
        const place = lanes.indexOf(lane);
        const y = middle + (place - (lanes.length - 1) / 2) * LANE * scale;
        const mark = s("g", { class: "bench-dot", "data-category": category, "data-lane": lane,
          "data-speedup": group.speedup });
        const interval = benchmarkRows.intervalOf(group);
        if (interval) {
          mark.append(s("path", { class: "interval",
            d: `M${x(interval[0])},${y}H${x(interval[1])}M${x(interval[0])},${y - 4}v8M${x(interval[1])},${y - 4}v8` }));
        }
        mark.append(markOf(place, x(group.speedup), y),
          s("text", { class: "value", x: wide - 4, y: y + 4 * scale }, benchmarkRows.times(group.speedup)));
        svg.append(mark);
      });
    });
    return h("div", null, key(lanes), svg);
  }

  Object.assign(Jakiro, { benchmarkPlot });
})();
