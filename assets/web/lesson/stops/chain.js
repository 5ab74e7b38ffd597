// Stop 2: a chain of guesses. Each one is cheap, each one makes it less likely that all of them hold.

import { counted, filledBar, h, milliseconds, percent, say } from "../../base/dom.js";
import { lessonControls } from "../controls.js";
import { lessonData } from "../data.js";
import { markerSample } from "../../tree/marker.js";
import { nameOf, rootName } from "../../data/history.js";

const LONGEST = 5;

// A step whose favourite chain is long and holds at first, then fails
function chooseStep(lane) {
  const worth = (step) => {
    const chain = lessonData.favourite(step).slice(0, LONGEST);
    const held = chain.filter((i) => step.accepted_path.includes(i)).length;
    return chain.length + 2 * Math.min(held, 3) + (held && held < chain.length ? 5 : 0);
  };
  return lessonData.pick(lessonData.whole(lane), worth);
}

export function chainStop(lesson) {
  const lane = lesson.greedy.drafted;
  const step = chooseStep(lane);
  const guesses = lessonData.favourite(step).slice(0, LONGEST);
  const name = (i) => nameOf(lane, step.nodes[i].token_id, step.nodes[i].piece);
  let [shown, checked] = [0, false];

  const host = h("ol", { class: "chain", "data-chain": "" });
  const all = h("div", { class: "chain-all" });
  const cost = h("p", { class: "muted tabular", "data-result": "chain-cost" });
  const result = lessonControls.result("chain");
  const more = lessonControls.button("more", say("guess_more"), () => ([shown, checked] = [shown + 1, false]));
  const check = lessonControls.button("target", say("guess_check"), () => (checked = true));
  const restart = lessonControls.button("restart", say("guess_restart"), () => ([shown, checked] = [0, false]));

  function bar(n, chance, last) {
    return h("div", { class: last ? "chain-bar now" : "chain-bar" },
      h("span", null, n === 1 ? say("guess_all_one") : say("guess_all", { n })), filledBar("fill-ink", chance),
      h("b", { class: "tabular", "data-result": last ? "chain-chance" : null }, percent(chance)));
  }

  function verdict(at) {
    const i = guesses[at];
    const parent = step.nodes[step.nodes[i].parent];
    if (step.accepted_path.includes(i)) return h("span", { class: "chain-verdict right" }, say("guess_right"));
    const reached = at === 0 || step.accepted_path.includes(guesses[at - 1]);
    return h("span", { class: "chain-verdict" }, reached
      ? say("guess_refused", { choice: `“${nameOf(lane, parent.target_choice, parent.target_choice_piece)}”` })
      : say("guess_unreached"));
  }

  function link(i, at) {
    const proposer = lane.proposers.of(step.nodes[i]);
    return h("li", { class: "chain-link", "data-guess": at + 1 },
      h("span", { class: "muted small" }, say("guess_number", { n: at + 1 })),
      h("span", { class: `chain-token ${proposer.classes}` }, markerSample(proposer), h("bdi", { class: "mono" }, name(i))),
      h("span", { class: "tabular" }, say("guess_chance", { percent: percent(lessonData.edgeChance(step, i)) })),
      checked ? verdict(at) : null);
  }

  function draw() {
    const members = guesses.slice(0, shown);
    host.replaceChildren(h("li", { class: "chain-link root" }, h("span", { class: "muted small" }, say("root")),
      h("span", { class: "chain-token" }, h("bdi", { class: "mono" }, rootName(lane, step.index)))),
      ...members.map(link));
    let together = 1;
    all.replaceChildren(...members.map((i, at) => {
      together *= lessonData.edgeChance(step, i);
      return bar(at + 1, together, at + 1 === shown);
    }));
    const profile = lesson.device.profile;
    cost.textContent = say("guess_cost", { draft: milliseconds(lessonData.draftMs(profile, shown)),
      check: milliseconds(lessonData.checkMs(profile, shown + 1)) });
    const kept = members.filter((i) => step.accepted_path.includes(i)).length;
    const end = step.nodes[kept ? guesses[kept - 1] : 0];
    const found = { kept, n: shown, total: counted("token", kept + 1),
      bonus: `“${nameOf(lane, end.target_choice, end.target_choice_piece)}”` };
    result.textContent = !shown ? say("guess_none") : checked ? say("guess_result", found) : "";
    more.disabled = shown >= guesses.length;
    check.disabled = !shown || checked;
    restart.disabled = !shown;
  }

  return { screen: [h("div", { class: "lesson-buttons" }, more, check, restart), host, all, cost, result,
    h("p", { class: "muted small" }, `${say("guess_chances")} ${say("signs_long")}`), lesson.stepLine(lane, step),
    lesson.sourceLine()], draw, demo: [...guesses.map(() => () => more.click()), () => check.click()] };
}
