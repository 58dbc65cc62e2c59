// The page of one list.

import { expect, open, test, view } from './visit.js';

const now = new Date().toISOString();
const entry = (text, sole, overridden) => ({ list: 'own', entry: text, line: 1, hits: 900, at_most_over: 0, sole, overridden, last_hit: now });

// about is the answer of /v1/lists/own with all that a list can have.
async function about(page, change) {
  await page.route(/\/v1\/lists\/own$/, async (route) => {
    const answer = await page.request.get('/v1/lists').catch(() => null);
    if (!answer) return; // the page has gone
    const table = await answer.json();
    const of = { worth: table.worth.find(({ list }) => list === 'own'), files: table.lists.filter(({ list }) => list === 'own'), held: { count: 0, entries: [] }, best: [], worst: [], loads: [],
      shadow: { span: '7d', decisions: 0 }, decided: { span: '7d', decisions: 0 }, review: false, undo: true };
    change(of);
    await route.fulfill({ json: of });
  });
}

test('tells all of a list', async ({ page }) => {
  await open(page);
  await about(page, (of) => {
    of.worth.overlaps = [{ list: 'other', keys: 1 }];
    of.held = { count: 7, entries: [{ entry: 'shop.example', kind: 'domain', scope: 'tree', file: of.files[0].file, line: 12, senders: 3, example: 'a@shop.example', correspondent: false, since: now }] };
    of.best = [entry('listed.example', 700, 0)];
    of.worst = [entry('partner.example', 0, 44)];
    of.loads = [{ generation: 'abc', time: now, how: 'rollback', by: 'jo', why: '<b>refused partners</b>', entries: 2, added: 1, removed: 3 }];
    Object.assign(of.files[0], { errors: 2, classes: [{ class: 'syntax', lines: 2 }], refused: [{ line: 4, class: 'syntax', message: 'more than one word' }] });
    of.worth.errors = 2;
    of.url = 'https://lists.example/own.txt';
  });
  await view(page, 'Lists');
  await page.getByRole('link', { name: 'own', exact: true }).click();
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('own');
  await expect(page).toHaveTitle('List own – blockd');
  const list = page.locator('#list');
  for (const text of ['https://own.list.example/', 'mailto:complaints@list.example', 'https://lists.example/own.txt', '7 entries held back', 'a@shop.example', '2 refused lines', 'more than one word',
    'partner.example', 'rollback by jo: <b>refused partners</b>', '+1', '−3']) await expect(list).toContainText(text);
  await expect(list.getByRole('region', { name: 'Its best entries' }).getByRole('link', { name: 'listed.example' })).toHaveAttribute('href', '#decisions?time=24h&show=all&list=own&entry=listed.example');
  await list.getByRole('link', { name: 'other' }).click();
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('other');
  await page.goBack();
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('own');
});

test('says what lines mean, and what a list would have refused', async ({ page }) => {
  await open(page);
  await about(page, () => {});
  await page.route('**/v1/lint?list=own', (route) => {
    expect(route.request().postData()).toBe('fine.example\nbad entry');
    return route.fulfill({ json: { summary: { format: 'plain', lines: 2, entries: 1, keys: 1, errors: 1, skipped: 0, verdict: 'loaded', why: '' }, more: 0,
      items: [{ line: 2, column: 1, kind: '', key: '', scope: '', action: '', reason: '', class: 'syntax', message: 'more than one word', hint: 'write one entry a line', text: 'bad entry' }] } });
  });
  await page.route('**/v1/lists/own/replay?span=30d', (route) => route.fulfill({ json: { list: 'own', file: '', entries: 2, since: now, decisions: 5000, accepted: 4000, refused: 12, already_listed: 3, exempt: 0, allowed: 0,
    wants_proof: 0, unchecked: 0, gate: { senders: 900, refused: 100, share: 0.11, max_recent_blocked: 0.05, passes: false }, complete: false, senders: [], by_entry: [],
    domains: [{ name: 'partner.example', mails: 12, senders: 3, last: now, entry: 'listed.example', reply: '550' }] } }));
  await page.goto('/#lists/own');
  await page.getByLabel('Lines as they would stand in the file').fill('fine.example\nbad entry');
  await page.getByRole('button', { name: 'Read them' }).click();
  const lines = page.getByRole('region', { name: 'What the lines mean' });
  await expect(lines).toContainText('1 entries of 2 lines, 1 refused');
  await expect(lines.getByRole('row', { name: /bad entry/ })).toContainText('more than one word');
  await page.getByLabel('In the last').selectOption('30 days');
  await page.getByRole('button', { name: 'Replay' }).click();
  const past = page.getByRole('region', { name: 'What it would have refused' });
  await expect(past).toContainText('12 refused');
  await expect(past).toContainText('The gate would refuse this list: it refuses 100 of 900 senders');
  await expect(past.getByRole('row', { name: /partner\.example/ })).toContainText('12');
  await expect(past).toContainText('This ended early');
});

test('acts on a list from its page', async ({ page }) => {
  await open(page);
  await about(page, () => {});
  await page.goto('/#lists/own');
  const list = page.locator('#list');
  await list.getByRole('button', { name: 'Pause 1 h own' }).click();
  await expect(list).toContainText('paused until');
  await list.getByRole('button', { name: 'Resume own' }).click();
  await expect(list).not.toContainText('paused until');
  await page.goto('/#lists/nosuch');
  await expect(list).toContainText('There is no list "nosuch".');
});
