// A list that was added here: it is let count, and it is taken away.

import { byId, count, html, show } from './dom.js';
import { Refusal, read, write } from './door.js';
import { identity } from './signin.js';
import { shown } from './names.js';

/** subscriptions are the lists that were added, and whether this person may add one; null if that is not to be known. */
export async function subscriptions(signal) {
  try {
    return await read('v1/subscriptions', signal);
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    return null;
  }
}

/** mayAdd reports whether the person who is signed in may add lists. */
export const mayAdd = (all) => Boolean(all?.open) && identity().scope === 'admin';

async function change(list, method, path) {
  show('list-fault', html('p', { class: 'state loading' }, 'Taking it up…'));
  try {
    await write(method, path);
    show('list-fault');
    if (method === 'DELETE') location.hash = '#lists';
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    show('list-fault', html('p', { class: 'fault' }, shown(fault.message)));
  }
}

// past says what a list would have refused in a week.
async function past(list) {
  try {
    const answer = await read(`v1/lists/${encodeURIComponent(list)}/replay?span=7d`, undefined, 60_000);
    return `In the last 7 days it would have refused ${count(answer.refused)} of ${count(answer.accepted)} accepted mails${answer.complete === false ? ', and there is more history than was read' : ''}.`;
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    return `What it would have refused in the last 7 days is not known: ${fault.message}`;
  }
}

// question asks, and does what follows after a yes. The button that has the focus is No.
function question(title, text, yes, then) {
  const dialog = byId('message-dialog');
  const no = html('button', { type: 'button', class: 'quiet', click: () => dialog.close() }, 'No');
  show('message-dialog', html('h2', { id: 'message-title' }, title), html('p', {}, text),
    html('p', {}, no, ' ', html('button', { type: 'button', class: 'quiet', click: () => { dialog.close(); then(); } }, yes)));
  dialog.showModal();
  no.focus();
}

async function enforce(list, button) {
  button.disabled = true;
  const said = await past(list);
  button.disabled = false;
  question(`Let ${list} count?`, said, 'Let it count', () => question(`Really let ${list} count?`, 'From then on it refuses mail.', 'Yes, it refuses', () => change(list, 'POST', `v1/subscriptions/${encodeURIComponent(list)}/enforce`)));
}

const remove = (list) => question(`Remove ${list}?`, 'What it refuses passes then, and its copy goes.', 'Remove it', () => change(list, 'DELETE', `v1/subscriptions/${encodeURIComponent(list)}`));

/** steps are buttons for a list that was added here. */
export function steps(all, list) {
  const row = mayAdd(all) && all.lists.find((one) => one.list === list.list && one.changes);
  return row && html('span', { class: 'buttons' },
    row.mode === 'shadow' && html('button', { type: 'button', class: 'quiet small', 'aria-label': `Let ${row.list} count…`, click: ({ currentTarget }) => enforce(row.list, currentTarget) }, 'Let it count…'),
    html('button', { type: 'button', class: 'quiet small', 'aria-label': `Remove ${row.list}…`, click: () => remove(row.list) }, 'Remove…'));
}

/** addIt adds a list, and leads to its page. */
export async function addIt(what, why) {
  show('list-text', html('p', { class: 'state loading' }, 'Adding it…'));
  try {
    const added = await write('POST', 'v1/subscriptions', { what, why });
    show('list-text', html('p', {}, 'Added: ', html('a', { href: `#lists/${encodeURIComponent(added.list)}` }, added.list), '. It is fetched now, and only watches: nobody is refused.'));
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    byId('list-text').replaceChildren(html('p', { class: 'fault' }, shown(fault.message)));
  }
}
