// Dialogs: modal, closed by Escape. The focus returns to the control that opened them, if it is still there.

import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { returnFocus } from "./focus";
import { Form } from "./form";
import { Button, CopyButton } from "./parts";
import { toast } from "./toasts";

interface DialogProps {
  title: string;
  isWide?: boolean;
  /** Called by Escape and by the close button. */
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, isWide = false, onClose, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useLayoutEffect(() => {
    const before = document.activeElement;
    const element = dialog.current;
    element?.showModal();
    // The first field, else the first button after the close button.
    element?.querySelector<HTMLElement>(`${FIELDS}, .buttons button`)?.focus();
    const stop = element === null ? undefined : focusWhenLoaded(element);
    return () => {
      stop?.();
      element?.close();
      returnFocus(before);
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={isWide ? "dialog is-wide" : "dialog"}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <div class="dialog-body">
        <div class="dialog-head">
          <h2 id={id}>{title}</h2>
          <Button look="bare" icon="close" aria-label="Close" onClick={onClose} />
        </div>
        {children}
      </div>
    </dialog>
  );
}

const FIELDS = "input, select, textarea";

/** Focuses the first field of content that loads later, unless the user has moved the focus meanwhile. */
function focusWhenLoaded(dialog: HTMLDialogElement): () => void {
  const observer = new MutationObserver(() => {
    const field = dialog.querySelector<HTMLElement>(FIELDS);
    if (field === null) return;
    observer.disconnect();
    if (document.activeElement === dialog || document.activeElement?.closest(".dialog-head") != null) field.focus();
  });
  if (dialog.querySelector(FIELDS) === null) observer.observe(dialog, { childList: true, subtree: true });
  return () => observer.disconnect();
}

interface ConfirmProps {
  title: string;
  /** Label of the button that starts the action. */
  verb: string;
  /** Text that the user has to type first, for an action that cannot be undone. */
  typed?: string | undefined;
  done: string;
  action: () => Promise<unknown>;
  onClose: () => void;
  children: ComponentChildren;
}

/** Requires a confirmation before an action that removes something. */
export function Confirm({ title, verb, typed, done, action, onClose, children }: ConfirmProps) {
  const [text, setText] = useState("");
  const id = useId();
  return (
    <Dialog title={title} onClose={onClose}>
      <Form
        verb={verb}
        look="grave"
        isReady={typed === undefined || text === typed}
        onClose={onClose}
        onSubmit={async () => {
          await action();
          toast(done);
          onClose();
        }}
      >
        <div>{children}</div>
        {typed !== undefined && (
          <div class="field">
            <label for={id}>
              Type <code>{typed}</code> to confirm
            </label>
            <input id={id} class="input" autocomplete="off" value={text} onInput={(event) => setText(event.currentTarget.value)} />
          </div>
        )}
      </Form>
    </Dialog>
  );
}

/** A secret that is shown once. */
export function SecretDialog({ title, secret, note, onClose }: { title: string; secret: string; note: ComponentChildren; onClose: () => void }) {
  const [isMasked, setMasked] = useState(false);
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{note}</p>
      <div class="code">
        <code>{isMasked ? mask(secret) : secret}</code>
      </div>
      <div class="buttons">
        <CopyButton text={secret} label="Copy" look="main" onCopied={() => setMasked(true)} />
        <Button onClick={onClose}>Done</Button>
      </div>
    </Dialog>
  );
}

/** The start of a secret, so that it can be recognised. */
export function mask(secret: string): string {
  return `${secret.slice(0, 6)}${"•".repeat(12)}`;
}
