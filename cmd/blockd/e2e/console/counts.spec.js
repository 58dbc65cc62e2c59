// What the overview says of mail that has come, with nothing between the page and the daemon.

import { expect, mail, open, test, view } from './visit.js';

test.skip(Boolean(process.env.BLOCKD_TEST_SCREENSHOTS), 'pictures are taken alone');

const number = (text) => Number(text.replaceAll(',', ''));

const card = async (page, name) => number(await page.locator('#numbers').getByRole('link', { name: new RegExp(`^${name}`) }).locator('b').textContent());

// again loads the overview until the daemon has counted what it has decided.
const again = (page, seen) => expect(async () => {
  await page.reload();
  await expect(page.locator('#numbers b').first()).toBeVisible();
  await seen();
}).toPass({ timeout: 60_000 });

test('counts mail that comes, and leads to its decisions', async ({ page }) => {
  await open(page);
  await view(page, 'Lists');
  await page.goto('/#overview?time=30d'); // of which no hour goes while this runs
  await expect(page.locator('#numbers b').first()).toBeVisible();
  const [refused, checks] = [await card(page, 'Refused'), await card(page, 'Checks')];
  for (let i = 0; i < 9; i++) expect(await mail('bulk@most.listed.example', 'sales@here.example')).toMatch(/^550 /); // ten of a minute are written in full
  expect(await mail('bulk@most-clear.example', 'sales@here.example')).toMatch(/^250 /);
  await again(page, async () => expect([await card(page, 'Refused'), await card(page, 'Checks')]).toEqual([refused + 9, checks + 10]));
  const chart = page.getByRole('region', { name: /^Refused by/ });
  await chart.getByRole('button', { name: 'Table' }).click();
  const rows = await chart.getByRole('table').locator('tbody tr').evaluateAll((all) => all.map((row) => row.lastElementChild.textContent));
  expect(rows.map(number).reduce((a, b) => a + b, 0)).toBe(refused + 9);
  const top = page.getByRole('region', { name: 'Top', exact: true });
  for (const [words, name] of [['Senders', 'bulk@most.listed.example'], ['Domains', 'most.listed.example'], ['Clients', '127.0.0.1'], ['Recipients', 'sales@here.example'], ['Lists', 'own'], ['Entries', 'listed.example']]) {
    await top.getByRole('link', { name: words, exact: true }).click();
    const row = top.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) }).first();
    await again(page, async () => { // a decision is in the history a moment after it was counted
      await expect(row).toBeVisible({ timeout: 5000 });
      expect(number(await row.getByRole('cell').nth(words === 'Entries' ? 2 : 1).textContent())).toBeGreaterThanOrEqual(9);
    });
  }
  await top.getByRole('link', { name: 'Senders', exact: true }).click();
  await top.getByRole('link', { name: 'bulk@most.listed.example', exact: true }).click();
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('Decisions');
  await expect(page.locator('#past tbody tr')).toHaveCount(9);
});

test('counts among the decisions that were searched for', async ({ page }) => {
  for (const [sender, recipient, n] of [['a@some.listed.example', 'sales@here.example', 3], ['b@some.listed.example', 'sales@here.example', 2], ['b@some.listed.example', 'info@here.example', 1]]) {
    for (let i = 0; i < n; i++) expect(await mail(sender, recipient)).toMatch(/^550 /);
  }
  await open(page);
  await view(page, 'Decisions');
  await expect(page.getByRole('navigation', { name: 'Most of' })).toBeHidden();
  const among = page.getByRole('region', { name: 'What there was most of among these decisions' });
  const rows = async () => (await among.locator('tbody tr').evaluateAll((all) => all.map((row) => `${row.cells[0].textContent} ${row.cells[1].textContent}`))).join(', ');
  await expect(async () => { // a decision is in the history a moment after it was made
    await page.goto('about:blank');
    await page.goto('/#decisions?time=24h&domain=some.listed.example&top=sender');
    await expect(among.locator('tbody tr').first()).toBeVisible({ timeout: 5000 });
    expect(await rows()).toBe('a@some.listed.example 3, b@some.listed.example 3');
  }).toPass({ timeout: 60_000 });
  await page.getByRole('navigation', { name: 'Most of' }).getByRole('link', { name: 'Recipients' }).click();
  await expect.poll(rows).toBe('sales@here.example 5, info@here.example 1');
  await page.getByLabel('Search in all decisions').fill('b@some');
  await expect.poll(rows).toBe('sales@here.example 2, info@here.example 1');
  await among.getByRole('link', { name: 'sales@here.example' }).click();
  await expect(page.locator('#filters')).toContainText('recipient sales@here.example');
  await expect(page.locator('#past tbody tr')).toHaveCount(2);
  await expect(among).toBeHidden();
  await page.goBack();
  await expect.poll(rows).toBe('sales@here.example 2, info@here.example 1');
});
