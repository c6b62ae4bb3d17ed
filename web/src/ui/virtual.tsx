// A list of which only the visible rows exist, for thousands of rows.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export interface RowStyle {
  readonly top: string;
  readonly height: string;
}

interface VirtualProps<T> {
  label: string;
  rows: readonly T[];
  height: number;
  /** Height of a row on a narrow screen, where its parts are below each other. */
  narrowHeight?: number;
  row: (row: T, style: RowStyle) => ComponentChildren;
}

/** Rows above and below the visible ones, so that scrolling shows no gap. */
const MARGIN = 8;

export function Virtual<T>({ label, rows, height, narrowHeight = height, row }: VirtualProps<T>) {
  const box = useRef<HTMLDivElement>(null);
  const focused = useRef<Element | null>(null);
  const [range, setRange] = useState({ top: 0, seen: 600 });
  const isNarrow = useNarrow();
  const each = isNarrow ? narrowHeight : height;
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    let isDue = false;
    const measure = () => {
      isDue = false;
      setRange({ top: element.scrollTop, seen: element.clientHeight });
    };
    const later = () => {
      if (!isDue) requestAnimationFrame(measure);
      isDue = true;
    };
    measure();
    const onFocusIn = ({ target }: FocusEvent) => {
      focused.current = target instanceof Element && target !== element ? target : null;
    };
    // Without another target, the row may be gone.
    const onFocusOut = ({ relatedTarget }: FocusEvent) => {
      if (relatedTarget !== null) focused.current = null;
    };
    element.addEventListener("focusin", onFocusIn);
    element.addEventListener("focusout", onFocusOut);
    element.addEventListener("scroll", later, { passive: true });
    const observer = new ResizeObserver(later);
    observer.observe(element);
    return () => {
      element.removeEventListener("focusin", onFocusIn);
      element.removeEventListener("focusout", onFocusOut);
      element.removeEventListener("scroll", later);
      observer.disconnect();
    };
  }, []);
  // A row that had the focus has ended, or was scrolled out of view: the keyboard continues in the list.
  useLayoutEffect(() => {
    if (focused.current?.isConnected !== false) return;
    focused.current = null;
    if (document.activeElement === document.body) box.current?.focus({ preventScroll: true });
  });
  const total = rows.length * each;
  const [first, end] = visible(range.top, range.seen, each, rows.length);
  return (
    <div ref={box} class="virtual" role="region" aria-label={label} tabIndex={0} style={{ height: `${Math.max(total, each)}px` }}>
      <div style={{ height: `${total}px` }}>
        {rows.slice(first, end).map((one, index) => row(one, { top: `${(first + index) * each}px`, height: `${each}px` }))}
      </div>
    </div>
  );
}

/** The first row and the end of the rows that exist. */
export function visible(top: number, seen: number, each: number, count: number): [number, number] {
  const first = Math.min(Math.max(0, Math.floor(top / each) - MARGIN), Math.max(0, count - 1));
  return [first, Math.min(count, Math.ceil((top + seen) / each) + MARGIN)];
}

const NARROW = "(max-width: 46rem)";

function useNarrow(): boolean {
  const [isNarrow, setNarrow] = useState(() => matchMedia(NARROW).matches);
  useEffect(() => {
    const media = matchMedia(NARROW);
    const change = () => setNarrow(media.matches);
    media.addEventListener("change", change);
    return () => media.removeEventListener("change", change);
  }, []);
  return isNarrow;
}
