// How the console is found one's way in: its views, their addresses, and what it says when an answer cannot be had.

import { expect, mail, open, test, token, view } from './visit.js';

const heading = (page) => page.getByRole('heading', { level: 1 });

test('has a view for each question, with a title and an address of its own', async ({ page }) => {
  await open(page);
  await expect(heading(page)).toHaveText('Overview');
  for (const name of ['Decisions', 'Lists', 'Entries', 'Changes', 'Quarantine', 'Overview']) {
    await view(page, name);
    await expect(page).toHaveTitle(new RegExp(`${name} – blockd$`));
    expect(new URL(page.url()).hash).toBe(`#${name.toLowerCase()}`);
    await expect(heading(page)).toHaveCount(1);
    await expect(page.getByRole('searchbox', { name: /^Sender, domain/ })).toBeVisible();
  }
  await expect(page.getByRole('link', { name: 'Fleet' })).toBeHidden(); // this daemon is in none
});

test('leads back, and to what an address says', async ({ page }) => {
  await open(page);
  await view(page, 'Lists');
  await view(page, 'Decisions');
  await page.getByRole('link', { name: '7 d' }).click();
  await expect(page).toHaveURL(/#decisions\?time=7d$/);
  await page.getByRole('searchbox', { name: 'Search in all decisions' }).fill('listed');
  await expect(page).toHaveURL(/#decisions\?time=7d&q=listed$/);
  await page.reload();
  await expect(page.getByRole('searchbox', { name: 'Search in all decisions' })).toHaveValue('listed');
  await expect(page.getByRole('link', { name: '7 d' })).toHaveAttribute('aria-current', 'true');
  await page.getByRole('searchbox', { name: /^Sender, domain/ }).fill('x@listed.example');
  await expect(page).toHaveURL(/ask=x%40listed\.example$/);
  await page.goBack();
  await expect(heading(page)).toHaveText('Decisions');
  await page.goBack();
  await expect(heading(page)).toHaveText('Lists');
  await page.goForward();
  await expect(heading(page)).toHaveText('Decisions');
  await page.goto('/#lists?ask=192.0.2.7');
  await expect(heading(page)).toHaveText('Lists');
  await expect(page.getByRole('region', { name: 'Answer' })).toContainText('192.0.2.0/24');
  await page.goto('/#nowhere/%zz?%');
  await expect(heading(page)).toHaveText('Overview');
});

test('is found one’s way in by keyboard', async ({ page }) => {
  await open(page);
  await page.reload();
  await expect(page.locator('#link')).toHaveText('live');
  await page.keyboard.press('Tab');
  await expect(page.getByRole('link', { name: 'Skip to the content' })).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(page.locator('#main')).toBeFocused();
  expect(new URL(page.url()).hash).toBe('');
  await page.locator('#nav').getByRole('link', { name: 'Lists' }).focus();
  await page.keyboard.press('Enter');
  await expect(heading(page)).toBeFocused();
  await expect(heading(page)).toHaveText('Lists');
  await page.keyboard.press('/');
  await expect(page.getByRole('searchbox', { name: /^Sender, domain/ })).toBeFocused();
});

test('reads the stream where it is shown, and nowhere else', async ({ page }) => {
  let streams = 0;
  page.on('request', (request) => { if (request.url().endsWith('/v1/events')) streams++; });
  const ended = () => page.waitForEvent('requestfailed', (request) => request.url().endsWith('/v1/events'));
  await page.goto('/#lists');
  await page.getByLabel('Token', { exact: true }).fill(token);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(page.getByRole('row', { name: /^own/ })).toBeVisible();
  expect(streams).toBe(0);
  await view(page, 'Decisions');
  await expect.poll(() => streams).toBe(1);
  await Promise.all([ended(), view(page, 'Entries')]);
  await view(page, 'Lists');
  expect(streams).toBe(1);
});

test('says within five seconds that a daemon hangs', async ({ page }) => {
  await page.clock.install(); // seconds are the page's: a busy machine takes its own
  await open(page);
  await view(page, 'Decisions');
  await expect(page.locator('#decisions')).not.toContainText('Loading');
  let hang = () => {};
  const hung = new Promise((settle) => { hang = settle; });
  await page.route('**/v1/**', async (route) => {
    await hung;
    await route.continue().catch(() => {});
  });
  await page.evaluate(() => { location.hash = '#lists'; }); // which ends the stream
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('Lists');
  await page.clock.runFor(5000);
  expect(await page.locator('#silence').textContent()).toContain('No news from the daemon since');
  await expect(page.locator('.pulse')).toContainText(/no news for \d+ s/);
  hang();
  await page.unroute('**/v1/**');
  await expect(page.locator('#silence')).toBeEmpty();
  await expect(page.locator('#link')).toHaveText('live');
});

// A state of its own each: what is on its way, nothing, what this caller may not see, and what could not be had.
test('tells loading, empty, forbidden and failed apart', async ({ page }) => {
  await open(page);
  const parts = { Decisions: ['decisions', '#decisions', { decisions: [], lists: [], more: false, damaged: 0 }], Entries: ['entries', '#entries', { entries: [], total: 0 }],
    Changes: ['audit', '#changes', { lines: [], damaged: 0 }], Quarantine: ['quarantine', '#quarantine', { messages: [], count: 0, max_count: 1, octets: 0, max_octets: 1 }],
    Requests: ['requests', '#requests', { requests: [] }], Lists: ['lists', '#lists', { worth: [], lists: [], problems: [], ready: true, lacks: '', generation: '' }] };
  for (const [name, [path, id, none]] of Object.entries(parts)) {
    const part = page.locator(id);
    const answer = async (reply) => {
      await page.unroute(`**/v1/${path}**`);
      await page.route(`**/v1/${path}**`, reply);
      await page.evaluate(() => document.dispatchEvent(new Event('token')));
    };
    let go = () => {};
    const held = new Promise((settle) => { go = settle; });
    await page.goto('/#overview');
    await page.route(`**/v1/${path}**`, async (route) => {
      await held;
      await route.fulfill({ json: none });
    });
    await page.evaluate((id) => document.querySelector(id).replaceChildren(), id);
    await view(page, name);
    if (name !== 'Lists') await expect(part).toHaveAttribute('aria-busy', 'true');
    go();
    await expect(part.locator('.none')).toBeVisible();
    await expect(part).not.toHaveAttribute('aria-busy', 'true');
    await answer((route) => route.fulfill({ status: 403, contentType: 'application/problem+json', json: { status: 403, detail: 'this token has the scope nothing' } }));
    await expect(part.locator('.forbidden')).toContainText('This token may not see this: this token has the scope nothing');
    await expect(part.locator('.none')).toHaveCount(0);
    await answer((route) => route.fulfill({ status: 503, contentType: 'application/problem+json', json: { status: 503, detail: 'the disk is away' } }));
    await expect(part.locator('.failed')).toContainText('the disk is away');
    await expect(part.locator('.none')).toHaveCount(0);
    await page.unroute(`**/v1/${path}**`);
    const again = part.getByRole('button', { name: 'Try again' }).first();
    if (await again.isVisible()) await again.click({ timeout: 5000 }).catch(() => {}); // unless the page has asked again by itself
    await expect(part.locator('.failed')).toHaveCount(0);
  }
});

test('does not call it no mail when nobody may see the mail', async ({ page }) => {
  await page.goto('/#decisions');
  await page.getByRole('button', { name: 'Cancel' }).click();
  await expect(page.locator('#decisions .forbidden')).toContainText('This is shown to holders of a token.');
  await expect(page.locator('main')).not.toContainText('No mail');
  await page.locator('#decisions').getByRole('button', { name: 'Sign in…' }).click();
  await page.getByLabel('Token', { exact: true }).fill(token);
  await page.keyboard.press('Enter');
  await expect(page.locator('#decisions .forbidden')).toHaveCount(0);
});

test('names the list that has never loaded', async ({ page }) => {
  await open(page);
  await page.route('**/v1/lists', async (route) => {
    const { 'if-none-match': known, ...headers } = route.request().headers(); // it is no answer that the page has
    const table = await (await route.fetch({ headers })).json();
    Object.assign(table, { lacks: '3 of 4 lists filter', problems: ['list other: other.txt: missing: no such file'] });
    Object.assign(table.worth.find(({ list }) => list === 'other'), { state: 'missing', keys: 0, entries: 0 });
    await route.fulfill({ json: table });
  });
  await page.reload();
  await expect(page.getByRole('heading', { name: 'Degraded: 3 of 4 lists filter; other has never loaded.' })).toBeVisible();
  await expect(page).toHaveTitle('(!) Degraded: 3 of 4 lists filter; other has never loaded. – Overview – blockd');
});

test('shows what cannot be seen, and both spellings of a name', async ({ page }) => {
  await open(page);
  const decision = { time: new Date().toISOString(), door: 'smtp', outcome: 'refuse', verdict: 'blocked', recipient: 'user@here.example', client: '2001:db8::4711', generation: 'g', ref: '0123456789', list: 'own', entry: 'listed.example' };
  const senders = ['a@xn--bcher-kva.example', 'b@xn--mnchen-3ya.xn--p1ai', 'moc\u202eelpmaxe@listed.example', 'c\u0007\u200b@listed.example', 'd@bücher.example'];
  await page.route('**/v1/decisions?*', (route) => route.fulfill({ json: { decisions: senders.map((sender) => ({ ...decision, sender })), lists: [], more: false, damaged: 0 } }));
  await page.goto('/#decisions?time=24h');
  const rows = page.locator('#past tbody tr');
  await expect(rows).toHaveCount(senders.length);
  await expect(rows.nth(0)).toContainText('a@xn--bcher-kva.example (a@bücher.example)');
  await expect(rows.nth(1)).toContainText('b@xn--mnchen-3ya.xn--p1ai (b@münchen.рф)');
  await expect(rows.nth(2)).toContainText('moc\\u{202e}elpmaxe@listed.example');
  await expect(rows.nth(3)).toContainText('c\\u{7}\\u{200b}@listed.example');
  await expect(rows.nth(4)).toContainText('d@bücher.example (d@xn--bcher-kva.example)');
});

test('lets a sender, its domain or its client be named from a row', async ({ page }) => {
  await mail('row@sub.listed.example');
  await open(page);
  await view(page, 'Decisions');
  const row = page.locator('#decisions tbody tr').filter({ hasText: 'row@sub.listed.example' }).first();
  await row.getByRole('button', { name: 'Allow row@sub.listed.example…' }).click();
  const dialog = page.locator('#entry-dialog');
  await expect(dialog.getByRole('button', { name: 'Allow', exact: true })).toBeFocused();
  await dialog.getByRole('radio', { name: /all senders of the domain/ }).check();
  await expect(page.getByLabel('Address, domain or network')).toHaveValue('sub.listed.example');
  await dialog.getByRole('button', { name: 'Allow', exact: true }).click();
  await expect(page.locator('#done')).toContainText('allow sub.listed.example is in force.');
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('Decisions'); // where somebody was
  expect(await mail('row@sub.listed.example')).toMatch(/^250 /);
  await page.locator('#done').getByRole('button', { name: 'Undo' }).click();
  await expect(page.locator('#done')).toContainText('was removed.');
});

test('is one stop of the Tab key, a table, and arrow keys lead through it', async ({ page }) => {
  for (const name of ['one', 'two']) await mail(`${name}@listed.example`);
  await open(page);
  await view(page, 'Decisions');
  const rows = page.locator('#decisions tbody tr');
  await expect(rows.nth(1)).toContainText('one@listed.example');
  expect(await page.locator('#decisions tbody').evaluate((body) => [...body.querySelectorAll('a, button')].filter((one) => one.tabIndex === 0).length)).toBe(1);
  await rows.first().getByRole('button').first().focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  await expect(rows.first().getByRole('button', { name: 'Allow two@listed.example…' })).toBeFocused();
  await page.keyboard.press('ArrowDown');
  await expect(rows.nth(1).getByRole('button', { name: 'Allow one@listed.example…' })).toBeFocused();
});
