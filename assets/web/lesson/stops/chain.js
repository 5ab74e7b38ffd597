// Stop 2: a chain of guesses. Each one is cheap, each one makes it less likely that all of them hold.

import { counted, filledBar, h, milliseconds, percent, say } from "../../base/dom.js";
import { button, buttons, line, filled, result } from "../controls.js";
import { checkMs, draftMs, edgeChance, favourite, pick, whole } from "../data.js";
import { markerSample } from "../../tree/marker.js";
import { nameOf, rootName } from "../../data/history.js";

const LONGEST = 5;

// A step whose best chain is long, right at first, then wrong
const chooseStep = (lane) =>
  pick(whole(lane), (step) => {
    const chain = favourite(step).slice(0, LONGEST);
    const held = chain.filter((i) => step.accepted_path.includes(i)).length;
    return chain.length + 2 * Math.min(held, 3) + (held && held < chain.length ? 5 : 0);
  });

export function chainStop(lesson) {
  const lane = lesson.greedy.drafted;
  const { profile } = lesson.device;
  const step = chooseStep(lane);
  const guesses = favourite(step).slice(0, LONGEST);
  const choiceOf = (node) => `“${nameOf(lane, node.target_choice, node.target_choice_piece)}”`;
  const isAccepted = (i) => step.accepted_path.includes(i);
  let [shown, checked] = [0, false];
  const members = () => guesses.slice(0, shown);
  const show = (n) => ([shown, checked] = [n, false]);
  const hasAll = () => shown >= guesses.length;
  const more = button("more", say("guess_more"), () => show(shown + 1), hasAll);
  const isChecked = () => !shown || checked;
  const check = button("target", say("guess_check"), () => (checked = true), isChecked);
  const restart = button(
    "restart",
    say("guess_restart"),
    () => show(0),
    () => !shown,
  );

  function verdict(at) {
    const i = guesses[at];
    if (isAccepted(i)) return h("span.chain-verdict.right", say("guess_right"));
    const isReached = at === 0 || isAccepted(guesses[at - 1]);
    const choice = choiceOf(step.nodes[step.nodes[i].parent]);
    const words = isReached ? say("guess_refused", { choice }) : say("guess_unreached");
    return h("span.chain-verdict", words);
  }

  function link(i, at) {
    const node = step.nodes[i];
    const proposer = lane.proposers.of(node);
    return h(
      "li.chain-link",
      { "data-guess": at + 1 },
      h("span.muted.small", say("guess_number", { n: at + 1 })),
      h(
        "span",
        { class: `chain-token ${proposer.classes}` },
        markerSample(proposer),
        h("bdi.mono", nameOf(lane, node.token_id, node.piece)),
      ),
      h("span.tabular", say("guess_chance", { percent: percent(edgeChance(step, i)) })),
      checked ? verdict(at) : null,
    );
  }

  const links = () => [
    h(
      "li.chain-link.root",
      h("span.muted.small", say("root")),
      h("span.chain-token", h("bdi.mono", rootName(lane, step.index))),
    ),
    ...members().map(link),
  ];

  function chances() {
    let together = 1;
    return members().map((i, at) => {
      const n = at + 1;
      const isLast = n === shown;
      together *= edgeChance(step, i);
      return h(
        "div",
        { class: isLast ? "chain-bar now" : "chain-bar" },
        h("span", n === 1 ? say("guess_all_one") : say("guess_all", { n })),
        filledBar("fill-ink", together),
        h("b.tabular", { "data-result": isLast ? "chain-chance" : null }, percent(together)),
      );
    });
  }

  function costs() {
    const [draft, check] = [draftMs(profile, shown), checkMs(profile, shown + 1)].map(milliseconds);
    return say("guess_cost", { draft, check });
  }

  function outcome() {
    if (!shown) return say("guess_none");
    if (!checked) return "";
    const kept = members().filter(isAccepted).length;
    const bonus = choiceOf(step.nodes[kept ? guesses[kept - 1] : 0]);
    return say("guess_result", { kept, n: shown, total: counted("token", kept + 1), bonus });
  }

  return {
    screen: [
      buttons(more, check, restart),
      filled(h("ol.chain", { "data-chain": "" }), links),
      filled(h("div.chain-all"), chances),
      line("chain-cost", costs, "muted tabular"),
      result("chain", outcome),
      h("p.muted.small", `${say("guess_chances")} ${say("signs_long")}`),
      lesson.stepLine(lane, step),
      lesson.sourceLine(),
    ],
    demo: [...guesses.map(() => more.click), check.click],
  };
}
