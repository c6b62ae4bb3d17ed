// Display options of a terminal: the screen reader mode, the size of letters, search, full screen,
// and the keys that touch screens lack. The browser stores the options for all terminals.

const one = (selector) => document.querySelector(selector);

/** True if the user has selected the screen reader mode. */
export const readsAloud = () => stored("tty-screen-reader") === "on";

/** Height of a letter in pixels. */
export function fontSize() {
  const size = Number(stored("tty-font-size"));
  return SIZES.includes(size) ? size : DEFAULT_SIZE;
}

/**
 * Shows the tools of a terminal. `changed` is called after a change of the size of letters.
 */
export function showTools(screen, changed) {
  one("#tools").hidden = false;
  const reader = one("#reader");
  reader.ariaPressed = String(readsAloud());
  reader.addEventListener("click", () => {
    const isOn = !readsAloud();
    store("tty-screen-reader", isOn ? "on" : "off");
    reader.ariaPressed = String(isOn);
    screen.setReader(isOn);
  });
  const resize = (by) => {
    const at = SIZES.indexOf(fontSize()) + by;
    if (!(at in SIZES)) return;
    store("tty-font-size", String(SIZES[at]));
    changed();
  };
  one("#smaller").addEventListener("click", () => resize(-1));
  one("#larger").addEventListener("click", () => resize(1));
  const full = one("#full-screen");
  full.hidden = !document.fullscreenEnabled;
  full.addEventListener("click", () => {
    if (document.fullscreenElement) void document.exitFullscreen();
    else void one("#terminal").requestFullscreen();
  });
  one("#find").addEventListener("submit", (event) => {
    event.preventDefault();
    const needle = one("#needle").value;
    const result = needle && !screen.find(needle) ? "Not found." : "";
    one("#find-result").textContent = result;
  });
  showKeys(screen);
}

/** The row of keys for touch screens. The key Ctrl applies to the next character. */
function showKeys(screen) {
  const keys = one("#keys");
  if (!keys || !matchMedia("(pointer: coarse)").matches) return;
  keys.hidden = false;
  const control = one("#key-ctrl");
  const setControl = (isOn) => (control.ariaPressed = String(isOn));
  screen.onControl = () => {
    const isOn = control.ariaPressed === "true";
    setControl(false);
    return isOn;
  };
  control.addEventListener("click", () => {
    setControl(control.ariaPressed !== "true");
    screen.focus();
  });
  for (const key of keys.querySelectorAll("[data-key]")) {
    // The keyboard of the touch screen stays open.
    key.addEventListener("pointerdown", (event) => event.preventDefault());
    key.addEventListener("click", () => screen.press(key.dataset.key));
  }
}

function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    // The user has forbidden the storage.
    return null;
  }
}

function store(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch (error) {
    // The option applies to this page only.
    console.warn(error);
  }
}

/** Selectable heights of a letter, in pixels. */
const SIZES = [10, 12, 14, 16, 18, 22, 28];
const DEFAULT_SIZE = 14;
