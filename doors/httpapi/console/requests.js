// Who was refused and asks to be let in.

import { ago, byId, count, html, show, table, visible } from './dom.js';
import { Refusal, read, write } from './door.js';
import { countWaiting } from './waiting.js';
import { fill } from './state.js';
import { written } from './names.js';

const shown = 100; // rows; blockd requests has all

const who = (request) => request.sender || request.client || '<>';

// What SPF says of the refused mail.
const proofs = { spf: 'SPF', none: 'none: anybody may have written the address', unknown: 'DNS gave no answer' };

const act = (request, label, kind, what) => html('button', { type: 'button', class: `${kind} small`, 'aria-label': `${label} ${who(request)}`, click: () => what(request) }, label);

function draw({ requests }) {
  if (requests.length === 0) return 'Nobody waits for an answer.';
  const caption = requests.length > shown ? `The newest ${shown} of ${count(requests.length)}` : 'Open, the newest first';
  return table(caption, [
    { head: 'Asked', cell: (request) => ago(request.time), whole: true },
    { head: 'Sender', cell: (request) => written(who(request)), address: true },
    { head: 'Proof', cell: (request) => proofs[request.proof] ?? '–', wide: true },
    { head: 'Recipient', cell: (request) => written(request.recipient || '–'), address: true, wide: true },
    { head: 'Listed in', cell: (request) => request.list ? [html('strong', {}, request.list), request.entry && ': ', request.entry && written(request.entry)] : '–', name: true, wide: true },
    { head: 'Refused', cell: (request) => ago(request.refused), wide: true, whole: true, late: true },
    { head: 'Note', cell: (request) => visible(request.note || ''), why: true },
    { act: true, cell: (request) => html('span', { class: 'buttons' }, act(request, 'Let in', 'ok', grant), act(request, 'Decline', 'quiet', decline)) },
  ], requests.slice(0, shown));
}

const load = () => fill(byId('requests'), { load: (signal) => read('v1/requests?state=open', signal), draw, lacks: () => 'This daemon has no door for refused people.' });

export const view = { title: () => 'Requests', enter: load };

async function decide(request, path, words) {
  show('request-fault');
  try {
    const done = await write('POST', `v1/requests/${path}?ref=${encodeURIComponent(request.ref)}`);
    show('done', html('span', {}, html('code', {}, visible(who(request))), words(done)),
      html('button', { type: 'button', class: 'small', 'aria-label': 'Close this message', click: () => { byId('done').hidden = true; } }, '×')).hidden = false;
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    show('request-fault', html('p', { class: 'fault' }, fault.message));
  }
  await Promise.all([load(), countWaiting()]);
}

const grant = (request) => decide(request, 'grant', ({ until, change: { entry } }) => ` may write until ${new Date(until).toLocaleDateString()}${terms(request, entry)}`);

/** terms says what the exception asks of mail: a client's address needs no proof. */
const terms = (request, entry) => {
  if (entry?.require) return `, with ${entry.require.join(' or ')} as proof.`;
  return request.sender ? '. No proof is asked for, so whoever writes this address may.' : '.';
};

const decline = (request) => decide(request, 'decline', () => ' was declined; nobody is written to.');
