// Sentences about a step and about a complete answer.

import { counted, given, milliseconds, say } from "../base/dom.js";
import { bonusDelivered, deliveredPath, depthOf, hasBonus, nameIn } from "../data/history.js";

// The step in one sentence, for screen readers and as the picture's name
export function stepSentence(lane, index, phase) {
  const step = lane.steps[index];
  const values = {
    step: index + 1,
    steps: lane.steps.length,
    candidates: counted("candidate", step.nodes.length - 1),
    levels: counted("level", depthOf(step)),
  };
  if (phase === 1) return say("tree_sentence_hidden", values);
  const named = (...nodes) => nodes.map((i) => spoken(nameIn(lane, index, i))).join(", ");
  const tokens = named(...deliveredPath(step));
  const bonus = hasBonus(step) ? ["bonus"] : [];
  const cut = [...step.accepted_path.slice(step.committed_ids.length), ...bonus];
  const ending = cut.length ? "tree_sentence_cut" : "tree_sentence_end";
  return say(bonusDelivered(step) ? "tree_sentence" : ending, {
    ...values,
    draft: milliseconds(step.draft_ms),
    verify: milliseconds(step.verify_ms),
    accepted: tokens ? say("accepted_list", { tokens }) : say("accepted_none"),
    bonus: named(...bonus),
    cut: named(...cut),
  });
}

// The arithmetic of a step; nothing of the result before the check
export function stepSum(step, phase) {
  const guesses = step.nodes.length - 1;
  if (!guesses) return say("no_draft");
  const right = step.accepted_path.length;
  const values = {
    guesses,
    right: right || say("sum_none"),
    tokens: counted("token", step.committed_ids.length),
    cut: right + hasBonus(step) - step.committed_ids.length,
  };
  if (phase < 3) return say(`sum_${phase}`, values);
  if (values.cut) return say("sum_cut", values);
  return say(hasBonus(step) ? "sum_3" : "sum_end", values);
}

// A name as it is read out: without the sign for a space before a word
const spoken = (name) => `“${name.replace(/^␣(?!×)/, "")}”`;

// Origin of a recording or a file; empty for live answers
export function badgeOf(run) {
  if (!run || run.source === "live" || !run.main) return "";
  const { header } = run.main;
  const profile = header.device_profile || {};
  const device = profile.device || profile.name || header.device;
  return say(run.source === "opened" ? "opened_badge" : "recording_badge", {
    device,
    date: String(header.created).slice(0, 10),
  });
}

// How an answer ended, where that is worth a word
export function endWords(lane) {
  const words = `ended_${lane.endReason}`;
  return Object.hasOwn(given.words, words)
    ? say(words, { tokens: counted("token", lane.tokens.length) })
    : "";
}
