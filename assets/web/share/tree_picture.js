// The draft tree on screen as a picture: an svg file that carries the styles of the page. Text stays text.

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "paint-order",
  "opacity", "font-family", "font-size", "font-weight", "font-style", "text-anchor", "text-decoration-line", "white-space",
  "direction", "unicode-bidi"];
// No xml file may hold these, and a picture with them would not open
const UNFIT = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Cs}/gu;

// The text of the file; null where no tree is drawn
export function treePicture() {
  const shown = document.querySelector(".tree-host svg.tree");
  if (!shown) return null;
  const copy = shown.cloneNode(true);
  const originals = [shown, ...shown.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, i) => {
    const style = getComputedStyle(originals[i]);
    element.removeAttribute("style");
    STYLES.forEach((name) => element.style.setProperty(name, style.getPropertyValue(name)));
    for (const name of ["class", "tabindex", "role"]) element.removeAttribute(name);
  });
  copy.style.background = getComputedStyle(document.body).getPropertyValue("--page");
  return new XMLSerializer().serializeToString(copy).replace(UNFIT, "\ufffd");
}
