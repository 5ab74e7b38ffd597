// A frame as tall as the page, as the Hub shows a Space: which part is on screen, and scrolling. The parent page scrolls, not
// this one; messages use the protocol of Gradio's iframe-resizer.

// Window position, reported by the parent page
let around;

const SHORT = 690; // pixels; below this height the plot gets smaller

const { classList, style } = document.documentElement;
const listen = () =>
  window.parentIFrame?.getPageInfo((told) => {
    around = told;
    const height = told.clientHeight - told.offsetTop;
    style.setProperty("--window", `${height}px`);
    style.setProperty("--top", `${onScreen().top}px`);
    classList.toggle("short", height <= SHORT);
  });
addEventListener("gradio:iframe-resizer-ready", listen);
listen();
classList.toggle("framed", self !== top);

// In pixels from the page's top, and how many a person sees at once
export function onScreen() {
  if (!around) return { top: 0, height: innerHeight };
  const past = around.scrollTop - around.offsetTop;
  return { top: Math.max(0, past), height: around.clientHeight + Math.min(0, past) };
}

const GAP = 6; // pixels between a card and its target

// Places a card below a target, or above it if the screen has no space below; pixels of the window, except the card's own
// position, which is relative to `origin`. `under`: a larger element below which the card is placed
export function placeCard(
  card,
  spot,
  { under = spot.bottom, right = innerWidth, end = Infinity, origin = { left: 0, top: 0 } } = {},
) {
  const { top, height } = onScreen();
  const over = under + GAP + card.offsetHeight > Math.min(end, top + height);
  const y = over ? spot.top - card.offsetHeight - GAP : under + GAP;
  const x = Math.max(origin.left + 4, Math.min(spot.left, right - card.offsetWidth - 4));
  card.style.left = `${x - origin.left}px`;
  card.style.top = `${Math.max(y, top + 4) - origin.top}px`;
}

// Scrolls back if `element` begins above the screen
export function bringBack(element) {
  const { top } = element.getBoundingClientRect();
  if (top >= onScreen().top) return;
  if (around) parentIFrame.scrollToOffset(0, Math.floor(top) - GAP);
  else element.scrollIntoView();
}
