// The address of the view. Filters are in its query, so that a view can be shared and Back restores it.

import type { ComponentChildren, JSX } from "preact";
import { useCallback } from "preact/hooks";
import { Store, useStore } from "../store";
import { isServerPage, type Query, withFilter, withQuery, withValue } from "./match";

export interface Address {
  readonly path: string;
  readonly query: Query;
}

export const address = new Store<Address>(current());

/** Positions by history entry, because content that loads later defeats the browser's own restoration. */
const positions = new Map<string, number>();
const MAX_POSITIONS = 200;
let entry = entryKey();

export function startRouter(): void {
  history.scrollRestoration = "manual";
  addEventListener("popstate", () => {
    remember();
    entry = entryKey();
    address.set(current());
    restore(positions.get(entry) ?? 0);
  });
  addEventListener("click", follow);
}

export function navigate(target: string, options: { replace?: boolean } = {}): void {
  const url = new URL(target, location.href);
  if (url.origin !== location.origin || isServerPage(url.pathname)) {
    location.assign(url);
    return;
  }
  const isSamePath = url.pathname === location.pathname;
  if (options.replace === true) {
    history.replaceState({ key: entry }, "", url);
  } else {
    remember();
    entry = newKey();
    history.pushState({ key: entry }, "", url);
  }
  address.set(current());
  if (!isSamePath) restore(0);
}

export function useAddress(): Address {
  return useStore(address);
}

type QueryValue = [string, (value: string, isTyped?: boolean) => void];

/**
 * A filter in the query, whose change returns its list to the first page. Typing replaces the entry of the
 * history, and a choice adds one.
 */
export function useFilter(name: string, otherwise = ""): QueryValue {
  return useQuery(name, otherwise, withFilter);
}

/** An open dialog in the query, or the object that it shows. The list behind it stays at its page. */
export function useDialog(name: string): QueryValue {
  return useQuery(name, "", withValue);
}

/** The page of a list in the query, which has one list, or another name for each. */
export function usePage(name = "page"): [number, (page: number) => void] {
  const [page, setPage] = useQuery(name, "1", withValue);
  return [Number(page) || 1, (next) => setPage(String(next))];
}

function useQuery(name: string, otherwise: string, change: typeof withValue): QueryValue {
  const { query } = useAddress();
  const set = useCallback(
    (value: string, isTyped = false) => {
      const { path, query } = address.get();
      navigate(withQuery(path, change(query, name, value === otherwise ? "" : value)), { replace: isTyped });
    },
    [name, otherwise, change],
  );
  return [query[name] ?? otherwise, set];
}

type LinkProps = JSX.IntrinsicElements["a"] & { href: string; children?: ComponentChildren };

/** A link. The click handler of the document keeps links of the application inside it. */
export function Link(props: LinkProps) {
  return <a {...props} />;
}

function follow(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const anchor = event.target instanceof Element ? event.target.closest("a") : null;
  if (anchor === null || anchor.target !== "" || anchor.hasAttribute("download") || anchor.origin !== location.origin) return;
  if (isServerPage(anchor.pathname) || anchor.hash !== "") return;
  event.preventDefault();
  navigate(anchor.href);
}

function current(): Address {
  const query: Record<string, string> = {};
  for (const [name, value] of new URLSearchParams(location.search)) query[name] = value;
  return { path: location.pathname, query };
}

function remember(): void {
  positions.delete(entry);
  positions.set(entry, scrollY);
  const oldest = positions.keys().next().value;
  if (positions.size > MAX_POSITIONS && oldest !== undefined) positions.delete(oldest);
}

function restore(top: number): void {
  requestAnimationFrame(() => scrollTo({ top, behavior: "instant" }));
}

function entryKey(): string {
  const state: unknown = history.state;
  return typeof state === "object" && state !== null && "key" in state ? String(state.key) : "first";
}

function newKey(): string {
  return Math.random().toString(36).slice(2);
}
