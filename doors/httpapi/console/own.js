// The page of somebody who may see and change what one mailbox or domain has, and nothing else.

import { ago, badge, byId, count, html, show, table, until } from './dom.js';
import { Refusal, read, write } from './door.js';
import { explained, insisting } from './gate.js';
import { fill, nothing, trouble } from './state.js';
import { identity } from './signin.js';
import { shown, written } from './names.js';

const size = 100; // rows of a page
const interval = 2000; // ms between two signs of life
const patience = 250; // ms after a key, so that a word is one question

let owner = '';
let text = '';

const isMailbox = (name) => name.includes('@');
const path = () => `v1/owners/${encodeURIComponent(owner)}/entries`;
const may = () => identity().scope !== 'read';

const columns = () => [
  { head: 'Entry', cell: (entry) => written(entry.entry), address: true },
  { head: 'Action', cell: (entry) => badge(entry.action === 'allow' ? 'ok' : 'bad', entry.action) },
  { head: 'Why', cell: (entry) => shown(entry.why), why: true },
  { head: 'Added', cell: (entry) => ago(entry.added), wide: true, whole: true },
  { head: 'For', cell: (entry) => until(entry.expires), wide: true, whole: true },
  may() && { act: true, cell: (entry) => html('button', { type: 'button', class: 'quiet small', 'aria-label': `Remove ${entry.entry}`, click: () => change(() => write('DELETE', `${path()}?entry=${encodeURIComponent(entry.entry)}`)) }, 'Remove') },
].filter(Boolean);

function page(cursor) {
  const query = new URLSearchParams({ limit: size, ...(text && { q: text }), ...(cursor && { cursor }) }).toString().replaceAll('+', '%20');
  return read(`${path()}?${query}`);
}

function draw(rows, { next, total }) {
  if (rows.length === 0) return nothing(text ? `Nothing has "${text}" in it.` : 'Nothing is blocked or allowed here.');
  const button = next && html('button', { type: 'button', class: 'quiet small', click: async () => {
    button.disabled = true;
    try {
      const more = await page(next);
      byId('own-entries').replaceChildren(...[draw([...rows, ...more.entries], more)].flat().filter(Boolean));
    } catch (fault) {
      if (!(fault instanceof Refusal)) throw fault;
      button.disabled = false;
      button.before(trouble(fault));
    }
  } }, 'More');
  return [table(text ? `Those with this text, of ${count(total)}` : `${count(total)} in force now, the newest first`, columns(), rows),
    button && html('p', { class: 'buttons' }, button)];
}

const load = (anew = true) => fill(byId('own-entries'), { load: () => page(), draw: (answer) => draw(answer.entries, answer), anew, lacks: () => `You may not see what ${owner} has.` });

async function change(make, insist = () => false) {
  show('own-fault');
  try {
    await make();
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    show('own-fault', html('p', { class: 'fault' }, explained(fault), ' ', fault.status === 409 && insist(fault)));
    return;
  }
  byId('own-entry').value = byId('own-why').value = '';
  await load(false);
}

function add(entry) {
  return change(() => write('POST', path(), entry), (fault) => !entry.force && insisting(fault, entry, () => add({ ...entry, force: true })));
}

// ask says what would become of mail from somebody.
async function ask(sender) {
  const node = byId('own-answer');
  if (!sender || !isMailbox(owner)) {
    node.replaceChildren();
    return;
  }
  const query = new URLSearchParams({ sender, recipient: owner }).toString().replaceAll('+', '%20');
  await fill(node, { load: () => read(`v1/check?${query}`), draw: (answer) => {
    const lets = ['accept', 'tag'].includes(answer.outcome);
    return html('p', {}, badge(lets ? 'ok' : 'bad', answer.outcome), ' Mail from ', written(answer.sender || sender), lets ? ' reaches ' : ' does not reach ', html('strong', {}, shown(owner)), '.');
  } });
}

function choose(name) {
  owner = name.trim();
  byId('own-question').hidden = !isMailbox(owner);
  byId('own-answer').replaceChildren();
  byId('own-ask').value = '';
  return load();
}

function listen() {
  byId('own-owner').addEventListener('change', (event) => choose(event.target.value));
  byId('own-form').addEventListener('submit', (event) => {
    event.preventDefault();
    const term = byId('own-term').value;
    add({ entry: byId('own-entry').value.trim(), why: byId('own-why').value.trim(), action: event.submitter?.value || 'block', ...(term && { for: term }) });
  });
  byId('own-question').addEventListener('submit', (event) => {
    event.preventDefault();
    ask(byId('own-ask').value.trim());
  });
  let wait;
  byId('own-search').addEventListener('input', (event) => {
    text = event.target.value.trim();
    clearTimeout(wait);
    wait = setTimeout(() => load(false), patience);
  });
}

/** showOwn takes the place of all views. */
export function showOwn() {
  const { owners } = identity();
  document.title = 'Blocked and allowed – blockd';
  byId('nav').closest('nav').hidden = true;
  for (const part of byId('main').querySelectorAll(':scope > section')) part.hidden = part.id !== 'view-own';
  for (const link of document.querySelectorAll('.skip[data-to=ask]')) link.remove();
  byId('own-form').hidden = !may();
  byId('own-owners').replaceChildren(...owners.map((name) => html('option', { value: name })));
  byId('own-owner').value = owners[0];
  byId('own-whose').hidden = owners.length === 1 && isMailbox(owners[0]);
  byId('own-title').textContent = owners.length === 1 ? `Blocked and allowed for ${owners[0]}` : 'Blocked and allowed';
  listen();
  setInterval(() => {
    if (!document.hidden) read('v1/session').then((me) => { if (!me.signed_in) location.reload(); }, () => {});
  }, interval);
  return choose(owners[0]);
}
