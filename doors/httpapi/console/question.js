// The question box: what the lists say of a sender, a domain or a client, while it is
// typed, and what became of their mail.

import { badge, byId, entry, html, show, table } from './dom.js';
import { decisionTable, decisionText, isTold } from './decisions.js';
import { shown, written } from './names.js';
import { propose, remove } from './entries.js';
import { follow, note, turn } from './views.js';
import { Refusal, read } from './door.js';
import { nothing, trouble } from './state.js';

const pause = 150; // ms without a key before the daemon is asked
const longPause = 500; // and its history, which takes it longer

const kinds = { blocked: 'bad', allowed: 'ok', clear: 'ok', unknown: 'warn' };

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
  return [answer.verdict === 'allowed' ? 'Allowed by ' : 'Listed in ', entry(match)];
}

function keysOf(answer) {
  return html('details', {}, html('summary', {}, 'How this was found'),
    table('The keys that were looked up, in this order; the filter alone never blocks', [
      { head: 'Key', cell: (key) => written(key.key), address: true },
      { head: 'Kind', cell: (key) => key.kind, wide: true },
      { head: 'Filter', cell: (key) => key.filter || '–' },
      { head: 'Store', cell: (key) => key.exact || '–' },
    ], answer.explain.keys));
}

function matchesOf(answer) {
  if (answer.matches.length < 2 && answer.matches.every((match) => !match.mode)) return null;
  return [html('h3', {}, 'All entries that match'), table('The most specific first', [
    { head: 'List', cell: (match) => [html('strong', {}, match.list), match.mode && [' ', badge('', match.mode === 'percent' ? `counts for ${match.percent} % of senders, not for this one` : match.mode)]] },
    { head: 'Entry', cell: (match) => written(match.entry), address: true },
    { head: 'Action', cell: (match) => match.action },
    { head: 'Line', cell: (match) => `${match.file}:${match.line}`, wide: true },
    { head: 'Reason', cell: (match) => shown(match.reason), wide: true },
  ], answer.matches)];
}

const byHand = 'live'; // the list of what was added by hand

// plain is a match as a plain list writes its entry.
function plain({ entry: name, kind, scope }) {
  if (kind !== 'domain') return name;
  return { exact: '=', sub: '.' }[scope]?.concat(name) ?? name;
}

// canonical is what an answer is about. Of a sender that cannot be read, the domain that
// can is not what was asked about.
const canonical = (text, answer) => answer.sender || !/.@|[%!]/.test(text) && answer.domain || !text.includes('@') && answer.client || '';

function answerText(text, answer) {
  const known = canonical(text, answer);
  const name = known || text;
  return [
    html('p', { class: 'verdict' }, badge(kinds[answer.verdict] ?? '', answer.verdict), html('span', {}, written(name))),
    html('p', {}, sentence(answer, answer.explain.decider)),
    answer.explain.correspondent && html('p', {}, `Your users wrote to this sender, last on ${answer.explain.correspondent}.`),
    html('p', { class: 'buttons answer-actions' },
      answer.matches.filter((match) => match.list === byHand).map(plain).map((own) =>
        html('button', { type: 'button', class: 'quiet small', click: () => remove(own) }, 'Remove ', html('code', {}, own))),
      known && [html('button', { type: 'button', class: 'bad small', click: () => propose(name, 'block') }, 'Block…'),
        html('button', { type: 'button', class: 'ok small', click: () => propose(name, 'allow') }, 'Allow…')]),
    matchesOf(answer), keysOf(answer)];
}

const found = 20; // decisions shown of a search

/** reference finds that of a refusal, alone or in the whole text of a reply. */
const reference = (text) => (/\b(?:ref |r\/)([0-9a-z]{10}(?:[0-9a-z]{6})?)\b/.exec(text) ?? /^([0-9a-z]{10}(?:[0-9a-z]{6})?)$/.exec(text))?.[1];

const check = (parameters, signal) => read(`v1/check?${encoded(parameters)}&explain=1`, signal);
const search = (parameters, signal) => read(`v1/decisions?${encoded(parameters)}`, signal);

