// Keys while the focus is in the view; inside the tree the arrows walk the tree.
(() => {
  function onTreeKey(event, parts, state) {
    const ids = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Enter"];
    if (!ids.includes(event.key) || !parts.tree.step) return false;
    const step = parts.tree.step;
    if (parts.focusStep !== step) parts.focusNode = 0;
    parts.focusStep = step;
    if (event.key === "Enter") {
      const element = parts.tree.element(parts.focusNode);
      if (element) parts.card.pin(parts.focusNode, element);
      return true;
    }
    parts.focusNode = parts.tree.neighbour(parts.focusNode, event.key);
    const element = parts.tree.element(parts.focusNode);
    parts.treeHost.querySelectorAll(".node.focused").forEach((node) => node.classList.remove("focused"));
    if (element) {
      element.classList.add("focused");
      parts.card.close();
      parts.card.show(parts.focusNode, element);
    }
    return true;
  }

  // In the list the arrows walk its lines, and Enter pins the card of one
  function onListKey(event, parts) {
    const line = event.target.closest(".list-host .list-line");
    if (!line || (!event.key.startsWith("Arrow") && event.key !== "Enter")) return false;
    if (event.key === "Enter") parts.card.pin(line.dataset.node === "bonus" ? "bonus" : Number(line.dataset.node), line);
    else {
      const next = Jakiro.lineBeside(line, event.key);
      if (next) Jakiro.goToLine(next);
    }
    return true;
  }

  function onKey(event, parts, state) {
    const { seek, follow, setPhase, guessFirst, advance } = Jakiro.moves;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const tag = event.target.tagName;
    if (tag === "SELECT" || tag === "TEXTAREA" || (tag === "INPUT" && event.target.type !== "range")) return;
    if (event.key === "Escape") {
      parts.card.close();
      return;
    }
    if ((event.target === parts.treeHost && onTreeKey(event, parts, state)) || onListKey(event, parts)) {
      event.preventDefault();
      return;
    }
    if (event.key === " " && ["BUTTON", "SUMMARY", "A"].includes(tag)) return;
    const moves = {
      ArrowLeft: () => seek(state.index - 1), ArrowRight: () => seek(state.index + 1), PageUp: () => seek(state.index - 10),
      PageDown: () => seek(state.index + 10), Home: () => seek(0), End: () => seek(Infinity), " ": advance,
      1: () => setPhase(1), 2: () => setPhase(2), 3: () => setPhase(3), g: () => guessFirst(!state.guess), l: follow,
    };
    const move = moves[event.key] || moves[event.key.toLowerCase()];
    if (!move) return;
    event.preventDefault();
    move();
  }

  Object.assign(Jakiro, { onKey });
})();
