// Gradio's loading screen has a timer that asks for a frame in every frame, and goes on when the screen has gone (6.31): 60
// frames a second beside the model, for as long as the page is open. This page shows none of Gradio's timers, so they get none.
(() => {
  const ask = window.requestAnimationFrame.bind(window);
  const isTimer = (callback) => /performance\.now\(\)\s*-.*\/\s*1e3/.test(callback);
  window.requestAnimationFrame = (callback) => (isTimer(callback) ? 0 : ask(callback));
})();
