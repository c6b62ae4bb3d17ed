// Keeps a press on its button. A page may change between the press and the release of a pointer, as
// when an alert appears above a list. Browsers then see the release on another element, and no
// click. A captured pointer sends its release and its click to the pressed element (Pointer Events
// Level 3, sections 4.1.1 and 10).

const PRESSED = "a, button, summary, [role=option]";

/** Distance in CSS pixels that a pointer moves during a click that is meant. */
const TRAVEL = 10;

/** Each button and link of this document keeps its presses, wherever it moves. */
export function keepPresses() {
  let started;
  document.addEventListener("pointerdown", (event) => {
    started = undefined;
    const pressed = event.target instanceof Element ? event.target.closest(PRESSED) : null;
    if (pressed === null || event.button !== 0) return;
    started = { pressed, x: event.clientX, y: event.clientY };
    pressed.setPointerCapture(event.pointerId);
  });
  // Without the capture, a user who moves away before the release has changed their mind.
  document.addEventListener(
    "click",
    (event) => {
      const begun = started;
      started = undefined;
      if (begun === undefined || event.detail === 0) return;
      const travel = Math.hypot(event.clientX - begun.x, event.clientY - begun.y);
      if (travel <= TRAVEL || isInside(begun.pressed, event)) return;
      event.preventDefault();
      event.stopPropagation();
    },
    { capture: true },
  );
}

function isInside(element, { clientX, clientY }) {
  const { left, right, top, bottom } = element.getBoundingClientRect();
  return clientX >= left && clientX <= right && clientY >= top && clientY <= bottom;
}
