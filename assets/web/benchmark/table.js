// The benchmark's table: one row for each category and method, every number as the report computed it.
(() => {
  const { h, say, number, rate, methodTitle } = Jakiro;

  const OVERALL = "overall";
  // As the report's intervals: the spread of fewer says too little
  const FEWEST_ANSWERS = 8;

  // A method by its title, with its size where the tree is fixed: "… · auto" is the method alone
  function laneWords(lane) {
    const [method, size] = lane.split(" · ");
    const words = methodTitle(method);
    return size && size !== "auto" ? `${words} · ${size}` : words;
  }

  const categoryWords = (category) => (category === OVERALL ? say("bench_overall") : category.replaceAll("_", " "));
  const temperaturesOf = (results) => [...new Set(results.groups.map((group) => group.temperature))];

  // What is shown for one temperature, as {category, lane, plain, group}: all prompts first, then each category
  function rowsOf(results, temperature) {
    const here = results.groups.filter((group) => group.temperature === temperature);
    return here
      .filter((group) => group.lane !== group.baseline)
      .map((group) => ({
        category: group.category,
        lane: group.lane,
        group,
        plain: here.find((other) => other.lane === group.baseline && other.category === group.category) || null,
      }));
  }

  const times = (value) => say("bench_times", { n: number(value, 2) });
  const spread = (low, high, words) => say("bench_spread", { low: words(low), high: words(high) });

  function speedCell(group) {
    const speeds = group && group.tokens_per_second;
    if (!speeds) return ["–"];
    return [rate(group.speed), group.num_runs < FEWEST_ANSWERS ? null : spread(speeds[0], speeds[2], rate)];
  }

  // Files of older versions hold such intervals
  const intervalOf = (group) => (group.num_runs >= FEWEST_ANSWERS ? group.speedup_interval : null);

  function speedupCell(group) {
    const { speedup } = group;
    const interval = intervalOf(group);
    if (speedup === null) return ["–"];
    const slower = speedup < 1 ? ` ${say("bench_slower")}` : "";
    return [`${times(speedup)}${slower}`, interval ? spread(interval[0], interval[1], (value) => number(value, 2)) : null];
  }

  // Rounded down, so that a single difference never reads 100 %
  const shareWords = (share) =>
    share === null ? "–" : share === 1 ? "100 %" : `${number(Math.floor(share * 1000) / 10, 1)} %`;

  const COLUMNS = ["method", "prompts", "plain", "lane", "speedup", "tau", "same"];

  function cellsOf({ lane, plain, group }) {
    return {
      method: [laneWords(lane)],
      prompts: [String(group.num_runs)],
      plain: speedCell(plain),
      lane: speedCell(group),
      speedup: speedupCell(group),
      tau: [group.tau === null ? "–" : number(group.tau, 2)],
      same: [shareWords(group.identical)],
    };
  }

  function benchmarkTable(results, temperature) {
    const body = rowsOf(results, temperature).map((row) => {
      const cells = cellsOf(row);
      return h(
        "tr",
        { "data-category": row.category, "data-lane": row.lane },
        h("th", { scope: "row" }, categoryWords(row.category)),
        COLUMNS.map((column) =>
          h(
            "td",
            { "data-column": column },
            h("span", { class: "bench-value" }, cells[column][0]),
            cells[column][1] ? h("span", { class: "bench-spread" }, cells[column][1]) : null,
          ),
        ),
      );
    });
    return h(
      "table",
      { class: "bench-table tabular" },
      h("caption", null, say("bench_table", { temperature })),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          ["category", ...COLUMNS].map((column) =>
            h("th", { scope: "col", "data-column": column }, say(`bench_${column}`)),
          ),
        ),
      ),
      h("tbody", null, body),
    );
  }

  Object.assign(Jakiro, { benchmarkTable, benchmarkRows: { rowsOf, intervalOf, laneWords, categoryWords, temperaturesOf, times, shareWords,
    spread, OVERALL, spreadWords: ([low, high]) => spread(low, high, (value) => number(value, 2)) } });
})();
