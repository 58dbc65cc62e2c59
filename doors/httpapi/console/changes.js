// Who has changed what, from the audit journal.

import { ago, byId, html, show, table, visible } from './dom.js';
import { fill } from './state.js';
import { written } from './names.js';
import { place } from './views.js';
import { read } from './door.js';

const words = {
  'start': 'daemon began',
  'entry.add': 'entry added', 'entry.change': 'entry changed', 'entry.remove': 'entry removed',
  'list.add': 'list added', 'list.enforce': 'list counts', 'list.remove': 'list removed',
  'list.accept': 'list accepted', 'report.send': 'report sent', 'person.forget': 'person forgotten', 'correspondents.learn': 'correspondents learned',
  'list.pause': 'list paused', 'list.resume': 'list resumed', 'list.adopt': 'list adopted', 'list.rollback': 'list rolled back',
  'session.begin': 'signed in', 'session.end': 'signed out',
  'token.add': 'token made', 'token.rotate': 'token replaced', 'token.revoke': 'token revoked',
  'proposal.adopt': 'sender of a proposal blocked', 'proposal.decline': 'proposal declined', 'complaint.take': 'complaint taken',
  'request.grant': 'request granted', 'request.decline': 'request declined',
  'quarantine.release': 'mail released', 'quarantine.remove': 'mail removed',
  'configuration.change': 'configuration taken up',
  'snapshot.publish': 'snapshot published',
  'snapshot.halt': 'channel halted',
  'fleet.pin': 'pinned to a snapshot',
  'fleet.unpin': 'follows the channel again',
  'failed': 'not done',
};

let pages = []; // the cursors of the pages before this one
let cursor = '';

async function turn(where, before) {
  pages = before;
  cursor = where;
  await load();
}

const page = (label, name, disabled, where) => html('button', { type: 'button', class: 'quiet small', 'aria-label': name, disabled, click: where }, label);

const draw = ({ lines, next, damaged }) => [
  damaged > 0 && html('p', { class: 'fault' }, 'Lines of the journal cannot be read: see blockd audit --verify.'),
  lines.length === 0 ? html('p', { class: 'none' }, 'Nobody has changed anything.') : table('The newest first', [
    { head: 'When', cell: (line) => ago(line.time), whole: true },
    { head: 'By', cell: (line) => visible(line.by || '–') },
    { head: 'What', cell: (line) => words[line.action] ?? visible(line.action), whole: true },
    { head: 'About', cell: (line) => written(line.subject), address: true },
    { head: 'Why', cell: (line) => visible([line.why, line.detail].filter(Boolean).join(' – ')), why: true },
  ], lines, 'stack'),
  (pages.length > 0 || next) && html('p', { class: 'buttons' },
    page('Newer', 'Newer changes', pages.length === 0, () => turn(pages.at(-1) ?? '', pages.slice(0, -1))),
    page('Older', 'Older changes', !next, () => turn(next, [...pages, cursor])))];

const load = () => fill(byId('changes'), {
  load: (signal) => read(`v1/audit?limit=25${cursor && `&cursor=${encodeURIComponent(cursor)}`}`, signal),
  draw, lacks: () => 'This daemon keeps no journal of changes.' });

// What somebody changes on this page is in the journal at once.
document.addEventListener('changed', () => place().name === 'changes' && load());

export const view = { title: () => 'Changes', enter: () => turn('', []) };
