// A drawing of counts over time: stacked bars, whose numbers the pointer, the arrow keys and a table give.

import { count, html, svg, table } from './dom.js';
import { shown } from './names.js';

const colours = 6; // that can be told apart; further series are one
const [left, right, top, foot] = [44, 8, 8, 22]; // px around the bars
const height = 168;

const two = (n) => String(n).padStart(2, '0');
const hour = (d) => `${two(d.getHours())}:${two(d.getMinutes())}`;
const day = (d) => d.toLocaleDateString('en-GB', { day: 'numeric', month: 'short' });

// What stands below the bars, by the seconds of one: at which of them, and as what.
const marks = {
  60: [(d) => d.getMinutes() % 10 === 0, hour],
  600: [(d) => d.getMinutes() < 10 && d.getHours() % 4 === 0, hour],
  3600: [(d) => d.getHours() === 0, day],
  21600: [(d) => d.getHours() < 6 && d.getDate() % 5 === 1 && d.getDate() < 31, day],
  86400: [(d) => d.getDate() === 1, day],
};

/** about says when a bar was. */
function about({ from, step }, i) {
  const begin = new Date(from + i * step * 1000);
  const end = new Date(from + (i + 1) * step * 1000);
  return step >= 86400 ? day(begin) : `${day(begin)}, ${hour(begin)}–${hour(end)}`;
}

// tidy is the answer of /v1/series as the drawing has it: a few series, the most first, which stands at the ground.
function tidy(answer) {
  const from = Date.parse(answer.from);
  const bars = Math.round((Date.parse(answer.until) - from) / 1000 / answer.step);
  const first = answer.series.length > colours ? answer.series.slice(0, colours - 1) : answer.series;
  const rest = answer.series.slice(first.length);
  const series = [...first];
  if (rest.length > 0) series.push({ name: `${rest.length} others`, counts: Array.from({ length: bars }, (_, i) => rest.reduce((sum, { counts }) => sum + counts[i], 0)) });
  const since = answer.since === null ? bars : Math.max(0, Math.floor((Date.parse(answer.since) - from) / 1000 / answer.step));
  return { from, step: answer.step, bars, series, since };
}

// ceiling is the least round number that is not below one, and how many lines lead there.
const rounds = [[1, 2], [1.5, 3], [2, 2], [3, 3], [4, 4], [5, 5], [6, 3], [8, 4], [10, 2]];

function ceiling(n) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(n, 1)));
  const [factor, lines] = rounds.find(([factor]) => factor * unit >= n);
  return [Math.max(factor * unit, 2), lines];
}

const brief = (n) => (n >= 1e6 ? `${+(n / 1e6).toFixed(1)}M` : n >= 1e4 ? `${+(n / 1e3).toFixed(1)}k` : count(n));

function draw(width, data) {
  const { bars, series, since } = data;
  const wide = (width - left - right) / bars;
  const high = height - top - foot;
  const sums = Array.from({ length: bars }, (_, i) => series.reduce((sum, { counts }) => sum + counts[i], 0));
  const [most, lines] = ceiling(Math.max(...sums, 0));
  const x = (i) => left + i * wide;
  const y = (n) => top + high - (n / most) * high;
  const parts = [];
  for (let i = 0; i <= lines; i++) {
    const n = (most / lines) * i;
    if (!Number.isInteger(n)) continue;
    parts.push(svg('line', { class: 'grid', x1: left, x2: width - right, y1: y(n), y2: y(n) }),
      svg('text', { class: 'tick', x: left - 6, y: y(n) + 4, 'text-anchor': 'end' }, brief(n)));
  }
  const [isMark, words] = marks[data.step] ?? marks[86400];
  let last = -Infinity;
  for (let i = 0; i < bars; i++) {
    const at = new Date(data.from + i * data.step * 1000);
    if (!isMark(at) || x(i) - last < 46) continue;
    if (data.step === 3600 && i > 0 && new Date(data.from + (i - 1) * data.step * 1000).getHours() === 0) continue;
    last = x(i) + (i < 2 ? 20 : 0);
    parts.push(svg('line', { class: 'mark', x1: x(i), x2: x(i), y1: top + high, y2: top + high + 4 }),
      svg('text', { class: 'tick', x: Math.min(x(i), width - 24), y: height - 4, 'text-anchor': i < 2 ? 'start' : 'middle' }, words(at)));
  }
  if (since > 0) {
    parts.push(svg('rect', { class: 'unknown-time', x: left, y: top, width: x(Math.min(since, bars)) - left, height: high }));
    if (since * wide > 130) parts.push(svg('text', { class: 'tick', x: left + (since * wide) / 2, y: top + high / 2, 'text-anchor': 'middle' }, 'not counted then'));
  }
  for (let i = 0; i < bars; i++) {
    let from = 0;
    for (const [k, { counts }] of series.entries()) {
      if (!counts[i]) continue;
      // One refusal among a thousand is still to be seen.
      const tall = Math.max(1.5, y(from) - y(from + counts[i]));
      parts.push(svg('rect', { class: `c${k}`, x: (x(i) + (wide > 3 ? 0.5 : 0)).toFixed(2), y: (y(from) - tall).toFixed(2), width: Math.max(wide - (wide > 3 ? 1 : 0), 0.8).toFixed(2), height: tall.toFixed(2) }));
      from += counts[i];
    }
  }
  const cursor = svg('rect', { class: 'cursor', x: -99, y: top, width: Math.max(wide, 2), height: high });
  parts.push(cursor);
  return { drawing: svg('svg', { class: 'plot', viewBox: `0 0 ${width} ${height}`, width, height, 'aria-hidden': 'true' }, parts),
    point: (i) => cursor.setAttribute('x', i < 0 ? -99 : x(i)), at: (px) => Math.floor((px - left) / wide) };
}

