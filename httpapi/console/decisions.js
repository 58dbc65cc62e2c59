// Decisions as they are made, and those of the past that somebody looks for.

import { badge, byId, entry, html, show, table } from './dom.js';
import { drawTraffic } from './chart.js';
import { events, read } from './door.js';

const kept = 100; // rows; the history has the rest

const outcomes = {
  accept: ['ok', 'accepted'], refuse: ['bad', 'refused'], defer: ['warn', 'deferred'],
  quarantine: ['warn', 'quarantined'], tag: ['warn', 'tagged'], discard: ['bad', 'discarded'],
};

const outcome = (decision) => badge(...(outcomes[decision.outcome] ?? ['', decision.outcome]));

/** clock is the time of a decision, with its day if that is another one. */
function clock(time) {
  const at = new Date(time);
  const day = at.toDateString() === new Date().toDateString() ? '' : `${at.toLocaleDateString()} `;
  return html('time', { datetime: time, title: at.toLocaleString() }, day + at.toLocaleTimeString([], { hour12: false }));
}

function why(decision) {
  const notes = [decision.exempt && 'exempt recipient', decision.shadow && 'shadow list',
    decision.authenticated && 'had logged in', decision.source && `header ${decision.source}`].filter(Boolean);
  return [decision.list ? `listed in ${decision.list}` : 'on no list', notes.length > 0 && ` (${notes.join(', ')})`, decision.entry && [': ', html('code', {}, decision.entry)]];
}

const columns = (ask) => [
  { head: 'Time', cell: (decision) => clock(decision.time), whole: true },
  { head: 'Outcome', cell: outcome },
  { head: 'Sender', cell: (decision) => [ask
    ? html('button', { type: 'button', class: 'name', click: () => ask(decision.sender || '<>') }, decision.sender || '<>')
    : html('code', {}, decision.sender || '<>'),
  html('div', { class: 'narrow soft' }, `to ${decision.recipient || 'all'}`, decision.ref && `, ref ${decision.ref}`)], address: true },
  { head: 'Recipient', cell: (decision) => html('code', {}, decision.recipient || '–'), wide: true, address: true },
  { head: 'Client', cell: (decision) => html('code', {}, decision.client || '–'), wide: true, client: true },
  { head: 'Why', cell: why, wide: true },
  { head: 'Reference', cell: (decision) => html('code', {}, decision.ref || '–'), wide: true, whole: true },
];

/** decisionTable shows decisions that were looked for. */
export const decisionTable = (caption, decisions) => table(caption, columns(), decisions);

/** decisionText tells of one decision in full. */
export const decisionText = (decision) => [
  html('p', { class: 'verdict' }, outcome(decision), html('code', {}, decision.sender || '<>'), 'to', html('code', {}, decision.recipient || 'all recipients')),
  html('p', {}, clock(decision.time), ` by ${decision.door}`, decision.client && [', from ', html('code', {}, decision.client)],
    decision.helo && [' (', html('code', {}, decision.helo), ')'], decision.ref && [', reference ', html('code', {}, decision.ref)]),
  html('p', {}, decision.list ? ['Listed in ', entry(decision)] : why(decision)),
];

let all = []; // the newest first
let paused = null; // what has come meanwhile
let ask = () => {};

const listed = (decision) => Boolean(decision.ref);
const isShown = (decision) => byId('which').value === 'all' || listed(decision);

function showAll() {
  const rows = all.filter(isShown);
  if (rows.length === 0) {
    show('decisions', html('p', { class: 'none' }, byId('which').value === 'all' ? 'No mail lately.' : 'No mail of listed senders lately.'));
    return;
  }
  show('decisions', table('The newest first; choose a sender to see why', columns(ask), rows));
}

// What comes is put in front, so that whoever is on a row with the keyboard stays there.
function arrive(decision) {
  if (paused) {
    paused = [decision, ...paused].slice(0, kept);
    byId('pause').textContent = `Go on (${paused.length} new)`;
    return;
  }
  const dropped = all.length >= kept ? all.pop() : null;
  all.unshift(decision);
  if (!isShown(decision)) return;
  const body = byId('decisions').querySelector('tbody');
  if (!body) {
    showAll();
    return;
  }
  body.prepend(...table('', columns(ask), [{ ...decision, isNew: true }]).querySelectorAll('tbody tr'));
  if (dropped && isShown(dropped)) body.lastElementChild.remove();
}

async function past() {
  try {
    all = (await read(`v1/decisions?limit=${kept}`)).decisions;
  } catch { /* no history is kept, or it is busy: what comes from now on is shown */ }
  showAll();
}

const patience = 15000; // ms between two attempts, at most

/** watchDecisions follows what is decided. linked is told whether it can. */
export async function watchDecisions(about, linked) {
  ask = about;
  byId('which').addEventListener('change', showAll);
  byId('pause').addEventListener('click', () => {
    if (!paused) {
      paused = [];
      byId('pause').textContent = 'Go on';
      return;
    }
    all = [...paused, ...all].slice(0, kept);
    paused = null;
    byId('pause').textContent = 'Pause';
    showAll();
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
