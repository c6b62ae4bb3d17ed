// The search of the command palette.

export interface Command {
  readonly text: string;
  readonly kind: string;
  readonly href: string;
}

/** Results that are shown. */
const MAX_FOUND = 50;

/** The commands that contain every word of `text`, the best first: its start, then the start of a word. */
export function find(commands: readonly Command[], text: string): readonly Command[] {
  const words = text.toLowerCase().split(/\s+/).filter((word) => word !== "");
  if (words.length === 0) return commands.slice(0, MAX_FOUND);
  const found: { command: Command; score: number; index: number }[] = [];
  for (const [index, command] of commands.entries()) {
    const name = command.text.toLowerCase();
    const all = `${name} ${command.kind.toLowerCase()}`;
    let score = 0;
    for (const word of words) {
      const at = all.indexOf(word);
      if (at < 0) {
        score = -1;
        break;
      }
      score += at === 0 ? 4 : /[\s._-]/.test(all[at - 1] ?? "") ? 2 : 1;
      if (at < name.length) score += 2;
      // A name before longer ones that start with it.
      if (/^([\s._-]|$)/.test(all.slice(at + word.length))) score += 1;
    }
    if (score > 0) found.push({ command, score, index });
  }
  found.sort((one, other) => other.score - one.score || one.index - other.index);
  return found.slice(0, MAX_FOUND).map(({ command }) => command);
}
