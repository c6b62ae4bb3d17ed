// A menu of links and actions: arrows move, Escape closes.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Icon, type IconName } from "./icons";

interface MenuProps {
  label: ComponentChildren;
  /** Name for screen readers if the label does not suffice. */
  name?: string;
  icon?: IconName;
  isStart?: boolean;
  children: (close: () => void) => ComponentChildren;
}

export function Menu({ label, name, icon, isStart = false, children }: MenuProps) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const close = () => setOpen(false);
  useEffect(() => {
    if (!isOpen) return;
    items(root.current)[0]?.focus();
    const outside = (event: Event) => {
      if (event.target instanceof Node && root.current?.contains(event.target) !== true) setOpen(false);
    };
    addEventListener("pointerdown", outside);
    addEventListener("focusin", outside);
    return () => {
      removeEventListener("pointerdown", outside);
      removeEventListener("focusin", outside);
    };
  }, [isOpen]);
  const onKeyDown = (event: KeyboardEvent) => {
    if (!isOpen) return;
    const all = items(root.current);
    const index = all.findIndex((item) => item === document.activeElement);
    if (event.key === "Escape") {
      close();
      button.current?.focus();
    } else if (event.key === "ArrowDown") all[(index + 1) % all.length]?.focus();
    else if (event.key === "ArrowUp") all[(index - 1 + all.length) % all.length]?.focus();
    else if (event.key === "Home") all[0]?.focus();
    else if (event.key === "End") all.at(-1)?.focus();
    else return;
    event.preventDefault();
  };
  return (
    <div class="menu" ref={root} onKeyDown={onKeyDown}>
      <button ref={button} type="button" class="button is-bare" aria-expanded={isOpen} aria-label={name} onClick={() => setOpen(!isOpen)}>
        {icon !== undefined && <Icon name={icon} />}
        {label}
        <Icon name="down" />
      </button>
      {isOpen && (
        <div class={isStart ? "menu-items is-start" : "menu-items"} onClick={close}>
          {children(close)}
        </div>
      )}
    </div>
  );
}

function items(root: HTMLElement | null): HTMLElement[] {
  return [...(root?.querySelectorAll<HTMLElement>(".menu-items a, .menu-items button") ?? [])];
}
