/** An approval that a person has to decide. */

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
   * Waits until the approval is decided, at most for `seconds`. Returns its last known state, which may be `pending`,
   * or undefined if Purser could not be asked.
   *
   * Purser does the waiting. If it answers at once, the request is repeated with a growing pause that respects
   * `Retry-After`.
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

/** Returns whether the same request may succeed later. The member `retryable` decides; without it, the status does. */
export function isPassing(error: unknown): boolean {
  if (!(error instanceof Refusal)) return error instanceof Unreachable;
  return error.body.retryable ?? (error.status === 429 || error.status >= 500);
}
