// What the server tells the page before its code runs: words, drafting methods, how plots look; the lesson and the tab
// Benchmark add theirs.

export const given = window.Jakiro;
