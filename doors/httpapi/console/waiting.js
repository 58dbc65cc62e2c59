// What waits for a person: requests, proposals, mail that was set aside. And which views this daemon has.

import { byId, count, html, show } from './dom.js';
import { Refusal, read } from './door.js';
import { address } from './views.js';

const interval = 60_000; // ms

const among = {
  requests: { path: 'v1/requests?state=open', count: (answer) => answer.requests.length, words: ['person asks to be let in', 'people ask to be let in'], urgent: true },
  quarantine: { path: 'v1/quarantine?limit=1', count: (answer) => answer.count, words: ['message is set aside', 'messages are set aside'] },
  proposals: { path: 'v1/proposals?state=open', count: (answer) => answer.proposals.length, words: ['sender is proposed to be blocked', 'senders are proposed to be blocked'], urgent: true },
  changes: { path: 'v1/audit?limit=1' },
  fleet: { path: 'v1/fleet' },
};

const item = (name) => byId('nav').querySelector(`a[href^="#${name}"]`);

// ask gives how many wait, 0 where nobody can, and null if that is not known.
async function ask(name) {
  const { path, count: number } = among[name];
  const link = item(name);
  try {
    const n = number?.(await read(path)) ?? (await read(path), 0);
    link.parentNode.hidden = false;
    link.querySelector('.tally')?.remove();
    if (n > 0) link.append(' ', html('span', { class: `tally ${among[name].urgent ? 'urgent' : ''}` }, count(n)));
    return n;
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    if (fault.status === 404) link.parentNode.hidden = true;
    return fault.status === 404 ? 0 : null;
  }
}

/** countWaiting counts anew, and says so beside the views and on the overview. */
export async function countWaiting() {
  const names = Object.keys(among);
  const numbers = await Promise.all(names.map(ask));
  show('waiting', names.map((name, i) => numbers[i] > 0 && among[name].words &&
    html('a', { class: 'chip', href: address(name) }, html('b', {}, count(numbers[i])), ` ${among[name].words[numbers[i] === 1 ? 0 : 1]}`)));
}

export function watchWaiting() {
  countWaiting();
  document.addEventListener('token', countWaiting);
  setInterval(() => { if (!document.hidden) countWaiting(); }, interval);
}
