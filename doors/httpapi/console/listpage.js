// The page of one list: all that is known of it, and what can be found out.

import { acts, compare, condition, source } from './listacts.js';
import { address, place } from './views.js';
import { ago, badge, byId, count, html, link, span, table } from './dom.js';
import { outcomes } from './decisions.js';
import { fill, leave } from './state.js';
import { shown, written } from './names.js';
import { usual, words } from './range.js';
import { lintPart } from './lint.js';
import { isRead, plot } from './plot.js';
import { queryOf } from './pages.js';
import { read } from './door.js';
import { replayPart } from './replay.js';
import { steps, subscriptions } from './subscription.js';

const interval = 15_000; // ms

let timer = 0;
const parts = {}; // of the list that is shown: they keep what somebody has typed

const row = (name, ...value) => value.some((part) => part || part === 0) && html('div', {}, html('dt', {}, name), html('dd', {}, value));

const pathOf = (name) => `v1/lists/${encodeURIComponent(name)}`;

// about is where a list comes from and how it counts.
function about({ worth: list, files, url, review }) {
  return html('dl', { class: 'sheet about' },
    row('State', condition(list)),
    row('Counts', list.action === 'allow' ? 'as exceptions' : list.mode === 'shadow' ? 'not yet: it is in shadow, and what it would have refused is counted' : list.percent < 100 ? `for ${list.percent} % of senders` : 'for all'),
    row('Title', list.title && shown(list.title)), row('Homepage', list.homepage && link(list.homepage)), row('Complaints', list.complaints && link(list.complaints)),
    row('Licence', list.licence && [shown(list.licence), list.restricted && [' ', badge('warn', 'not to be passed on')]]),
    row('Source', list.source ? source(list) : url && html('code', {}, shown(url))),
    row('Changed', list.modified && ago(list.modified), list.dated && ` (it says ${list.dated})`, list.expires_seconds > 0 && `, wants to be fetched anew after ${span(list.expires_seconds)}`),
    row('Review', review && 'newer contents wait until somebody adopts them'),
    row(files.length === 1 ? 'File' : 'Files', files.map((file) => html('div', {}, html('code', {}, shown(file.file)), ` ${file.format}, ${count(file.lines)} lines`, file.verdict === 'refused' && [' ', badge('bad', 'refused'), ' ', shown(file.why)]))),
    list.problems.length > 0 && row('Problems', list.problems.map((text) => html('div', {}, shown(text)))));
}

const number = (name, n, hint) => html('div', { class: 'number-card plain' }, html('span', { class: 'card-name' }, name), html('b', {}, n === null || n === undefined ? '–' : count(n)), html('span', { class: 'card-share' }, hint));

const numbers = ({ worth: list, held }) => html('div', { class: 'numbers' },
  number('Entries', list.entries, list.held > 0 ? `${count(list.held)} held back` : `${count(list.keys)} keys`), number('Only here', list.unique, 'keys of no other list'),
  number('Hits', list.hits, list.last_hit ? ['last ', ago(list.last_hit)] : ' '), number('Only its', list.sole, 'hits of no other list'), number('Overruled', list.overridden, 'hits that an exception lets in'));

const card = (title, ...content) => html('section', { class: 'card', 'aria-label': title }, html('h2', {}, title), content);

function refused({ files, worth }) {
  const classes = files.flatMap((file) => file.classes);
  if (classes.length === 0) return false;
  return card(`${count(worth.errors)} refused lines`, html('p', { class: 'chips' }, classes.map(({ class: name, lines }) => badge('warn', `${name} ${count(lines)}`))),
    table('The first of them', [
      { head: 'File', cell: ({ file, line }) => html('code', {}, `${shortened(file)}:${line}`), address: true, wide: true },
      { head: 'Line', cell: ({ line }) => count(line), number: true },
      { head: 'Reason', cell: (one) => [badge('warn', one.class), ' ', shown(one.message)], why: true },
    ], files.flatMap((file) => file.refused.map((one) => ({ ...one, file: file.file })))));
}

const shortened = (path) => path.split('/').at(-1);

function held({ held: { count: n, entries } }) {
  return n > 0 && card(`${count(n)} entries held back`, html('p', { class: 'hint' }, 'They would refuse senders who wrote lately, or to whom your users write. blockd compile --accept takes them.'),
    table(`The first ${count(entries.length)}`, [
      { head: 'Entry', cell: ({ entry }) => written(entry), address: true },
      { head: 'Senders', cell: ({ senders }) => count(senders), number: true, title: 'who wrote lately' },
      { head: 'Your users write there', cell: ({ correspondents }) => (correspondents ? 'yes' : 'no'), wide: true },
    ], entries));
}

