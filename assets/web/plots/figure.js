// One plot by Plotly, and the same numbers as a table. No name that a model or a file brought is read as markup.

import { h, number, pageScale, s, say, table } from "../base/dom.js";
import { csvOf, download } from "../page/save.js";
import { plotly } from "./library.js";
import { plotStyle } from "./template.js";

const { template, plotText } = plotStyle;

const BUTTONS = ["zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"];
const SAVED = { format: "png", width: 960, height: 540, scale: 2 };
const CORNER = { x: 0, xref: "paper", xanchor: "left", y: 1, yref: "paper", yanchor: "bottom" };
const LEGEND = 26; // pixels
const ROW = 18; // pixels between names at the ends of lines
const MOST_ROWS = 24; // of the table
// To hide labels that reach over an end Plotly measures each of them in each draw, which is a third of a draw
const TICKS = { ticklabeloverflow: "allow" };

const coarse = () => matchMedia("(pointer: coarse)").matches;
const CSV = { width: 16, height: 16, path: "M1 1h14v14h-14zM3 5v2h10v-2zM3 9v2h10v-2z" };

export class Figure {
  // `redraw` is called when the plot's size or the library's arrival ask for another drawing
  constructor(host, redraw) {
    this.host = host;
    this.redraw = redraw;
    this.plot = h("div.plot", { role: "group" });
    this.grown = s("svg.plot-grown", { "aria-hidden": true });
    this.room = h("div.plot-room", this.plot, this.grown);
    this.table = h("div.plot-table", { hidden: true });
    host.append(this.room, this.table);
    // No redraw during a drag
    this.plot.addEventListener("pointerdown", () => (this.pressed = !coarse()), true);
    const release = () => {
      this.pressed = false;
      if (this.stale) this.redraw();
    };
    ["pointerup", "pointercancel"].forEach((ended) => addEventListener(ended, release, true));
    new ResizeObserver(() => {
      const { clientWidth, clientHeight } = this.room;
      const isSame = this.box?.[0] === clientWidth && this.box[1] === clientHeight;
      if (this.view && clientWidth && !isSame) this.redraw();
    }).observe(this.room);
  }

  // `view`: the properties of a plot.
  //   id: zoom and hidden lines belong to it; name: of saved files; sentence; rows(): cells of csv and table, heads first
  //   series: [{name, role, traces, below}], with Plotly's traces in the look of their role; several names have a legend, unless
  //     `direct`: then the lines are named in place, by `notes` or, while they grow, at their ends
  //   area: [[x, y], …], a shaded polygon
  //   x, y: {title, full: [low, high], ticks}; margin; notes, shapes: Plotly's annotations and shapes
  //   hover: Plotly's mode, and its title; pick(x): a click
  //   growing: whether it will soon be redrawn with more data: see `grow`
  draw(view) {
    this.view = view;
    this.plot.setAttribute("aria-label", view.sentence);
    const drawn = plotly.ready(this.redraw);
    const asTable = Boolean(this.host.dataset.table) || plotly.failed();
    this.room.hidden = asTable;
    this.table.hidden = !asTable;
    this.host.classList.toggle("as-table", asTable);
    if (asTable)
      return this.table.replaceChildren(
        plotly.failed() ? h("p.muted.small", say("plot_failed")) : "",
        this.asTable(),
      );
    this.stale = Boolean(this.pressed);
    if (!drawn || this.stale || !this.room.clientWidth) return;
    this.box = [this.room.clientWidth, this.room.clientHeight];
    const first = !this.plot.data;
    const names = view.series.map(({ name }) => name);
    const parts = [view.id, this.box, view.x, view.y, names, template().key];
    const around = view.growing && JSON.stringify(parts);
    if (around && around === this.around && !this.touched()) this.grow();
    else {
      window.Plotly.react(this.plot, this.data(), this.layout(), this.config());
      this.grown.replaceChildren();
      this.around = around;
      if (around) this.grow();
    }
    if (first) this.plot.on("plotly_click", ({ points }) => this.view.pick?.(points[0].x));
    this.host.dataset.drawn = Number(this.host.dataset.drawn || 0) + 1;
  }

  // Of many rows every n-th, and the last
  asTable() {
    const [heads, ...rows] = this.view.rows();
    const every = Math.ceil(rows.length / MOST_ROWS);
    const words = (value) =>
      typeof value === "number" && !Number.isInteger(value) ? number(value, 2) : String(value);
    const shown = rows.filter((_, i) => i % every === 0 || i === rows.length - 1);
    return table(
      this.view.sentence,
      heads,
      shown.map((row) => row.map(words)),
    );
  }

  get named() {
    return !this.view.direct && this.view.series.filter(({ name }) => name).length > 1;
  }

  data() {
    return this.view.series.flatMap((one) =>
      one.traces.map((trace) => ({
        showlegend: this.named && Boolean(one.name),
        ...(one.name ? {} : { hoverinfo: "skip" }),
        name: plotText(one.name),
        ...trace,
      })),
    );
  }

  // Returns whether the pointer is over it, or the visitor has zoomed or hidden a line
  touched() {
    const { plot, view } = this;
    return (
      plot.matches(":hover") ||
      plot.layout.xaxis.range[1] !== view.x.full[1] ||
      plot.data.some(({ visible }) => visible === "legendonly")
    );
  }

