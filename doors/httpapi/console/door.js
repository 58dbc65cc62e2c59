// The page's way to the daemon: requests with the cookie of who has signed in, each with a deadline, and the stream of events.

import { askToken, identity, mayAsk } from './signin.js';
import { heard } from './pulse.js';

// ms until a request has failed. A change may wait for a disk, or for a build of the lists.
const deadlines = { GET: 10_000, POST: 60_000, DELETE: 60_000 };
const quiet = 10_000; // ms without an event, of which one comes every two seconds, after which a stream is dead

/** Refusal is an answer other than 2xx, or none at all (status 0). */
export class Refusal extends Error {
  constructor(status, detail, answer = {}) {
    super(detail);
    this.status = status;
    this.answer = answer; // its problem+json, as far as there is one
  }
}

const silence = (ms) => new Refusal(0, `The daemon has not answered for ${ms / 1000} s.`);

// wait gives what comes of a request, or of its body. What the caller ends stays an AbortError.
async function wait(what, ms) {
  try {
    return await what();
  } catch (fault) {
    if (fault.name === 'AbortError' || fault instanceof Refusal) throw fault;
    throw fault.name === 'TimeoutError' ? silence(ms) : new Refusal(0, 'The daemon does not answer.');
  }
}

// The referrer policy of the page is no-referrer, under which only requests of mode
// "cors", the default, say their own origin when they write.
async function send(method, path, { body, type = 'application/json', signal, tag, ms = deadlines[method] } = {}) {
  const end = AbortSignal.timeout(ms);
  const headers = { ...(body !== undefined && { 'Content-Type': type }), ...(tag && { 'If-None-Match': tag }) };
  const init = { method, body, headers, signal: signal ? AbortSignal.any([signal, end]) : end, cache: 'no-store', credentials: 'same-origin', redirect: 'error' };
  const response = await wait(() => fetch(path, init), ms);
  heard();
  return response;
}

async function refusal(response) {
  let answer = {};
  try {
    answer = await response.json();
  } catch { /* no problem+json: a proxy between */ }
  return new Refusal(response.status, answer.detail ?? (response.statusText || `The answer is ${response.status}.`), answer);
}

// Answers that may be asked for again, by path: the daemon says in short that one is as it was. The browser's
// own cache would write them to its disk.
const kept = new Map();
const most = 24;
document.addEventListener('token', () => kept.clear());

function keep(path, tag, answer) {
  kept.delete(path);
  if (tag) kept.set(path, { tag, answer });
  if (kept.size > most) kept.delete(kept.keys().next().value);
}

/** read asks for JSON, which its callers leave as it is. Who is to sign in is asked to once. ms: its deadline, if not the usual one. */
export async function read(path, signal, ms) {
  const had = kept.get(path);
  const response = await send('GET', path, { signal, tag: had?.tag, ms });
  if (response.status === 304 && had) return had.answer;
  if (response.ok) {
    const answer = await wait(() => response.json(), ms ?? deadlines.GET);
    keep(path, response.headers.get('ETag'), answer);
    return answer;
  }
  const fault = await refusal(response);
  const why = identity().signed_in ? 'You are signed out: the session has ended, or its token was revoked.' : 'This daemon shows senders and recipients to holders of a token alone.';
  if (fault.status === 401 && mayAsk() && await askToken(why)) return read(path, signal, ms);
  throw fault;
}

/** save puts an answer into a file of the browser. A link alone would have no token. */
export async function save(path, name) {
  const response = await send('GET', path, { ms: 600_000 });
  if (!response.ok) throw await refusal(response);
  const link = document.createElement('a');
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

async function attempt(method, path, init) {
  const response = await send(method, path, init);
  if (response.ok) return wait(() => response.json(), deadlines[method]);
  const fault = await refusal(response);
  if ((fault.status === 401 || fault.status === 403) && await askToken(fault.message)) return attempt(method, path, init);
  throw fault;
}

/** write changes something, and asks for a token that may. */
export async function write(method, path, body) {
  const answer = await attempt(method, path, { body: body === undefined ? undefined : JSON.stringify(body) });
  if (method !== 'GET') document.dispatchEvent(new Event('changed'));
  return answer;
}

/** put asks about a text, which changes nothing. */
export const put = (path, text, type) => attempt('POST', path, { body: text, type });

/**
 * events reads a stream of server-sent events: {name, data}, with data parsed. An
 * EventSource would do, but for the token, which it can send in an address alone.
 */
export async function* events(path, signal) {
  const ended = new AbortController();
  let timer = setTimeout(() => ended.abort(), quiet);
  const response = await send('GET', path, { signal: AbortSignal.any([signal, ended.signal]), ms: 2 ** 31 - 1 });
  if (!response.ok) throw await refusal(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      clearTimeout(timer);
      timer = setTimeout(() => ended.abort(), quiet);
      const blocks = (text + value).split('\n\n');
      text = blocks.pop();
      for (const block of blocks) {
        const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(block) ?? [];
        if (name) yield { name, data: JSON.parse(data) };
      }
    }
  } finally {
    clearTimeout(timer);
    ended.abort();
  }
}
