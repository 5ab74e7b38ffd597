// The question box.

export const questionBox = () => document.querySelector("#question textarea");

// Selects its text, so that typing replaces it
export function toQuestion() {
  questionBox()?.focus();
  questionBox()?.select();
}

export function fillQuestion(text) {
  const box = questionBox();
  if (box) box.value = text;
}

// A question without an answer returns to the box, unless the box holds another one
export function giveBack(run) {
  if (run.typed && !questionBox()?.value) fillQuestion(run.typed);
  run.typed = "";
}
