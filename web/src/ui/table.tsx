// Tables, and the lists of a resource.

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import type { Resource } from "../api/resource";
import { Button, Loaded } from "./parts";

interface TableProps {
  columns: readonly string[];
  /** Columns of numbers, after the others. */
  numbers?: readonly string[];
  /** True if the last cell of each row has buttons. */
  hasActions?: boolean;
  /** Name of the table as a region, which the keyboard can scroll. */
  label?: string;
  /** The rows. */
  children: ComponentChildren;
}

/** A table that scrolls sideways on a narrow screen. */
export function Table({ columns, numbers = [], hasActions = false, label, children }: TableProps) {
  const region = label === undefined ? {} : ({ tabIndex: 0, role: "region", "aria-label": label } as const);
  return (
    <div class="scroll" {...region}>
      <table class="table">
        <thead>
          <tr>
            {columns.map((column) => (
              <th scope="col" key={column}>
                {column}
              </th>
            ))}
            {numbers.map((column) => (
              <th scope="col" class="end" key={column}>
                {column}
              </th>
            ))}
            {hasActions && (
              <th scope="col">
                <span class="unseen">Actions</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

/** The last cell of a row whose object has details. */
export function DetailsCell({ onOpen }: { onOpen: () => void }) {
  return (
    <td class="end">
      <Button look="bare" onClick={onOpen}>
        Details
      </Button>
    </td>
  );
}

interface ItemListProps<T, Item> {
  of: Resource<T>;
  items: (data: T) => readonly Item[];
  /** Shown if there are no items. */
  empty: ComponentChildren;
  children: (items: readonly Item[]) => ComponentChildren;
}

/** The items of a resource, once they are loaded. */
export function ItemList<T, Item>({ of, items, empty, children }: ItemListProps<T, Item>) {
  return (
    <Loaded of={of}>
      {(data) => {
        const found = items(data);
        return found.length === 0 ? empty : children(found);
      }}
    </Loaded>
  );
}

interface Pages {
  readonly page: number;
  readonly totalPages: number;
  readonly total: number;
}

/** One page of a list, with the buttons for the other pages. */
export function PagedList<T extends Pages, Item>({ onPage, name, ...list }: ItemListProps<T, Item> & { onPage: (page: number) => void; name?: string }) {
  const data = list.of.data;
  // The last rows of a page were removed, or its address is old.
  const last = Math.max(1, data?.totalPages ?? 1);
  const isPastEnd = data !== undefined && data.page > last;
  useEffect(() => {
    if (isPastEnd) onPage(last);
  }, [isPastEnd, last]);
  return (
    <>
      <ItemList {...list} />
      {data !== undefined && <Paging of={data} onPage={onPage} name={name} />}
    </>
  );
}

/** `name` is that of the list, on a page with several ones. */
export function Paging({ of: { page, totalPages, total }, onPage, name = "the list" }: { of: Pages; onPage: (page: number) => void; name?: string | undefined }) {
  if (totalPages <= 1) return null;
  return (
    <nav class="paging" aria-label={`Pages of ${name}`}>
      <span class="quiet small number">
        Page {page} of {totalPages} · {total} in all
      </span>
      <span class="buttons">
        <Button onClick={() => onPage(page - 1)} isBusy={page <= 1}>
          Previous
        </Button>
        <Button onClick={() => onPage(page + 1)} isBusy={page >= totalPages}>
          Next
        </Button>
      </span>
    </nav>
  );
}
