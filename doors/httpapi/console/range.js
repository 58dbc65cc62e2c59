// The time that a view looks at.

import { here } from './views.js';
import { html } from './dom.js';

const spans = { '1h': ['1 h', 3600], '24h': ['24 h', 86_400], '7d': ['7 d', 604_800], '30d': ['30 d', 2_592_000] };

/** usual is the time that a view looks at without a word of it. */
export const usual = '24h';

/** seconds is how long a time is. */
export const seconds = (time) => (spans[time] ?? spans[usual])[1];

/** words says a time, as in "of the last 24 h". */
export const words = (time) => (spans[time] ?? spans[usual])[0];

/** since is when a time began, to the second. */
export const since = (time) => new Date(Math.floor(Date.now() / 1000 - seconds(time)) * 1000).toISOString().replace('.000Z', 'Z');

/** ranges are links to the same view over other times. first, if it is there, is a link for no time: its words and its parameter. */
export const ranges = ({ params }, first) => html('nav', { class: 'ranges', 'aria-label': 'Time' },
  [...first ? [first] : [], ...Object.entries(spans).map(([time, [text]]) => [text, time])].map(([text, time]) =>
    html('a', { href: here({ time, since: '', until: '' }), 'aria-current': (params.get('time') ?? (first ? '' : usual)) === time ? 'true' : null }, text)));
