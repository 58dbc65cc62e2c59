// What the daemon would make of lines, before they stand in a list.

import { badge, count, html, table } from './dom.js';
import { Refusal, put } from './door.js';
import { queryOf } from './pages.js';
import { shown } from './names.js';
import { trouble } from './state.js';

const largest = 1 << 20; // octets that the daemon takes

function draw({ summary, items, more }) {
  return [html('p', { class: 'verdict' }, badge(summary.errors > 0 ? 'warn' : 'ok', summary.verdict), `${count(summary.entries)} entries of ${count(summary.lines)} lines`,
    summary.errors > 0 && `, ${count(summary.errors)} refused`), summary.why && html('p', {}, shown(summary.why)),
  items.length > 0 && table(`To look at${more > 0 ? `; ${count(more)} more are not shown` : ''}`, [
    { head: 'Line', cell: ({ line }) => count(line), number: true },
    { head: 'Text', cell: ({ text, key }) => html('code', {}, shown(text ?? key ?? '')), address: true },
    { head: 'Why', cell: (item) => [item.class && badge('warn', item.class), ' ', shown(item.message ?? ''), item.hint && html('div', { class: 'soft' }, shown(item.hint))], why: true },
  ], items)];
}

/** lintPart is a part of the page that reads a pasted text as lines of a list. */
export function lintPart(list) {
  const text = html('textarea', { id: 'lint-text', rows: 5, spellcheck: 'false', autocapitalize: 'none' });
  const result = html('div', { role: 'region', 'aria-live': 'polite', 'aria-label': 'What the lines mean' });
  const form = html('form', { submit: async (event) => {
    event.preventDefault();
    if (new TextEncoder().encode(text.value).length > largest) {
      result.replaceChildren(html('p', { class: 'fault' }, 'At most 1 MiB is read here: blockd lint reads files of any size.'));
      return;
    }
    result.replaceChildren(html('p', { class: 'state loading' }, 'Reading…'));
    try {
      result.replaceChildren(...draw(await put(`v1/lint?${queryOf({ list })}`, text.value, 'text/plain')).flat(Infinity).filter(Boolean));
    } catch (fault) {
      if (!(fault instanceof Refusal)) throw fault;
      result.replaceChildren(trouble(fault));
    }
  } }, html('label', { for: 'lint-text' }, 'Lines as they would stand in the file'), text, html('p', { class: 'buttons' }, html('button', { type: 'submit', class: 'quiet' }, 'Read them')));
  return html('section', { class: 'card', 'aria-label': 'Try lines' }, html('h2', {}, 'Try lines'), form, result);
}
