// The question before something is done that cannot simply be taken back.

import { byId, html, show } from './dom.js';

/**
 * sure asks in a dialog. words say what it means, deeds are [label, what it does], and fields what is to be filled in: the first of
 * them, or Cancel, has the keyboard.
 */
export function sure(title, words, deeds, fields = []) {
  const dialog = byId('message-dialog');
  const act = (event) => {
    event.preventDefault();
    dialog.close();
    deeds[event.submitter.value][1]();
  };
  show('message-dialog', html('form', { autocomplete: 'off', submit: act }, html('h2', { id: 'message-title' }, title), [words].flat().map((text) => html('p', {}, text)), fields,
    html('p', { class: 'buttons' }, deeds.map(([label], i) => html('button', { type: 'submit', class: 'bad', value: i }, label)),
      html('button', { type: 'button', class: 'quiet', click: () => dialog.close() }, 'Cancel'))));
  dialog.showModal();
  dialog.querySelector('input, .quiet').focus();
}
