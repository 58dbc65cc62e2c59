// The two drawings.

import { count, html, show, svg } from './dom.js';

const minutes = 60;
const [width, height] = [600, 100]; // of the drawing, in its own units
const order = ['blocked', 'unknown', 'allowed', 'clear']; // from the ground up: what is rare stands where it is seen

/** drawTraffic draws the verdicts of the last hour, a bar a minute. */
export function drawTraffic(traffic) {
  const byMinute = new Map(traffic.map((minute) => [minute.at / 60, minute]));
  const last = Math.floor(Date.now() / 60000);
  const sum = (minute) => order.reduce((all, kind) => all + minute[kind], 0);
  const most = Math.max(0, ...traffic.map(sum));
  if (most === 0) {
    show('traffic', html('p', { class: 'none' }, 'No mail in the last hour.'));
    return;
  }
  const bars = [];
  for (let i = 0; i < minutes; i++) {
    const minute = byMinute.get(last - minutes + 1 + i);
    let y = height;
    for (const kind of minute ? order : []) {
      // One refusal among a thousand mails is still to be seen.
      const h = minute[kind] && Math.max(1.5, (minute[kind] / most) * (height));
      y -= h;
      if (h) bars.push(svg('rect', { class: kind, x: (i * width) / minutes + 1, y: Math.max(0, y).toFixed(1), width: width / minutes - 2, height: h.toFixed(1) }));
    }
  }
  const totals = order.map((kind) => [kind, traffic.reduce((all, minute) => all + minute[kind], 0)]);
  show('traffic',
    html('p', { class: 'ends' }, `the highest bar: ${count(most)} a minute`),
    svg('svg', { class: 'chart', viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, bars,
      svg('line', { class: 'axis', x1: 0, x2: width, y1: height, y2: height })),
    html('p', { class: 'ends' }, html('span', {}, 'an hour ago'), html('span', {}, 'now')),
    html('ul', { class: 'key' }, totals.map(([kind, n]) => html('li', {}, html('i', { class: kind }), `${count(n)} ${kind}`))));
}

/** drawHits draws what each list had entries for; the stronger part no other list had. */
export function drawHits(lists) {
  const most = Math.max(1, ...lists.map((list) => list.hits));
  const rows = lists.filter((list) => list.hits > 0).sort((a, b) => b.hits - a.hits).slice(0, 12);
  if (rows.length === 0) {
    show('hits', html('p', { class: 'none' }, 'No list has had an entry for anybody yet.'));
    return;
  }
  show('hits',
    html('ul', { class: 'bars' }, rows.map((list) => html('li', {}, html('span', {}, list.list),
      svg('svg', { viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
        svg('rect', { class: 'all', width: (100 * list.hits) / most, height: 10 }),
        svg('rect', { class: 'sole', width: (100 * list.sole) / most, height: 10 })),
      html('span', { class: 'number' }, count(list.hits))))),
    html('p', { class: 'hint' }, 'Over all starts. The stronger part no other list had an entry for.'));
}
