// Text that reaches the terminal without key presses: from emoji pickers, dictation, dead keys and
// keyboards of touch screens.
//
// xterm.js handles such text in some cases only, and not at all in its screen reader mode, in which
// keys also write into its text field. So this module sends each inserted text exactly once.

/**
 * Observes the text field of `terminal` inside `node`. `inserted` gets text that xterm.js does not
 * send itself.
 */
export function observeInput(terminal, node, inserted) {
  /** The character of the key that is down, if xterm.js has sent it. */
  let sent;
  /** The key that is down belongs to an input method, whose changes xterm.js reads. */
  let isComposing = false;
  terminal.onKey(({ key }) => (sent = key));
  const capture = { capture: true };
  node.addEventListener(
    "keydown",
    (event) => {
      sent = undefined;
      isComposing = event.keyCode === INPUT_METHOD;
    },
    capture,
  );
  node.addEventListener(
    "keyup",
    () => {
      sent = undefined;
      isComposing = false;
    },
    capture,
  );
  node.addEventListener(
    "input",
    (event) => {
      if (event.target !== terminal.textarea || event.isComposing || isComposing) return;
      if (!INSERTS.has(event.inputType) || !event.data) return;
      if (event.data === sent) {
        sent = undefined;
        return;
      }
      // xterm.js would send some of these texts as well.
      event.stopPropagation();
      inserted(event.data);
    },
    capture,
  );
}

/** Types of inserted text. A composition and pasted text have their own events. */
const INSERTS = new Set(["insertText", "insertReplacementText"]);

/** The code of keys that an input method handles. */
const INPUT_METHOD = 229;
