// Tokens over own seconds as stair lines, all lanes on one axis; or the smoothed speed. Lines carry their names.
(() => {
  const { s, say, rate, metrics } = Jakiro;

  const MOST_POINTS = 500;
  const SPEED_ROOM = 96; // for a speed after a name, in one row
  const MARGIN = 96; // right of the axes, for names; more where a name is longer
  const measuring = document.createElement("canvas").getContext("2d");

  // A round step of 1, 2 or 5 times a power of ten with at most `count` steps up to `top`
  function roundStep(top, count) {
    const rough = top / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
  }

  function points(lane, steps, mode) {
    const every = Math.max(1, Math.ceil(steps / MOST_POINTS));
    const found = mode === "tokens" ? [[0, 1]] : [];
    for (let i = 0; i < steps; i += 1) {
      if (i % every && i !== steps - 1) continue;
      if (mode === "tokens") found.push([lane.seconds[i], lane.counts[i]]);
      else if (lane.seconds[i] > 0.25) found.push([lane.seconds[i], metrics.smoothSpeed(lane, i)]);
    }
    return found;
  }

  class Plot {
    constructor(host) {
      this.host = host;
    }

    // `shown`: {time: only what was there at this own-clock time, or null; playhead: seconds or null; mode; bracket}
    draw(run, shown) {
      const scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
      const width = Math.max(this.host.clientWidth, 160);
      const height = Math.max(this.host.clientHeight, 90);
      // What the tree shows is drawn last, over the others
      const lanes = run ? [...run.ordered.filter((lane) => lane !== run.main), run.main].filter(Boolean) : [];
      const right = width - Math.min(width * 0.4, Math.max(MARGIN * scale, this.nameWidth(lanes, scale)));
      const box = { left: 36 * scale, right, top: 10 * scale, bottom: height - 30 * scale };
      const series = lanes.map((lane) => {
        const steps = shown.time === null ? lane.steps.length : lane.stepsAt(shown.time);
        return { lane, steps, points: points(lane, steps, shown.mode) };
      });
      if (this.host.dataset.table) {
        this.host.replaceChildren(Jakiro.plotTable(series, this.sentence(series)));
        return;
      }
      const topX = Math.max(0.5, ...lanes.map((lane) => lane.clock));
      const values = series.flatMap((line) => line.points.map((point) => point[1]));
      const everything = shown.mode === "tokens" ? lanes.map((lane) => lane.tokens.length) : values;
      const topY = Math.max(8, ...everything) * (shown.bracket ? 1.22 : 1.12);
      const x = (value) => box.left + (value / topX) * (box.right - box.left);
      const y = (value) => box.bottom - (value / topY) * (box.bottom - box.top);
      const svg = s("svg", { class: "plot", width, height, role: "img", "aria-label": this.sentence(series) });
      svg.append(this.axes(box, topX, topY, x, y, shown.mode, scale));
      for (const line of series) svg.append(this.line(line, run.roleOf(line.lane), x, y, shown.mode));
      svg.append(this.names(run, series, x, y, scale, box, shown.bracket));
      if (shown.bracket) this.addBracket(svg, run, series, x, y, scale);
      if (shown.playhead !== null) {
        svg.append(s("path", { class: "playhead", d: `M${x(shown.playhead)},${box.top}V${box.bottom}` }));
      }
      this.host.replaceChildren(svg);
    }

    // Room for the longest name, in pixels, with what is left free around it
    nameWidth(lanes, scale) {
      measuring.font = `600 ${12 * scale}px system-ui, sans-serif`;
      return Math.max(0, ...lanes.map((lane) => measuring.measureText(lane.title).width)) + 14 * scale;
    }

    sentence(series) {
      return series.map(({ lane, steps }) => say("plot_table", { lane: lane.title,
        tokens: lane.countAfter(steps - 1), seconds: (lane.seconds[steps - 1] || 0).toFixed(1) })).join("; ");
    }

    axes(box, topX, topY, x, y, mode, scale) {
      const group = s("g", { class: "axes" });
      const stepY = roundStep(topY, 4);
      for (let value = 0; value <= topY; value += stepY) {
        group.append(s("path", { class: "grid", d: `M${box.left},${y(value)}H${box.right}` }),
          s("text", { x: box.left - 6, y: y(value) + 4 * scale, class: "y" }, String(value)));
      }
      const stepX = roundStep(topX, 6);
      for (let value = 0; value <= topX + 1e-9; value += stepX) {
        group.append(s("text", { x: x(value), y: box.bottom + 14 * scale, class: "x" }, String(Number(value.toFixed(3)))));
      }
      const words = `${say("plot_x")} → · ↑ ${say(mode === "tokens" ? "plot_y" : "plot_rate")}`;
      group.append(s("text", { x: box.left, y: box.bottom + 27 * scale, class: "axis-words" }, words));
      return group;
    }

    line({ lane, points: list }, role, x, y, mode) {
      const d = list.map(([a, b], i) => {
        if (!i) return `M${x(a).toFixed(1)},${y(b).toFixed(1)}`;
        return mode === "tokens" && !lane.isPlain ? `H${x(a).toFixed(1)}V${y(b).toFixed(1)}` : `L${x(a).toFixed(1)},${y(b).toFixed(1)}`;
      }).join("");
      return s("path", { class: `line lane-${role}`, d: d || "M0,0", "data-lane": lane.name });
    }

    // A line that ends early is named above its end, in one row; the others in two rows at the right edge, kept apart
    names(run, series, x, y, scale, box, bracket) {
      const group = s("g", { class: "names" });
      const places = series.filter((line) => line.points.length > 1).map((line) => {
        const [a, b] = line.points[line.points.length - 1];
        const early = x(a) < box.right - SPEED_ROOM * scale - this.nameWidth([line.lane], scale);
        return { line, early, x: early ? x(a) + 8 * scale : box.right + 8 * scale,
          y: y(b) + (early ? (bracket ? -18 : 0) : 4) * scale };
      });
      const column = places.filter((place) => !place.early).sort((a, b) => a.y - b.y);
      const apart = 30 * scale;
      column.forEach((place, i) => i && (place.y = Math.max(place.y, column[i - 1].y + apart)));
      const below = column.length ? column[column.length - 1].y + 14 * scale - box.bottom : 0;
      if (below > 0) column.forEach((place) => (place.y -= below));
      for (const place of places) {
        const speed = metrics.speed(place.line.lane, place.line.steps);
        const words = speed === null ? say("measuring") : `${rate(speed)} tokens/s`;
        group.append(s("text", { x: place.x, y: place.y },
          s("tspan", { class: `name lane-${run.roleOf(place.line.lane)}` }, place.line.lane.title),
          s("tspan", place.early ? { dx: 6 * scale } : { x: place.x, dy: 13 * scale }, words)));
      }
      return group;
    }

    // The gap between the lanes at the last token both have
    addBracket(svg, run, series, x, y, scale) {
      if (!run) return;
      const [plain, main] = [run.plain, run.main].map((lane) => series.find((line) => line.lane === lane));
      if (!plain || !main || plain === main) return;
      const common = Math.min(plain.lane.countAfter(plain.steps - 1), main.lane.countAfter(main.steps - 1));
      if (common < metrics.FEWEST_TOKENS) return;
      const [left, right] = [main.lane.secondsTo(common), plain.lane.secondsTo(common)];
      const at = y(common);
      svg.append(s("path", { class: "gap", d: `M${x(left)},${at - 5}v10M${x(left)},${at}H${x(right)}M${x(right)},${at - 5}v10` }),
        s("text", { class: "gap-words", x: (x(left) + x(right)) / 2, y: at - 7 * scale },
          `${Math.abs(right - left).toFixed(1)} s`));
    }
  }

  Object.assign(Jakiro, { Plot, roundStep });
})();
