/**
 * The idempotency key of a call, derived from what is called, so that a run that crashed and runs again repeats the
 * same keys and is answered with the same payments. `clients/vectors.json` holds every client to this encoding.
 */

export interface KeyParts {
  run: string;
  method: string;
  /** As sent: without a fragment. */
  url: string;
  /** SHA-256 of the body, in hex; of nothing where there is none. */
  bodySha256: string;
  /** Which of the identical calls of the run it is: 1, 2, … */
  ordinal: number;
}

/** Hex SHA-256 over the version, and then the length in bytes and the bytes of each part. */
export async function callKey({ run, method, url, bodySha256, ordinal }: KeyParts): Promise<string> {
  const parts = [run, method.toUpperCase(), url, bodySha256, String(ordinal)];
  return sha256(utf8(`purser-call-v1\n${parts.map((part) => `${utf8(part).length}:${part}\n`).join('')}`));
}

/** In hex. `crypto.subtle` is there in Node, and in browsers on pages that came over HTTPS. */
export async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

function utf8(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}

/**
 * Counts the identical calls of one run. An ordinal is used up by a call that was answered; one that failed gives it
 * back, so that whoever tries again, in whatever loop, repeats the same payment and never makes a second.
 */
export class Ordinals {
  readonly #calls = new Map<string, Numbers>();

  /** Takes the lowest number that no other such call has. */
  take(call: string): Ordinal {
    const numbers = this.#calls.get(call) ?? { spent: 0, above: new Map() };
    this.#calls.set(call, numbers);
    let number = numbers.spent + 1;
    while (numbers.above.has(number)) number += 1;
    numbers.above.set(number, 'held');
    return new Ordinal(number, numbers);
  }
}

/** All numbers up to `spent` are; what those above it are. */
interface Numbers {
  spent: number;
  above: Map<number, 'held' | 'spent'>;
}

/** The number of one call, taken until it is given back. */
export class Ordinal {
  readonly #numbers: Numbers;

  constructor(
    readonly number: number,
    numbers: Numbers,
  ) {
    this.#numbers = numbers;
  }

  /** The call ended for good: the next identical one is a purchase of its own. */
  spend(): void {
    const numbers = this.#numbers;
    if (this.number > numbers.spent) numbers.above.set(this.number, 'spent');
    for (; numbers.above.get(numbers.spent + 1) === 'spent'; numbers.spent += 1)
      numbers.above.delete(numbers.spent + 1);
  }

  /** Gives it back, unless it is spent. */
  release(): void {
    if (this.#numbers.above.get(this.number) === 'held') this.#numbers.above.delete(this.number);
  }

  /** Takes it again, for another attempt of the same call. */
  retake(): void {
    const { spent, above } = this.#numbers;
    if (this.number > spent && !above.has(this.number)) above.set(this.number, 'held');
  }
}
