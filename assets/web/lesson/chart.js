// A lesson's chart: lines over [x, y] points and one marked point; a click or a key moves the control it belongs to.
(() => {
  const { say, number, plotStyle, lessonData: { interpolate } } = Jakiro;
  const ROLES = { true: "plain", false: "main" };

  // `name` is part of saved files' names; `onPick` gets the whole number on the x axis that was clicked
  function chart(host, name, onPick) {
    let last = null;
    const figure = new Jakiro.Figure(host, () => last && draw(last));

    function draw(given) {
      last = given;
      const { lines, mark, xTicks, xName, yName, label, top } = given;
      const full = [xTicks[0], Math.max(...lines.flatMap((line) => line.points.map((point) => point[0])))];
      const highest = top || Math.max(...lines.flatMap((line) => line.points.map((point) => point[1]))) * 1.08;
      const { colours } = plotStyle.template();
      const named = (line) => line.name || label;
      const words = (value) => number(value, value < 10 ? 2 : 1);
      const near = (x) => Math.max(full[0], Math.min(full[1], Math.round(x)));
      const xs = Array.from({ length: full[1] - full[0] + 1 }, (_, i) => full[0] + i);
      const rowsAt = (places) => places.map((x) => [String(x), ...lines.map((line) => words(interpolate(line.points, x)))]);
      const series = lines.map((line, i) => ({ id: String(i), name: named(line), role: ROLES[Boolean(line.dashed)],
        note: words(interpolate(line.points, mark[0])),
        traces: () => [{ x: line.points.map(([x]) => x), y: line.points.map(([, y]) => y), mode: "lines",
          line: plotStyle.lineOf(ROLES[Boolean(line.dashed)]) }] }));
      const dot = { id: "mark", name: "", role: "main", traces: () => [{ x: [mark[0]], y: [mark[1]], mode: "markers", showlegend: false,
        marker: plotStyle.markerOf("main", 11) }] };
      figure.draw({
        title: label, fileName: (ending) => `jakiro-${name}.${ending}`, sentence: `${label}. ${say("chart_at", { x: mark[0], name: xName })}: ${words(mark[1])}`,
        table: () => Jakiro.table(label, [xName, ...lines.map(named)], rowsAt(xTicks)),
        rows: () => [[xName, ...lines.map(named)], ...xs.map((x) => [x, ...lines.map((line) => interpolate(line.points, x))])],
        series, over: [dot], margin: { left: 44 },
        x: { title: xName, full, ticks: { tickvals: xTicks } }, y: { title: yName, fit: () => [0, highest] },
        at: mark[0], readBelow: given.readBelow,
        shapes: [{ type: "line", x0: mark[0], x1: mark[0], y0: 0, y1: mark[1], line: { color: colours.control, width: 1, dash: "3px,3px" } }],
        read: (x) => ({ at: near(x), title: say("chart_at", { x: near(x), name: xName }),
          rows: series.filter(({ id }) => !figure.hidden.has(id)).map((one, i) => [one, words(interpolate(lines[Number(one.id)].points, near(x)))]) }),
        pick: (x) => onPick(near(x)),
      });
    }
    return { draw };
  }

  Object.assign(Jakiro.lessonControls, { chart });
})();
