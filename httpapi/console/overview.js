// The first view: is it well, and what happened?

import { drawTraffic } from './chart.js';
import { watch } from './stream.js';

let running = null; // what ends the stream

export const overview = {
  title: () => 'Overview',
  enter() {
    if (running) return;
    running = new AbortController();
    watch(running.signal, { event: (name, data) => { if (name === 'traffic') drawTraffic(data); } });
  },
  leave() {
    running?.abort();
    running = null;
  },
};
