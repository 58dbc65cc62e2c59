// Whether the daemon answers: what the page shows is worth as much as it is new.

import { byId, html, show } from './dom.js';

const patience = 4000; // ms without a word from the daemon, who is asked every two seconds

let last = 0; // when it was heard, by performance.now(); 0: never
let lastTime = null;
let since = performance.now(); // when the page began to listen: a page that was not looked at asks nothing
let silent = false;

/** heard notes that the daemon has said something, whatever it was. */
export function heard() {
  last = performance.now();
  lastTime = new Date();
  if (silent || byId('link').textContent === '') tick();
}

/** isSilent says whether the daemon has not been heard for too long. */
export const isSilent = () => silent;

function tick() {
  if (document.hidden) return;
  const age = performance.now() - Math.max(last, since);
  silent = age >= patience;
  const word = silent ? 'no news' : last > 0 ? 'live' : '';
  if (byId('link').textContent !== word) {
    byId('link').textContent = word;
    byId('link').className = `link ${silent ? 'down' : 'up'}`;
    show('silence', silent && html('p', { class: 'fault' }, lastTime
      ? `No news from the daemon since ${lastTime.toLocaleTimeString([], { hour12: false })}. What stands below is as it was then.`
      : 'No news from the daemon: it does not answer.'));
    document.body.classList.toggle('silent', silent);
  }
  byId('silent-for').textContent = silent ? ` for ${Math.floor((performance.now() - (last || since)) / 1000)} s` : ''; // too quick to be read out
}

export function watchPulse() {
  setInterval(tick, 500);
  document.addEventListener('visibilitychange', () => {
    since = performance.now();
    tick();
  });
}
