// The page of one list.

import { adminToken, expect, mail, open, test, view } from './visit.js';
import { look } from './look.js';

const now = new Date().toISOString();
const entry = (text, sole, overridden) => ({ list: 'own', entry: text, line: 1, hits: 900, at_most_over: 0, sole, overridden, last_hit: now });

// about is the daemon's answer of /v1/lists/own with all that a list can have.
async function about(page, change) {
  await page.route(/\/v1\/lists\/own$/, async (route) => {
    const of = await (await page.request.get('/v1/lists/own')).json();
    change(of);
    await route.fulfill({ json: of });
  });
}

test('tells all of a list', async ({ page }) => {
  await open(page);
  await about(page, (of) => {
    of.worth.overlaps = [{ list: 'other', keys: 1 }];
    of.held = { count: 7, entries: [{ entry: 'shop.example', senders: 3, correspondents: true }] };
    of.best = [entry('listed.example', 700, 0)];
    of.worst = [entry('partner.example', 0, 44)];
    of.loads = [{ generation: 'abc', time: now, how: 'rollback', by: 'jo', why: '<b>refused partners</b>', entries: 2, added: 1, removed: 3 }];
    Object.assign(of.files[0], { errors: 2, classes: [{ class: 'syntax', lines: 2 }], refused: [{ line: 4, class: 'syntax', message: 'more than one word' }] });
    of.worth.errors = 2;
  });
  await view(page, 'Lists');
  await page.getByRole('link', { name: 'own', exact: true }).click();
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('own');
  await expect(page).toHaveTitle('List own – blockd');
  const list = page.locator('#list');
  for (const text of ['https://own.list.example/', 'mailto:complaints@list.example', '7 entries held back', 'shop.example', '2 refused lines', 'more than one word',
    'partner.example', 'rollback by jo: <b>refused partners</b>', '+1', '−3']) await expect(list).toContainText(text);
  await expect(list.getByRole('region', { name: 'Its best entries' }).getByRole('link', { name: 'listed.example' })).toHaveAttribute('href', '#decisions?time=24h&show=all&list=own&entry=listed.example');
  await list.getByRole('link', { name: 'other' }).click();
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('other');
  await page.goBack();
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('own');
});

test('says what lines mean, and what a list would have refused', async ({ page }) => {
  expect(await mail('replay@listed.example')).toMatch(/^550 /);
  await open(page);
  await page.goto('/#lists/own');
  await page.getByLabel('Lines as they would stand in the file').fill('fine.example\nbad entry\ncom');
  await page.getByRole('button', { name: 'Read them' }).click();
  const lines = page.getByRole('region', { name: 'What the lines mean' });
  await expect(lines).toContainText('1 entries of 3 lines, 2 refused');
  await expect(lines.getByRole('row', { name: /bad entry/ })).toContainText('more than one word');
  await expect(lines.getByRole('row', { name: /com/ }).last()).toContainText('public-suffix');
  await page.getByLabel('In the last').selectOption('30 days');
  await page.getByRole('button', { name: 'Replay' }).click();
  const past = page.getByRole('region', { name: 'What it would have refused' });
  await expect(past).toContainText(/\d+ refused\s*of [\d,]+ accepted mails/);
  await expect(past).toContainText('were refused then, too');
});

test('gives the text that adds a list, in shadow first', async ({ page }) => {
  await open(page);
  await view(page, 'Lists');
  await page.getByRole('button', { name: 'Add a list…' }).click();
  const part = page.locator('#list-new');
  await part.getByLabel('Address of a list').fill('https://lists.example/bad.txt');
  await part.getByRole('button', { name: 'Show the text' }).click();
  await expect(part.locator('pre')).toContainText('https://lists.example/bad.txt');
  await expect(part.locator('pre')).toContainText('mode = "shadow"');
  await part.getByLabel('Or one of the catalogue').selectOption({ index: 1 });
  await part.getByRole('button', { name: 'Show the text' }).click();
  await expect(part).toContainText('blockd subscribe');
});

test('adds a list for an administrator, lets it count after two questions, and removes it', async ({ page }) => {
  const said = [];
  const asked = [];
  let lists = [];
  await page.route('**/v1/subscriptions', (route) => {
    if (route.request().method() === 'GET') return route.fulfill({ json: { open: true, why: '', most: 100, lists } });
    said.push(route.request().postDataJSON());
    return said.length === 1 ? route.fulfill({ status: 400, json: { title: 'Bad Request', status: 400, detail: '10.1.2.3 is not of the public internet' } })
      : route.fulfill({ json: { list: 'own', mode: 'shadow', generation: 'a', problems: [] } });
  });
  await page.route('**/v1/subscriptions/own/enforce', (route) => { asked.push('enforce'); return route.fulfill({ json: { list: 'own', mode: 'enforce', generation: 'a', problems: [] } }); });
  await page.route('**/v1/subscriptions/own', (route) => { asked.push(route.request().method()); return route.fulfill({ json: { list: 'own', mode: 'gone', generation: 'a', problems: [] } }); });
  await open(page, adminToken);
  await view(page, 'Lists');
  await page.getByRole('button', { name: 'Add a list…' }).click();
  const part = page.locator('#list-new');
  await expect(part).toContainText('It only watches at first; nobody is refused.');
  await part.getByLabel('Address of a list').fill('https://10.1.2.3/bad.txt');
  await part.getByLabel('Why').fill('ticket 4711');
  await part.getByRole('button', { name: 'Add it' }).click();
  await expect(part).toContainText('10.1.2.3 is not of the public internet');
  await look(page, 'a list that cannot be added');
  await part.getByLabel('Address of a list').fill('https://lists.example/own.txt');
  await part.getByRole('button', { name: 'Add it' }).click();
  await expect(part.getByRole('link', { name: 'own' })).toBeVisible();
  expect(said[1]).toEqual({ what: 'https://lists.example/own.txt', why: 'ticket 4711' });

  lists = [{ list: 'own', address: 'https://lists.example/own.txt', mode: 'shadow', since: '2026-11-28', changes: true }];
  await part.getByRole('link', { name: 'own' }).click();
  const list = page.locator('#list');
  await list.getByRole('button', { name: 'Let own count…' }).click();
  const question = page.locator('#message-dialog');
  await expect(question).toContainText(/In the last 7 days it would have refused [\d,]+ of [\d,]+ accepted mails/);
  await expect(question.getByRole('button', { name: 'No' })).toBeFocused();
  await look(page, 'a list that is to count');
  await question.getByRole('button', { name: 'Let it count' }).click();
  expect(asked).toEqual([]);
  await question.getByRole('button', { name: 'Yes, it refuses' }).click();
  await expect.poll(() => asked).toEqual(['enforce']);
  await list.getByRole('button', { name: 'Remove own…' }).click();
  await question.getByRole('button', { name: 'Remove it' }).click();
  await expect.poll(() => asked).toEqual(['enforce', 'DELETE']);
  await expect(page).toHaveURL(/#lists$/);
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
