// The tab "Benchmark" before its code is there: what nobody sees at first comes after the first paint.

import { say } from "../base/dom.js";
import { given } from "../base/given.js";
import { afterPaint, fetchPacked, runPacked } from "../plots/library.js";

export function loadBenchmark(element, ...rest) {
  afterPaint(async () => {
    try {
      await runPacked(fetchPacked(given.benchmarkFile));
    } catch {
      element.querySelector(".jk-benchmark").textContent = say("bench_not_loaded");
      return;
    }
    given.mountBenchmark(element, ...rest);
  });
}
