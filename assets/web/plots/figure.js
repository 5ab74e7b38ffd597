// One plot: Plotly draws lines and axes; what people read and press around them is ours, so that it takes keys and
// fingers, and that no name a model or a file brought is read as markup.

import { h, pageScale, popMenu, say } from "../base/dom.js";
import { cut } from "../base/pieces.js";
import { csvOf, download } from "../page/save.js";
import { fromBase64, plotly } from "./library.js";
import { plotSample } from "./sample.js";
import { plotStyle } from "./template.js";

const { template, plotText } = plotStyle;

const CONFIG = { displayModeBar: false, doubleClick: false, responsive: false, showTips: false };
const CLICK_PIXELS = 4;
const CLOSEST = 50; // zooming in leaves at least one fiftieth of the axis
const SAVED = { width: 960, height: 540 };

const coarse = () => matchMedia("(pointer: coarse)").matches;
const within = (value, [low, high]) => Math.max(low, Math.min(high, value));

export class Figure {
  // `redraw` is called when zoom, hidden series or the library's arrival ask for another drawing
  constructor(host, redraw) {
    this.host = host;
    this.redraw = redraw;
    this.hidden = new Set();
    this.range = null; // the part of the axis that is shown; null for all of it
    this.legend = h("div", { class: "plot-legend", role: "group", "aria-label": say("plot_lines") });
    this.tools = h("div", { class: "plot-tools", role: "group", "aria-label": say("plot_tools") }, this.toolButtons());
    this.plot = h("div", { class: "plot", role: "img" });
    this.guide = h("div", { class: "plot-guide", hidden: true });
    this.readout = h("div", { class: "plot-readout", hidden: true });
    this.room = h("div", { class: "plot-room", tabindex: 0, role: "group", "aria-label": say("plot_room") }, this.plot, this.guide,
      this.readout);
    this.table = h("div", { class: "plot-table", hidden: true });
    host.append(h("div", { class: "plot-bar" }, this.legend, this.tools), this.room, this.table);
    this.listen();
  }

  toolButtons() {
    const tool = (key, sign, action) => h("button", { class: "toggle plot-tool", type: "button", "data-plot": key,
      "aria-label": say(key), title: say(key), onclick: action }, sign);
    this.menu = popMenu("plot-save", h("summary", { class: "toggle" }, say("plot_save")), ["plot_svg", "plot_png", "plot_csv"].map(
      (key) => h("button", { type: "button", class: "plain-button", "data-plot": key.slice(-3), onclick: () => {
        this.menu.open = false;
        this.menu.firstChild.focus();
        this.save(key.slice(-3));
      } }, say(key))));
    return [tool("plot_closer", "+", () => this.zoom(0.5)), tool("plot_farther", "−", () => this.zoom(2)),
      tool("plot_all", "↔", () => this.show(null)), this.menu];
  }

