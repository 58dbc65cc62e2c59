// The page's way to the daemon: requests with the token, which never stands in an
// address, and the stream of events.

import { byId } from './dom.js';

const place = 'blockd-token';

/** Refusal is an answer other than 2xx, or none at all (status 0). */
export class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const hasToken = () => sessionStorage.getItem(place) !== null;

function headers(more = {}) {
  const token = sessionStorage.getItem(place);
  return token === null ? more : { ...more, Authorization: `Bearer ${token}` };
}

// The referrer policy of the page is no-referrer, under which only requests of mode
// "cors", the default, say their own origin when they write.
async function send(method, path, body, signal) {
  const init = { method, signal, cache: 'no-store', credentials: 'omit', redirect: 'error', headers: headers() };
  if (body !== undefined) {
    init.headers = headers({ 'Content-Type': 'application/json' });
    init.body = JSON.stringify(body);
  }
  try {
    return await fetch(path, init);
  } catch (fault) {
    if (fault.name === 'AbortError') throw fault;
    throw new Refusal(0, 'The daemon does not answer.');
  }
}

async function refusal(response) {
  let detail = response.statusText;
  try {
    detail = (await response.json()).detail ?? detail;
  } catch { /* no problem+json: a proxy between */ }
  return new Refusal(response.status, detail);
}

/** read asks for JSON. Who is to have a token is asked for it once. */
export async function read(path, signal) {
  const response = await send('GET', path, undefined, signal);
  if (response.ok) return response.json();
  const fault = await refusal(response);
  const why = hasToken() ? 'This token is not known, or was revoked.' : 'This daemon shows senders and recipients to holders of a token alone.';
  if (fault.status === 401 && !declined && await askToken(why)) return read(path, signal);
  throw fault;
}

/** save puts an answer into a file of the browser. A link alone would have no token. */
export async function save(path, name) {
  const response = await send('GET', path);
  if (!response.ok) throw await refusal(response);
  const link = document.createElement('a');
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** write changes something, and asks for a token that may. */
export async function write(method, path, body) {
  const response = await send(method, path, body);
  if (response.ok) {
    document.dispatchEvent(new Event('changed'));
    return response.json();
  }
  const fault = await refusal(response);
  if ((fault.status === 401 || fault.status === 403) && await askToken(fault.message)) return write(method, path, body);
  throw fault;
}

let declined = false; // nobody is asked again by what happens without them
let asking = null;

/** askToken shows the dialog; it is true if there is another token afterwards. */
export function askToken(why) {
  asking ??= new Promise((settle) => {
    const dialog = byId('token-dialog');
    byId('token-why').textContent = why;
    byId('token-forget').hidden = !hasToken();
    byId('token-text').value = '';
    const close = (changed) => {
      asking = null;
      declined = !changed;
      dialog.close();
      settle(changed);
    };
    byId('token-form').onsubmit = (event) => {
      event.preventDefault();
      const text = byId('token-text').value.trim();
      byId('token-text').value = '';
      if (/^[!-~]+$/.test(text)) {
        sessionStorage.setItem(place, text);
        close(true);
        document.dispatchEvent(new Event('token'));
      }
    };
    byId('token-forget').onclick = () => {
      sessionStorage.removeItem(place);
      close(false);
    };
    byId('token-cancel').onclick = () => close(false);
    dialog.oncancel = (event) => {
      event.preventDefault();
      close(false);
    };
    dialog.showModal();
  });
  return asking;
}

/**
 * events reads a stream of server-sent events: {name, data}, with data parsed. An
 * EventSource would do, but for the token, which it can send in an address alone.
 */
export async function* events(path) {
  const response = await send('GET', path);
  if (!response.ok) throw await refusal(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (text + value).split('\n\n');
    text = blocks.pop();
    for (const block of blocks) {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(block) ?? [];
      if (name) yield { name, data: JSON.parse(data) };
    }
  }
}
