// Saves the draft tree on screen as a picture, 1920 pixels wide, with the question and the step it was grown at.
(() => {
  const { h, say } = Jakiro;

  const WIDTH = 1920;
  const HEAD = 150;
  const FOOT = 70;
  const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "paint-order",
    "opacity", "font-family", "font-size", "font-weight", "font-style", "text-anchor", "white-space"];

  // A copy of the drawing that carries its own style, as a picture knows no style sheet
  function styled(svg) {
    const copy = svg.cloneNode(true);
    const originals = [svg, ...svg.querySelectorAll("*")];
    [copy, ...copy.querySelectorAll("*")].forEach((element, i) => {
      const style = getComputedStyle(originals[i]);
      STYLES.forEach((name) => element.style.setProperty(name, style.getPropertyValue(name)));
    });
    return copy;
  }

  // A promise of a canvas; null where no tree is drawn
  async function treePicture(run, index) {
    const svg = document.querySelector(".tree-host svg.tree");
    if (!svg) return null;
    const [width, height] = ["width", "height"].map((name) => Number(svg.getAttribute(name)));
    const scale = (WIDTH - 160) / width;
    const image = new Image();
    const source = new XMLSerializer().serializeToString(styled(svg));
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source)}`;
    await image.decode();
    const canvas = h("canvas", { width: WIDTH, height: Math.round(HEAD + height * scale + FOOT) });
    const paint = canvas.getContext("2d");
    const style = getComputedStyle(document.querySelector(".jk-view"));
    const colour = (name) => style.getPropertyValue(name).trim();
    paint.fillStyle = colour("--page");
    paint.fillRect(0, 0, canvas.width, canvas.height);
    paint.drawImage(image, 80, HEAD, width * scale, height * scale);
    const write = (text, y, size, name, weight) => {
      paint.fillStyle = colour(name);
      paint.font = `${weight} ${size}px system-ui, sans-serif`;
      paint.fillText(text, 80, y, WIDTH - 160);
    };
    const { header, steps } = run.main;
    write(Jakiro.cut(run.question, 90), 70, 40, "--ink", 600);
    write(`${say("draft_tree")} · ${say("step_of", { step: index + 1, steps: steps.length })}`, 118, 28, "--muted", 400);
    write(`${header.target.name} · ${header.device} · ${header.numerics} · ${String(header.created).slice(0, 10)}`,
      canvas.height - 28, 24, "--muted", 400);
    return canvas;
  }

  Object.assign(Jakiro, { treePicture });
})();
