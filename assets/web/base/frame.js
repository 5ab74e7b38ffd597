// In a frame as tall as the page, as the Hub shows a Space: which part of the page is on screen, and how another one gets
// there. The page around scrolls and not this one; Gradio's half of iframe-resizer hears from it and tells it.

// What the page around says of its window
let around;

const SHORT = 690; // pixels below which the plot makes room for the tree

const { classList, style } = document.documentElement;
const listen = () =>
  window.parentIFrame?.getPageInfo((told) => {
    around = told;
    const height = told.clientHeight - told.offsetTop;
    style.setProperty("--window", `${height}px`);
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

const GAP = 6; // pixels between a card and what it tells of

// Puts a card below a spot, or over it where there is no room on the screen; all in pixels of the window, but for the card's own
// place, which counts from `origin`. `under`: where the card stands below something larger
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

// Scrolls back to what begins above the screen
export function bringBack(element) {
  const { top } = element.getBoundingClientRect();
  if (top >= onScreen().top) return;
  if (around) parentIFrame.scrollToOffset(0, top);
  else element.scrollIntoView();
}
