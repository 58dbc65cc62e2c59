// The lists: how each is, and what it adds to the others.

import { acts, condition, source } from './listacts.js';
import { ago, byId, count, html, show, table } from './dom.js';
import { address, place } from './views.js';
import { part } from './late.js';
import { drawHits } from './chart.js';
import { fill, trouble } from './state.js';
import { onLists } from './health.js';
import { ranges } from './range.js';
import { read } from './door.js';
import { shown } from './names.js';

function draw({ worth: lists }) {
  if (lists.length === 0) return 'No list is configured.';
  return table('What serves now, and what each list adds to the others', [
    { head: 'List', cell: (list) => [html('a', { href: address('lists', {}, list.list) }, html('strong', {}, list.list)), list.title && html('div', { class: 'soft' }, shown(list.title))], name: true },
    { head: 'State', cell: condition },
    ...lists.some((list) => list.source) ? [{ head: 'Source', cell: source }] : [],
    { head: 'Action', cell: (list) => list.action, wide: true, spare: true },
    { head: 'Entries', cell: (list) => count(list.entries), number: true },
    { head: 'Only here', cell: (list) => count(list.unique), number: true, wide: true, spare: true, title: 'keys that no other list has' },
    { head: 'Changed', cell: (list) => ago(list.modified), wide: true, whole: true },
    { head: 'Hits', cell: (list) => count(list.hits), number: true, wide: true, title: 'envelopes and questions; the count goes on over restarts' },
    { head: 'Only its', cell: (list) => count(list.sole), number: true, wide: true, spare: true, title: 'hits that no other list had' },
    { head: 'Last hit', cell: (list) => ago(list.last_hit), wide: true, whole: true, spare: true },
    { act: true, cell: acts },
  ], lists);
}


const adding = part(() => import('./addlist.js'));
const page = part(() => import('./listpage.js'));

/** listView shows all lists, as they are at each look. */
export const listView = {
  title: ({ item }) => (item ? `List ${item}` : 'Lists'),
  enter(at) {
    byId('lists').hidden = byId('list-new').hidden = Boolean(at.item);
    byId('list').hidden = byId('lists-back').hidden = !at.item;
    byId('lists-title').textContent = at.item || 'Lists';
    show('list-time', at.item && ranges(at));
    show('list-new', html('button', { type: 'button', class: 'quiet', click: () => adding(byId('list-new'), (of) => of.showAdding()) }, 'Add a list…'));
    if (at.item) page(byId('list'), (of) => of.showList(place()));
    else fill(byId('lists'), { load: (signal) => read('v1/lists', signal), draw });
  },
  leave: () => page.loaded?.hideList(),
};

/** listenToLists shows what each look at them finds. */
export function listenToLists() {
  onLists((answer) => {
    if (place().name === 'lists' && !place().item) fill(byId('lists'), { load: () => answer, draw });
    drawHits(answer.worth);
  }, (fault) => {
    if (byId('hits').querySelector('.loading, .forbidden, .failed')) show('hits', trouble(fault)); // else what it has is from before, as the page says
  });
}