const readout = (data, i) => {
  const some = data.series.filter(({ counts }) => counts[i] > 0);
  const what = i < data.since ? 'not counted' : some.length === 0 ? 'none' : some.map(({ name, counts }) => `${name} ${count(counts[i])}`).join(', ');
  return `${about(data, i)}: ${what}${i === data.bars - 1 ? ', so far' : ''}`;
};

function tableOf(title, data) {
  const times = Array.from({ length: data.bars }, (_, i) => data.bars - 1 - i).filter((i) => data.series.some(({ counts }) => counts[i] > 0));
  return table(`${title}, the newest first; times without any are left out`, [
    { head: 'Time', cell: (i) => about(data, i), whole: true },
    ...data.series.map(({ name, counts }) => ({ head: name, cell: (i) => count(counts[i]), number: true })),
    ...data.series.length > 1 ? [{ head: 'All', cell: (i) => count(data.series.reduce((sum, { counts }) => sum + counts[i], 0)), number: true }] : [],
  ], times);
}

/** isRead says whether somebody goes through the numbers of a drawing in a node: it stays as it is meanwhile. */
export const isRead = (node) => node.contains(document.activeElement) && document.activeElement.matches('.plot-box');

let ids = 0;

/** plot draws an answer of /v1/series. open says whether its table is shown, and toggled is told when that changes; more stands beside the control. */
export function plot(title, answer, { open = false, toggled = () => {}, more } = {}) {
  const data = tidy(answer);
  const id = `plot-${++ids}`;
  const line = html('p', { class: 'readout', 'aria-hidden': 'true' });
  const box = html('div', { class: 'plot-box', tabindex: 0, role: 'slider', 'aria-label': `${title}: the time whose numbers are read`, 'aria-valuemin': 0, 'aria-valuemax': data.bars - 1 });
  let now = -1;
  let drawn = null;
  const choose = (i) => {
    now = Math.max(-1, Math.min(data.bars - 1, i));
    drawn?.point(now);
    line.textContent = now < 0 ? '' : readout(data, now);
    const spoken = now < 0 ? data.bars - 1 : now;
    box.setAttribute('aria-valuenow', spoken);
    box.setAttribute('aria-valuetext', readout(data, spoken));
  };
  box.addEventListener('pointermove', (event) => choose(Math.max(0, drawn.at(event.clientX - box.getBoundingClientRect().left))));
  box.addEventListener('pointerleave', () => { if (document.activeElement !== box) choose(-1); });
  box.addEventListener('focus', () => choose(now < 0 ? data.bars - 1 : now));
  box.addEventListener('blur', () => choose(-1));
  box.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -data.bars, End: data.bars }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    choose(Math.max(0, now + step));
  });
  new ResizeObserver(() => {
    const width = Math.floor(box.clientWidth);
    if (width < 80 || drawn?.width === width) return;
    drawn = { ...draw(width, data), width };
    box.replaceChildren(drawn.drawing);
    drawn.point(now);
  }).observe(box);
  choose(-1);
  const place = html('div', { id, class: 'plot-table', tabindex: 0, role: 'region', 'aria-label': `Table: ${title}`, hidden: !open });
  const control = html('button', { type: 'button', class: 'quiet small', 'aria-expanded': String(open), 'aria-controls': id, click: () => {
    place.hidden = !place.hidden;
    place.replaceChildren(...place.hidden ? [] : [tableOf(title, data)]);
    control.setAttribute('aria-expanded', String(!place.hidden));
    toggled(!place.hidden);
  } }, 'Table');
  if (open) place.append(tableOf(title, data));
  const sums = data.series.map(({ name, counts }) => [name, counts.reduce((sum, n) => sum + n, 0)]);
  return [line, box,
    html('div', { class: 'plot-foot' }, html('ul', { class: 'key' }, sums.map(([name, n], k) => html('li', {}, html('i', { class: `c${k}` }), shown(name), ' ', html('b', {}, count(n))))),
      html('span', { class: 'plot-acts' }, more, control)), place];
}
