// What is told of a list in a word, and what can be done about it.

import { badge, byId, count, html, show, span, visible } from './dom.js';
import { Refusal, read, write } from './door.js';
import { clock } from './decisions.js';
import { look } from './health.js';

const states = { ok: 'ok', held: 'warn', waits: 'warn', partial: 'warn', stale: 'warn', refused: 'bad', missing: 'bad', asked: 'ok', unasked: 'bad' };

const sources = { ok: 'ok', away: 'warn', refused: 'bad' };

/** source says how the truth of a list is, that is in a database or on another machine. */
export function source({ source: from }) {
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

const most = 100; // entries that came, and as many that went: a difference may have millions

/** compare shows what waits of a list, or what came and went since an older content: a generation or a time. */
export async function compare(list, since = '') {
  show('list-fault');
  try {
    const diff = await read(`v1/lists/${encodeURIComponent(list.list)}/diff?limit=${most}${since && `&since=${encodeURIComponent(since)}`}`);
    const dialog = byId('message-dialog');
    const lines = [...diff.removed.map((entry) => `- ${visible(entry)}`), ...diff.added.map((entry) => `+ ${visible(entry)}`)];
    const more = diff.counts.added + diff.counts.removed - lines.length;
    show('message-dialog', html('h2', { id: 'message-title' }, since ? `What came and went of ${list.list}` : `What waits of ${list.list}`),
      html('p', {}, `${count(diff.counts.added)} entries come, ${count(diff.counts.removed)} go.`),
      diff.weighed?.mail && diff.weighed.mail.refused + diff.weighed.mail.passed === 0 && html('p', {}, `Of ${count(diff.weighed.mail.decisions)} past decisions none would differ.`),
      diff.findings?.map((text) => html('p', { class: 'fault' }, visible(text))),
      html('pre', { tabindex: 0, role: 'region', 'aria-label': 'Entries' }, lines.join('\n')),
      more > 0 && html('p', {}, `${count(more)} more: blockd diff ${list.list}${since && ` --since ${since}`}`),
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

/** condition is how a list is, in badges. */
export const condition = (list) => [badge(states[list.state] ?? '', list.state === 'held' ? `${count(list.held)} held back` : list.state), ' ',
  list.mode === 'shadow' && badge('', 'shadow'), list.percent < 100 && badge('', `${list.percent} % of senders`), list.pause && [badge('warn', 'paused'), ' until ', clock(list.pause.until)],
  list.pinned && list.pinned.how !== 'review' && badge('warn', 'rolled back'), list.pinned?.proposal && badge('warn', 'proposal waits')];

/** acts are buttons for what can be done about a list. */
export const acts = (list) => html('span', { class: 'buttons' }, pausing(list), rolling(list), comparing(list), adopting(list));