  // While lines grow and the axes stay, lines are drawn in an SVG over Plotly's, because Plotly's redraw of the axes takes half
  // of the time of a complete draw
  grow() {
    const { view } = this;
    const placeOf = this.placing();
    const at = (...point) => {
      const { x, y } = placeOf(...point);
      return [x.toFixed(1), y.toFixed(1)];
    };
    const pathOf = ({ x, y, line }) => {
      const parts = x.map((value, i) => {
        const [across, up] = at(value, y[i]);
        if (!i) return `M${across},${up}`;
        return line.shape === "hv" ? `H${across}V${up}` : `L${across},${up}`;
      });
      return parts.join("");
    };
    const area = view.area?.map((point) => at(...point));
    const rows = [];
    const labels = view.direct ? view.series.map((one) => this.endLabel(one, rows)) : [];
    this.grown.replaceChildren(
      ...(area ? [s("path.plot-area", { d: `M${area.join("L")}Z` })] : []),
      ...this.data().map((trace) =>
        s("path", {
          d: pathOf(trace),
          fill: "none",
          stroke: trace.line.color,
          "stroke-width": trace.line.width,
          "data-name": trace.name,
          "data-to": trace.y.at(-1),
          "stroke-dasharray":
            trace.line.dash === "solid" ? null : trace.line.dash.replaceAll("px", ""),
        }),
      ),
      ...labels,
    );
  }

  // The name of a line at its end, where it neither covers the line nor another name (`rows`) nor leaves the plot
  endLabel({ name, role, below, traces }, rows) {
    const [{ x, y }] = traces;
    const { x: across, y: up } = this.placeOf(x.at(-1) ?? 0, y.at(-1) ?? 0);
    const isRight = below && across < 0.75 * this.box[0];
    const tall = ROW * pageScale();
    const free = (from, by) => {
      while (rows.some((other) => Math.abs(other - from) < tall)) from += by;
      return from;
    };
    const down = below ? free(up + (isRight ? 18 : 28) * pageScale(), tall) : Infinity;
    const row = down < this.room.clientHeight ? down : free(up - 8, -tall);
    rows.push(row);
    return s(
      `text.name-${role}`,
      { x: across + (isRight ? 6 : -6), y: row, "text-anchor": isRight ? "start" : "end" },
      name,
    );
  }

  // A function from a point to its pixel position and the bounds of the plot, which are read once
  placing() {
    const { l, r, t, b } = this.margins();
    const [width, height] = [this.room.clientWidth - l - r, this.room.clientHeight - t - b];
    const bounds = { left: l, right: l + width, top: t, bottom: t + height };
    return (x, y) => ({
      x: l + (x / this.view.x.full[1]) * width,
      y: t + (1 - y / this.view.y.full[1]) * height,
      ...bounds,
    });
  }

  placeOf(x, y) {
    return this.placing()(x, y);
  }

  margins() {
    const { left, right = 14, top = 20, bottom = 36 } = this.view.margin;
    const scale = pageScale();
    const above = top + (this.named ? LEGEND : 0);
    return { l: left * scale, r: right * scale, t: above * scale, b: bottom * scale };
  }

  layout() {
    const { view } = this;
    const [width, height] = this.box;
    const { layout, colours } = template();
    const { l, r, t, b } = this.margins();
    const name = view.y.title && {
      text: plotText(view.y.title),
      showarrow: false,
      ...CORNER,
      xshift: 4 - l,
      yshift: 4,
    };
    return {
      template: { layout },
      width,
      height: Math.max(80, height),
      uirevision: view.id,
      margin: { l, r, t, b, pad: 0, autoexpand: false },
      paper_bgcolor: colours.page,
      plot_bgcolor: colours.page,
      hovermode: view.hover || "x unified",
      hoverdistance: -1,
      dragmode: coarse() ? false : "zoom",
      xaxis: {
        range: view.x.full,
        title: { text: plotText(view.x.title ?? "") },
        nticks: 8,
        ...TICKS,
        ...view.x.ticks,
      },
      yaxis: { range: view.y.full, fixedrange: true, nticks: 5, ...TICKS, ...view.y.ticks },
      legend: { orientation: "h", x: 0, xanchor: "left", y: 1, yref: "container", yanchor: "top" },
      modebar: { bgcolor: colours.page, color: colours.muted, activecolor: colours.ink },
      shapes: [...this.areaShape(colours), ...(view.shapes || [])],
      annotations: [...(view.notes || []), name].filter(Boolean),
    };
  }

  areaShape(colours) {
    const { area } = this.view;
    if (!area) return [];
    const path = `M${area.join("L")}Z`;
    const fillcolor = colours.ink.replace("rgb(", "rgba(").replace(")", ", 0.08)");
    return [{ type: "path", path, fillcolor, line: { width: 0 }, layer: "below" }];
  }

  // The same object until the file name changes: Plotly resets the plot for a new one
  config() {
    const { name, saved } = this.view;
    const click = () => download(`${this.view.name}.csv`, csvOf(this.view.rows()), "text/csv");
    if (this.options?.toImageButtonOptions.filename !== name) {
      this.options = {
        displayModeBar: coarse() ? false : "hover",
        displaylogo: false,
        doubleClick: "reset",
        responsive: false,
        showTips: false,
        modeBarButtons: [[...BUTTONS, { name: "csv", title: say("plot_csv"), icon: CSV, click }]],
        toImageButtonOptions: { ...SAVED, ...saved, filename: name },
      };
    }
    return this.options;
  }
}
