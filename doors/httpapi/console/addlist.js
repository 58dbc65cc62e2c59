// Adding a list: by who may, or as the text for the configuration, which a person puts there.

import { byId, count, html, show } from './dom.js';
import { Refusal, read } from './door.js';
import { queryOf } from './pages.js';
import { shown } from './names.js';
import { addIt, mayAdd, subscriptions } from './subscription.js';
import { trouble } from './state.js';

const answer = () => byId('list-text');

async function text(what) {
  answer().replaceChildren(html('p', { class: 'state loading' }, 'Asking…'));
  try {
    const of = await read(`v1/catalogue/text?${queryOf({ what })}`);
    show('list-text', of.said && html('p', {}, shown(of.said)),
      html('p', {}, 'At the end of config.toml; the list counts for nobody until you take the shadow away:'),
      html('pre', { tabindex: 0, role: 'region', 'aria-label': 'Text for the configuration' }, of.text), of.command && html('p', {}, 'The same by command: ', html('code', {}, of.command)));
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    show('list-text', fault.status === 400 ? html('p', { class: 'fault' }, shown(fault.message)) : trouble(fault));
  }
}

const described = (list) => `${list.name}: ${list.what}${list.entries > 0 ? `, ${count(list.entries)} entries` : ''}${list.licence ? `, ${list.licence}` : ''}${list.configured ? ' (you have it)' : ''}`;

/** showAdding asks which list. */
export async function showAdding() {
  let lists = [];
  const may = mayAdd(await subscriptions());
  try {
    ({ lists } = await read('v1/catalogue'));
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    show('list-new', html('div', { class: 'card' }, trouble(fault, showAdding)));
    return;
  }
  const url = html('input', { id: 'list-url', type: 'url', spellcheck: 'false', autocapitalize: 'none', maxlength: 2000, input: () => { one.value = ''; } });
  const one = html('select', { id: 'list-one', change: () => { url.value = ''; } }, html('option', { value: '' }, 'none'), lists.map((list) => html('option', { value: list.name }, described(list))));
  const why = may && html('input', { id: 'list-why', maxlength: 200, autocomplete: 'off' });
  show('list-new', html('section', { class: 'card', 'aria-label': 'Add a list' }, html('h2', {}, 'Add a list'),
    may && html('p', { class: 'hint' }, 'It only watches at first; nobody is refused.'),
    html('form', { class: 'row', submit: (event) => {
      event.preventDefault();
      const what = one.value || url.value.trim();
      if (may) addIt(what, why.value.trim());
      else text(what);
    } }, html('div', { class: 'field grow' }, html('label', { for: 'list-url' }, 'Address of a list'), url),
    html('div', { class: 'field grow' }, html('label', { for: 'list-one' }, 'Or one of the catalogue'), one),
    may && html('div', { class: 'field grow' }, html('label', { for: 'list-why' }, 'Why'), why),
    html('button', { type: 'submit', class: 'quiet' }, may ? 'Add it' : 'Show the text')), html('div', { id: 'list-text', role: 'region', 'aria-live': 'polite', 'aria-label': 'How to add it' })));
  url.focus();
}
