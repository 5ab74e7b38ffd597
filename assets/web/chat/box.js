// The question box.

export const questionBox = () => document.querySelector("#question textarea, #question input");

// What stands in it is marked, so that typing takes its place
export function toQuestion() {
  questionBox()?.focus();
  questionBox()?.select();
}

export function fill(box, text) {
  box.value = text;
  box.dispatchEvent(new Event("input", { bubbles: true }));
}

// A question that brought no answer stands in the box again, unless another one is there
export function giveBack(run) {
  const box = questionBox();
  if (run.typed && box && !box.value) fill(box, run.typed);
  run.typed = "";
}
