// Is it well? One sentence, wherever the page is.

import { ago, byId, count, html, show } from './dom.js';
import { isSilent } from './pulse.js';
import { read } from './door.js';
import { tell } from './views.js';

const interval = 2000; // ms between two looks

const listeners = [];

/** onLists has functions told what the lists are, at each look, and why they could not be had. */
export const onLists = (listener, failed) => listeners.push([listener, failed]);

function title(kind, text) {
  byId('health').className = `health ${kind}`;
  const line = byId('health-title');
  if (line.textContent !== text) line.textContent = text; // else a screen reader says it at every look
  tell(kind === 'ok' ? '' : text);
  byId('nav').querySelector('a').dataset.state = kind;
}

/** troubled says whether the source of a list is away, or what it holds is not taken. */
const troubled = (list) => Boolean(list.source?.class);

/** lacking names the lists of which nothing serves, as "; late has never loaded". */
function lacking(worth) {
  const names = worth.filter(({ state, keys }) => keys === 0 && ['missing', 'refused', 'unasked', 'waits'].includes(state)).map(({ list }) => list);
  if (names.length === 0) return '';
  return names.length > 3 ? `; ${names.length} have never loaded` : `; ${names.join(' and ')} ${names.length === 1 ? 'has' : 'have'} never loaded`;
}

const some = (n, one, many) => `${count(n)} ${n === 1 ? one : many}`;

function showHealth(table) {
  const faults = table.problems.length + table.worth.filter((list) => list.stale).length + table.worth.filter(troubled).length;
  if (!table.ready) title('bad', 'Not ready: this server cannot decide about mail.');
  else if (table.lacks) title('warn', `Degraded: ${table.lacks}${lacking(table.worth)}.`);
  else if (faults === 1) title('warn', 'Filtering, with one problem.');
  else if (faults > 1) title('warn', `Filtering, with ${faults} problems.`);
  else if (table.remarks?.length) title('ok', 'Filtering, with something to know.');
  else title('ok', 'All is well.');
  show('health-facts',
    html('span', {}, `${some(table.worth.length, 'list', 'lists')}, ${some(table.worth.reduce((sum, list) => sum + list.entries, 0), 'entry', 'entries')}`),
    html('span', {}, 'lists changed ', ago(table.since)),
    html('span', {}, 'files looked at ', ago(table.last_attempt)),
    html('span', {}, 'generation ', html('code', { title: table.generation }, table.generation.slice(0, 12))));
  show('health-problems', table.problems.map((text) => html('li', {}, text)),
    table.worth.filter((list) => list.stale).map((list) => html('li', {}, `list ${list.list}: older than its max_age`)),
    table.worth.filter(troubled).map(({ list, source: from }) => html('li', {}, `list ${list}: its source is ${from.state} (${from.class}): ${from.error}`)),
    (table.remarks ?? []).map((text) => html('li', { class: 'remark' }, text)));
}

/** look asks for the lists, and says how it is. It returns them, or nothing. */
export async function look() {
  try {
    const answer = await read('v1/lists');
    showHealth(answer);
    for (const [listener] of listeners) listener(answer);
  } catch (fault) {
    if (fault.status === undefined) throw fault;
    title('bad', fault.status === 401 ? 'A token is needed to see anything.' : `${fault.status === 0 ? 'No answer' : 'It cannot be told'}: ${fault.message}`);
    for (const [, failed] of listeners) failed(fault);
  }
}

let timer = 0;

async function watch() {
  clearTimeout(timer);
  try {
    if (!document.hidden) await look();
  } finally {
    timer = setTimeout(watch, isSilent() ? interval / 2 : interval);
  }
}

/** watchHealth looks at the lists, now and from time to time. A page that nobody sees asks for nothing. */
export function watchHealth() {
  document.addEventListener('visibilitychange', () => { if (!document.hidden) watch(); });
  document.addEventListener('token', look);
  watch();
}
