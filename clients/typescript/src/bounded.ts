/** Reads responses with time and size limits, because a provider may be slow, hostile or send an endless body. */

/** The part of the `fetch` interface that this package uses. Other implementations of `fetch` can be passed. */
export type Fetch = (input: Request) => Promise<Response>;

/** The error if a request or a response exceeds the time limit. */
export class TimeoutError extends Error {
  override readonly name = 'TimeoutError';
}

/** The error if a body exceeds the size limit. */
export class TooLongError extends Error {
  override readonly name = 'TooLongError';
}

/**
 * Sends a request and passes the response to `read`. Both together must take at most `milliseconds`. If the body is
 * read later, the caller's own signal still applies, but the time limit does not.
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
  // The timeout both aborts the signal and ends the wait, because an implementation of `fetch` may ignore signals.
  return within(milliseconds, answered, (over) => deadline.abort(over));
}

/** Returns the result of `work`, or throws a `TimeoutError` after `milliseconds`. */
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
    // Without this handler, a rejection after the timeout would be reported as an unhandled rejection.
    work.catch(() => {});
  }
}

/**
 * Returns the response with a body that enforces a size limit and a time limit while it is read. `ended` is called when
 * reading ends or is cancelled, and converts a failure to the error that the reader gets.
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
  // The stream has no buffer, so that nothing is read before the reader requests it.
  const answer = new Response(new ReadableStream(source, { highWaterMark: 0 }), response);
  return Object.defineProperty(answer, 'url', { value: response.url });
}

/** Reads at most `limit` bytes of a body, cancels the rest, and returns whether the body was longer. */
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

/**
 * Decodes a body as text. The charset comes from the byte order mark or from `Content-Type`. The default is UTF-8. If
 * `strict`, the function throws on bytes that are invalid in the charset.
 */
export function decode(response: Response, bytes: Uint8Array, strict: boolean): string {
  const [first, second] = bytes;
  const mark = first === 0xff && second === 0xfe ? 'utf-16le' : first === 0xfe && second === 0xff ? 'utf-16be' : null;
  const isMarked = mark !== null || (first === 0xef && second === 0xbb && bytes[2] === 0xbf);
  const named = /;\s*charset\s*=\s*"?([^\s";]+)/i.exec(response.headers.get('Content-Type') ?? '')?.[1];
  return decoder(mark ?? (isMarked ? 'utf-8' : (named ?? 'utf-8')), strict).decode(bytes);
}

function decoder(label: string, fatal: boolean): TextDecoder {
  try {
    return new TextDecoder(label, { fatal });
  } catch {
    return new TextDecoder('utf-8', { fatal });
  }
}

/** Reads a complete body as text. Throws on bytes that are invalid in the body's charset. */
export async function readText(response: Response, limit: number, milliseconds: number): Promise<string> {
  const { bytes, cut } = await readBytes(response, limit, milliseconds);
  if (cut) throw new TooLongError(`the body is longer than ${limit} bytes, or endless`);
  return decode(response, bytes, true);
}

/** Cancels a body without waiting for the result. */
export function discard(body: { cancel(): Promise<void> } | null): void {
  body?.cancel().catch(() => {});
}

/** Resolves after a time, or immediately if the signal is aborted. The caller has to check the signal. */
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
