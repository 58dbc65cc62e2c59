// What happens when the page is opened.

import { askAgain, listenToQuestion } from './question.js';
import { askToken, hasToken } from './door.js';
import { byId } from './dom.js';
import { listenToEntries, loadEntries } from './entries.js';
import { watchHealth } from './health.js';

listenToQuestion();
listenToEntries(askAgain);
byId('token').addEventListener('click', async () => {
  await askToken(hasToken() ? 'This tab has a token. Another one takes its place.' : 'Changing something wants a token of scope write.');
  loadEntries();
});
watchHealth((up) => {
  byId('link').className = up ? 'link up' : 'link down';
});
loadEntries();
