// What a decision looks like, in a row and in full.

import { badge, entry, html, origin, table } from './dom.js';
import { shown, written } from './names.js';
import { address } from './views.js';
import { propose } from './entries.js';

/** outcomes are what becomes of mail: how good that is, and the word for it. */
export const outcomes = {
  accept: ['ok', 'accepted'], refuse: ['bad', 'refused'], defer: ['warn', 'deferred'],
  quarantine: ['warn', 'quarantined'], tag: ['warn', 'tagged'], discard: ['bad', 'discarded'], listed: ['warn', 'listed'],
};

// A program was told that a sender or client is listed, at a door that decides nothing about mail.
export const isTold = (decision) => decision.outcome === 'listed';

const about = (decision) => decision.sender || (isTold(decision) && decision.client) || '<>';

const whom = (decision) => (isTold(decision) ? `a program, by ${decision.door}` : decision.recipient || 'all');

const outcome = (decision) => badge(...(outcomes[decision.outcome] ?? ['', decision.outcome]));

/** clock is a time; of another day to the minute, with the day. */
export function clock(time) {
  const [at, now] = [new Date(time), new Date()];
  const today = at.toDateString() === now.toDateString();
  const year = at.getFullYear() === now.getFullYear() ? undefined : 'numeric';
  const hours = at.toLocaleTimeString([], today ? { hour12: false } : { hour12: false, hour: '2-digit', minute: '2-digit' });
  return html('time', { datetime: time, title: at.toLocaleString() }, today ? hours : `${at.toLocaleDateString('en-GB', { day: 'numeric', month: 'short', year })} ${hours}`);
}

const notes = (decision) => [decision.exempt && 'exempt recipient', decision.shadow && 'its list does not count',
  decision.authenticated && 'had logged in', decision.first_seen && 'domain new here', decision.correspondent && 'your users write to this sender', decision.excused && 'excused by proof', decision.source && `header ${decision.source}`].filter(Boolean);

function why(decision) {
  const more = notes(decision);
  return [decision.list ? ['listed in ', html('a', { href: address('lists', {}, decision.list) }, shown(decision.list))] : 'on no list',
    more.length > 0 && ` (${more.join(', ')})`, decision.entry && [': ', written(decision.entry)]];
}

const domainOf = (sender) => sender.slice(sender.lastIndexOf('@') + 1);

// What an entry about a decision could be about.
const subjects = (decision) => [
  decision.sender?.includes('@') && { label: 'this sender', value: decision.sender },
  decision.sender && { label: 'all senders of the domain', value: domainOf(decision.sender) },
  decision.client && { label: 'this client', value: decision.client },
].filter(Boolean);

/** acting is what can be done about a name: buttons, which ask before they do it. others are what could be meant beside it. */
export const acting = (name, others) => html('span', { class: 'buttons' }, [['allow', 'Allow…', 'ok'], ['block', 'Block…', 'bad']].map(([action, label]) =>
  html('button', { type: 'button', class: `${action === 'allow' ? 'plain ok' : 'plain bad'} small`, 'aria-label': `${label.slice(0, -1)} ${name}…`, click: () => propose(name, action, others) }, label)));

function act(decision) {
  const others = subjects(decision);
  return others.length > 0 && acting(others[0].value, others);
}

/** columns are those of a table of decisions. ask is called for the one whose sender is chosen; without it none is. */
export const columns = (ask) => [
  { head: 'Time', cell: (decision) => clock(decision.time), whole: true, wide: true },
  { head: 'Outcome', cell: outcome },
  { head: 'Sender', cell: (decision) => [ask
    ? html('button', { type: 'button', class: 'name', click: () => ask(about(decision)) }, written(about(decision)))
    : written(about(decision)),
  html('div', { class: 'under soft' }, html('span', { class: 'at' }, clock(decision.time), ' '),
    html('span', { class: 'to' }, 'to ', isTold(decision) ? whom(decision) : written(whom(decision)), ' '), decision.client && html('span', { class: 'from' }, 'from ', written(decision.client))),
  html('div', { class: 'narrow soft' }, why(decision), decision.ref && [', ref ', html('code', {}, decision.ref)])], address: true },
  { head: 'Recipient', cell: (decision) => (isTold(decision) ? whom(decision) : written(decision.recipient || '–')), wide: true, address: true, spare: true },
  { head: 'Client', cell: (decision) => written(decision.client || '–'), wide: true, client: true },
  { head: 'Why', cell: why, wide: true, why: true },
  { head: 'Reference', cell: (decision) => html('code', {}, decision.ref || '–'), wide: true, whole: true, late: true },
  ...ask ? [{ act: true, cell: act }] : [],
];

/** decisionTable shows decisions that were looked for. */
export const decisionTable = (caption, decisions) => table(caption, columns(), decisions, 'stack');

/** decisionText tells of one decision in full; lists are where lists come from. */
export const decisionText = (decision, lists = []) => [
  html('p', { class: 'verdict' }, outcome(decision), html('span', {}, written(about(decision))), 'to',
    isTold(decision) ? 'a program' : html('span', {}, written(decision.recipient || 'all recipients'))),
  html('p', {}, clock(decision.time), ` by ${decision.door}`, decision.client && [', from ', written(decision.client)],
    decision.helo && [' (', written(decision.helo), ')'], decision.ref && [', reference ', html('code', {}, decision.ref)]),
  html('p', {}, decision.list ? ['Listed in ', entry(decision)] : why(decision)),
  ...lists.filter((list) => list.list === decision.list).map(origin),
];

