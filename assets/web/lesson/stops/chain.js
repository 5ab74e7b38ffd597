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
  const {
    greedy: { drafted: lane },
    device: { profile },
  } = lesson;
  const step = chooseStep(lane);
  const guesses = favourite(step).slice(0, LONGEST);
  const choiceOf = (node) => `“${nameOf(lane, node.target_choice, node.target_choice_piece)}”`;
  let [shown, checked] = [0, false];
  const members = () => guesses.slice(0, shown);

  const more = button(
    "more",
    say("guess_more"),
    () => ([shown, checked] = [shown + 1, false]),
    () => shown >= guesses.length,
  );
  const check = button(
    "target",
    say("guess_check"),
    () => (checked = true),
    () => !shown || checked,
  );
  const restart = button(
    "restart",
    say("guess_restart"),
    () => ([shown, checked] = [0, false]),
    () => !shown,
  );

  const bar = (n, chance, last) =>
    h(
      "div",
      { class: last ? "chain-bar now" : "chain-bar" },
      h("span", n === 1 ? say("guess_all_one") : say("guess_all", { n })),
      filledBar("fill-ink", chance),
      h("b.tabular", { "data-result": last ? "chain-chance" : null }, percent(chance)),
    );

  function verdict(at) {
    const i = guesses[at];
    if (step.accepted_path.includes(i)) return h("span.chain-verdict.right", say("guess_right"));
    const reached = at === 0 || step.accepted_path.includes(guesses[at - 1]);
    return h(
      "span.chain-verdict",
      reached
        ? say("guess_refused", { choice: choiceOf(step.nodes[step.nodes[i].parent]) })
        : say("guess_unreached"),
    );
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
      together *= edgeChance(step, i);
      return bar(at + 1, together, at + 1 === shown);
    });
  }

  function found() {
    if (!shown || !checked) return shown ? "" : say("guess_none");
    const kept = members().filter((i) => step.accepted_path.includes(i)).length;
    return say("guess_result", {
      kept,
      n: shown,
      total: counted("token", kept + 1),
      bonus: choiceOf(step.nodes[kept ? guesses[kept - 1] : 0]),
    });
  }

  return {
    screen: [
      buttons(more, check, restart),
      filled(h("ol.chain", { "data-chain": "" }), links),
      filled(h("div.chain-all"), chances),
      line(
        "chain-cost",
        () =>
          say("guess_cost", {
            draft: milliseconds(draftMs(profile, shown)),
            check: milliseconds(checkMs(profile, shown + 1)),
          }),
        "muted tabular",
      ),
      result("chain", found),
      h("p.muted.small", `${say("guess_chances")} ${say("signs_long")}`),
      lesson.stepLine(lane, step),
      lesson.sourceLine(),
    ],
    demo: [...guesses.map(() => more.click), check.click],
  };
}
