/** Labels from lines of `name=value`. Empty lines are ignored; the server checks the rest. */
export function parseLabels(text: string): Record<string, string> {
  const labels: [string, string][] = [];
  for (const line of text.split("\n")) {
    const trimmed = line.trim();
    if (trimmed === "") continue;
    const split = trimmed.indexOf("=");
    labels.push(split < 0 ? [trimmed, ""] : [trimmed.slice(0, split).trim(), trimmed.slice(split + 1).trim()]);
  }
  return Object.fromEntries(labels);
}

export function formatLabels(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}=${value}`)
    .join("\n");
}

/** The parts of a list that a person typed with commas, spaces or lines. */
export function parseList(text: string): string[] {
  return text.split(/[\s,]+/).filter((part) => part !== "");
}
