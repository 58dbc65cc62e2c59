// The past in numbers and charts: what was refused, what would have been, and what was asked.

import { address, place } from './views.js';
import { byId, count, html, show, svg } from './dom.js';
import { fill, leave as stop } from './state.js';
import { queryOf } from './pages.js';
import { read, save } from './door.js';
import { usual, words } from './range.js';
import { isRead, plot } from './plot.js';

const interval = 30_000; // ms; the last bar grows
const soon = 3000; // while the past is still being counted

// name, and what is said of none; query is that of /v1/series, and link leads to the decisions of that kind.
const charts = [
  { id: 'refused', title: 'Refused', by: 'by list', query: { by: 'list', outcome: 'refuse' }, none: 'No mail was refused', link: { show: 'all', outcome: 'refuse' } },
  { id: 'checks', title: 'Checks', by: 'by door', query: { by: 'checks' }, none: 'Nothing was asked', link: { show: 'all' } },
  { id: 'deferred', title: 'Deferred', by: 'by list', query: { by: 'list', outcome: 'defer' }, none: 'No mail was deferred', link: { show: 'all', outcome: 'defer' } },
  { id: 'overruled', title: 'Overruled', by: 'by list', query: { by: 'overruled' }, none: 'No entry was overruled by an exception', link: { show: 'all', verdict: 'allowed' } },
  { id: 'shadow', title: 'In shadow', by: 'by list', query: { by: 'shadow' }, none: 'No list in shadow would have refused mail' },
];

const open = new Set(); // charts whose table is shown
let timer = 0;

const total = (answer) => answer.series.reduce((sum, { counts }) => counts.reduce((all, n) => all + n, sum), 0);

// spark is the shape of a chart, for a card.
function spark(answer) {
  const bars = answer.series[0]?.counts.length ?? 0;
  const sums = Array.from({ length: bars }, (_, i) => answer.series.reduce((sum, { counts }) => sum + counts[i], 0));
  const wide = 48; // points
  const points = Array.from({ length: Math.min(wide, bars) }, (_, i) => sums.slice(Math.floor(i * bars / wide), Math.max(Math.floor((i + 1) * bars / wide), Math.floor(i * bars / wide) + 1)).reduce((a, b) => a + b, 0));
  const most = Math.max(...points, 1);
  const line = points.map((n, i) => `${(100 * i / Math.max(points.length - 1, 1)).toFixed(1)},${(28 - 26 * n / most).toFixed(1)}`);
  return svg('svg', { class: 'spark', viewBox: '0 0 100 30', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    line.length > 1 && [svg('polygon', { points: `0,30 ${line.join(' ')} 100,30` }), svg('polyline', { points: line.join(' ') })]);
}

const share = (n, all) => {
  if (!all) return '';
  const percent = 100 * n / all;
  return n === 0 ? '0 %' : percent < 0.1 ? 'less than 0.1 %' : `${percent.toFixed(percent < 10 ? 1 : 0)} %`;
};

function card(chart, answer, checks, time) {
  const n = total(answer);
  const inner = [html('span', { class: 'card-name' }, chart.title), html('b', {}, count(n)),
    html('span', { class: 'card-share' }, chart.id === 'checks' ? `in ${words(time)}` : checks > 0 ? `${share(n, checks)} of checks` : ' '), spark(answer)];
  return chart.link ? html('a', { class: `number-card ${chart.id}`, href: address('decisions', { time, ...chart.link }) }, inner) : html('div', { class: `number-card ${chart.id}` }, inner);
}

// isNew says whether nothing has been asked since counting began.
const isNew = ({ series, since, from, filling }) => !filling && (since === null || Date.parse(since) > Date.parse(from)) && series.every(({ counts }) => counts.every((n) => n === 0));

// first is what to do where no mail has come yet.
const first = () => html('section', { class: 'card first', 'aria-labelledby': 'first-title' },
  html('h2', { id: 'first-title' }, 'What to do next'),
  html('p', {}, 'No mail has been checked yet. Charts and numbers stand here as soon as some has.'),
  html('ol', {},
    html('li', {}, html('b', {}, 'Let mail come here.'), ' ', 'Your mail server asks blockd, or gets its mail through it: docs/postfix.md and docs/servers.md have the lines. ', html('code', {}, 'blockd doctor'), ' on this machine says what is missing.'),
    html('li', {}, html('b', {}, html('a', { href: address('lists', {}) }, 'Fill the lists.')), ' ', 'Write senders, domains and networks into their files, or add a public list: in shadow it refuses nothing, and shows what it would.'),
    html('li', {}, html('b', {}, html('a', { href: address('entries', {}) }, 'Block or allow somebody by hand.')), ' ', 'That acts at once, and can be undone.'),
    html('li', {}, html('b', {}, html('a', { href: '#ask', click: (event) => { event.preventDefault(); byId('ask').focus(); } }, 'Ask.')), ' ', 'The box at the top says of any sender what would become of their mail, and why.')));

function draw(answers, time) {
  const checks = total(answers[1]);
  if (isNew(answers[1])) {
    show('numbers');
    return first();
  }
  show('numbers', charts.map((chart, i) => card(chart, answers[i], checks, time)));
  return charts.map((chart, i) => {
    const answer = answers[i];
    const query = () => queryOf({ ...chart.query, span: time });
    const csv = html('a', { href: 'v1/series.csv', download: '', click: (event) => {
      event.preventDefault();
      save(`v1/series.csv?${query()}`, `${chart.id}-${time}.csv`);
    } }, 'CSV');
    const is = total(answer) > 0;
    return html('section', { class: `card chart-card ${chart.id}`, 'aria-labelledby': `chart-${chart.id}` },
      html('h2', { id: `chart-${chart.id}` }, chart.title, ' ', html('span', { class: 'soft' }, chart.by)),
      answer.filling && html('p', { class: 'hint' }, 'The past is still being counted from the history.'),
      is ? plot(`${chart.title} ${chart.by}`, answer, { open: open.has(chart.id), toggled: (now) => (now ? open.add(chart.id) : open.delete(chart.id)), more: csv })
        : html('p', { class: 'none' }, answer.since === null ? 'Nothing has been counted yet.' : `${chart.none} in the last ${words(time)}.`));
  });
}

/** showCharts shows them over the time of the address, now and from time to time. */
export function showCharts({ params }) {
  const time = params.get('time') ?? usual;
  const load = (anew) => {
    let filling = false;
    clearTimeout(timer);
    if (document.hidden && !anew) { // nobody looks
      timer = setTimeout(() => load(false), soon);
      return;
    }
    fill(byId('charts'), { anew, lacks: () => { show('numbers'); return 'This daemon keeps no counts of the past.'; },
      load: async (signal) => Promise.all(charts.map(({ query }) => read(`v1/series?${queryOf({ ...query, span: time })}`, signal))),
      draw: (answers) => {
        filling = answers.some((answer) => answer.filling);
        if (!anew && isRead(byId('charts'))) return [...byId('charts').childNodes];
        return draw(answers, time);
      },
    }).then(() => {
      if (place().name === 'overview') timer = setTimeout(() => load(false), filling ? soon : interval);
    });
  };
  load(true);
}

export function hideCharts() {
  clearTimeout(timer);
  stop(byId('charts'));
}
