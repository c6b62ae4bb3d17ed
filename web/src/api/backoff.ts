// Waits between attempts.

const FIRST_MS = 1_000;
const LONGEST_MS = 30_000;

/** The wait before attempt `attempt` (from 0), spread so that tabs do not all return at the same time. */
export function backoffMs(attempt: number, random: number): number {
  const whole = Math.min(FIRST_MS * 2 ** Math.min(attempt, 10), LONGEST_MS);
  return Math.round(whole * (0.75 + random * 0.5));
}
