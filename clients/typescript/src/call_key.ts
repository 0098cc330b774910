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
 * retry repeats the same payment and never makes a second one.
 */
export class Ordinals {
  readonly #calls = new Map<string, Numbers>();

  /** Reserves the lowest free ordinal of this call. */
  take(call: string): Ordinal {
    const numbers = this.#calls.get(call) ?? { spent: 0, above: new Map() };
    this.#calls.set(call, numbers);
    let number = numbers.spent + 1;
    while (numbers.above.has(number)) number += 1;
    numbers.above.set(number, 'held');
    return new Ordinal(number, numbers);
  }
}

/** The ordinals of one call. All up to `spent` are spent; `above` has the state of the others. */
interface Numbers {
  spent: number;
  above: Map<number, 'held' | 'spent'>;
}

/** The ordinal of one call, which is reserved until it is released. */
export class Ordinal {
  readonly #numbers: Numbers;

  constructor(
    readonly number: number,
    numbers: Numbers,
  ) {
    this.#numbers = numbers;
  }

  /** Marks the ordinal as used up. The next identical call is a separate purchase. */
  spend(): void {
    const numbers = this.#numbers;
    if (this.number > numbers.spent) numbers.above.set(this.number, 'spent');
    for (; numbers.above.get(numbers.spent + 1) === 'spent'; numbers.spent += 1)
      numbers.above.delete(numbers.spent + 1);
  }

  /** Releases the ordinal, unless it is spent. */
  release(): void {
    if (this.#numbers.above.get(this.number) === 'held') this.#numbers.above.delete(this.number);
  }

  /** Reserves the same ordinal again, for another attempt of the call. */
  retake(): void {
    const { spent, above } = this.#numbers;
    if (this.number > spent && !above.has(this.number)) above.set(this.number, 'held');
  }
}
