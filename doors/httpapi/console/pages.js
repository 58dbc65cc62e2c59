// A table that is too long to load at once: a search box, the first page, and more when it is asked for.

import { byId, html, show, table } from './dom.js';
import { fill, nothing, trouble } from './state.js';
import { note, place } from './views.js';
import { Refusal, read, save } from './door.js';

const patience = 250; // ms after a key, so that a word is one question
const size = 100; // rows of a page

/** queryOf writes parameters as the daemon reads them, for whom "+" is a plus. */
export const queryOf = (params) => new URLSearchParams(Object.entries(params).filter(([, value]) => value)).toString().replaceAll('+', '%20');

const day = () => new Date().toISOString().slice(0, 10);

/** files are links that save what is found, all of it. query is called when one is chosen. */
export const files = (path, query, fault = () => {}) => ['All of these as ', ...[['csv', 'CSV'], ['ndjson', 'NDJSON']].map(([ending, name], i) => [i > 0 && ' or ', html('a', {
  href: `${path}.${ending}`, download: '', click: async (event) => {
    event.preventDefault();
    try {
      await save(`${path}.${ending}?${queryOf(query())}`, `${path.split('/').at(-1)}-${day()}.${ending}`);
    } catch (reason) {
      if (!(reason instanceof Refusal)) throw reason;
      fault(reason);
    }
  } }, name)])];

/**
 * pages shows the rows of a resource in the element of an id, and serves its search box. of is what the caller knows: path, query (of the
 * place: parameters, q among them), rows (of an answer), columns, caption (of an answer and a text), none (what is said where there
 * is nothing), lacks (as of fill), and after (called with all rows that are shown). What it returns loads the first page.
 */
export function pages(id, of) {
  const node = byId(id);
  const search = byId(`${id}-search`);

  async function more(button, rows, next) {
    button.disabled = true;
    try {
      const answer = await read(`${of.path}?${queryOf({ ...of.query(place()), limit: size, cursor: next })}`);
      const at = rows.length;
      node.replaceChildren(...draw([...rows, ...of.rows(answer)], answer));
      node.querySelector('tbody').rows[at]?.querySelector('a, button')?.focus({ preventScroll: true });
    } catch (fault) {
      if (!(fault instanceof Refusal)) throw fault;
      button.disabled = false;
      button.before(trouble(fault));
    }
  }

  function draw(rows, answer) {
    const { q } = of.query(place());
    of.after?.(rows);
    if (rows.length === 0 && !answer.next) return [nothing(q ? `Nothing has "${q}" in it.` : of.none)];
    const button = answer.next && html('button', { type: 'button', class: 'quiet small', click: () => more(button, rows, answer.next) }, 'More');
    return [table(of.caption(answer, q), of.columns, rows, of.kind), button && html('p', { class: 'buttons' }, button)];
  }

  const load = (anew = true) => {
    if (document.activeElement !== search) search.value = of.query(place()).q ?? '';
    return fill(node, { anew, lacks: of.lacks, draw: (answer) => draw(of.rows(answer), answer),
      load: (signal) => read(`${of.path}?${queryOf({ ...of.query(place()), limit: size })}`, signal) });
  };

  let wait;
  search.addEventListener('input', () => {
    clearTimeout(wait);
    wait = setTimeout(() => {
      note({ q: search.value.trim() });
      (of.changed ?? load)(false);
    }, patience);
  });
  show(`${id}-files`, files(of.path, () => of.query(place()), (fault) => byId(`${id}-files`).append(trouble(fault))));
  return load;
}
