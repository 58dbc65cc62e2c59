// Decisions as they are made. The stream runs while a view shows it, and no longer.

import { Refusal, events } from './door.js';

const patience = 15000; // ms between two attempts, at most

/**
 * watch follows the stream until its signal ends. opened is called each time that it begins, event with a name and
 * data, and lost with the reason each time that it cannot be had.
 */
export async function watch(signal, { opened = () => {}, event, lost = () => {} }) {
  for (let wait = 1000; !signal.aborted; wait = Math.min(2 * wait, patience)) {
    let fault = new Refusal(0, 'The stream has ended.');
    try {
      let first = true;
      for await (const { name, data } of events('v1/events', signal)) {
        if (signal.aborted) return;
        if (first) opened();
        first = false;
        wait = 500;
        event(name, data);
      }
    } catch (reason) {
      if (reason instanceof Refusal) fault = reason;
    }
    if (signal.aborted) return;
    lost(fault);
    await new Promise((settle) => {
      const timer = setTimeout(settle, wait);
      for (const [target, name] of [[document, 'token'], [signal, 'abort']]) target.addEventListener(name, () => { clearTimeout(timer); settle(); }, { once: true, signal: name === 'token' ? signal : undefined });
    });
  }
}
