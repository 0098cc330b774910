/**
 * Everything that is waited for or read of others, within bounds: a provider may be slow, endless or hostile.
 */

/** The part of `fetch` that is needed, so that any implementation of it will do. */
export type Fetch = (input: Request) => Promise<Response>;

/** An exchange took longer than it may. */
export class TimeoutError extends Error {
  override readonly name = 'TimeoutError';
}

/** A body is longer than is read. */
export class TooLongError extends Error {
  override readonly name = 'TooLongError';
}

/**
 * Sends a request and does with the response what `read` does, both within `milliseconds`. The caller's own signal goes
 * on holding for a body that is read later; the time does not.
 */
export async function exchange<T>(
  fetch: Fetch,
  request: Request,
  milliseconds: number,
  read: (response: Response) => Promise<T> | T,
): Promise<T> {
  const deadline = new AbortController();
  const signal = AbortSignal.any([request.signal, deadline.signal]);
  const answered = (async () => read(await fetch(new Request(request, { signal }))))();
  // Raced as well as signalled: an implementation of `fetch` may not listen to signals.
  return within(milliseconds, answered, (over) => deadline.abort(over));
}

/** What `work` comes to, or a `TimeoutError` once its time is over. */
async function within<T>(milliseconds: number, work: Promise<T>, giveUp: (over: TimeoutError) => void): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const expired = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      const over = new TimeoutError('it took longer than it may');
      reject(over);
      giveUp(over);
    }, milliseconds);
  });
  try {
    return await Promise.race([work, expired]);
  } finally {
    clearTimeout(timer);
    // If it lost the race, it has nobody left to tell.
    work.catch(() => {});
  }
}

/**
 * A response whose body is handed on as it is read, while it is within its bounds. `ended` hears how that ended, the
 * caller's wish to read no more included, and makes of a failure the error that its reader gets.
 */
export function boundedResponse(
  response: Response,
  most: { bytes: number; milliseconds: number },
  ended: (failure?: unknown) => unknown,
): Response {
  const reader = response.body?.getReader();
  if (!reader) {
    ended();
    return response;
  }
  const end = Date.now() + most.milliseconds;
  let length = 0;
  const source: UnderlyingDefaultSource<Uint8Array> = {
    async pull(controller) {
      try {
        const { done, value } = await within(end - Date.now(), reader.read(), () => {});
        length += value?.length ?? 0;
        if (length > most.bytes) throw new TooLongError(`the body is longer than ${most.bytes} bytes`);
        if (value) controller.enqueue(value);
        if (done) {
          ended();
          controller.close();
        }
      } catch (failure) {
        discard(reader);
        controller.error(ended(failure));
      }
    },
    cancel(reason) {
      ended();
      return reader.cancel(reason);
    },
  };
  // Nothing is read ahead.
  const answer = new Response(new ReadableStream(source, { highWaterMark: 0 }), response);
  return Object.defineProperty(answer, 'url', { value: response.url });
}

/** The first bytes of a body, and whether there was more. What is not read within the bounds is not asked for. */
export async function readBytes(
  response: Response,
  limit: number,
  milliseconds: number,
): Promise<{ bytes: Uint8Array; cut: boolean }> {
  const reader = response.body?.getReader();
  if (!reader) return { bytes: new Uint8Array(), cut: false };
  const parts: Uint8Array[] = [];
  let length = 0;
  let cut = false;
  const timer = setTimeout(() => {
    cut = true;
    discard(reader);
  }, milliseconds);
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      parts.push(next.value.subarray(0, limit - length));
      length += next.value.length;
      if (length <= limit) continue;
      cut = true;
      discard(reader);
      break;
    }
  } finally {
    clearTimeout(timer);
  }
  const bytes = new Uint8Array(Math.min(length, limit));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return { bytes, cut };
}

/** The whole body as text, strictly UTF-8. */
export async function readText(response: Response, limit: number, milliseconds: number): Promise<string> {
  const { bytes, cut } = await readBytes(response, limit, milliseconds);
  if (cut) throw new TooLongError(`the body is longer than ${limit} bytes, or endless`);
  return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
}

/** Ends a body that nobody reads, and does not wait for its end. */
export function discard(body: { cancel(): Promise<void> } | null): void {
  body?.cancel().catch(() => {});
}

/** Resolves after a time, or at once when the signal is raised: ask it then. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const timer = setTimeout(end, milliseconds);
    signal?.addEventListener('abort', end, { once: true });
    function end(): void {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    }
  });
}
