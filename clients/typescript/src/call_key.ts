/**
 * The idempotency key of a call, derived from the call. A run that crashed and is repeated derives the same keys and so
 * gets the same payments. `clients/vectors.json` tests this encoding in every client.
 */

export interface KeyParts {
  run: string;
  method: string;
  /** The URL as sent, without a fragment. */
  url: string;
  /** The SHA-256 of the body in hex; of zero bytes if there is no body. */
  bodySha256: string;
  /** The number of this call among the run's identical calls, from 1. */
  ordinal: number;
}

/** Derives the key: the SHA-256, in hex, of a version line and of each part with its length in bytes. */
export async function callKey({ run, method, url, bodySha256, ordinal }: KeyParts): Promise<string> {
  const parts = [run, method.toUpperCase(), url, bodySha256, String(ordinal)];
  return sha256(utf8(`purser-call-v1\n${parts.map((part) => `${utf8(part).length}:${part}\n`).join('')}`));
}

/** Returns the hash in hex. `crypto.subtle` exists in Node, and in browsers on pages that were loaded over HTTPS. */
export async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

function utf8(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}

/**
 * The ordinals of a run's identical calls. An answered call uses up its ordinal. A failed call releases it, so that a
 * retry repeats the same payment and never makes a second one. Each ordinal is held by at most one purchase at a time.
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

/** The ordinals of one call. All up to `spent` are spent; `above` has the others, each with its holder. */
interface Numbers {
  spent: number;
  above: Map<number, Purchase | 'spent'>;
}

/** A purchase, with the number of its attempts that reserve its ordinal. */
interface Purchase {
  attempts: number;
}

/** The ordinal of one attempt of a purchase, which is reserved until it is released. */
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

  /** Marks the ordinal as used up. The next identical call is a separate purchase. */
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

  /** Reserves the same ordinal for another attempt. Returns undefined if another purchase holds it. */
  retake(): Ordinal | undefined {
    const holder = this.#numbers.above.get(this.number);
    const isFree = holder === undefined || holder === this.#purchase || this.#isSpent();
    return isFree ? new Ordinal(this.number, this.#numbers, this.#purchase) : undefined;
  }

  #isSpent(): boolean {
    return this.number <= this.#numbers.spent || this.#numbers.above.get(this.number) === 'spent';
  }
}
