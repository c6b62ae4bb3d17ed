// The focus after a dialog.

/** Ends the observation of the control that got the focus back. */
let stopObserving = () => {};

/**
 * Gives the focus back to the control that had it before a dialog. If the action of the dialog removes
 * the control, immediately or when its list has loaded again, the heading of the view takes the focus, or
 * the dialog that is still open: otherwise the keyboard would continue at the start of the page.
 */
export function returnFocus(before: Element | null): void {
  stopObserving();
  if (before instanceof HTMLElement && before.isConnected) before.focus();
  if (isLost()) focusView();
  else if (before instanceof HTMLElement && document.activeElement === before) observeRemoval(before);
}

/** Until the user moves the focus. */
function observeRemoval(control: HTMLElement): void {
  const observer = new MutationObserver(() => {
    if (control.isConnected) return;
    stopObserving();
    if (isLost()) focusView();
  });
  const onFocus = (event: FocusEvent) => {
    if (event.target !== control) stopObserving();
  };
  stopObserving = () => {
    observer.disconnect();
    removeEventListener("focusin", onFocus);
    stopObserving = () => {};
  };
  observer.observe(document.body, { childList: true, subtree: true });
  addEventListener("focusin", onFocus);
}

/** A control in a closed dialog has the focus until the browser draws the page again. */
function isLost(): boolean {
  const active = document.activeElement;
  return active === null || active === document.body || active.closest("dialog:not([open])") !== null;
}

function focusView(): void {
  // The rest of the page cannot have the focus while a dialog is open.
  const dialog = [...document.querySelectorAll("dialog[open]")].at(-1);
  const target = dialog === undefined ? document.querySelector<HTMLElement>("main h1") : dialog.querySelector<HTMLElement>(".dialog-head button");
  target?.focus({ preventScroll: true });
}
