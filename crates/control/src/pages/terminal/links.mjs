// Addresses in the output of a program, as links.

/** Adds links to a terminal: each http and https address in its text. `open` gets the address. */
export function linkAddresses(terminal, open) {
  terminal.registerLinkProvider({
    provideLinks(row, found) {
      const { text, from } = lineAt(terminal.buffer.active, row - 1);
      const { cols } = terminal;
      const place = (at) => ({ x: (at % cols) + 1, y: from + Math.floor(at / cols) + 1 });
      const links = addresses(text).map(({ address, at }) => ({
        text: address,
        range: { start: place(at), end: place(at + address.length - 1) },
        activate: (_, text) => open(text),
      }));
      found(links.length ? links : undefined);
    },
  });
}

/** The addresses in a text, each with its position. */
export function addresses(text) {
  return [...text.matchAll(ADDRESS)].map(({ 0: found, index: at }) => {
    let address = found.replace(/[.,;:!?'"]+$/, "");
    // A closing bracket belongs to the sentence, unless it was opened in the address.
    while (address.endsWith(")") && count(address, "(") < count(address, ")")) {
      address = address.slice(0, -1).replace(/[.,;:!?'"]+$/, "");
    }
    return { address, at };
  });
}

/** The text of a line that may be wrapped over several rows, and its first row. */
function lineAt(buffer, row) {
  let from = row;
  while (from > 0 && row - from < MAX_ROWS && buffer.getLine(from)?.isWrapped) from -= 1;
  let text = "";
  for (let at = from; at < from + MAX_ROWS; at += 1) {
    const line = buffer.getLine(at);
    if (!line || (at > from && !line.isWrapped)) break;
    // One character for each column, so that positions are columns.
    for (let column = 0; column < line.length; column += 1) {
      const [character] = line.getCell(column).getChars();
      text += character?.length === 1 ? character : " ";
    }
  }
  return { text, from };
}

const count = (text, character) => text.split(character).length - 1;

const ADDRESS = /https?:\/\/[^\s<>"'`{}|\\^]{1,2000}/g;

/** Maximum rows of a line that are searched. */
const MAX_ROWS = 30;
