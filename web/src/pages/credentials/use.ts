/** An action of a boundary: refused, allowed, or allowed with conditions. */
export function mayUse(isAllowed: boolean, conditions: Readonly<Record<string, unknown>>): boolean | Record<string, unknown> {
  if (!isAllowed) return false;
  const given = Object.entries(conditions).filter(([, value]) => value !== undefined);
  return given.length === 0 ? true : Object.fromEntries(given);
}
