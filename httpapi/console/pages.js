// A table that is too long to load at once: a search box, the first page, and more when it is asked for.

import { byId, html, show, table } from './dom.js';
import { read, save } from './door.js';

const patience = 250; // ms after a key, so that a word is one question

/**
 * pages shows the rows of a resource in the element of an id. of is what the caller knows: path, rows (of an
 * answer), columns, caption (of an answer), none (what is said where there is nothing; without it nothing is shown until there is a text), and missing,
 * which is called where the daemon has no such resource. What it returns loads the first page again.
 */
export function pages(id, of) {
  let text = '';
  let running = null;
  let rows = [];

  const query = (more) => new URLSearchParams({ ...(text && { q: text }), ...more }).toString().replaceAll('+', '%20');

  async function load(cursor) {
    running?.abort();
    if (!text && !of.none) {
      show(id);
      return;
    }
    const mine = running = new AbortController();
    try {
      const answer = await read(`${of.path}?${query({ limit: 100, ...(cursor && { cursor }) })}`, mine.signal);
      rows = [...(cursor ? rows : []), ...of.rows(answer)];
      if (rows.length === 0 && !answer.next) {
        show(id, html('p', { class: 'none' }, text ? `Nothing has "${text}" in it.` : of.none));
      } else {
        show(id, table(of.caption(answer, text), of.columns, rows),
          answer.next && html('p', { class: 'buttons' }, html('button', { type: 'button', class: 'quiet small', click: () => load(answer.next) }, 'More')));
      }
    } catch (fault) {
      if (fault.name === 'AbortError') return;
      if (fault.status === 404) of.missing();
      else show(id, html('p', { class: 'fault' }, fault.message));
    }
  }

  let wait;
  byId(`${id}-search`).addEventListener('input', (event) => {
    text = event.target.value.trim();
    clearTimeout(wait);
    wait = setTimeout(() => load(), patience);
  });
  for (const [ending, name] of [['csv', 'CSV'], ['ndjson', 'NDJSON']]) {
    byId(`${id}-${ending}`).replaceChildren(html('a', { href: `${of.path}.${ending}`, download: '', click: (event) => {
      event.preventDefault();
      save(`${of.path}.${ending}?${query()}`, `${of.path.split('/').at(-1)}.${ending}`);
    } }, name));
  }
  return () => load();
}
