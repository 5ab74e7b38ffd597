// After Tab, Space presses the button that has the focus; after a click, it goes on with the lecture.

let walking = false;
addEventListener("pointerdown", () => (walking = false), true);
addEventListener("keydown", (event) => (walking = event.key === "Tab" || walking), true);

export const isWalking = () => walking;
