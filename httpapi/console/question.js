// The question box: what the lists say of a sender, a domain or a client, while it is
// typed, and what became of their mail.

import { badge, byId, html, show, table } from './dom.js';
import { propose } from './entries.js';
import { read } from './door.js';

const pause = 150; // ms without a key before the daemon is asked

const kinds = { blocked: 'bad', allowed: 'ok', clear: 'ok', unknown: 'warn' };
const scopes = { tree: ' and all names below it', sub: ' (the names below it)', local: ' (at any domain)', exact: '' };

/** subject says what a text is about: a parameter of /v1/check. */
export function subject(text) {
  if (text.includes('@') || text === '<>') return 'sender';
  if (/^[0-9.]+$/.test(text) || /^[0-9a-f:.]*:[0-9a-f:.]*$/i.test(text)) return 'ip';
  return 'domain';
}

function sentence(answer, decider) {
  const match = answer.matches[decider];
  if (answer.verdict === 'unknown') return answer.explain.error || 'Nothing can be said.';
  if (!match) return answer.matches.length > 0 ? 'No entry that counts.' : 'On no list.';
  return [match.action === 'allow' ? 'allowed by ' : `${match.action} by `, html('strong', {}, match.list), `, line ${match.line} of `,
    html('code', {}, match.file), ': ', html('code', {}, match.entry), scopes[match.scope] ?? '', match.reason && ` – ${match.reason}`];
}

function keysOf(answer) {
  return html('details', {}, html('summary', {}, 'How this was found'),
    table('The keys that were looked up, in this order; the filter alone never blocks', [
      { head: 'Key', cell: (key) => html('code', {}, key.key) },
      { head: 'Kind', cell: (key) => key.kind, wide: true },
      { head: 'Filter', cell: (key) => key.filter || '–' },
      { head: 'Store', cell: (key) => key.exact || '–' },
    ], answer.explain.keys));
}

function matchesOf(answer) {
  if (answer.matches.length < 2 && answer.matches.every((match) => match.mode !== 'shadow')) return null;
  return [html('h3', {}, 'All entries that match'), table('The most specific first', [
    { head: 'List', cell: (match) => [html('strong', {}, match.list), match.mode === 'shadow' && [' ', badge('', 'shadow')]].flat() },
    { head: 'Entry', cell: (match) => html('code', {}, match.entry) },
    { head: 'Action', cell: (match) => match.action },
    { head: 'Line', cell: (match) => `${match.file}:${match.line}`, wide: true },
    { head: 'Reason', cell: (match) => match.reason, wide: true },
  ], answer.matches)];
}

function showAnswer(text, answer) {
  const name = answer.sender || answer.domain || answer.client || text;
  const can = answer.verdict !== 'unknown' && (answer.sender || answer.domain || answer.client);
  show('answer',
    html('p', { class: 'verdict' }, badge(kinds[answer.verdict] ?? '', answer.verdict), html('code', {}, name)),
    html('p', {}, sentence(answer, answer.explain.decider)),
    can && html('p', { class: 'buttons answer-actions' },
      html('button', { type: 'button', class: 'bad small', click: () => propose(name, 'block') }, 'Block…'),
      html('button', { type: 'button', class: 'ok small', click: () => propose(name, 'allow') }, 'Allow…')),
    matchesOf(answer), keysOf(answer));
}

let timer = 0;
let current = new AbortController();

async function ask() {
  clearTimeout(timer);
  current.abort();
  const text = byId('ask').value.trim();
  if (text === '') {
    show('answer');
    return;
  }
  current = new AbortController();
  try {
    const about = subject(text);
    showAnswer(text, await read(`v1/check?${about}=${encodeURIComponent(text === '<>' ? '' : text)}&explain=1`, current.signal));
  } catch (fault) {
    if (fault.name !== 'AbortError') show('answer', html('p', { class: 'fault' }, fault.message));
  }
}

/** askAbout puts a text into the box, as if it had been typed. */
export function askAbout(text) {
  byId('ask').value = text;
  byId('ask').focus();
  ask();
}

export const askAgain = ask;

export function listenToQuestion() {
  byId('ask').addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(ask, pause);
  });
  byId('ask-form').addEventListener('submit', (event) => {
    event.preventDefault();
    ask();
  });
  document.addEventListener('keydown', (event) => {
    const typing = event.target.closest('input, select, dialog');
    if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      byId('ask').focus();
      byId('ask').select();
    }
  });
}
