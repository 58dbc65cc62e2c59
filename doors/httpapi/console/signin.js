// Signing in and out. The browser keeps a session in a cookie that no script can read, so this page knows who is signed in by
// asking the daemon alone.

import { byId, html, show } from './dom.js';

let me = { signed_in: false };
let asking = null;
let declined = false; // nobody is asked again by what happens without them

/** identity is who is signed in, as far as the page knows: see GET /v1/session. */
export const identity = () => me;

async function session(method, body) {
  try {
    const response = await fetch('v1/session', { method, cache: 'no-store', credentials: 'same-origin', redirect: 'error', signal: AbortSignal.timeout(method === 'GET' ? 5_000 : 20_000),
      ...(body && { headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) }) });
    const answer = await response.json();
    return response.ok ? { now: answer } : { fault: answer.detail ?? response.statusText };
  } catch {
    return { fault: 'The daemon does not answer.' };
  }
}

// What the daemon says behind #sign-in= when the identity provider has sent the browser back in vain.
const reasons = {
  away: 'The identity provider does not answer. Sign in with a token, or try again later.',
  busy: 'Many people sign in at this moment. Try again in a minute.',
  stale: 'The sign-in took too long, or was begun in another browser. Try again.',
  denied: 'The identity provider did not sign you in.',
  'no-rights': 'You are known to the identity provider, but nothing there gives you rights here. Ask who runs this server.',
};

const place = 'blockd-view'; // of the view that somebody comes back to, while they sign in elsewhere

function take(now) {
  me = now;
  byId('provider-part').hidden = !me.provider;
  byId('provider').href = 'v1/session/provider';
  byId('provider').textContent = `Sign in with ${me.provider}`;
  byId('who').textContent = me.signed_in ? `${me.name || 'signed in'} (${me.scope})` : '';
  byId('sign-in').hidden = me.by === 'session';
  byId('sign-out').hidden = me.by !== 'session';
}

// whoAmI asks the daemon who is signed in.
async function whoAmI() {
  const { now } = await session('GET');
  if (now) take(now);
  return me;
}

async function signOut() {
  const { now } = await session('DELETE');
  if (!now) return;
  if (!now.provider_end) {
    location.reload(); // so that nothing is left on the page
    return;
  }
  declined = true;
  byId('main').hidden = true;
  const again = () => location.reload();
  show('message-dialog', html('h2', { id: 'message-title' }, 'You have signed out here'),
    html('p', {}, `At ${me.provider} you may be signed in still: then whoever uses this browser next comes in again without a password.`),
    html('p', { class: 'buttons' }, html('a', { class: 'button', href: now.provider_end }, 'Sign out there, too'), html('button', { type: 'button', class: 'quiet', click: again }, 'Leave it')));
  byId('message-dialog').addEventListener('close', again);
  byId('message-dialog').showModal();
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
      if (now.owners) { // who may see something else than this page shows
        location.reload();
        return;
      }
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

// arrive says why the identity provider has sent somebody back in vain, or leads to where they were.
function arrive() {
  const [, reason] = /^#sign-in=(.*)$/.exec(location.hash) ?? [];
  const view = sessionStorage.getItem(place);
  sessionStorage.removeItem(place);
  if (reason !== undefined || view && !location.hash) history.replaceState(null, '', view || location.pathname);
  if (reason !== undefined) askToken('To change something wants a token of scope write.').catch(() => {});
  return reason === undefined ? '' : reasons[reason] ?? 'The sign-in failed. The log of the daemon says why.';
}

/** listenToSignIn makes the buttons work, and shows who is signed in. Call it before anything looks at the address. */
export function listenToSignIn() {
  sessionStorage.removeItem('blockd-token'); // which earlier versions kept there
  byId('provider').addEventListener('click', () => sessionStorage.setItem(place, location.hash));
  byId('token-fault').textContent = arrive();
  byId('sign-in').addEventListener('click', () => askToken('To change something wants a token of scope write.'));
  byId('sign-out').addEventListener('click', signOut);
  return whoAmI();
}
