// What a part of the page shows of an answer: that it comes, that it is there, that there is nothing, that
// this caller may not see it, or that it could not be had. All parts tell these apart by this file.

import { Refusal } from './door.js';
import { askToken } from './signin.js';
import { html } from './dom.js';

const running = new WeakMap(); // the request of a node, which a newer one ends
const filled = new WeakMap(); // when a node got what it shows

const time = (at) => at.toLocaleTimeString([], { hour12: false });

const button = (text, click) => html('button', { type: 'button', class: 'quiet small', click }, text);

const line = (kind, ...words) => html('p', { class: `state ${kind}` }, words);

/** nothing says that there is nothing. */
export const nothing = (text) => line('none', text);

/** trouble says why something could not be had or done. again, if it is given, tries once more. */
export function trouble(fault, again) {
  if (fault.status === 401) {
    return line('forbidden', 'This is shown to holders of a token. ', again && button('Sign in…', () => askToken('To see this wants a token.')));
  }
  if (fault.status === 403) {
    return line('forbidden', `This token may not see this: ${fault.message} `, again && button('Use another token…', () => askToken(fault.message)));
  }
  return line('failed', `This could not be loaded: ${fault.message} `, again && button('Try again', again));
}

const focusable = 'a[href], button, input, select, textarea, [tabindex]';

const labelOf = (one) => one.getAttribute('aria-label') ?? one.textContent;

// swap shows other children. Whoever is on one of the old ones with the keyboard stays on what has taken its place.
function swap(node, children) {
  const active = node.contains(document.activeElement) && document.activeElement !== node ? document.activeElement : null;
  const at = active ? [...node.querySelectorAll(focusable)].indexOf(active) : -1;
  node.replaceChildren(...children);
  if (!active) return;
  const all = [...node.querySelectorAll(focusable)];
  const next = node.contains(active) ? active : all.find((one) => one.tagName === active.tagName && labelOf(one) === labelOf(active)) ?? all[Math.min(at, all.length - 1)];
  next?.focus({ preventScroll: true });
}

/**
 * fill shows in a node what load (of a signal) gives. draw makes nodes of the answer, or a text if there is nothing.
 * anew: what the node shows is of another question, and goes. lacks is told if the daemon has no such resource;
 * without it, and if it returns a text, that is said. It is true if the answer is shown.
 */
export async function fill(node, { load, draw, anew = false, lacks = () => 'This daemon does not keep this.' }) {
  running.get(node)?.abort();
  const mine = new AbortController();
  running.set(node, mine);
  const again = () => fill(node, { load, draw, lacks });
  if (anew || !filled.has(node)) {
    filled.delete(node);
    node.replaceChildren(line('loading', 'Loading…'));
  }
  node.setAttribute('aria-busy', 'true');
  try {
    const answer = await load(mine.signal);
    if (mine.signal.aborted) return false;
    const drawn = draw(answer);
    swap(node, [typeof drawn === 'string' ? nothing(drawn) : drawn].flat(Infinity).filter((child) => child != null && child !== false));
    filled.set(node, new Date());
    return true;
  } catch (fault) {
    if (fault.name === 'AbortError' || mine.signal.aborted) return false;
    if (!(fault instanceof Refusal)) throw fault;
    if (fault.status === 404) {
      const text = lacks(fault);
      node.replaceChildren(...text ? [nothing(text)] : []);
      filled.delete(node);
    } else if (filled.has(node) && fault.status !== 401 && fault.status !== 403) {
      node.querySelector(':scope > .failed')?.remove();
      node.prepend(line('failed', `As it was at ${time(filled.get(node))}; since then: ${fault.message} `, button('Try again', again)));
    } else {
      filled.delete(node);
      node.replaceChildren(trouble(fault, again));
    }
    return false;
  } finally {
    if (running.get(node) === mine) node.removeAttribute('aria-busy');
  }
}

/** leave ends what is loaded for a node. */
export const leave = (node) => running.get(node)?.abort();
