/**
 * Derives the idempotency key of a call. A run that crashed and is repeated derives the same keys, and therefore gets
 * the same payments. All clients test the encoding with `clients/vectors.json`.
 */

export interface KeyParts {
  run: string;
  method: string;
  /** The URL as it is sent, without a fragment. */
  url: string;
  /** The SHA-256 hash of the body in hexadecimal. Without a body, the hash of zero bytes. */
  bodySha256: string;
  /** The ordinal of this call among the run's identical calls. Ordinals start at 1. */
  ordinal: number;
}

/** Derives the key: the SHA-256 hash, in hexadecimal, of a version line and of each part with its length in bytes. */
export async function callKey({ run, method, url, bodySha256, ordinal }: KeyParts): Promise<string> {
  const parts = [run, method.toUpperCase(), url, bodySha256, String(ordinal)];
  return sha256(utf8(`purser-call-v1\n${parts.map((part) => `${utf8(part).length}:${part}\n`).join('')}`));
}

/** Returns the SHA-256 hash in hexadecimal. In browsers, `crypto.subtle` exists only on pages loaded over HTTPS. */
export async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

function utf8(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}

/**
 * The ordinals of a run's identical calls. A successful call marks its ordinal as spent. A failed call releases its
 * ordinal, so that a retry uses the same payment. At most one purchase at a time reserves an ordinal.
 */
export class Ordinals {
  readonly #calls = new Map<string, Numbers>();

  /** Reserves the lowest free ordinal of this call. */
  take(call: string): Ordinal {
    const numbers = this.#calls.get(call) ?? { spent: 0, above: new Map() };
    this.#calls.set(call, numbers);
    let number = numbers.spent + 1;
    while (numbers.above.has(number)) number += 1;
    return new Ordinal(number, numbers, { attempts: 0 });
  }
}

/** The ordinals of one call. All ordinals up to `spent` are spent. `above` has the states of the higher ordinals. */
interface Numbers {
  spent: number;
  above: Map<number, Purchase | 'spent'>;
}

/** A purchase, with the number of current attempts that reserve the ordinal. */
interface Purchase {
  attempts: number;
}

/** The ordinal of one attempt of a purchase. The ordinal stays reserved until `release` or `spend` is called. */
export class Ordinal {
  readonly #numbers: Numbers;
  readonly #purchase: Purchase;
  #isHeld = false;

  constructor(
    readonly number: number,
    numbers: Numbers,
    purchase: Purchase,
  ) {
    this.#numbers = numbers;
    this.#purchase = purchase;
    if (this.#isSpent()) return;
    numbers.above.set(number, purchase);
    purchase.attempts += 1;
    this.#isHeld = true;
  }

  /** Marks the ordinal as spent, so that the next identical call is a separate purchase. */
  spend(): void {
    const numbers = this.#numbers;
    if (this.number > numbers.spent) numbers.above.set(this.number, 'spent');
    for (; numbers.above.get(numbers.spent + 1) === 'spent'; numbers.spent += 1)
      numbers.above.delete(numbers.spent + 1);
  }

  /** Ends this attempt's reservation. */
  release(): void {
    if (!this.#isHeld) return;
    this.#isHeld = false;
    this.#purchase.attempts -= 1;
    const { above } = this.#numbers;
    if (this.#purchase.attempts === 0 && above.get(this.number) === this.#purchase) above.delete(this.number);
  }

  /** Reserves the same ordinal for another attempt. Returns undefined if another purchase has reserved it. */
  retake(): Ordinal | undefined {
    const holder = this.#numbers.above.get(this.number);
    const isFree = holder === undefined || holder === this.#purchase || this.#isSpent();
    return isFree ? new Ordinal(this.number, this.#numbers, this.#purchase) : undefined;
  }

  #isSpent(): boolean {
    return this.number <= this.#numbers.spent || this.#numbers.above.get(this.number) === 'spent';
  }
}
