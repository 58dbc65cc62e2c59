// What happens when the page is opened.

import { askAbout, askAgain, listenToQuestion } from './question.js';
import { askToken, hasToken } from './door.js';
import { byId } from './dom.js';
import { listenToEntries, loadEntries } from './entries.js';
import { searchDecisions, watchDecisions } from './decisions.js';
import { loadChanges } from './changes.js';
import { loadFleet, watchFleet } from './fleet.js';
import { loadProposals } from './proposals.js';
import { loadQuarantine } from './quarantine.js';
import { loadRequests } from './requests.js';
import { watchHealth } from './health.js';

listenToQuestion();
listenToEntries(askAgain);
byId('token').addEventListener('click', () => askToken(hasToken()
  ? 'This tab has a token. Another one takes its place.'
  : 'To change something wants a token of scope write.'));
document.addEventListener('token', loadEntries);
document.addEventListener('token', loadQuarantine);
document.addEventListener('token', loadRequests);
document.addEventListener('token', loadProposals);
document.addEventListener('token', loadChanges);
document.addEventListener('token', loadFleet);
document.addEventListener('changed', loadChanges);
watchHealth();
loadEntries();
loadQuarantine();
loadRequests();
loadProposals();
loadChanges();
watchFleet();
searchDecisions(askAbout);
watchDecisions(askAbout, (up) => {
  byId('link').className = up ? 'link up' : 'link down';
  byId('link').textContent = up ? 'live' : 'not live';
});
