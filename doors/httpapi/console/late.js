// Code that is loaded when it is first needed, so that the first view has less to load.

import { Refusal } from './door.js';
import { byId } from './dom.js';
import { trouble } from './state.js';

// A browser remembers for this page that a file could not be had.
function failed(node) {
  node.querySelector(':scope > .failed')?.remove();
  node.append(trouble(new Refusal(0, 'its code did not come from the daemon. Load the page again.')));
}

/** part is code beside a view: what it returns calls a function with the module, or says in a node why there is none. loaded is the module, once there is one. */
export function part(load) {
  const use = async (node, call) => {
    try {
      use.loaded ??= await load();
    } catch {
      failed(node);
      return;
    }
    await call(use.loaded);
  };
  return use;
}

/** late is a view that its module exports as "view". */
export function late(name, load) {
  const use = part(load);
  let wanted = null;
  return {
    title: () => name,
    enter(at) {
      wanted = at;
      use(byId(`view-${at.name}`), ({ view }) => wanted === at && view.enter(at));
    },
    leave() {
      wanted = null;
      use.loaded?.view.leave?.();
    },
  };
}
