// The first view: is it well, and what happened?

import { hideCharts, showCharts } from './charts.js';
import { drawTraffic } from './chart.js';
import { ranges } from './range.js';
import { show } from './dom.js';
import { trouble } from './state.js';
import { showTops } from './tops.js';
import { watch } from './stream.js';

let running = null; // what ends the stream
let time = null; // that the charts show

export const overview = {
  title: () => 'Overview',
  enter(at) {
    show('overview-time', ranges(at));
    if (time !== at.params.get('time') || !running) showCharts(at);
    time = at.params.get('time');
    showTops(at);
    if (running) return;
    running = new AbortController();
    watch(running.signal, { event: (name, data) => { if (name === 'traffic') drawTraffic(data); },
      lost: (fault) => show('traffic', trouble(fault)) });
  },
  leave() {
    running?.abort();
    running = null;
    hideCharts();
  },
};
