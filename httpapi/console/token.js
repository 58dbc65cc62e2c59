// Who the page is to the daemon: the token, which never stands in an address, and the dialog that asks for one.

import { byId } from './dom.js';

const place = 'blockd-token';

export const hasToken = () => sessionStorage.getItem(place) !== null;

/** signed adds to the headers of a request who asks. */
export function signed(headers = {}) {
  const token = sessionStorage.getItem(place);
  return token === null ? headers : { ...headers, Authorization: `Bearer ${token}` };
}

let declined = false; // nobody is asked again by what happens without them
let asking = null;

/** mayAsk says whether nobody has declined to give a token. */
export const mayAsk = () => !declined;

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

/** listenToToken serves the button that asks for another one. */
export function listenToToken() {
  byId('token').addEventListener('click', () => askToken(hasToken()
    ? 'This tab has a token. Another one takes its place.'
    : 'To change something wants a token of scope write.'));
}
