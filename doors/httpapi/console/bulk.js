// Many entries at once: a text or a file is read, shown as what it would do, and then done.

import { badge, byId, count, html, show, table } from './dom.js';
import { Refusal, put, read, write } from './door.js';
import { explained, reading } from './gate.js';
import { queryOf } from './pages.js';
import { shown, written } from './names.js';
import { trouble } from './state.js';

const together = 1000; // changes that the daemon makes all or not at all
const longest = 6000; // octets of an address that removes
const most = 100_000; // entries of one text: a list is the place for more
const previewed = 100;

// cells reads CSV (RFC 4180).
function cells(text) {
  const rows = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^,\r\n]*))(,|\r?\n|$)/g)) {
    rows.at(-1).push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end !== ',' && end !== '') rows.push([]);
    if (end === '') break;
  }
  return rows.filter((row) => row.some((cell) => cell.trim()));
}

/** parsed reads entries from a text: one a line, or the CSV that this page saves. They are {entry, action, why, expires}, of which all but the first may be missing. */
export function parsed(text) {
  const table = /^\ufeff?"?entry"?(,|\r?\n|$)/.test(text) ? cells(text.replace(/^\ufeff/, '')) : null;
  const found = new Map(); // of the same entry the last one counts
  if (table) {
    const [head, ...rows] = table;
    for (const row of rows) {
      const of = Object.fromEntries(head.map((name, i) => [name.trim(), (row[i] ?? '').trim()]));
      if (of.entry) found.set(of.entry, { entry: of.entry, ...of.action && { action: of.action }, ...of.why && { why: of.why }, ...of.expires && { expires: of.expires } });
    }
  } else {
    for (const line of text.split(/\r?\n/)) {
      const entry = line.replace(/(^|\s)#.*$/, '').trim();
      if (entry) found.set(entry, { entry });
    }
  }
  return [...found.values()];
}

// found are all live entries with a text.
async function found(q) {
  const all = [];
  for (let cursor = ''; ;) {
    const page = await read(`v1/entries?${queryOf({ q, limit: 1000, cursor })}`);
    all.push(...page.entries);
    cursor = page.next;
    if (!cursor || all.length >= most) return all;
  }
}

const value = (id) => byId(id).value;
const deed = () => byId('bulk-form').elements['bulk-deed'].value;

// whole is an entry of the text with what the form says for all.
const whole = (one) => {
  const [why, term] = [value('bulk-why').trim(), value('bulk-term')];
  return { action: deed(), ...why && { why }, ...term && !one.expires && { for: term }, ...one };
};

// remarks are what the daemon says of the lines, by entry; none where it has no such resource.
async function remarks(entries) {
  const all = new Map();
  for (const action of ['block', 'allow']) {
    const lines = entries.filter((one) => one.action === action).map(({ entry }) => entry);
    if (lines.length === 0) continue;
    try {
      const { items } = await put(`v1/lint?format=plain&action=${action}`, `${lines.join('\n')}\n`, 'text/plain');
      for (const item of items) if (item.class) all.set(lines[item.line - 1], item);
    } catch (fault) {
      if (![404, 413].includes(fault.status)) throw fault;
    }
  }
  return all;
}

function fault(reason) {
  if (!(reason instanceof Refusal)) throw reason;
  show('bulk-fault', reading(reason) ? html('p', { class: 'fault' }, explained(reason), ' Nothing of this part was changed: take it out of the text, or add it alone.') : trouble(reason));
}

let plan = []; // what the preview shows

async function preview() {
  show('bulk-fault');
  const removing = deed() === 'remove';
  plan = parsed(value('bulk-text')).map((one) => (removing ? { entry: one.entry } : whole(one)));
  byId('bulk-go').hidden = true;
  if (plan.length === 0 || plan.length > most) {
    show('bulk-preview', html('p', { class: 'fault' }, plan.length === 0 ? 'There is no entry in the text.' : `These are ${count(plan.length)} entries, and at most ${count(most)} are taken: write them into the file of a list.`));
    return;
  }
  try {
    const notes = removing ? new Map() : await remarks(plan);
    const odd = plan.filter(({ entry }) => notes.has(entry));
    const rows = [...odd, ...plan.filter(({ entry }) => !notes.has(entry))].slice(0, previewed);
    const sums = Object.entries(Object.groupBy(plan, ({ action = 'remove' }) => action)).map(([action, all]) => `${count(all.length)} to ${action}`);
    show('bulk-preview', table([sums.join(', '), odd.length > 0 && `, ${count(odd.length)} to look at`, plan.length > previewed && `; the first ${previewed}`], [
      { head: 'Entry', cell: (one) => written(one.entry), address: true },
      { head: 'Action', cell: ({ action = 'remove' }) => badge({ block: 'bad', allow: 'ok' }[action] ?? '', action) },
      ...removing ? [] : [{ head: 'Why', cell: (one) => shown(one.why ?? ''), why: true }, { head: 'Until', cell: (one) => one.expires ?? (one.for ? `in ${one.for}` : 'ever'), wide: true }],
      ...odd.length > 0 ? [{ head: 'Look at', cell: ({ entry }) => { const item = notes.get(entry); return item ? html('span', { class: 'soft' }, badge('warn', item.class), ' ', shown(item.message)) : ''; }, why: true }] : [],
    ], rows));
    byId('bulk-go').textContent = removing ? `Remove ${count(plan.length)}` : `Put ${count(plan.length)} in force`;
    byId('bulk-go').hidden = false;
    byId('bulk-go').focus();
  } catch (reason) {
    fault(reason);
  }
}

// parts cuts changes into requests.
function parts(changes) {
  if (changes[0].action) return Array.from({ length: Math.ceil(changes.length / together) }, (_, i) => changes.slice(i * together, (i + 1) * together));
  const all = [[]];
  let length = 0;
  for (const one of changes) {
    length += encodeURIComponent(one.entry).length + 7;
    if (length > longest && all.at(-1).length > 0) {
      all.push([]);
      length = 0;
    }
    all.at(-1).push(one);
  }
  return all;
}

const make = (part) => (part[0].action ? write('POST', 'v1/entries', { entries: part })
  : write('DELETE', `v1/entries?${part.map(({ entry }) => `entry=${encodeURIComponent(entry)}`).join('&')}`));

// run makes changes, and gives what came of those that were made.
async function run(changes, progress) {
  const results = [];
  for (const part of changes.length > 0 ? parts(changes) : []) {
    results.push(...(await make(part)).results);
    progress(results.length);
  }
  return results;
}

// undoing are the changes that take results back.
const undoing = (results) => [results.filter(({ was }) => was).map(({ was }) => was), results.filter(({ was, result }) => !was && result === 'added').map(({ entry }) => ({ entry: entry.entry }))];

function told(results, undo) {
  const sums = Object.entries(Object.groupBy(results, ({ result }) => result)).map(([result, all]) => `${count(all.length)} ${result}`);
  const [again, away] = undoing(results.filter(({ result }) => result !== 'unchanged' && result !== 'absent'));
  show('done', html('span', {}, sums.join(', '), '.'),
    undo && again.length + away.length > 0 && html('button', { type: 'button', class: 'small', click: () => revert(again, away) }, 'Undo'),
    html('button', { type: 'button', class: 'small', 'aria-label': 'Close this message', click: () => { byId('done').hidden = true; } }, '×')).hidden = false;
}

let after = () => {};

async function revert(again, away) {
  try {
    told([...await run(away, () => {}), ...await run(again, () => {})], false);
  } catch (reason) {
    if (!(reason instanceof Refusal)) throw reason;
    show('done', html('span', {}, `Not all could be undone: ${reason.message}`)).hidden = false;
  }
  after();
}

async function go() {
  show('bulk-fault');
  const button = byId('bulk-go');
  button.disabled = true;
  let made = 0;
  try {
    const results = await run(plan, (n) => {
      made = n;
      button.textContent = `${count(n)} of ${count(plan.length)}`;
    });
    byId('bulk-dialog').close();
    told(results, true);
    byId('done').querySelector('button').focus();
  } catch (reason) {
    fault(reason);
    if (made > 0) byId('bulk-fault').append(html('p', { class: 'hint' }, `${count(made)} of ${count(plan.length)} were changed before.`));
  } finally {
    button.disabled = false;
    after();
  }
}

function ask(text, what) {
  byId('bulk-text').value = text;
  for (const one of byId('bulk-form').elements['bulk-deed']) one.checked = one.value === what;
  show('bulk-fault');
  show('bulk-preview');
  byId('bulk-go').hidden = true;
  byId('bulk-dialog').showModal();
  if (text) preview();
}

/** askMany asks for entries. changed is called after changes. */
export function askMany(changed) {
  after = changed;
  ask('', 'block');
}

/** askFound asks whether to remove the entries with a text. */
export async function askFound(q, changed) {
  after = changed;
  byId('bulk-found').disabled = true;
  try {
    ask((await found(q)).map(({ entry }) => entry).join('\n'), 'remove');
  } catch (reason) {
    if (!(reason instanceof Refusal)) throw reason;
    show('entry-fault', trouble(reason));
  } finally {
    byId('bulk-found').disabled = false;
  }
}

byId('bulk-file').addEventListener('change', async (event) => {
  const [file] = event.target.files;
  if (!file) return;
  byId('bulk-text').value = await file.text();
  preview();
});
byId('bulk-form').addEventListener('submit', (event) => {
  event.preventDefault();
  preview();
});
byId('bulk-text').addEventListener('input', () => { byId('bulk-go').hidden = true; });
byId('bulk-form').addEventListener('change', () => { byId('bulk-go').hidden = true; });
byId('bulk-go').addEventListener('click', go);
byId('bulk-cancel').addEventListener('click', () => byId('bulk-dialog').close());
