// Mail that was set aside: looking at it, letting it go, removing it.

import { ago, badge, byId, count, html, show, table, visible } from './dom.js';
import { Refusal, read, write } from './door.js';
import { countWaiting } from './waiting.js';
import { fill } from './state.js';
import { written } from './names.js';

const size = (n) => n < 1024 ? `${n} B` : n < 1048576 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / 1048576).toFixed(1)} MiB`;

const named = (id) => `id=${encodeURIComponent(id)}`;

const to = ({ recipients }) => recipients.length > 1 ? `${recipients[0]} and ${recipients.length - 1} more` : recipients[0] ?? '–';

const sender = (message) => message.foreign ? '–' : message.sender || '<>';

function subject(message) {
  return [message.unsure && [badge('warn', 'perhaps released'), ' '], message.foreign && [badge('warn', 'another program’s file'), ' '],
    html('button', { type: 'button', class: 'name', 'aria-label': `Look at: ${message.subject}`, click: () => look(message) }, visible(message.subject) || '(no subject)')];
}

// On a phone only the message itself has them.
const act = (message, label, kind, what) => html('button', { type: 'button', class: `${kind} small`, 'aria-label': `${label} ${message.subject || message.id}`, click: () => what(message) }, label);

let pages = []; // the cursors of the pages before this one
let cursor = '';

async function turn(where, before) {
  pages = before;
  cursor = where;
  await load();
}

function draw(page) {
  show('quarantine-fill', page.nearly_full && [badge('warn', 'nearly full'), ' '], html('span', {},
    `${count(page.count)} of at most ${count(page.max_count)} messages, ${size(page.octets)} of ${size(page.max_octets)}`));
  if (page.messages.length === 0) return 'Nothing is set aside.';
  return [table('Set aside, the newest first', [
    { head: 'When', cell: (message) => ago(message.kept), whole: true },
    { head: 'Sender', cell: (message) => written(sender(message)), address: true },
    { head: 'Recipient', cell: (message) => visible(to(message)), wide: true, address: true },
    { head: 'Subject', cell: subject, name: true },
    { head: 'List', cell: (message) => message.lists.join(', '), wide: true, whole: true },
    { head: 'Size', cell: (message) => size(message.size), number: true, wide: true, whole: true },
    { act: true, wide: true, cell: (message) => html('span', { class: 'buttons' }, !message.foreign && act(message, 'Release', 'quiet', release), act(message, 'Remove', 'quiet', remove)) },
  ], page.messages),
  (pages.length > 0 || page.next) && html('p', { class: 'buttons' },
    html('button', { type: 'button', class: 'quiet small', disabled: pages.length === 0, click: () => turn(pages.at(-1) ?? '', pages.slice(0, -1)) }, 'Newer'),
    html('button', { type: 'button', class: 'quiet small', disabled: !page.next, click: () => turn(page.next, [...pages, cursor]) }, 'Older'))];
}

const load = () => fill(byId('quarantine'), {
  load: (signal) => read(`v1/quarantine?limit=25${cursor && `&cursor=${encodeURIComponent(cursor)}`}`, signal),
  draw, lacks: () => 'This daemon sets no mail aside.' });

export const view = { title: () => 'Quarantine', enter: () => turn('', []) };

// attempt does something with a message and shows what came of it.
async function attempt(what) {
  show('quarantine-fault');
  try {
    return await what();
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    return fault;
  } finally {
    await Promise.all([load(), countWaiting()]);
  }
}

function tell(...words) {
  show('done', html('span', {}, words), html('button', { type: 'button', class: 'small', 'aria-label': 'Close this message', click: () => { byId('done').hidden = true; } }, '×')).hidden = false;
}

async function release(message, again = '') {
  const done = await attempt(() => write('POST', `v1/quarantine/release?${named(message.id)}${again}`));
  byId('message-dialog').close();
  if (done instanceof Refusal) {
    show('quarantine-fault', html('p', { class: 'fault' }, done.message,
      done.status === 409 && message.unsure && html('button', { type: 'button', class: 'quiet small', click: () => release(message, '&again=1') }, 'Send it once more')));
    return;
  }
  const refused = done.deliveries.filter((delivery) => !delivery.accepted);
  if (refused.length > 0) show('quarantine-fault', refused.map((delivery) => html('p', { class: 'fault' }, `The next server refuses it for ${delivery.recipient}: ${delivery.reply}`)));
  else tell(`Released to ${done.deliveries.map((delivery) => delivery.recipient).join(', ')}.`);
}

async function remove(message) {
  const dialog = byId('message-dialog');
  if (!dialog.open) { // a click in a row is no reading of the message
    await look(message, 'Remove it for good? Nobody is told.');
    return;
  }
  dialog.close();
  const done = await attempt(() => write('DELETE', `v1/quarantine?${named(message.id)}`));
  if (done instanceof Refusal) show('quarantine-fault', html('p', { class: 'fault' }, done.message));
  else tell('Removed.');
}

/** look shows what a message says, as text: nothing in it is rendered. */
async function look(message, question) {
  const text = await attempt(() => write('GET', `v1/quarantine/message?${named(message.id)}`));
  if (text instanceof Refusal) {
    show('quarantine-fault', html('p', { class: 'fault' }, text.message));
    return;
  }
  const dialog = byId('message-dialog');
  const row = (name, ...value) => html('div', {}, html('dt', {}, name), html('dd', {}, value));
  show('message-dialog', html('h2', { id: 'message-title' }, visible(text.subject) || '(no subject)'),
    html('dl', { class: 'sheet' }, row('From', visible(text.from) || '–'), row('Sender', html('code', {}, visible(sender(text)))),
      row('Recipients', text.recipients.map(visible).join(', ') || '–'), row('Lists', text.lists.join(', ') || '–'),
      text.ref && row('Decision', html('code', {}, text.ref)),
      text.parts.length > 1 && row('Parts', text.parts.map((part) => visible(`${part.type} ${part.name}`.trim())).join(', '))),
    html('pre', { tabindex: 0, role: 'region', 'aria-label': 'Text of the message' }, visible(text.body) || '(no text)'),
    text.cut && html('p', { class: 'hint' }, 'The rest is not shown.'),
    html('details', {}, html('summary', {}, 'Header'), html('pre', { tabindex: 0, role: 'region', 'aria-label': 'Header of the message' }, visible(text.header))),
    question && html('p', { class: 'fault' }, question),
    html('p', { class: 'buttons' }, !text.foreign && html('button', { type: 'button', click: () => release(text) }, 'Release'),
      html('button', { type: 'button', class: 'bad', click: () => remove(text) }, 'Remove'),
      html('button', { type: 'button', class: 'quiet', click: () => dialog.close() }, 'Close')));
  dialog.showModal();
}
