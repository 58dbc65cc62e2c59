// Who may use this daemon: tokens, and browsers that have signed in. Both are shown to holders of the scope admin alone.

import { ago, badge, byId, count, html, show, table, until } from './dom.js';
import { Refusal, read, write } from './door.js';
import { shown, written } from './names.js';
import { fill } from './state.js';
import { identity } from './signin.js';
import { sure } from './sure.js';
import { place } from './views.js';

const most = 200; // rows of a table; the search finds the others
const scopes = { read: 'see all', write: 'change what is filtered', admin: 'say who may, too', report: 'report how a node is, and nothing else' };

let has = {}; // the answers that are shown, by resource

const button = (text, click, kind = 'quiet small', label = null) => html('button', { type: 'button', class: kind, 'aria-label': label, click }, text);

const field = (label, made) => html('div', { class: 'field grow' }, html('label', { for: made.id }, label), made);

const input = (id, more) => html('input', { id, autocomplete: 'off', spellcheck: 'false', autocapitalize: 'none', ...more });

function build() {
  show('access',
    html('div', { class: 'card' }, html('h2', {}, 'Tokens'),
      html('form', { id: 'access-form', autocomplete: 'off', hidden: true, submit: make },
        html('div', { class: 'row find' }, field('Name: a program or a person', input('access-name', { maxlength: 32, required: true })),
          field('May', html('select', { id: 'access-scope' }, Object.entries(scopes).map(([scope, words]) => html('option', { value: scope }, `${scope}: ${words}`)))),
          field('Only for these mailboxes and domains (all, if empty)', input('access-owners', { maxlength: 4000 })),
          html('div', { class: 'field buttons' }, html('button', { type: 'submit' }, 'Make a token')))),
      html('div', { id: 'access-fault', role: 'alert' }), html('div', { id: 'access-made', role: 'status' }),
      html('div', { id: 'access-tokens', role: 'region', 'aria-label': 'Who has a token' })),
    html('div', { class: 'card' }, html('h2', {}, 'Browsers that have signed in'),
      html('div', { id: 'access-sessions', role: 'region', 'aria-label': 'Browsers that have signed in' })));
  byId('access-search').addEventListener('input', () => parts.forEach((part) => has[part.path] && load(part, () => has[part.path])));
}

const found = (texts) => texts.some((text) => text.toLowerCase().includes(byId('access-search').value.trim().toLowerCase()));

// rowsOf makes a table of the rows that are searched for.
function rowsOf(rows, texts, caption, none, columns) {
  if (rows.length === 0) return none;
  const all = rows.filter((row) => found(texts(row)));
  if (all.length === 0) return 'None has this in it.';
  return table(all.length > most ? `The first ${most} of ${count(all.length)}` : caption(all.length), columns, all.slice(0, most));
}

const last = (time) => (time ? ago(time) : 'not since the daemon began');

const tokens = { path: 'v1/tokens', node: 'access-tokens', lacks: 'This daemon has the token of its first start alone. With http.tokens in its configuration it knows others.',
  draw: ({ tokens: all }) => rowsOf(all, (token) => [token.name, token.scope, ...token.owners], (n) => `${count(n)} may ask over HTTP`, 'Nobody has a token but that of the first start.', [
    { head: 'Name', cell: (token) => [html('strong', {}, shown(token.name)), token.fleet && [' ', badge('', 'fleet')], isMine(token) && [' ', badge('', 'yours')]], name: true },
    { head: 'May', cell: (token) => [badge(token.scope === 'admin' ? 'warn' : '', token.scope), token.owners.length > 0 && [' what is of ', token.owners.map((owner, i) => [i > 0 && ', ', written(owner)])]], why: true },
    { head: 'Made', cell: (token) => shown(token.made), wide: true, whole: true },
    { head: 'Last used', cell: (token) => last(token.used) },
    { act: true, cell: (token) => button('Revoke…', () => revoke(token), 'quiet small', `Revoke ${token.name}…`) },
  ]) };

