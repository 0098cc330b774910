/** Reading and waiting with limits of time and size: a provider may be slow, endless or hostile. */

/** The part of `fetch` that this package uses, so that any implementation fits. */
export type Fetch = (input: Request) => Promise<Response>;

/** The error of an exchange that exceeded its time limit. */
export class TimeoutError extends Error {
  override readonly name = 'TimeoutError';
}

/** The error of a body that exceeded its size limit. */
export class TooLongError extends Error {
  override readonly name = 'TooLongError';
}

/**
 * Sends a request and passes the response to `read`, both within `milliseconds`. The caller's own signal stays in
 * effect for a body that is read later; the time limit does not.
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
  // Both raced and signalled, because an implementation of `fetch` may ignore signals.
  return within(milliseconds, answered, (over) => deadline.abort(over));
}

/** Returns the result of `work`, or throws a `TimeoutError` once the time is over. */
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
    // A rejection after the timeout has no handler and must not be reported as unhandled.
    work.catch(() => {});
  }
}

/**
 * Returns the response with a body that is limited in size and time as it is read. `ended` is called once reading ends,
 * also if the reader cancels. It converts a failure to the error that the reader gets.
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
  // Without a buffer, nothing is read ahead.
  const answer = new Response(new ReadableStream(source, { highWaterMark: 0 }), response);
  return Object.defineProperty(answer, 'url', { value: response.url });
}

/** Reads at most `limit` bytes of a body, and returns whether there was more. The rest is cancelled. */
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
 * Decodes a body by its byte order mark, or by the charset of its `Content-Type`. It is UTF-8 if it names no charset that
 * is known. If it is `strict`, bytes that are no text of the charset are an error.
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

/** Reads a complete body as text, which must be of its charset. */
export async function readText(response: Response, limit: number, milliseconds: number): Promise<string> {
  const { bytes, cut } = await readBytes(response, limit, milliseconds);
  if (cut) throw new TooLongError(`the body is longer than ${limit} bytes, or endless`);
  return decode(response, bytes, true);
}

/** Cancels a body, without waiting. */
export function discard(body: { cancel(): Promise<void> } | null): void {
  body?.cancel().catch(() => {});
}

/** Resolves after a time, or at once when the signal is aborted. The caller checks the signal. */
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
