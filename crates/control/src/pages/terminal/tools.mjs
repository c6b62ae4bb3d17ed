// Tools of a terminal: the screen reader mode, the size of letters, search, full screen, and the keys
// that touch screens lack. The browser stores the mode and the size for all terminals.

const one = (selector) => document.querySelector(selector);

/** True if the user has selected the screen reader mode. */
export const readsAloud = () => stored("tty-screen-reader") === "on";

/** Height of a letter in pixels. */
export function fontSize() {
  const size = Number(stored("tty-font-size"));
  return SIZES.includes(size) ? size : DEFAULT_SIZE;
}

/**
 * Shows the tools of a terminal. `changed` is called after a change of the size of letters. The
 * `target` finds a text: in the direction `by` (1 or -1) it selects a place, and returns the number
 * of the place and the count of places. `forward` is the direction of the Enter key.
 */
export function showTools(target, changed, forward = -1) {
  one("#tools").hidden = false;
  const reader = one("#reader");
  reader.ariaPressed = String(readsAloud());
  reader.addEventListener("click", () => {
    const isOn = !readsAloud();
    store("tty-screen-reader", isOn ? "on" : "off");
    reader.ariaPressed = String(isOn);
    target.setReader(isOn);
  });
  showSizes(changed);
  showFullScreen();
  showSearch(target, forward);
  showKeys(target);
}

/** The size of letters, by buttons, and by the keys of browsers inside the terminal. */
function showSizes(changed) {
  const set = (size) => {
    if (size === undefined || size === fontSize()) return;
    store("tty-font-size", String(size));
    changed();
  };
  const step = (by) => set(SIZES[SIZES.indexOf(fontSize()) + by]);
  const does = { "-": () => step(-1), "+": () => step(1), "=": () => step(1), 0: () => set(DEFAULT_SIZE) };
  one("#smaller").addEventListener("click", does["-"]);
  one("#larger").addEventListener("click", does["+"]);
  one("#normal").addEventListener("click", does[0]);
  const resize = (event) => {
    if (!event.ctrlKey || event.altKey || event.metaKey || !does[event.key]) return;
    // The handler runs before the terminal's. Elsewhere on the page the keys are the browser's.
    event.preventDefault();
    event.stopPropagation();
    does[event.key]();
  };
  one("#terminal").addEventListener("keydown", resize, { capture: true });
}

/** Full screen shows the whole section, because requests for control must stay visible. */
function showFullScreen() {
  const full = one("#full-screen");
  full.hidden = !document.fullscreenEnabled;
  full.addEventListener("click", async () => {
    try {
      if (document.fullscreenElement) {
        await document.exitFullscreen();
        return;
      }
      await one("#stage").requestFullscreen();
      // Programs need the Escape key. Browsers that support this leave full screen when it is held.
      await navigator.keyboard?.lock?.(["Escape"]);
    } catch (error) {
      // The browser has refused it.
      console.warn(error);
    }
  });
  document.addEventListener("fullscreenchange", () => {
    full.ariaPressed = String(Boolean(document.fullscreenElement));
  });
}

/** The search, which Ctrl+Shift+F opens from every part of the page. */
function showSearch(target, forward) {
  const needle = one("#needle");
  const result = one("#find-result");
  const find = async (by) => {
    if (!needle.value) return;
    const { at, count } = await target.find(needle.value, by);
    result.textContent = count ? `${at} of ${count}` : "Not found.";
  };
  one("#find-previous").addEventListener("click", () => find(-1));
  one("#find-next").addEventListener("click", () => find(1));
  one("#find").addEventListener("submit", (event) => event.preventDefault());
  needle.addEventListener("input", () => (result.textContent = ""));
  needle.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Enter") void find(event.shiftKey ? -forward : forward);
    if (event.key === "Escape") one("#terminal").focus();
  });
  const go = (event) => {
    if (!event.ctrlKey || !event.shiftKey || event.code !== "KeyF") return;
    event.preventDefault();
    event.stopPropagation();
    needle.focus();
    needle.select();
  };
  document.addEventListener("keydown", go, { capture: true });
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
