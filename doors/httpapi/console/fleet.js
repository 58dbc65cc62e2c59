// The machines of a fleet, and what their database of live entries has lost.

import { ago, badge, byId, count, html, show, span, table, visible } from './dom.js';
import { Refusal, read, write } from './door.js';
import { loadChannel } from './channel.js';
import { fill } from './state.js';

const interval = 30000; // ms; nodes report as often

const percent = (part, whole) => (whole > 0 ? `${(100 * part / whole).toFixed(2)} %` : '–');

/** sequence says which snapshot a node serves, and whether it knows of a newer one. */
const sequence = (node) => {
  if (!node.channel) return '–';
  const text = node.sequence < node.newest ? `${node.sequence ?? 0} of ${node.newest}` : `${node.sequence ?? 0}`;
  return [html('span', { class: 'whole' }, text), node.canary && [' ', badge('', 'canary')], node.pinned > 0 && [' ', badge('warn', node.pinned === node.sequence ? 'pinned' : `pinned to ${node.pinned}`)]];
};

const live = (node) => (node.live_revision || node.live_up ? [`${node.live_revision ?? 0}`, !node.live_up && [' ', badge('bad', 'away')]] : '–');

const state = (node) => {
  if (node.seen) return badge('bad', 'missing');
  const faults = node.problems.length;
  if (!node.ready) return badge('bad', 'not ready');
  return faults > 0 ? badge('warn', faults === 1 ? '1 problem' : `${faults} problems`) : badge('ok', 'ok');
};

// told is a cell that nothing is known for of a node that does not report any more.
const told = (cell) => (node) => (node.seen ? '–' : cell(node));

const columns = [
  { head: 'Node', cell: (node) => html('strong', { title: `blockd ${node.version}` }, visible(node.node)), address: true },
  { head: 'State', cell: state },
  { head: 'Sequence', cell: (node) => (node.seen ? `${node.sequence ?? '–'}` : sequence(node)) },
  { head: 'Lag', cell: told((node) => (node.channel ? span(node.lag ?? 0) : '–')), wide: true, whole: true, title: 'since the sequence was made' },
  { head: 'Gate', cell: told((node) => (node.gate_refusals > 0 ? badge('bad', count(node.gate_refusals)) : '0')), number: true, wide: true, title: 'lists whose newest content the gate refuses' },
  { head: 'Sources', cell: (node) => (node.sources ?? []).map((from) => html('div', {}, visible(from.list), ' ', badge('warn', from.state))), wide: true },
  { head: 'Live', cell: told(live), wide: true, title: 'the newest change of shared live entries' },
  { head: 'Checks/s', cell: told((node) => node.checks_per_second.toFixed(1)), number: true, wide: true },
  { head: 'Refused', cell: told((node) => percent(node.refused, node.checks)), number: true, wide: true },
  { head: 'Reported', cell: (node) => ago(node.seen ?? node.at), wide: true, whole: true },
];

function draw(view) {
  const notes = [view.fault && `There may be more: ${view.fault}`, view.entries_differ && 'Nodes with the same revision have different live entries.',
    view.sequences_differ && 'Nodes serve different sequences, as they do while one has stages.'].filter(Boolean);
  const missing = view.missing ?? [];
  const problems = view.nodes.flatMap((node) => node.problems.map((text) => ({ node: node.node, text })));
  return [notes.map((text) => html('p', { class: 'hint' }, text)),
    table(`${count(view.nodes.length)} in the last 90 seconds${missing.length > 0 ? `, ${count(missing.length)} missing` : ''}`, columns, [...missing, ...view.nodes]),
    problems.length > 0 && table('Problems', [
      { head: 'Node', cell: (one) => html('strong', {}, visible(one.node)), address: true },
      { head: 'Problem', cell: (one) => visible(one.text), why: true },
    ], problems, 'stack')];
}

async function load() {
  await fill(byId('fleet'), { load: (signal) => read('v1/fleet', signal), draw, lacks: () => 'This daemon is in no fleet.' });
  await Promise.all([loadChannel(), loadLost()]);
}

/** loadLost shows the changes of live entries that the database has lost. */
async function loadLost() {
  try {
    const { lost, lost_total: total } = await read('v1/live');
    if (lost.length === 0) {
      show('lost');
      return;
    }
    show('lost', html('p', { class: 'fault' }, `${count(total)} ${total === 1 ? 'change of a live entry was' : 'changes of live entries were'} lost by the database, and ${total === 1 ? 'is' : 'are'} no longer in force. `,
      html('span', { class: 'buttons' },
        html('button', { type: 'button', class: 'small', click: () => act('offer') }, 'Offer again'),
        html('button', { type: 'button', class: 'quiet small', click: () => act('dismiss') }, 'Dismiss'))),
    table('Lost', [
      { head: 'Change', cell: (one) => one.change },
      { head: 'Entry', cell: (one) => html('code', {}, visible(one.entry ? one.entry.entry : `token ${one.token}`)), address: true },
      { head: 'Action', cell: (one) => one.entry?.action || '', wide: true },
      { head: 'Why', cell: (one) => visible(one.entry?.why || ''), why: true },
      { head: 'Found', cell: (one) => ago(one.found), wide: true, whole: true },
    ], lost.slice(0, 100)));
  } catch (fault) {
    show('lost', fault.status !== 404 && html('p', { class: 'fault' }, fault.message));
  }
}

async function act(what) {
  try {
    while ((await write('POST', `v1/live/${what}`, {})).left > 0 && what === 'offer');
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    show('lost', html('p', { class: 'fault' }, fault.message));
    return;
  }
  await loadLost();
}

let timer = 0;

/** view shows the nodes, and looks again as often as they report. */
export const view = {
  title: () => 'Fleet',
  enter() {
    load();
    clearInterval(timer);
    timer = setInterval(() => { if (!document.hidden) load(); }, interval);
  },
  leave: () => clearInterval(timer),
};
