// The lists: how each is, what it adds to the others, and what can be done about it.

import { ago, badge, byId, count, html, origin, show, span, table, visible } from './dom.js';
import { Refusal, read, write } from './door.js';
import { look, onLists } from './health.js';
import { clock } from './decisions.js';
import { drawHits } from './chart.js';
import { fill } from './state.js';
import { place } from './views.js';

const states = { ok: 'ok', held: 'warn', waits: 'warn', partial: 'warn', stale: 'warn', refused: 'bad', missing: 'bad', asked: 'ok', unasked: 'bad' };

const sources = { ok: 'ok', away: 'warn', refused: 'bad' };

/** source says how the truth of a list is, that is in a database or on another machine. */
function source({ source: from }) {
  if (!from) return '';
  const behind = from.state === 'ok' || from.lag_seconds === null ? '' : `${span(from.lag_seconds)} behind`;
  return [html('span', { title: from.error || `${from.kind}, ${count(from.rows)} entries` }, badge(sources[from.state] ?? '', from.state)), ' ',
    from.state === 'ok' ? from.kind : `${from.kind}${from.class && `, ${from.class}`}`, behind && `, ${behind}`];
}

const button = (list, label, body) => html('button', { type: 'button', class: 'quiet small', 'aria-label': `${label} ${list.list}`, title: 'its blocks do not count meanwhile; its exceptions do', click: () => pause(list, body) }, label);

/** pausing is what can be done about a list that refuses people. */
function pausing(list) {
  if (list.pause) return button(list, 'Resume');
  return list.action === 'block' && list.mode === 'enforce' && button(list, 'Pause 1 h', { for: '1h' });
}

/** adopting lets in what waits of a list: the content that this page shows, and no other. */
function adopting(list) {
  const waits = list.pinned?.proposal;
  return waits && html('button', { type: 'button', class: 'quiet small', 'aria-label': `Adopt ${list.list}`, title: `${count(waits.added ?? 0)} entries come, ${count(waits.removed ?? 0)} go; blockd diff ${list.list} shows them`, click: () => change(list, 'adopt', { if: waits.content }) }, 'Adopt');
}

/** rolling takes a list back to what it had before, if it may have had something. */
function rolling(list) {
  if (list.list === 'live' || list.pinned?.how === 'rollback' || ['waits', 'asked', 'unasked'].includes(list.state)) return false;
  const ask = () => confirm(`Roll back ${list.list}? It serves what it had before, and what its file has waits until it is adopted.`) && change(list, 'rollback', {});
  return html('button', { type: 'button', class: 'quiet small', 'aria-label': `Roll back ${list.list}`, title: 'serve what it had before, until what its file has is adopted', click: ask }, 'Roll back');
}

/** comparing shows what waits of a list against what serves. */
function comparing(list) {
  return list.pinned?.proposal && html('button', { type: 'button', class: 'quiet small', 'aria-label': `See what waits of ${list.list}`, click: () => compare(list) }, 'See');
}

const shown = 100; // entries that came, and as many that went: a difference may have millions

async function compare(list) {
  show('list-fault');
  try {
    const diff = await read(`v1/lists/${encodeURIComponent(list.list)}/diff?limit=${shown}`);
    const dialog = byId('message-dialog');
    const lines = [...diff.removed.map((entry) => `- ${visible(entry)}`), ...diff.added.map((entry) => `+ ${visible(entry)}`)];
    const more = diff.counts.added + diff.counts.removed - lines.length;
    show('message-dialog', html('h2', { id: 'message-title' }, `What waits of ${list.list}`),
      html('p', {}, `${count(diff.counts.added)} entries come, ${count(diff.counts.removed)} go.`),
      diff.weighed?.mail && diff.weighed.mail.refused + diff.weighed.mail.passed === 0 && html('p', {}, `Of ${count(diff.weighed.mail.decisions)} past decisions none would differ.`),
      diff.findings.map((text) => html('p', { class: 'fault' }, visible(text))),
      html('pre', {}, lines.join('\n')),
      more > 0 && html('p', {}, `${count(more)} more: blockd diff ${list.list}`),
      html('p', {},
        diff.waits && html('button', { type: 'button', click: () => { dialog.close(); change(list, 'adopt', { if: diff.content }); } }, 'Adopt'), ' ',
        html('button', { type: 'button', class: 'quiet', click: () => dialog.close() }, 'Close')));
    dialog.showModal();
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    show('list-fault', html('p', { class: 'fault' }, fault.message));
  }
}

const pause = (list, body) => change(list, body ? 'pause' : 'resume', body);

async function change(list, what, body) {
  show('list-fault');
  try {
    await write('POST', `v1/lists/${encodeURIComponent(list.list)}/${what}`, body);
    await look();
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    show('list-fault', html('p', { class: 'fault' }, fault.message));
  }
}

function draw({ worth: lists }) {
  if (lists.length === 0) return 'No list is configured.';
  return table('What serves now, and what each list adds to the others', [
    { head: 'List', cell: (list) => [html('strong', {}, list.list), origin(list)] },
    { head: 'State', cell: (list) => [badge(states[list.state] ?? '', list.state === 'held' ? `${count(list.held)} held back` : list.state), ' ', list.mode === 'shadow' && badge('', 'shadow'), list.percent < 100 && badge('', `${list.percent} % of senders`), list.pause && [badge('warn', 'paused'), ' until ', clock(list.pause.until)], list.pinned && list.pinned.how !== 'review' && badge('warn', 'rolled back'), list.pinned?.proposal && badge('warn', 'proposal waits')] },
    ...lists.some((list) => list.source) ? [{ head: 'Source', cell: source }] : [],
    { head: 'Action', cell: (list) => list.action, wide: true },
    { head: 'Entries', cell: (list) => count(list.entries), number: true },
    { head: 'Only here', cell: (list) => count(list.unique), number: true, wide: true, title: 'keys that no other list has' },
    { head: 'Changed', cell: (list) => ago(list.modified), wide: true },
    { head: 'Hits', cell: (list) => count(list.hits), number: true, title: 'envelopes and questions; the count goes on over restarts' },
    { head: 'Only its', cell: (list) => count(list.sole), number: true, wide: true, title: 'hits that no other list had' },
    { head: 'Last hit', cell: (list) => ago(list.last_hit), wide: true },
    { act: true, cell: (list) => [pausing(list), rolling(list), comparing(list), adopting(list)] },
  ], lists);
}


/** listView shows all lists, as they are at each look. */
export const listView = {
  title: () => 'Lists',
  enter: () => fill(byId('lists'), { load: (signal) => read('v1/lists', signal), draw }),
};

/** listenToLists shows what each look at them finds. */
export function listenToLists() {
  onLists((answer) => {
    if (place().name === 'lists') fill(byId('lists'), { load: () => answer, draw });
    drawHits(answer.worth);
  });
}
