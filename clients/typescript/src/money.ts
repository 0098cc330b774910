/** Amounts: decimal USD for people, whole micro-units for Purser. */

/** Decimal USD as text, such as `"0.02"`, or whole micro-units, such as `20000`. A number is always micro-units. */
export type Amount = string | number | bigint;

/** The largest integer that every JSON parser represents exactly. */
const MAX = BigInt(Number.MAX_SAFE_INTEGER);

/** Converts an amount to micro-units. Returns undefined for anything else. */
export function unitsOf(amount: unknown): number | undefined {
  const units = exactUnits(amount);
  return units !== undefined && units >= 0n && units <= MAX ? Number(units) : undefined;
}

function exactUnits(amount: unknown): bigint | undefined {
  if (typeof amount === 'bigint') return amount;
  if (typeof amount === 'number') return Number.isSafeInteger(amount) ? BigInt(amount) : undefined;
  const match = typeof amount === 'string' ? /^([0-9]{1,10})(?:\.([0-9]{1,6}))?$/.exec(amount) : null;
  return match ? BigInt(`${match[1]}${(match[2] ?? '').padEnd(6, '0')}`) : undefined;
}