const entriesOf = (title, hint, rows, list, time) => rows.length > 0 && card(title, table(hint, [
  { head: 'Entry', cell: ({ entry }) => html('a', { href: address('decisions', { time, show: 'all', list, entry }) }, written(entry)), address: true },
  { head: 'Hits', cell: ({ hits }) => count(hits), number: true },
  { head: 'Only its', cell: ({ sole }) => count(sole), number: true },
  { head: 'Overruled', cell: ({ overridden }) => count(overridden), number: true },
  { head: 'Last hit', cell: ({ last_hit: last }) => ago(last), whole: true, wide: true },
], rows));

function overlaps({ worth: { overlaps: all, keys } }) {
  return all.length > 0 && card('Shared with other lists', table('Keys that both have', [
    { head: 'List', cell: ({ list }) => html('a', { href: address('lists', {}, list) }, html('strong', {}, list)) },
    { head: 'Keys', cell: (other) => count(other.keys), number: true },
    { head: 'Of this list', cell: (other) => (keys > 0 ? `${(100 * other.keys / keys).toFixed(1)} %` : '–'), number: true },
  ], all));
}

function loads({ loads: all, worth, undo }) {
  const change = (n, sign) => (n === null || n === undefined ? '–' : `${sign}${count(n)}`);
  return all.length > 0 && card('What it has served', table('The newest first', [
    { head: 'When', cell: ({ time }) => ago(time), whole: true },
    { head: 'How', cell: ({ how, by, why }) => [how, by && ` by ${by}`, why && [': ', shown(why)]], why: true, wide: true },
    { head: 'Entries', cell: ({ entries }) => count(entries), number: true },
    { head: 'Came', cell: ({ added }) => change(added, '+'), number: true },
    { head: 'Went', cell: ({ removed }) => change(removed, '−'), number: true },
    ...undo ? [{ act: true, cell: ({ generation, time }) => html('button', { type: 'button', class: 'quiet small', 'aria-label': `Since then, ${new Date(time).toLocaleString()}: what came and went`, click: () => compare(worth, generation) }, 'Since then') }] : [],
  ], all));
}

function chart(title, answer, none) {
  const is = answer.series.some(({ counts }) => counts.some((n) => n > 0));
  return html('section', { class: 'card chart-card', 'aria-label': title }, html('h2', {}, title), is ? plot(title, answer) : html('p', { class: 'none' }, none));
}

const named = (answer) => ({ ...answer, series: answer.series.map((one) => ({ ...one, name: outcomes[one.name]?.[1] ?? one.name })) });

function draw([of, decided, shadow, added], time) {
  const list = of.worth;
  return [
    html('div', { class: 'card' }, html('p', { class: 'list-acts' }, acts(list), ' ', steps(added, list), ' ', html('a', { href: address('decisions', { time, show: 'all', list: list.list }) }, `Its decisions in ${words(time)}`)), about(of)),
    numbers(of),
    html('div', { class: 'pair' }, chart('What became of mail by it', named(decided), `Nothing in the last ${words(time)}.`),
      (list.mode === 'shadow' || shadow.series.length > 0) && chart('What it would have done in shadow', shadow, `Nothing in the last ${words(time)}.`)),
    held(of), refused(of),
    html('div', { class: 'pair' }, entriesOf('Its best entries', 'The most hits that no other list had', of.best, list.list, time),
      entriesOf('Entries that exceptions overrule', 'Look at these: they may be wrong', of.worst, list.list, time)),
    loads(of), overlaps(of),
    parts.replay, parts.lint];
}

/** showList shows the list of the address, now and from time to time. */
export function showList({ item, params }) {
  clearTimeout(timer);
  const time = params.get('time') ?? usual;
  const key = `${item} ${time}`;
  if (parts.of !== item) Object.assign(parts, { of: item, replay: replayPart(pathOf(item), item), lint: lintPart(item) });
  const series = (by, signal) => read(`v1/series?${queryOf({ by, list: item, span: time })}`, signal).catch((fault) => {
    if (fault.status !== 404) throw fault;
    return { series: [], since: null };
  });
  const node = byId('list');
  const load = (anew) => fill(node, { anew,
    load: (signal) => Promise.all([read(pathOf(item), signal), series('outcome', signal), series('shadow', signal), subscriptions(signal)]),
    draw: (answers) => (!anew && isRead(node) ? [...node.childNodes] : draw(answers, time)),
    lacks: () => `There is no list "${item}".` }).then(() => {
    if (place().item === item) timer = setTimeout(() => load(false), interval);
  });
  load(node.dataset.of !== key);
  node.dataset.of = key;
}

export function hideList() {
  clearTimeout(timer);
  leave(byId('list'));
}

document.addEventListener('changed', () => place().name === 'lists' && place().item && showList(place()));
