// The tab "Benchmark" before its code is there: what nobody sees at first comes after the first paint.
(() => {
  const { say } = Jakiro;

  function mountBenchmark(element, ...given) {
    Jakiro.afterPaint(async () => {
      try {
        await Jakiro.runPacked(Jakiro.fetchPacked(Jakiro.benchmarkFile));
      } catch {
        element.querySelector(".jk-benchmark").textContent = say("bench_not_loaded");
        return;
      }
      Jakiro.mountBenchmark(element, ...given);
    });
  }

  Object.assign(Jakiro, { mountBenchmark });
})();
