// What a list would have done to the mail of the past.

import { ago, badge, count, html, table } from './dom.js';
import { written } from './names.js';
import { Refusal, read } from './door.js';
import { trouble } from './state.js';

const spans = [['1h', '1 hour'], ['24h', '24 hours'], ['7d', '7 days'], ['30d', '30 days']];

const rows = (head, all) => all.length > 0 && table(`By ${head.toLowerCase()}, the most first`, [
  { head, cell: ({ name }) => written(name || '<>'), address: true },
  { head: 'Mails', cell: ({ mails }) => count(mails), number: true },
  { head: 'Last', cell: ({ last }) => ago(last), whole: true, wide: true },
], all.slice(0, 20));

function draw(answer) {
  const others = [['refused_then', 'were refused then, too'], ['already_listed', 'were listed elsewhere already'], ['exempt', 'were to exempt recipients'], ['allowed', 'an exception lets in'], ['not_counted', 'do not count'], ['unchecked', 'cannot be told']]
    .filter(([name]) => answer[name] > 0).map(([name, text]) => html('span', {}, `${count(answer[name])} ${text}`));
  return [html('p', { class: 'verdict' }, badge(answer.refused > 0 ? 'bad' : 'ok', `${count(answer.refused)} refused`), `of ${count(answer.accepted)} accepted mails, from ${count(answer.senders)} senders`),
    html('p', { class: 'facts' }, html('span', {}, `${count(answer.decisions)} decisions since ${new Date(answer.since).toLocaleString()}`), others),
    answer.complete === false && html('p', { class: 'hint' }, 'This ended early: there is more history than is read here. blockd replay reads all of it.'),
    rows('Domain', answer.by_domain), rows('Sender', answer.by_sender), rows('Entry', answer.by_entry)];
}

/** replayPart is a part of the page that asks what a list would have refused. */
export function replayPart(path, list) {
  const span = html('select', { id: 'replay-span' }, spans.map(([value, words]) => html('option', { value, selected: value === '7d' }, words)));
  const result = html('div', { role: 'region', 'aria-live': 'polite', 'aria-label': 'What it would have refused' });
  const button = html('button', { type: 'submit', class: 'quiet' }, 'Replay');
  const form = html('form', { class: 'row', submit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    result.replaceChildren(html('p', { class: 'state loading' }, 'Reading the history…'));
    try {
      result.replaceChildren(...draw(await read(`${path}/replay?span=${span.value}`, undefined, 60_000)).flat(Infinity).filter(Boolean));
    } catch (fault) {
      if (!(fault instanceof Refusal)) throw fault;
      result.replaceChildren(trouble(fault));
    } finally {
      button.disabled = false;
    }
  } }, html('div', { class: 'field' }, html('label', { for: 'replay-span' }, 'In the last'), span), button);
  return html('section', { class: 'card', 'aria-label': `What would ${list} have refused?` }, html('h2', {}, `What would ${list} have refused?`), form, result);
}
