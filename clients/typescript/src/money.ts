/** Amounts in decimal USD (for humans) and in micro-USDC (for Purser). */

/** Decimal USD as a string, for example `"0.02"`, or micro-USDC as a number or bigint, for example `20000`. */
export type Amount = string | number | bigint;

/** The largest integer that every JSON parser represents exactly. */
const MAX = BigInt(Number.MAX_SAFE_INTEGER);

/** Converts an amount to micro-USDC. Returns undefined if the value is not an amount. */
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
