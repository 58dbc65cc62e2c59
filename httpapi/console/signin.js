// Signing in and out. The browser keeps a session in a cookie that no script can read, so this page knows who is signed in by
// asking the daemon alone.

import { byId } from './dom.js';

let me = { signed_in: false };
let asking = null;
let declined = false; // nobody is asked again by what happens without them

/** identity is who is signed in, as far as the page knows: see GET /v1/session. */
export const identity = () => me;

async function session(method, body) {
  try {
    const response = await fetch('v1/session', { method, cache: 'no-store', credentials: 'same-origin', redirect: 'error', signal: AbortSignal.timeout(10_000),
      ...(body && { headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) }) });
    const answer = await response.json();
    return response.ok ? { now: answer } : { fault: answer.detail ?? response.statusText };
  } catch {
    return { fault: 'The daemon does not answer.' };
  }
}

function take(now) {
  me = now;
  byId('who').textContent = me.signed_in ? `${me.name || 'signed in'} (${me.scope})` : '';
  byId('sign-in').hidden = me.by === 'session';
  byId('sign-out').hidden = me.by !== 'session';
}

/** whoAmI asks the daemon who is signed in. */
export async function whoAmI() {
  const { now } = await session('GET');
  if (now) take(now);
  return me;
}

async function signOut() {
  const { now } = await session('DELETE');
  if (now) location.reload(); // so that nothing is left on the page
}

/** mayAsk reports whether somebody is to be asked to sign in who has not asked for it. */
export const mayAsk = () => !declined;

/** askToken shows the dialog; it is true if somebody has signed in. */
export function askToken(why) {
  asking ??= new Promise((settle) => {
    const dialog = byId('token-dialog');
    byId('token-why').textContent = why;
    byId('token-fault').textContent = '';
    byId('token-text').value = '';
    byId('sign-in').hidden = true; // the dialog has a button of that name
    const close = (changed) => {
      asking = null;
      byId('sign-in').hidden = me.by === 'session';
      declined = !changed;
      dialog.close();
      settle(changed);
    };
    byId('token-form').onsubmit = async (event) => {
      event.preventDefault();
      const token = byId('token-text').value.trim();
      byId('token-text').value = '';
      if (!token) return;
      const { now, fault } = await session('POST', { token });
      if (fault) {
        byId('token-fault').textContent = fault;
        byId('token-text').focus();
        return;
      }
      take(now);
      close(true);
      document.dispatchEvent(new Event('token'));
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

/** listenToSignIn makes the buttons work, and shows who is signed in. */
export function listenToSignIn() {
  sessionStorage.removeItem('blockd-token'); // which earlier versions kept there
  byId('sign-in').addEventListener('click', () => askToken('To change something wants a token of scope write.'));
  byId('sign-out').addEventListener('click', signOut);
  return whoAmI();
}
