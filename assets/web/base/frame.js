// In a frame as tall as the page, as the Hub shows a Space: which part of the page is on screen, and how another one gets
// there. The page around scrolls and not this one; Gradio's half of iframe-resizer hears from it and tells it.

// What the page around says of its window
let around;

const listen = () => window.parentIFrame?.getPageInfo((told) => (around = told));
addEventListener("gradio:iframe-resizer-ready", listen);
listen();
document.documentElement.classList.toggle("framed", self !== top);

// In pixels from the page's top, and how many a person sees at once
export function onScreen() {
  if (!around) return { top: 0, height: innerHeight };
  const past = around.scrollTop - around.offsetTop;
  return { top: Math.max(0, past), height: around.clientHeight + Math.min(0, past) };
}

// Scrolls back to what begins above the screen
export function bringBack(element) {
  const { top } = element.getBoundingClientRect();
  if (top >= onScreen().top) return;
  if (around) parentIFrame.scrollToOffset(0, top);
  else element.scrollIntoView();
}
