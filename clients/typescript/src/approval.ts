/** An approval that a user has to decide. */

import type { Api } from './api.js';
import { sleep } from './bounded.js';
import { Refusal, Unreachable } from './errors.js';
import type { Approval } from './wire.js';

const FIRST_PAUSE_SECONDS = 1;
const LONGEST_PAUSE_SECONDS = 15;

export class PendingApproval {
  readonly #api: Api;

  constructor(
    api: Api,
    readonly id: string,
  ) {
    this.#api = api;
  }

  /** Returns the approval's current state. */
  status(): Promise<Approval> {
    return this.#api.approval(this.id);
  }

  /**
   * Waits until the approval is decided, but not longer than `seconds`. Returns the approval's last known state, which
   * may be `pending`, or undefined if Purser was unavailable.
   *
   * Purser delays its response until the decision. If Purser responds without a delay, the client repeats the request
   * with a growing pause, and respects `Retry-After`.
   */
  async wait(seconds: number, signal?: AbortSignal): Promise<Approval | undefined> {
    const end = Date.now() + seconds * 1000;
    let last: Approval | undefined;
    let pause = FIRST_PAUSE_SECONDS;
    for (;;) {
      let hint = 0;
      const asked = Date.now();
      try {
        last = await this.#api.approval(this.id, (end - asked) / 1000, signal);
        if (last.status !== 'pending') return last;
      } catch (error) {
        if (!isPassing(error)) throw error;
        hint = (error instanceof Refusal && error.retryAfter) || 0;
      }
      const next = Math.max(pause * 1000 - (Date.now() - asked), hint * 1000, 0);
      if (Date.now() + next > end) return last;
      await sleep(next, signal);
      signal?.throwIfAborted();
      pause = Math.min(pause * 1.5, LONGEST_PAUSE_SECONDS);
    }
  }
}

/** Returns whether the same request may succeed later, according to `retryable` or, if absent, the status. */
export function isPassing(error: unknown): boolean {
  if (!(error instanceof Refusal)) return error instanceof Unreachable;
  return error.body.retryable ?? (error.status === 429 || error.status >= 500);
}
