// What a decision looks like, in a row and in full.

import { badge, entry, html, origin, table } from './dom.js';

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

/** columns are those of a table of decisions. ask is called for the one whose sender is chosen; without it none is. */
export const columns = (ask) => [
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

