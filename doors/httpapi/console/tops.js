// Who and what there was most of, with the way to the decisions about each.

import { address, here, place } from './views.js';
import { byId, count, html, show, svg, table } from './dom.js';
import { usual, words } from './range.js';
import { fill, leave, trouble } from './state.js';
import { files, queryOf } from './pages.js';
import { acting } from './decisions.js';
import { read } from './door.js';
import { written } from './names.js';

const rows = 10;

// by is the parameter of /v1/top; others are what an entry about a row could mean beside its name.
const kinds = {
  domain: { words: 'Domains', one: 'Domain', act: true, label: 'all senders of the domain' },
  sender: { words: 'Senders', one: 'Sender', act: true, label: 'this sender' },
  client: { words: 'Clients', one: 'Client', act: true, label: 'this client' },
  recipient: { words: 'Recipients', one: 'Recipient' },
  list: { words: 'Lists', one: 'List' },
  entry: { words: 'Entries', one: 'Entry', act: true, label: 'this entry' },
};

const which = { refused: { verdict: 'blocked', outcome: 'mail' }, all: { outcome: 'mail' }, told: { outcome: 'listed' } };

const choice = ({ params }) => ({ by: Object.hasOwn(kinds, params.get('top')) ? params.get('top') : 'domain', of: Object.hasOwn(which, params.get('of')) ? params.get('of') : 'refused', span: params.get('time') ?? usual });

const query = (at) => {
  const { by, of, span } = choice(at);
  return { by, span, ...which[of] };
};

const wait = (ms, signal) => new Promise((settle, end) => {
  setTimeout(settle, ms);
  signal.addEventListener('abort', () => end(signal.reason));
});

// Few may count at a time: whoever waits for another one is told so, and waits.
async function patient(path, signal) {
  for (let tries = 0; ; tries++) {
    try {
      return await read(path, signal, 30_000); // what numbers cannot answer is read
    } catch (fault) {
      if (fault.status !== 429 || tries === 8) throw fault;
      await wait(1000, signal);
    }
  }
}

const filter = (row, by) => (by === 'entry' ? { list: row.list, entry: row.entry } : { [by]: row.name || '<>' });

const decisionsOf = ({ by, of, span }) => (row) => address('decisions', { time: span, show: of === 'refused' ? '' : of, ...filter(row, by) });

const named = (row, by) => (by === 'list' ? html('strong', {}, row.name) : by === 'entry' ? written(row.entry) : written(row.name || '<>'));

// draw shows an answer; to gives where a row leads.
function draw(answer, by, none, to) {
  if (answer.top.length === 0) return none;
  const most = answer.top[0].decisions;
  const percent = (part) => `${(100 * part).toFixed(1)} %`;
  return [table(`${count(answer.decisions)} decisions, of ${count(answer.distinct)} ${kinds[by].words.toLowerCase()}${answer.damaged > 0 ? `; ${count(answer.damaged)} lines of the history cannot be read` : ''}`, [
    { head: kinds[by].one, cell: (row) => html('a', { href: to(row), title: 'its decisions' }, named(row, by)), address: true },
    ...by === 'entry' ? [{ head: 'List', cell: (row) => html('a', { href: address('lists', {}, row.list) }, html('strong', {}, row.list)) }] : [],
    { head: 'Decisions', cell: (row) => count(row.decisions), number: true },
    { head: 'Share', cell: (row) => percent(row.share), number: true, wide: true },
    { head: '', cell: (row) => svg('svg', { class: 'share', viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, svg('rect', { width: (100 * row.decisions) / most, height: 10 })), wide: true, bar: true },
    ...by === 'list' ? [{ act: true, cell: (row) => html('a', { href: address('lists', {}, row.name) }, 'About this list') }] : [],
    ...kinds[by].act ? [{ act: true, cell: (row) => { const name = row.entry ?? row.name; return name ? acting(name, [{ label: kinds[by].label, value: name }, ...by === 'sender' && name.includes('@') ? [{ label: 'all senders of the domain', value: name.slice(name.lastIndexOf('@') + 1) }] : []]) : false; } }] : [],
  ], answer.top)];
}

/** showTops shows them as the address says. */
export function showTops(at) {
  const chosen = choice(at);
  show('top-kinds', Object.entries(kinds).map(([by, { words: text }]) => html('a', { href: here({ top: by === 'domain' ? '' : by }), 'aria-current': by === chosen.by ? 'true' : null }, text)));
  show('top-of', [['refused', 'listed senders'], ['all', 'all mail'], ['told', 'answers to programs']].map(([of, text]) => html('a', { href: here({ of: of === 'refused' ? '' : of }), 'aria-current': of === chosen.of ? 'true' : null }, text)));
  show('top-files', files('v1/top', () => query(place()), (fault) => byId('top-files').append(trouble(fault))));
  const parameters = queryOf({ ...query(at), limit: rows });
  fill(byId('top'), { anew: byId('top').dataset.of !== parameters, lacks: () => 'This daemon keeps no history.',
    load: (signal) => patient(`v1/top?${parameters}`, signal), draw: (answer) => draw(answer, chosen.by, `None in the last ${words(chosen.span)}.`, decisionsOf(chosen)) });
  byId('top').dataset.of = parameters;
}

/** showAmong shows what there was most of among the decisions of a query, if the address asks for it; a row adds itself to the filters there. */
export function showAmong(at, among) {
  const by = Object.hasOwn(kinds, at.params.get('top')) ? at.params.get('top') : '';
  const node = byId('among');
  byId('among-home').hidden = !among;
  node.hidden = !among || !by;
  if (!among) return;
  show('among-kinds', Object.entries(kinds).map(([name, { words: text }]) => html('a', { href: here({ top: name === by ? '' : name }), 'aria-current': name === by ? 'true' : null }, text)));
  if (!by) {
    leave(node);
    node.dataset.of = '';
    return;
  }
  const parameters = queryOf({ ...among, by, limit: rows });
  fill(node, { anew: node.dataset.of !== parameters, lacks: () => false, load: (signal) => patient(`v1/top?${parameters}`, signal),
    draw: (answer) => draw(answer, by, 'None among these.', (row) => here({ ...filter(row, by), top: '' })) });
  node.dataset.of = parameters;
}
