// Senders whom several users do not want.

import { ago, byId, count, html, show, table, visible } from './dom.js';
import { Refusal, read, write } from './door.js';
import { countWaiting } from './waiting.js';
import { fill } from './state.js';
import { written } from './names.js';

const shown = 100; // rows; blockd proposals has all

const act = (proposal, label, kind, what) => html('button', { type: 'button', class: `${kind} small`, 'aria-label': `${label} ${proposal.entry}`, click: () => what(proposal) }, label);

function draw({ proposals }) {
  if (proposals.length === 0) return 'No sender is proposed.';
  const caption = proposals.length > shown ? `The first ${shown} of ${count(proposals.length)}` : 'Blocked for nobody but these users';
  return table(caption, [
    { head: 'Sender', cell: (proposal) => written(proposal.entry), address: true },
    { head: 'Users', cell: (proposal) => count(proposal.users) },
    { head: 'Domains', cell: (proposal) => count(proposal.domains), wide: true },
    { head: 'Complaints', cell: (proposal) => count(proposal.complaints), wide: true },
    { head: 'Last', cell: (proposal) => ago(proposal.last), whole: true },
    { head: 'Note', cell: (proposal) => [proposal.correspondent && 'users here write to it', proposal.complaints === proposal.users && 'complaints alone, which its sender can write'].filter(Boolean).join('; '), why: true },
    { act: true, cell: (proposal) => html('span', { class: 'buttons' }, act(proposal, 'Block', 'ok', adopt), act(proposal, 'Decline', 'quiet', decline)) },
  ], proposals.slice(0, shown));
}

const load = () => fill(byId('proposals'), { load: (signal) => read('v1/proposals?state=open', signal), draw, lacks: () => 'Users of this daemon have no lists of their own.' });

export const view = { title: () => 'Proposals', enter: load };

async function decide(proposal, path, words, force = false) {
  show('proposal-fault');
  try {
    const done = await write('POST', `v1/proposals/${path}?entry=${encodeURIComponent(proposal.entry)}${force ? '&force=1' : ''}`);
    show('done', html('span', {}, html('code', {}, visible(proposal.entry)), words(done)),
      html('button', { type: 'button', class: 'small', 'aria-label': 'Close this message', click: () => { byId('done').hidden = true; } }, '×')).hidden = false;
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    const [because] = fault.message.split('; if that is meant');
    show('proposal-fault', html('p', { class: 'fault' }, `${because}. `, because !== fault.message
      && html('button', { type: 'button', class: 'quiet small', click: () => decide(proposal, path, words, true) }, `Block ${visible(proposal.entry)} all the same`)));
  }
  await Promise.all([load(), countWaiting()]);
}

const adopt = (proposal) => decide(proposal, 'adopt', ({ until }) => ` is blocked for everybody until ${new Date(until).toLocaleDateString()}.`);
const decline = (proposal) => decide(proposal, 'decline', () => ' was declined; users who have blocked it do not get its mail.');
