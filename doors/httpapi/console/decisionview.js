// Decisions as they are made, and past ones: the same view, without filters and with them.

import { byId, count, html, show, table } from './dom.js';
import { columns, isTold } from './decisions.js';
import { here, note, place } from './views.js';
import { fill, nothing, trouble } from './state.js';
import { askAbout } from './question.js';
import { pages } from './pages.js';
import { read } from './door.js';
import { ranges, since } from './range.js';
import { showAmong } from './tops.js';
import { watch } from './stream.js';

const kept = 100; // rows; the history has the rest

// The newest first, kept apart: mail of no list is much more, and would push the rest out. So
// would what programs are told, ten times a second.
let lately = { listed: [], all: [], told: [] };
let held = null; // lately as it was when the page was paused
let news = 0; // that would have been shown since
let running = null; // what ends the stream
let asking = null; // what is shown once it is known what was decided before the stream began

const kindsOf = (decision) => (isTold(decision) ? ['told'] : decision.ref ? ['listed', 'all'] : ['all']);
const none = { listed: 'No mail of listed senders lately.', all: 'No mail lately.', told: 'No program was told of a listing lately.' };
const shown = { listed: { outcome: 'mail', verdict: 'blocked' }, all: { outcome: 'mail' }, told: { outcome: 'listed' } };
const which = () => byId('which').value;

// The parameters of the address that choose among past decisions, with what they are called.
const filters = { sender: 'sender', domain: 'domain', recipient: 'recipient', client: 'client', list: 'list', entry: 'entry', door: 'door', ref: 'reference', verdict: 'verdict', outcome: 'outcome', since: 'from', until: 'until' };

const isPast = ({ params }) => params.has('time') || params.has('q') || Object.keys(filters).some((name) => params.has(name));

function query({ params }) {
  const chosen = Object.fromEntries(['q', ...Object.keys(filters)].map((name) => [name, params.get(name) ?? undefined]));
  const time = params.get('time');
  return { ...shown[params.get('show') ?? 'listed'], ...(time && { since: since(time) }), ...chosen };
}

function draw() {
  const rows = (held ?? lately)[which()];
  return rows.length === 0 ? none[which()] : table('The newest first; choose a sender to see why', columns(askAbout), rows, 'stack');
}

// Whoever chooses another kind while the past is asked for gets it with the past, which a fill here would end.
function showAll() {
  if (!asking) fill(byId('decisions'), { load: () => lately, draw });
}

// What comes is put in front, so that whoever is on a row with the keyboard stays there.
function arrive(decision) {
  const kinds = kindsOf(decision);
  for (const kind of kinds) lately[kind] = [decision, ...lately[kind]].slice(0, kept);
  if (!kinds.includes(which())) return;
  if (held) {
    news++;
    byId('pause').textContent = `Go on (${count(news)} new)`;
    return;
  }
  const body = byId('decisions').querySelector('tbody');
  if (!body) {
    showAll();
    return;
  }
  body.prepend(...table('', columns(askAbout), [{ ...decision, isNew: true }]).querySelectorAll('tbody tr'));
  if (body.rows.length > kept) body.lastElementChild.remove();
}

async function newest(signal) {
  const search = (what) => read(`v1/decisions?limit=${kept}${what}`, signal);
  const { decisions, more } = await search('');
  let [all, told] = [decisions.filter((decision) => !isTold(decision)), decisions.filter(isTold)];
  if (more && told.length > 0) { // which leave less room for mail, and it for them
    all = (await search('&outcome=mail')).decisions;
    told = (await search('&outcome=listed')).decisions;
  }
  const refused = more ? (await search('&outcome=mail&verdict=blocked')).decisions : [];
  const oldest = Date.parse(all.at(-1)?.time);
  const older = refused.filter(({ time }) => Date.parse(time) < oldest);
  return { all, told, listed: [...all, ...older].filter((decision) => kindsOf(decision).includes('listed')).slice(0, kept) };
}

const same = (a) => (b) => a.time === b.time && a.sender === b.sender && a.recipient === b.recipient && a.ref === b.ref;

// begin shows what was decided before the stream began, behind what has come by it since.
async function begin(signal) {
  lately = { listed: [], all: [], told: [] };
  const mine = asking = fill(byId('decisions'), { draw, lacks: () => `${none[which()]} This daemon keeps no history: what comes from now on is shown.`, load: async (other) => {
    const past = await newest(AbortSignal.any([signal, other]));
    for (const kind of Object.keys(lately)) {
      const rows = past[kind].filter((decision) => !lately[kind].some(same(decision)));
      lately[kind] = [...lately[kind], ...rows].slice(0, kept);
    }
  } });
  await mine.finally(() => { if (asking === mine) asking = null; });
}

function live() {
  if (running) {
    showAll();
    return;
  }
  running = new AbortController();
  const { signal } = running;
  const link = (...words) => show('decisions-link', words);
  begin(signal);
  watch(signal, {
    opened: () => { link(); begin(signal); },
    event: (name, data) => { if (name === 'decision') arrive(data); },
    lost: (fault) => link(trouble(fault), 'New decisions are not shown until then.'),
  });
}

function stop() {
  running?.abort();
  running = null;
}

const past = () => pages('past', {
  path: 'v1/decisions',
  query,
  rows: (answer) => answer.decisions,
  caption: (answer) => ['Past decisions, the newest first', answer.damaged > 0 && ` (${count(answer.damaged)} lines of the history cannot be read)`],
  none: 'No decision of this kind in this time.',
  lacks: () => 'This daemon keeps no history.',
  columns: columns(askAbout),
  kind: 'stack',
  changed: () => decisionView.enter(place()),
});

let loadPast = () => {};

function chips({ params }) {
  const chip = (name, label) => params.has(name) && html('a', { class: 'chip', href: here({ [name]: '' }), 'aria-label': `Without ${label} ${params.get(name)}` }, `${label} `, html('b', {}, params.get(name)), ' ×');
  show('filters', Object.entries(filters).map(([name, label]) => chip(name, label)));
}

export const decisionView = {
  title: () => 'Decisions',
  enter(at) {
    byId('which').value = at.params.get('show') ?? 'listed';
    show('decisions-time', ranges(at, ['Live', '']));
    chips(at);
    const searching = isPast(at);
    byId('past').hidden = !searching;
    showAmong(at, searching && query(at));
    byId('decisions').hidden = byId('pause').hidden = byId('decisions-link').hidden = searching;
    if (searching) {
      stop();
      loadPast();
    } else {
      if (document.activeElement !== byId('past-search')) byId('past-search').value = '';
      live();
    }
  },
  leave: stop,
};

/** listenToDecisions serves the view's controls. */
export function listenToDecisions() {
  loadPast = past();
  byId('which').addEventListener('change', () => {
    note({ show: which() === 'listed' ? '' : which() });
    decisionView.enter(place());
  });
  byId('pause').addEventListener('click', () => {
    held = held ? null : { ...lately };
    news = 0;
    byId('pause').textContent = held ? 'Go on' : 'Pause';
    if (!held) showAll();
  });
}
