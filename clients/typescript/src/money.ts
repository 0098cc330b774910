/** Amounts: USD in decimal text for people, whole micro-units for Purser. */

/** USD as decimal text, `"0.02"`, or whole micro-units, `20000`. A number is never dollars. */
export type Amount = string | number | bigint;

/** The largest amount that every JSON reader keeps exact. */
const MOST = BigInt(Number.MAX_SAFE_INTEGER);

/** In micro-units; undefined if it is no amount. */
export function unitsOf(amount: unknown): number | undefined {
  const units = exactUnits(amount);
  return units !== undefined && units >= 0n && units <= MOST ? Number(units) : undefined;
}

function exactUnits(amount: unknown): bigint | undefined {
  if (typeof amount === 'bigint') return amount;
  if (typeof amount === 'number') return Number.isSafeInteger(amount) ? BigInt(amount) : undefined;
  const match = typeof amount === 'string' ? /^([0-9]{1,10})(?:\.([0-9]{1,6}))?$/.exec(amount) : null;
  return match ? BigInt(`${match[1]}${(match[2] ?? '').padEnd(6, '0')}`) : undefined;
}
