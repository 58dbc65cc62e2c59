// Why an entry is not taken, and what can be done about it, in the words of people.

import { html } from './dom.js';
import { shown } from './names.js';

const reasons = {
  protected: ['many people write from there who have nothing to do with each other', 'Name single addresses there instead.'],
  'public-suffix': ['names of people who have nothing to do with each other are below it', 'Name the domains below it that are meant.'],
};

const cures = {
  'too-broad': 'Name the networks in it that are meant, or write it into the file of a list.',
  syntax: 'An entry is an address, a domain, a network, or a pattern such as *.shop.example.',
};

/** reading takes a refusal apart: {entry, class, message}, or null if it is no word about an entry. */
export function reading(fault) {
  const [, name, kind, message] = /^(?:refused by the gate|no live entry): "((?:[^"\\]|\\.)*)": ([a-z-]+): (.*?)(?:; if that is meant.*)?$/.exec(fault.message) ?? [];
  return kind ? { entry: name.replaceAll(/\\(.)/g, '$1'), class: kind, message } : null;
}

/** explained says why an entry is not taken. */
export function explained(fault) {
  const about = reading(fault);
  if (!about) return [shown(fault.message)];
  const [because, cure] = reasons[about.class] ?? [];
  return [html('code', {}, shown(about.entry)), ' was not taken: it ', /^(covers|matches|reaches)/.test(about.message) ? '' : 'is ', shown(about.message),
    because && `, and ${because}`, '. ', cure ?? cures[about.class] ?? '', ' ', html('small', {}, `(${about.class})`)];
}

/**
 * insisting lets somebody have their way with an entry that the gate refuses. They are asked twice, for what is done
 * acts on strangers at once.
 */
export function insisting(fault, entry, insist) {
  const about = reading(fault);
  const button = (kind, text, click) => html('button', { type: 'button', class: `${kind} small`, click }, text);
  const place = html('span', { class: 'insist' });
  const first = () => place.replaceChildren(button('quiet', 'Do it all the same', second));
  const second = () => {
    const deed = entry.action === 'allow' ? 'lets in' : 'refuses';
    place.replaceChildren(html('strong', {}, `This ${deed} mail of everybody at ${about?.entry ?? entry.entry}, at once. `),
      button('bad', `Yes, ${entry.action} ${about?.entry ?? entry.entry}`, insist), ' ', button('quiet', 'No', first));
    place.querySelector('button:last-child').focus(); // a second Enter must do no harm
  };
  first();
  return place;
}
