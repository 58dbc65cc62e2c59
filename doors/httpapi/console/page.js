// What happens when the page is opened.

import { again, begin, follow } from './views.js';
import { askAgain, listenToQuestion } from './question.js';
import { decisionView, listenToDecisions } from './decisionview.js';
import { entryView, listenToEntries } from './entries.js';
import { listView, listenToLists } from './lists.js';
import { byId } from './dom.js';
import { late } from './late.js';
import { identity, listenToSignIn } from './signin.js';
import { overview } from './overview.js';
import { watchHealth } from './health.js';
import { watchPulse } from './pulse.js';
import { watchWaiting } from './waiting.js';

// A link to a part of the page would take the place of the view in the address.
for (const link of document.querySelectorAll('.skip')) {
  link.addEventListener('click', (event) => {
    event.preventDefault();
    byId(link.dataset.to).focus();
  });
}

// The views keep the time that was chosen, so that one is asked about after the other.
function mark({ name, params }) {
  for (const link of byId('nav').querySelectorAll('a')) {
    const to = link.hash.slice(1).split('?')[0];
    const time = params.get('time');
    link.setAttribute('href', `#${to}${time && ['overview', 'decisions', 'lists', 'entries'].includes(to) ? `?time=${time}` : ''}`);
    if (to === name) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  const group = byId('nav').querySelector('[aria-current]').parentNode.dataset.of ?? name;
  for (const sub of byId('nav').querySelectorAll('.sub')) sub.classList.toggle('near', sub.dataset.of === group);
}

// Who has a token concerns administrators alone.
const offerAccess = () => { byId('nav').querySelector('a[href^="#access"]').parentNode.hidden = identity().scope !== 'admin'; };

function showViews() {
  listenToQuestion();
  listenToEntries(askAgain);
  listenToDecisions();
  listenToLists();
  begin({
    overview, decisions: decisionView, lists: listView, entries: entryView,
    changes: late('Changes', () => import('./changes.js')), access: late('Access', () => import('./access.js')), fleet: late('Fleet', () => import('./fleet.js')), proposals: late('Proposals', () => import('./proposals.js')),
    quarantine: late('Quarantine', () => import('./quarantine.js')), requests: late('Requests', () => import('./requests.js')),
  });
  follow(mark);
  offerAccess();
  document.addEventListener('token', offerAccess);
  document.addEventListener('token', again);
  watchHealth();
  watchWaiting();
}

watchPulse();
const me = await listenToSignIn(); // nobody, if the daemon does not answer
if (me.owners) (await import('./own.js')).showOwn();
else showViews();
