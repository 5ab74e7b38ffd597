// The last plain decoding measured here under the same model and numerics, for answers that ran without one.

import { metrics } from "./metrics.js";

const MINUTE_MS = 60000;
const measured = new Map();

const placeOf = ({ header }) => {
  const { target, device, dtype, numerics } = header;
  return [target.name, target.sha256, device, dtype, numerics].join("/");
};

function remember(run) {
  const speed = run.plain ? metrics.speed(run.plain) : null;
  if (speed !== null) measured.set(placeOf(run.plain), { speed, at: Date.now() });
}

// {speedup, minutes} of a live answer against that measurement, after `steps` of it; null where there is none
function against(run, steps) {
  const { main } = run;
  const known = run.source === "live" && !run.plain && measured.get(placeOf(main));
  const speed = known ? metrics.speed(main, steps) : null;
  const minutes = known ? Math.floor((Date.now() - known.at) / MINUTE_MS) : 0;
  return speed === null ? null : { speedup: speed / known.speed, minutes };
}

export const baseline = { remember, against };