// A query of /v1/check has no "+" for a blank.
const encoded = (parameters) => Object.entries(parameters).map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join('&');

async function past(text, about, signal) {
  const searches = about === 'ip' ? [['client', 'Mail from this client']] : [['sender', 'Mail from there'], ['recipient', 'Mail to there']];
  const parts = [];
  const told = [];
  for (const [parameter, caption] of searches) {
    const newest = await search({ [parameter]: text, limit: found }, signal);
    let mail = newest.decisions.filter((decision) => !isTold(decision));
    told.push(...newest.decisions.filter(isTold));
    if (newest.more && mail.length < found) { // what programs were told has left mail out
      mail = (await search({ [parameter]: text, outcome: 'mail', limit: found }, signal)).decisions;
    }
    if (mail.length > 0) parts.push(decisionTable(`${caption}, the newest first`, mail));
  }
  return html('div', {}, html('h3', {}, 'What became of their mail'), parts.length > 0 ? parts : html('p', { class: 'none' }, 'None is in the history.'),
    told.length > 0 && [html('h3', {}, 'What programs were told'), decisionTable('The newest first', told)]);
}

// history is what became of mail, or why that cannot be said: what the lists say stands all the same.
async function history(text, about, signal) {
  try {
    return await past(text, about, signal);
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    return html('div', {}, html('h3', {}, 'What became of their mail'), fault.status === 404 ? nothing('This daemon keeps no history.') : trouble(fault, askAgain));
  }
}

// explain answers about a reference: what was decided, and what would be decided now.
async function explain(ref, signal) {
  const { decisions: [decision], lists } = await search({ ref, limit: 1 }, signal);
  if (!decision) return [html('p', { class: 'none' }, 'No decision of this reference is in the history.')];
  const parts = [decisionText(decision, lists)];
  if (decision.sender || decision.client) {
    const parameters = decision.client && { client: decision.client };
    const answer = await check({ sender: decision.sender, ...parameters }, signal);
    parts.push(html('h3', {}, 'If it came now'), answerText(decision.sender, answer));
  }
  return parts;
}

let timer = 0;
let current = new AbortController();

// ask answers what stands in the box. thoroughly: at once, the history too.
async function ask(thoroughly) {
  clearTimeout(timer);
  current.abort();
  const { signal } = current = new AbortController();
  const text = byId('ask').value.trim();
  try {
    const ref = reference(text);
    if (text === '') {
      show('answer');
    } else if (ref) {
      show('answer', await explain(ref, signal));
    } else {
      const about = subject(text);
      const answer = await check({ [about]: text === '<>' ? '' : text }, signal);
      show('answer', answerText(text, answer));
      if (answer.verdict === 'unknown') return;
      if (!thoroughly) await new Promise((settle) => setTimeout(settle, longPause));
      if (signal.aborted) return;
      byId('answer').append(await history(canonical(text, answer) || text, about, signal));
    }
  } catch (fault) {
    if (fault.name === 'AbortError' || signal.aborted) return;
    if (!(fault instanceof Refusal)) throw fault;
    show('answer', fault.status === 400 ? html('p', { class: 'fault' }, fault.message) : fault.status === 404 ? nothing('This daemon keeps no history.') : trouble(fault, () => ask(true)));
  }
}

/** askAbout puts a text into the box, as if it had been typed. */
export function askAbout(text) {
  turn({ ask: text });
  byId('ask').focus();
}

/** askAgain answers once more, after a change. */
export const askAgain = () => byId('ask').value && ask(true);

export function listenToQuestion() {
  follow(({ params }) => { // Back, a link, or an address that somebody sent
    const text = params.get('ask') ?? '';
    if (text === byId('ask').value.trim()) return;
    byId('ask').value = text;
    ask(true);
  });
  byId('ask').addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      note({ ask: byId('ask').value.trim() });
      ask(false);
    }, pause);
  });
  byId('ask-form').addEventListener('submit', (event) => {
    event.preventDefault();
    note({ ask: byId('ask').value.trim() });
    ask(true);
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
