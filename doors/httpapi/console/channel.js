// What this machine publishes for the fleet, and the two ways back from a bad sequence. It is shown to holders of the scope admin alone.

import { ago, badge, byId, count, html, show, table, until, visible } from './dom.js';
import { Refusal, read, write } from './door.js';
import { fill } from './state.js';
import { identity } from './signin.js';
import { sure } from './sure.js';

const most = 20; // rows: who wants an older one knows its number, and says blockd publish --again

const why = (required) => html('div', { class: 'field' }, html('label', { for: 'channel-why' }, required ? 'Why? Whoever looks next asks that' : 'Why'),
  html('input', { id: 'channel-why', maxlength: 500, pattern: '.*\\S.*', required, autocomplete: 'off' }));

const halt = (state) => sure(`Halt ${state.channel}?`,
  [`Nodes that have sequence ${state.sequence} go back to the one before it, each at its next look, and no other node takes it. Nothing is published by itself meanwhile.`,
    'The next publication ends it: publish what is right. After a week it ends by itself, and the halted sequence goes on.'],
  [['Halt', () => act('halt', { why: byId('channel-why').value.trim() }, 'Nodes go back at their next look.')]], [why(true)]);

const again = (state, row) => sure(`Publish again what sequence ${row.sequence} had?`,
  [`It is the next sequence, and all nodes take it: what has changed since is taken back, of all lists.${state.halted ? ' The halt ends.' : ''}`,
    'It stands: what the lists of this machine have goes out when somebody says blockd publish, and not before.'],
  [['Publish again', () => act('again', { sequence: row.sequence, now: byId('channel-now').checked, why: byId('channel-why').value.trim() }, `What sequence ${row.sequence} had is published again.`)]],
  [why(false), html('p', {}, html('label', {}, html('input', { id: 'channel-now', type: 'checkbox', checked: true }), ' For all nodes at once, and not in stages'))]);

const columns = (state) => [
  { head: 'Sequence', cell: (row) => [`${row.sequence}`, row.sequence === state.sequence && [' ', badge('', 'newest')]], whole: true },
  { head: 'Made', cell: (row) => ago(row.created) },
  { head: 'Entries', cell: (row) => count(row.entries), number: true, wide: true },
  { head: 'Lists', cell: (row) => visible(row.lists.join(', ')), why: true, wide: true },
  { act: true, cell: (row) => row.sequence !== state.sequence && html('button', { type: 'button', class: 'quiet small', 'aria-label': `Publish again: sequence ${row.sequence}…`, click: () => again(state, row) }, 'Publish again…') },
];

function draw(state) {
  const all = state.sequences;
  return [html('h2', {}, `Channel ${state.channel}`),
    state.halted && html('p', { class: 'fault' }, `Halted: nodes stay at sequence ${state.halted.sequence}, or go back to it. It ends with the next publication, or in `, until(state.halted.until), '.'),
    state.stands && html('p', { class: 'hint' }, 'An earlier sequence was published again, and stands: what the lists of this machine have goes out when somebody says blockd publish.'),
    !state.halted && all.length > 1 && html('p', { class: 'buttons' }, html('button', { type: 'button', class: 'bad', click: () => halt(state) }, 'Halt…')),
    all.length > 0 ? table(all.length > most ? `The newest ${most} of ${count(all.length)}` : `${count(all.length)} in the store`, columns(state), all.slice(0, most)) : 'Nothing was published yet.'];
}

/** loadChannel shows it to who may change it, if there is one. */
export async function loadChannel() {
  const node = byId('channel');
  const mine = identity().scope === 'admin';
  if (mine) await fill(node, { load: (signal) => read('v1/fleet/sequences', signal), draw, lacks: () => null });
  node.hidden = !mine || node.childElementCount === 0; // this machine publishes nothing
}

async function act(what, body, words) {
  show('channel-fault');
  try {
    await write('POST', `v1/fleet/${what}`, body);
    show('done', html('span', {}, words), html('button', { type: 'button', class: 'small', 'aria-label': 'Close this message', click: () => { byId('done').hidden = true; } }, '×')).hidden = false;
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    show('channel-fault', html('p', { class: 'fault' }, fault.message));
  }
  await loadChannel();
}
