// Search in the rows of a terminal. A line that is wrapped over several rows is one text.

/**
 * All places of a text, from the top, independent of case: the row and column of the start, and the
 * number of cells.
 */
export function placesOf(buffer, columns, needle) {
  const wanted = needle.toLowerCase();
  const places = [];
  if (!wanted) return places;
  for (let row = 0; row < buffer.length; ) {
    const count = rowsOfLine(buffer, row);
    // Most lines do not have the text, and cells are slow to read.
    if (roughText(buffer, row, count, columns).includes(wanted)) {
      // One by one: a call has a limit for its arguments.
      for (const place of inLine(buffer, row, count, columns, wanted)) places.push(place);
    }
    row += count;
  }
  return places;
}

/**
 * The index of the place after (`by` 1) or before (`by` -1) a selection; without one, of the first
 * or the last. The search starts again at the other end.
 */
export function neighbour(places, selected, by) {
  const last = places.length - 1;
  if (!selected) return by > 0 ? 0 : last;
  const { x, y } = selected;
  const order = ({ row, column }) => row - y || column - x;
  if (by > 0) {
    const next = places.findIndex((place) => order(place) > 0);
    return next < 0 ? 0 : next;
  }
  const before = places.findLastIndex((place) => order(place) < 0);
  return before < 0 ? last : before;
}

/** Number of rows of the line that starts at a row. */
function rowsOfLine(buffer, row) {
  let count = 1;
  while (count < MAX_ROWS && buffer.getLine(row + count)?.isWrapped) count += 1;
  return count;
}

function roughText(buffer, row, count, columns) {
  let text = "";
  for (let at = row; at < row + count; at += 1) {
    const used = at + 1 < row + count ? usedColumns(buffer, at, columns) : columns;
    text += buffer.getLine(at)?.translateToString(false, 0, used) ?? "";
  }
  return text.toLowerCase();
}

/** Columns of a row that continues. The last one is empty before a wide character on the next row. */
function usedColumns(buffer, row, columns) {
  const isEmpty = buffer.getLine(row)?.getCell(columns - 1)?.getChars() === "";
  const isBeforeWide = isEmpty && buffer.getLine(row + 1)?.getCell(0)?.getWidth() === 2;
  const isHalf = buffer.getLine(row)?.getCell(columns - 1)?.getWidth() === 0;
  return isBeforeWide && !isHalf ? columns - 1 : columns;
}

function inLine(buffer, row, count, columns, wanted) {
  const { text, cells } = exactText(buffer, row, count, columns);
  const places = [];
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
    const [begin] = cells[at];
    const [last, width] = cells[at + wanted.length - 1];
    places.push({
      row: row + Math.floor(begin / columns),
      column: begin % columns,
      length: last + width - begin,
    });
  }
  return places;
}

/** The text of a line, and the cell and width of each of its characters. */
function exactText(buffer, row, count, columns) {
  let text = "";
  const cells = [];
  for (let at = 0; at < count; at += 1) {
    const line = buffer.getLine(row + at);
    const used = at + 1 < count ? usedColumns(buffer, row + at, columns) : columns;
    for (let column = 0; column < used; column += 1) {
      const cell = line?.getCell(column);
      const width = cell?.getWidth() ?? 1;
      // The second cell of a wide character.
      if (width === 0) continue;
      const characters = (cell?.getChars() || " ").toLowerCase();
      text += characters;
      for (let unit = 0; unit < characters.length; unit += 1) cells.push([at * columns + column, width]);
    }
  }
  return { text, cells };
}

/** Maximum rows of a line that are one text. */
const MAX_ROWS = 200;
