// Entries that act at once: adding and removing them, and undoing either.

import { ago, badge, byId, count, html, show, until } from './dom.js';
import { Refusal, write } from './door.js';
import { part } from './late.js';
import { explained, insisting } from './gate.js';
import { pages } from './pages.js';
import { shown, written } from './names.js';
import { note, place } from './views.js';

let changed = () => {};

const listing = () => pages('entries', {
  path: 'v1/entries',
  query: ({ params }) => ({ q: params.get('q') ?? undefined, sort: params.get('sort') ?? undefined }),
  after: () => { byId('bulk-found').hidden = !place().params.get('q'); },
  rows: (answer) => answer.entries,
  caption: (answer, text) => (text ? `Those of ${count(answer.total)} with this text` : `${count(answer.total)} in force now`),
  none: 'Nothing is blocked or allowed by hand.',
  lacks: () => {
    byId('entry-home').hidden = true;
    return 'This daemon has no live entries.';
  },
  columns: [
    { head: 'Entry', cell: (entry) => written(entry.entry), address: true },
    { head: 'Action', cell: (entry) => [badge(entry.action === 'allow' ? 'ok' : 'bad', entry.action), entry.require && ` with ${entry.require.join(' or ')}`] },
    { head: 'Why', cell: (entry) => shown(entry.why), why: true },
    { head: 'By', cell: (entry) => shown(entry.author), wide: true },
    { head: 'Added', cell: (entry) => ago(entry.added), wide: true, whole: true },
    { head: 'For', cell: (entry) => until(entry.expires), wide: true, whole: true },
    { act: true, cell: (entry) => html('button', { type: 'button', class: 'quiet small', 'aria-label': `Remove ${entry.entry}`, click: () => remove(entry.entry) }, 'Remove') },
  ],
});

let load = () => {};

// loadEntries shows those in force, where they are looked at.
const loadEntries = () => place().name === 'entries' && load(false);

export const entryView = {
  title: () => 'Entries',
  enter({ params }) {
    byId('entries-sort').value = params.get('sort') ?? '';
    load();
  },
};

const words = { added: 'is in force', replaced: 'was replaced', unchanged: 'was so already', removed: 'was removed', absent: 'was not there' };

function tell(name, result) {
  const action = result.entry ? `${result.entry.action} ` : '';
  const undo = result.result === 'added' || result.result === 'replaced' || result.result === 'removed';
  show('done', html('span', {}, action, html('code', {}, name), ` ${words[result.result] ?? result.result}.`),
    undo && html('button', { type: 'button', class: 'small', click: () => revert(name, result) }, 'Undo'),
    html('button', { type: 'button', class: 'small', 'aria-label': 'Close this message', click: hide }, '×')).hidden = false;
}

const hide = () => { byId('done').hidden = true; };

// change makes one change and shows what came of it. insist gives what lets somebody make it in spite of the gate.
async function change(name, make, insist = () => false) {
  show('entry-fault');
  try {
    const [result] = (await make()).results;
    byId('entry-dialog').close();
    tell(result.entry?.entry ?? result.was?.entry ?? name, result);
    await loadEntries();
    changed();
    if (document.activeElement === document.body) byId('done').querySelector('button').focus(); // its row has gone
    return true;
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    hide();
    show('entry-fault', html('p', { class: 'fault' }, explained(fault), ' ', fault.status === 409 && insist(fault)));
    return false;
  }
}

/** remove takes an entry away. */
export const remove = (name) => change(name, () => write('DELETE', `v1/entries?entry=${encodeURIComponent(name)}`));

// What undoes a change is in its answer: the entry as it was, or nothing.
const revert = (name, { was }) => was ? change(name, () => write('POST', 'v1/entries', was)) : remove(name);

async function add(entry) {
  if (await change(entry.entry, () => write('POST', 'v1/entries', entry), (fault) => !entry.force && insisting(fault, entry, () => add({ ...entry, force: true })))) {
    byId('entry').value = byId('why').value = '';
  }
}

/**
 * propose fills the form in; somebody has to say yes. Beside another view than that of the entries it is a dialog. others are what could
 * be meant as well: {label, value}.
 */
export function propose(name, action, others = []) {
  const form = byId('entry-form');
  show('entry-fault');
  byId('entry').value = name;
  show('entry-choice', others.length > 1 && html('fieldset', { class: 'choice' }, html('legend', {}, 'What'), others.map(({ label, value }) => html('label', {},
    html('input', { type: 'radio', name: 'entry-what', checked: value === name, change: () => { byId('entry').value = value; } }), ` ${label} `, written(value)))));
  if (place().name !== 'entries') {
    byId('entry-dialog').append(form);
    byId('entry-cancel').hidden = false;
    byId('entry-dialog').showModal();
  }
  form.querySelector(`button[value=${action}]`).focus();
  form.scrollIntoView({ block: 'nearest' });
}

/** listenToEntries serves the form. after is called after each change. */
export function listenToEntries(after) {
  changed = after;
  load = listing();
  byId('entries-sort').addEventListener('change', (event) => {
    note({ sort: event.target.value });
    load();
  });
  const bulk = part(() => import('./bulk.js'));
  const reload = () => {
    loadEntries();
    changed();
  };
  byId('bulk-open').addEventListener('click', () => bulk(byId('entry-fault'), (of) => of.askMany(reload)));
  byId('bulk-found').addEventListener('click', () => bulk(byId('entry-fault'), (of) => of.askFound(place().params.get('q') ?? '', reload)));
  byId('entry-form').addEventListener('submit', (event) => {
    event.preventDefault();
    const term = byId('term').value;
    add({ entry: byId('entry').value.trim(), why: byId('why').value.trim(), action: event.submitter?.value || 'block', ...(term && { for: term }) });
  });
  byId('entry-cancel').addEventListener('click', () => byId('entry-dialog').close());
  byId('entry-dialog').addEventListener('close', () => {
    byId('entry-home').append(byId('entry-form'));
    byId('entry-cancel').hidden = true;
    show('entry-choice');
  });
}
