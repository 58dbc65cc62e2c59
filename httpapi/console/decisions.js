// Decisions as they are made, and past ones that are searched for.

import { badge, byId, count, entry, html, origin, show, table } from './dom.js';
import { drawTraffic } from './chart.js';
import { events, read } from './door.js';
import { pages } from './pages.js';

const kept = 100; // rows; the history has the rest

const outcomes = {
  accept: ['ok', 'accepted'], refuse: ['bad', 'refused'], defer: ['warn', 'deferred'],
  quarantine: ['warn', 'quarantined'], tag: ['warn', 'tagged'], discard: ['bad', 'discarded'], listed: ['warn', 'listed'],
};

// A program was told that a sender or client is listed, at a door that decides nothing about mail.
export const isTold = (decision) => decision.outcome === 'listed';

const about = (decision) => decision.sender || (isTold(decision) && decision.client) || '<>';

const whom = (decision) => (isTold(decision) ? `a program, by ${decision.door}` : decision.recipient || 'all');

const outcome = (decision) => badge(...(outcomes[decision.outcome] ?? ['', decision.outcome]));

/** clock is a time, with its day if that is another one. */
export function clock(time) {
  const at = new Date(time);
  const day = at.toDateString() === new Date().toDateString() ? '' : `${at.toLocaleDateString()} `;
  return html('time', { datetime: time, title: at.toLocaleString() }, day + at.toLocaleTimeString([], { hour12: false }));
}

function why(decision) {
  const notes = [decision.exempt && 'exempt recipient', decision.shadow && 'its list does not count',
    decision.authenticated && 'had logged in', decision.first_seen && 'domain new here', decision.correspondent && 'your users write to this sender', decision.excused && 'excused by proof', decision.source && `header ${decision.source}`].filter(Boolean);
  return [decision.list ? `listed in ${decision.list}` : 'on no list', notes.length > 0 && ` (${notes.join(', ')})`, decision.entry && [': ', html('code', {}, decision.entry)]];
}

const columns = (ask) => [
  { head: 'Time', cell: (decision) => clock(decision.time), whole: true },
  { head: 'Outcome', cell: outcome },
  { head: 'Sender', cell: (decision) => [ask
    ? html('button', { type: 'button', class: 'name', click: () => ask(about(decision)) }, about(decision))
    : html('code', {}, about(decision)),
  html('div', { class: 'narrow soft' }, `to ${whom(decision)}`, decision.ref && `, ref ${decision.ref}`)], address: true },
  { head: 'Recipient', cell: (decision) => (isTold(decision) ? whom(decision) : html('code', {}, decision.recipient || '–')), wide: true, address: true },
  { head: 'Client', cell: (decision) => html('code', {}, decision.client || '–'), wide: true, client: true },
  { head: 'Why', cell: why, wide: true, why: true },
  { head: 'Reference', cell: (decision) => html('code', {}, decision.ref || '–'), wide: true, whole: true },
];

/** searchDecisions serves the search in all that the history has. */
export const searchDecisions = (about) => pages('past', {
  path: 'v1/decisions',
  rows: (answer) => answer.decisions,
  caption: () => 'Past decisions with this text, the newest first',
  missing: () => { byId('past-search').closest('.row').hidden = true; },
  columns: columns(about),
});

/** decisionTable shows decisions that were looked for. */
export const decisionTable = (caption, decisions) => table(caption, columns(), decisions);

/** decisionText tells of one decision in full; lists are where lists come from. */
export const decisionText = (decision, lists = []) => [
  html('p', { class: 'verdict' }, outcome(decision), html('code', {}, about(decision)), 'to',
    isTold(decision) ? 'a program' : html('code', {}, decision.recipient || 'all recipients')),
  html('p', {}, clock(decision.time), ` by ${decision.door}`, decision.client && [', from ', html('code', {}, decision.client)],
    decision.helo && [' (', html('code', {}, decision.helo), ')'], decision.ref && [', reference ', html('code', {}, decision.ref)]),
  html('p', {}, decision.list ? ['Listed in ', entry(decision)] : why(decision)),
  ...lists.filter((list) => list.list === decision.list).map(origin),
];

// The newest first, kept apart: mail of no list is much more, and would push the rest out. So
// would what programs are told, ten times a second.
let lately = { listed: [], all: [], told: [] };
let held = null; // lately as it was when the page was paused
let news = 0; // that would have been shown since
let ask = () => {};

const kindsOf = (decision) => (isTold(decision) ? ['told'] : decision.ref ? ['listed', 'all'] : ['all']);
const none = { listed: 'No mail of listed senders lately.', all: 'No mail lately.', told: 'No program was told of a listing lately.' };
const which = () => byId('which').value;

function showAll() {
  const rows = (held ?? lately)[which()];
  if (rows.length === 0) {
    show('decisions', html('p', { class: 'none' }, none[which()]));
    return;
  }
  show('decisions', table('The newest first; choose a sender to see why', columns(ask), rows));
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
  body.prepend(...table('', columns(ask), [{ ...decision, isNew: true }]).querySelectorAll('tbody tr'));
  if (body.rows.length > kept) body.lastElementChild.remove();
}

const search = async (what) => read(`v1/decisions?limit=${kept}${what}`);

async function past() {
  try {
    const { decisions: newest, more } = await search('');
    let [all, told] = [newest.filter((decision) => !isTold(decision)), newest.filter(isTold)];
    if (more && told.length > 0) { // which leave less room for mail, and it for them
      all = (await search('&outcome=mail')).decisions;
      told = (await search('&outcome=listed')).decisions;
    }
    const refused = more ? (await search('&outcome=mail&verdict=blocked')).decisions : [];
    const oldest = Date.parse(all.at(-1)?.time);
    const older = refused.filter(({ time }) => Date.parse(time) < oldest);
    const listed = [...all, ...older].filter((decision) => kindsOf(decision).includes('listed')).slice(0, kept);
    lately = { all, told, listed };
  } catch { /* no history is kept, or it is busy: what comes from now on is shown */ }
  showAll();
}

const patience = 15000; // ms between two attempts, at most

/** watchDecisions follows what is decided. linked is told whether it can. */
export async function watchDecisions(about, linked) {
  ask = about;
  byId('which').addEventListener('change', showAll);
  byId('pause').addEventListener('click', () => {
    held = held ? null : { ...lately };
    news = 0;
    byId('pause').textContent = held ? 'Go on' : 'Pause';
    if (!held) showAll();
  });
  for (let wait = 1000; ; wait = Math.min(2 * wait, patience)) {
    await past();
    try {
      for await (const { name, data } of events('v1/events')) {
        linked(true);
        wait = 500;
        if (name === 'decision') arrive(data);
        if (name === 'traffic') drawTraffic(data);
      }
    } catch { /* as below */ }
    linked(false);
    await new Promise((settle) => {
      setTimeout(settle, wait);
      document.addEventListener('token', settle, { once: true });
    });
  }
}