const sessions = { path: 'v1/sessions', node: 'access-sessions', lacks: 'This daemon has no sessions.',
  draw: ({ sessions: all }) => rowsOf(all, (session) => [session.name], (n) => `${count(n)} now, the newest first`, 'Nobody has signed in.', [
    { head: 'Name', cell: (session) => [html('strong', {}, shown(session.name)), session.own && [' ', badge('', 'this browser')]], name: true },
    { head: 'By', cell: (session) => (session.provider ? 'identity provider' : 'token'), wide: true },
    { head: 'Since', cell: (session) => ago(session.made), whole: true, wide: true },
    { head: 'Last used', cell: (session) => ago(session.used), whole: true },
    { head: 'Ends in', cell: (session) => until(session.ends), whole: true, wide: true },
    { act: true, cell: (session) => !session.own && button('End…', () => end(session, all.filter(({ name }) => name === session.name).length), 'quiet small', `End the session of ${session.name}…`) },
  ]) };

const parts = [tokens, sessions];

const isMine = (token) => identity().name === token.name;

const load = async (part, from = (signal) => read(part.path, signal)) => fill(byId(part.node), { lacks: () => part.lacks, draw: part.draw,
  load: async (signal) => { has[part.path] = await from(signal); return has[part.path]; } });

async function loadAll() {
  const [made] = await Promise.all(parts.map((part) => load(part)));
  byId('access-form').hidden = !made;
}

// attempt makes a change and says what came of it; it is its answer, or nothing.
async function attempt(what, words) {
  show('access-fault');
  try {
    const answer = await what();
    if (words) {
      show('done', html('span', {}, words), button('×', () => { byId('done').hidden = true; }, 'small', 'Close this message')).hidden = false;
    }
    return answer;
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    show('access-fault', html('p', { class: 'fault' }, fault.message));
    return null;
  }
}

async function make(event) {
  event.preventDefault();
  show('access-made');
  const owners = byId('access-owners').value.split(/[\s,;]+/).filter(Boolean);
  const made = await attempt(() => write('POST', 'v1/tokens', { name: byId('access-name').value.trim(), scope: byId('access-scope').value, ...(owners.length > 0 && { owners }) }));
  if (!made) return;
  byId('access-form').reset();
  const close = button('Done', () => { show('access-made'); byId('access-name').focus(); });
  show('access-made', html('div', { class: 'once' }, html('p', {}, 'The token of ', html('strong', {}, shown(made.name)), made.fleet && ', valid on all machines of the fleet', ', shown this once:'), html('p', {}, html('code', {}, made.token)),
    html('p', { class: 'buttons' }, navigator.clipboard && button('Copy', ({ target }) => navigator.clipboard.writeText(made.token).then(() => { target.textContent = 'Copied'; })), close)));
  close.focus();
}

const revoke = (token) => sure(`Revoke ${token.name}?`, `Who uses it is refused at once, and browsers that have signed in with it are signed out. ${isMine(token) ? 'It is the one that you have signed in with.' : ''}`,
  [['Revoke', () => attempt(() => write('DELETE', `v1/tokens?name=${encodeURIComponent(token.name)}${token.fleet ? '' : '&local=1'}`), ['The token of ', html('strong', {}, shown(token.name)), ' is worth nothing now.'])]]);

const end = (session, all) => sure(`End the session of ${session.name}?`, 'That browser has to sign in again. Who has a token may do so: revoke it, if that is meant.',
  [['End it', () => ended(session, `id=${session.id}`)], ...all > 1 ? [[`End all ${all} of ${session.name}`, () => ended(session, `name=${encodeURIComponent(session.name)}`)]] : []]);

const ended = (session, which) => attempt(() => write('DELETE', `v1/sessions?${which}`), [html('strong', {}, shown(session.name)), ' is signed out.']);

document.addEventListener('changed', () => place().name === 'access' && loadAll());

export const view = {
  title: () => 'Access',
  enter() {
    if (!byId('access-form')) build();
    loadAll();
  },
  leave() { // a token that was made is shown once
    show('access-made');
    has = {};
  },
};