  listen() {
    const { room } = this;
    let down = null;
    room.addEventListener("pointerdown", (event) => (down = event), true);
    window.addEventListener("pointerup", (event) => {
      if (!down) return;
      const still = Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) < CLICK_PIXELS;
      down = null;
      if (still && this.box && this.view.pick) this.view.pick(...this.valuesAt(event));
      if (this.stale) this.redraw();
    }, true);
    window.addEventListener("pointercancel", () => (down = null), true);
    this.pressed = () => down !== null && !coarse();
    room.addEventListener("pointermove", (event) => {
      this.pointer = event;
      this.read();
    });
    room.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.read();
    });
    new ResizeObserver(() => {
      const { box } = this;
      if (this.view && room.clientWidth && !(box && box.width === room.clientWidth && box.room === room.clientHeight)) this.redraw();
    }).observe(room);
    room.addEventListener("focus", () => this.read());
    room.addEventListener("blur", () => this.read());
  }

  // `view`: what plots differ in.
  //   title, fileName(ending), sentence, table(): element, rows(): cells of the csv file
  //   series: [{id, name, note, role, marks, traces(range)}], with Plotly's traces in the look of its role
  //   x, y: {title, full: [low, high], ticks}; y.fit(range): its ends for the part that is shown
  //   labelled: its notes name the lines, so that no legend does; over: series without a name, drawn last
  //   saved: the size of saved pictures, where it is not the usual one
  //   at: where on the x axis the page stands, or null; notes, shapes: Plotly's annotations and shapes
  //   read(x, y): {at, title, rows: [[series, words]]}, shown below the lines with readBelow; pick(x, y): a click
  draw(view) {
    this.view = view;
    this.plot.setAttribute("aria-label", view.sentence);
    this.legend.hidden = Boolean(view.labelled);
    this.drawLegend();
    const drawn = plotly.ready(this.redraw);
    const asTable = Boolean(this.host.dataset.table) || plotly.failed();
    this.room.hidden = asTable;
    this.tools.hidden = asTable;
    this.table.hidden = !asTable;
    this.host.classList.toggle("as-table", asTable);
    if (asTable) {
      this.table.replaceChildren(...(plotly.failed() ? [h("p", { class: "muted small" }, say("plot_failed"))] : []), view.table());
      return;
    }
    this.stale = this.pressed();
    if (!drawn || this.stale || !this.room.clientWidth) return;
    this.follow();
    const room = this.room.clientHeight;
    this.box = { ...this.boxOf({ width: this.room.clientWidth, height: Math.max(80, room) }), room };
    const spec = this.spec(this.box, false);
    const first = !this.plot.data;
    window.Plotly.react(this.plot, spec.data, spec.layout, CONFIG);
    if (first) this.plot.on("plotly_relayout", (change) => this.zoomed(change));
    if (first) this.plot.on("plotly_doubleclick", () => this.show(null));
    this.host.dataset.drawn = Number(this.host.dataset.drawn || 0) + 1;
    this.read();
  }

  shown() {
    return this.view.series.filter((series) => !this.hidden.has(series.id));
  }

  drawLegend() {
    const { series } = this.view;
    const key = JSON.stringify(series.map(({ id, name, role, marks }) => [id, name, role, marks, this.hidden.has(id)]));
    if (key !== this.key) {
      this.key = key;
      const at = this.chips && this.chips.findIndex((chip) => chip.element === document.activeElement);
      this.chips = series.map((one) => this.chip(one));
      this.legend.replaceChildren(...this.chips.map((chip) => chip.element));
      if (at >= 0 && this.chips[at]) this.chips[at].element.focus();
    }
    series.forEach(({ note }, i) => this.chips[i].note.textContent !== note && (this.chips[i].note.textContent = note));
  }

  chip({ id, name, role, marks }) {
    const note = h("span", { class: "tabular" });
    const element = h("button", { class: "plot-chip", type: "button", "aria-pressed": String(!this.hidden.has(id)), "data-series": id,
      onclick: () => {
        if (!this.hidden.delete(id)) this.hidden.add(id);
        this.redraw();
      } }, plotSample(role, marks), h("b", { dir: "auto" }, name), note);
    return { element, note };
  }

  boxOf({ width, height }) {
    const { left, right = 14, top = 20, bottom = 36 } = this.view.margin;
    const [l, r, t, b] = [left, right, top, bottom].map((value) => value * pageScale());
    return { width, height, l, r, t, b };
  }

  rangeNow() {
    return this.range || this.view.x.full;
  }

  // Zoomed in, the part that is shown goes with the step on screen
  follow() {
    const { at } = this.view;
    const moved = at !== this.at;
    this.at = at;
    if (!this.range || at === null || !moved) return;
    const [low, high] = this.range;
    if (at >= low && at <= high) return;
    const half = (high - low) / 2;
    const middle = within(at, [this.view.x.full[0] + half, Math.max(this.view.x.full[0] + half, this.view.x.full[1] - half)]);
    this.range = [middle - half, middle + half];
  }

  zoom(factor) {
    const [low, high] = this.rangeNow();
    const { full } = this.view.x;
    const whole = full[1] - full[0];
    const wide = Math.max(whole / CLOSEST, (high - low) * factor);
    if (wide >= whole) return this.show(null);
    const { at } = this.view;
    const middle = at !== null && at >= low && at <= high ? at : (low + high) / 2;
    const from = within(middle - wide / 2, [full[0], full[1] - wide]);
    return this.show([from, from + wide]);
  }

  zoomed(change) {
    const [low, high] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (Number.isFinite(low) && Number.isFinite(high)) this.show([low, high]);
  }

  show(range) {
    this.range = range;
    this.host.dataset.zoomed = range ? "1" : "";
    this.redraw();
  }

  // Plotly's data and layout for the page, or for a file with legend and title
  spec(box, saved) {
    const { view } = this;
    const style = template();
    const range = this.rangeNow();
    const data = [...this.shown(), ...(view.over || [])].flatMap((series) => series.traces(range).map((trace) => ({ hoverinfo: "skip",
      showlegend: saved, name: plotText(series.name), ...trace })));
    const note = (text, more) => ({ text: plotText(text), showarrow: false, xref: "paper", yref: "paper", ...more });
    const layout = {
      template: { layout: style.layout }, width: box.width, height: box.height, hovermode: false, showlegend: saved,
      margin: { l: box.l, r: box.r, t: box.t + (saved ? 64 : 0), b: box.b, pad: 0, autoexpand: false },
      dragmode: coarse() ? false : "zoom",
      xaxis: { range, title: { text: plotText(view.x.title) }, nticks: 8, ...view.x.ticks },
      yaxis: { range: view.y.fit(range), fixedrange: true, nticks: 5, ...view.y.ticks },
      shapes: view.shapes || [],
      annotations: [...(view.notes || []), view.y.title && note(view.y.title, { x: 0, xanchor: "left", xshift: -box.l + 4, y: 1,
        yanchor: "bottom", yshift: 4 })].filter(Boolean),
    };
    layout.paper_bgcolor = layout.plot_bgcolor = style.colours.page;
    if (saved) {
      layout.title = { text: plotText(view.title), y: 1, yref: "container", yanchor: "top", pad: { t: 14 } };
      layout.legend = { orientation: "h", x: 0, xanchor: "left", y: 1, yanchor: "bottom", yref: "paper", xref: "paper" };
      layout.legend.y = 1 + 30 / (box.height - layout.margin.t - box.b);
    }
    return { data, layout };
  }

  // The values under a pointer
  valuesAt({ clientX, clientY }) {
    const place = this.plot.getBoundingClientRect();
    const { width, height, l, r, t, b } = this.box;
    const [low, high] = this.rangeNow();
    const [bottom, top] = this.view.y.fit([low, high]);
    const x = within(low + ((clientX - place.left - l) / (width - l - r)) * (high - low), [low, high]);
    return [x, bottom + ((height - b - (clientY - place.top)) / (height - t - b)) * (top - bottom)];
  }

  // What all lines say at the pointer, or at the step on screen for who walks with keys
  read() {
    const { view, box, pointer } = this;
    if (!view || !box || this.room.hidden) return;
    const focused = document.activeElement === this.room && this.room.matches(":focus-visible");
    const place = pointer ? this.valuesAt(pointer) : focused && view.at !== null ? [view.at, null] : null;
    const said = place && view.read(...place);
    this.readout.hidden = this.guide.hidden = !said;
    if (!said) return;
    const [low, high] = this.rangeNow();
    const x = box.l + ((said.at - low) / (high - low)) * (box.width - box.l - box.r);
    Object.assign(this.guide.style, { left: `${x}px`, top: `${box.t}px`, height: `${box.height - box.t - box.b}px` });
    this.readout.replaceChildren(h("b", { class: "tabular" }, said.title), ...said.rows.map(([series, words]) => h("span", null,
      plotSample(series.role, series.marks), h("bdi", null, cut(series.name, 40)), h("b", { class: "tabular" }, words))));
    const wide = this.readout.offsetWidth;
    const left = x - 12 - wide >= box.l ? x - 12 - wide : Math.min(x + 12, box.width - wide); // lines rise to the right
    const top = view.readBelow ? box.height - box.b - this.readout.offsetHeight - 4 : box.t;
    Object.assign(this.readout.style, { left: `${Math.max(0, left)}px`, top: `${Math.max(0, top)}px` });
  }

  async save(ending) {
    const { view } = this;
    const name = view.fileName(ending);
    if (ending === "csv") return download(name, csvOf(view.rows()), "text/csv");
    const { data, layout } = this.spec(this.boxOf(view.saved || SAVED), true);
    const url = await window.Plotly.toImage({ data, layout, config: CONFIG }, { format: ending, width: layout.width, height: layout.height,
      scale: ending === "png" ? 2 : 1 });
    const written = url.slice(url.indexOf(",") + 1);
    const content = ending === "png" ? fromBase64(written) : decodeURIComponent(written);
    return download(name, new Blob([content], { type: ending === "png" ? "image/png" : "image/svg+xml" }));
  }
}
