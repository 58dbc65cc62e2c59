// Which view is shown. It stands behind the "#" of the address with its filters and its time, so that a page can
// be sent to somebody, Back works, and no server learns of it: #decisions?list=own&time=7d, #lists/own.

import { byId } from './dom.js';

let views = {};
let current = '';
let key = ''; // of what the view shows
let told = ''; // what the title says of the daemon
const listeners = [];

const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // an address that somebody has shortened
  }
};

/** place is where the page is: the view's name, what it is about, and its parameters. */
export function place() {
  const text = location.hash.slice(1);
  const end = text.indexOf('?');
  const [name, ...item] = (end < 0 ? text : text.slice(0, end)).split('/');
  const known = Object.hasOwn(views, name);
  return { name: known ? name : 'overview', item: known ? decoded(item.join('/')) : '', params: new URLSearchParams(end < 0 ? '' : text.slice(end + 1)) };
}

/** address is that of a view. Parameters without a value are left out. */
export function address(name, params = {}, item = '') {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value)).toString().replaceAll('+', '%20');
  return `#${name}${item && `/${encodeURIComponent(item)}`}${query && `?${query}`}`;
}

/** here is the address of this view with other parameters beside its own. */
export function here(params) {
  const at = place();
  return address(at.name, { ...Object.fromEntries(at.params), ...params }, at.item);
}

/** go leads to an address, as a link does. */
export function go(to) {
  if (location.hash === to) return;
  location.hash = to;
}

/** note changes parameters in the address, with no step that Back would take; the view has what they say. */
export function note(params) {
  history.replaceState(null, '', here(params));
  key = keyOf(place());
  turned();
}

/** turn does as go, for parameters of this view. */
export const turn = (params) => go(here(params));

/** follow has a function told where the page is, now and later. */
export function follow(listener) {
  listeners.push(listener);
  listener(place());
}

/** tell puts the daemon's state into the title. */
export function tell(text) {
  told = text;
  title();
}

function title() {
  const view = views[place().name];
  document.title = `${told && `(!) ${told} – `}${view.title(place())} – blockd`;
}

// The question in the box is the page's, and not the view's.
const keyOf = ({ name, item, params }) => {
  const own = new URLSearchParams(params);
  own.delete('ask');
  return `${name}/${item}?${own}`;
};

function turned() {
  const at = place();
  title();
  for (const listener of listeners) listener(at);
}

function arrive() {
  const at = place();
  const was = current;
  const before = key;
  current = at.name;
  key = keyOf(at);
  if (was !== current) {
    views[was]?.leave?.();
    for (const name of Object.keys(views)) byId(`view-${name}`).hidden = name !== current;
  }
  turned();
  if (key !== before) views[current].enter(at);
  if (was && (was !== current || key.split('?')[0] !== before.split('?')[0])) {
    scrollTo(0, 0);
    byId(`view-${current}`).querySelector('h1').focus({ preventScroll: true }); // which is read out
  }
}

/** again has the view load what it shows once more. */
export function again() {
  views[current].leave?.();
  views[current].enter(place());
}

/** begin shows the view of the address. all are {title(place), enter(place), leave()} by name. */
export function begin(all) {
  views = all;
  addEventListener('hashchange', arrive);
  arrive();
}
