// Makes what the page shows. Senders, reasons and file names are written by
// strangers: whatever is a string becomes text here, and nothing else on the page
// makes elements. The Content-Security-Policy refuses the other ways.

const namespaces = { html: 'http://www.w3.org/1999/xhtml', svg: 'http://www.w3.org/2000/svg' };

function make(namespace, tag, attributes, children) {
  const node = document.createElementNS(namespaces[namespace], tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return node;
}

/** html makes an element. A function among the attributes listens to the event of that name. */
export const html = (tag, attributes = {}, ...children) => make('html', tag, attributes, children);

/** svg makes an element of a drawing. */
export const svg = (tag, attributes = {}, ...children) => make('svg', tag, attributes, children);

/** show replaces what stands in the element of an id. */
export function show(id, ...children) {
  const node = byId(id);
  node.replaceChildren(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);

const kinds = ['number', 'wide', 'act', 'whole', 'address', 'client', 'why', 'late', 'spare', 'name', 'bar'];

/**
 * table makes one of columns {head, cell} and rows. What is wide is left out on a
 * phone, what is spare and late on small desks too, and what is whole stands on one line. kind is "stack" for rows that are taller there instead.
 */
export function table(caption, columns, rows, kind) {
  const made = drawn(caption, columns, rows);
  if (kind) made.className = kind;
  for (const one of rovers(made).slice(1)) one.tabIndex = -1;
  made.addEventListener('keydown', rove);
  made.addEventListener('focusin', (event) => {
    if (!event.target.matches('tbody *') || event.target.tabIndex === 0) return;
    for (const one of rovers(made)) one.tabIndex = -1;
    event.target.tabIndex = 0;
  });
  return made;
}

// A table of a hundred rows is one stop of the Tab key: from there arrow keys lead on, to the same button of the next row.
const rovers = (node) => [...node.querySelectorAll('tbody a, tbody button')];

function rove(event) {
  const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [];
  if (dx === undefined || !event.target.matches('tbody a, tbody button')) return;
  const row = event.target.closest('tr');
  const at = within(row).indexOf(event.target);
  let next = dx ? within(row)[at + dx] : null;
  for (let to = row; dy && !next && (to = dy < 0 ? to.previousElementSibling : to.nextElementSibling);) next = within(to)[Math.min(at, within(to).length - 1)];
  if (next === undefined || next === null) return;
  event.preventDefault();
  next.focus();
}

const within = (row) => [...row.querySelectorAll('a, button')].filter((one) => one.checkVisibility());

function drawn(caption, columns, rows) {
  const kind = (column) => kinds.filter((name) => column[name]).join(' ') || null;
  return html('table', {},
    html('caption', {}, caption),
    html('thead', {}, html('tr', {}, columns.map((column) =>
      column.head ? html('th', { scope: 'col', class: kind(column), title: column.title }, column.head) : html('td', { class: kind(column) })))),
    html('tbody', {}, rows.map((row) => html('tr', { class: row.isNew && 'new' }, columns.map((column) => html('td', { class: kind(column) }, column.cell(row)))))));
}

export const badge = (kind, text) => html('span', { class: `badge ${kind}` }, text);

/** count writes a number with separators. */
export const count = (n) => n.toLocaleString('en');

/** link is an address that leads elsewhere, whoever wrote it: no other scheme makes one, and the other side does not learn of this page. */
export const link = (to) => (/^(https?:|mailto:)/i.test(to) ? html('a', { href: to, rel: 'noreferrer noopener', target: '_blank' }, to) : to);

/** origin says where a list comes from, as far as it is known: nothing, or a line. */
export const origin = (list) => {
  const parts = [list.title, list.homepage && link(list.homepage), list.licence && `licence ${list.licence}`, list.complaints && ['complaints to ', link(list.complaints)]].filter(Boolean);
  return parts.length > 0 && html('div', { class: 'soft' }, parts.map((part, i) => [i > 0 && ', ', part]));
};

const names = { tree: ' and all names below it', sub: ' (the names below it)', local: ' (at any domain)', exact: '' };

const isNetwork = (text) => /[/:]|^[\d.]+$/.test(text);

/** entry says which entry of which list: of a match, or of a decision. */
export const entry = (match) => [html('strong', {}, match.list), `, line ${match.line} of `, html('code', {}, match.file), ': ',
  html('code', {}, match.entry), (!isNetwork(match.entry) && names[match.scope]) || '', match.reason ? ` – ${match.reason}` : ''];

const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];

/** span says how long something is, in its largest unit: "3 d", "12 min". */
export function span(seconds) {
  const [name, size] = units.find(([, size]) => seconds >= size) ?? units.at(-1);
  return `${Math.max(0, Math.floor(seconds / size))} ${name}`;
}

/** ago says how long a time of RFC 3339 is past, with the time itself for who points at it. */
export const ago = (time) => time ? html('time', { datetime: time, title: new Date(time).toLocaleString() },
  `${span((Date.now() - Date.parse(time)) / 1000)} ago`) : '–';

/** until says how long it is to a time. */
export const until = (time) => time ? html('time', { datetime: time, title: new Date(time).toLocaleString() },
  span((Date.parse(time) - Date.now()) / 1000)) : 'ever';

/** visible shows what the browser would act on, or nobody could see, as what it is. */
export const visible = (text) => text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, (c) => c === '\n' || c === '\t' ? c : c === '\r' ? '' : `\\u{${c.codePointAt(0).toString(16)}}`);
