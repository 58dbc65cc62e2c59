// The fleet view over a publisher and three nodes: cmd/blockd/e2e/console/consolefleet_test.go starts them, and does to them what a test asks by BLOCKD_CONTROL.

import { folder, look } from './look.js';
import { adminToken, expect, open, test } from './visit.js';

const control = process.env.BLOCKD_CONTROL;

test.skip(!control, 'no fleet runs');
test.describe.configure({ mode: 'serial' });

/** ask has something done to the fleet, and returns when it is done. */
async function ask(what) {
  const answer = await fetch(`${control}/${what}`, { method: 'POST' });
  expect(answer.status, what).toBe(204);
}

const node = (page, name) => page.locator('#fleet table').first().getByRole('row').filter({ has: page.getByRole('cell', { name, exact: true }) });

/** until looks again until all is as it should be: nodes report each half minute. */
const until = (page, look) => expect(async () => {
  await page.reload();
  await expect(page.locator('#fleet caption').first()).toBeVisible({ timeout: 5000 });
  await look();
}).toPass({ timeout: 90_000, intervals: [500] });

const now = { timeout: 500 };

test('shows how each node is', async ({ page }) => {
  await open(page);
  await page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: 'Fleet' }).click();
  await until(page, async () => {
    await expect(page.locator('#fleet caption').first()).toHaveText('4 in the last 90 seconds', now);
    await expect(node(page, 'mx1.example')).toContainText('2 canary', now);
    await expect(node(page, 'mx1.example')).toContainText(/[1-9]\d*\.\d\d %/, now); // some mail was refused there
    await expect(node(page, 'mx2.example')).toContainText('1 of 2', now);
    await expect(node(page, 'mx2.example').getByRole('cell').nth(4)).toHaveText('1', now); // a list of its own that its gate refuses
    await expect(node(page, 'mx3.example')).toContainText('1 of 2', now);
    await expect(node(page, 'mx3.example')).toContainText('partners away', now);
  });
  await expect(page.locator('#fleet')).toContainText('Nodes serve different sequences');
  await expect(node(page, 'publisher').getByRole('cell').nth(2)).toHaveText('–');
  await expect(node(page, 'mx1.example').getByRole('cell').nth(1)).toHaveText('ok');
  await expect(node(page, 'mx1.example').getByRole('cell').nth(3)).toHaveText(/^\d+ (s|min)/); // lag
  await expect(node(page, 'mx1.example').locator('strong')).toHaveAttribute('title', /^blockd \S/);
  await expect(node(page, 'mx2.example').getByRole('cell').nth(1)).toContainText('problem');
  await expect(node(page, 'mx3.example').getByRole('cell').nth(6)).toHaveText('–'); // it shares no live entries
  const problems = page.getByRole('table', { name: 'Problems' });
  await expect(problems).toContainText(/mx2\.example.*own/);
  await expect(problems).toContainText(/mx3\.example.*partners/);
  await look(page, 'fleet');
});

test('tells of lost entries, and has them made again or forgotten', async ({ page }) => {
  test.skip(Boolean(folder), 'there are pictures enough');
  await ask('lose?entry=pest@shop.example');
  await open(page);
  await page.goto('/#fleet');
  const lost = page.locator('#lost');
  await expect(lost).toContainText('1 change of a live entry was lost by the database');
  await expect(lost.getByRole('row', { name: /pest@shop\.example/ })).toContainText('phishing');
  await look(page, 'a fleet with a loss');
  await ask('passes?entry=pest@shop.example');
  await lost.getByRole('button', { name: 'Offer again' }).click();
  await expect(lost).toBeEmpty();
  await ask('blocks?entry=pest@shop.example');

  await ask('lose?entry=other@shop.example');
  await page.reload();
  await expect(lost).toContainText('other@shop.example');
  await lost.getByRole('button', { name: 'Dismiss' }).click();
  await expect(lost).toBeEmpty();
  await ask('passes?entry=other@shop.example');
});

test('tells of a node that has stopped', async ({ page }) => {
  test.skip(Boolean(folder), 'there are pictures enough');
  await open(page);
  await page.goto('/#fleet');
  await expect(node(page, 'mx2.example')).toBeVisible(); // the publisher knows of it
  await ask('kill');
  await until(page, async () => {
    await expect(page.locator('#fleet caption').first()).toHaveText('3 in the last 90 seconds, 1 missing', now);
    await expect(node(page, 'mx2.example').getByRole('cell').nth(1)).toHaveText('missing', now);
  });
  await expect(page.locator('#fleet').getByRole('row').nth(1)).toContainText('mx2.example'); // what is wrong comes first
  await look(page, 'a fleet with a node missing');
  await ask('begin');
  await until(page, () => expect(page.locator('#fleet caption').first()).toHaveText('4 in the last 90 seconds', now));
});

test('halts the channel, and publishes an earlier sequence again', async ({ page }) => {
  test.skip(Boolean(folder), 'there are pictures enough');
  const channel = page.locator('#channel');
  await open(page);
  await page.goto('/#fleet');
  await expect(node(page, 'mx1.example')).toBeVisible();
  await expect(channel).toBeHidden(); // it is an administrator's

  await page.context().clearCookies();
  await open(page, adminToken);
  await page.goto('/#fleet');
  await expect(channel.locator('caption')).toHaveText('2 in the store');
  await expect(channel.getByRole('button', { name: 'Publish again: sequence 2…' })).toHaveCount(0); // it is the newest
  await ask('blocks?entry=x@new.example');
  const dialog = page.locator('#message-dialog');
  await channel.getByRole('button', { name: 'Halt…' }).click();
  await expect(dialog).toContainText('Nodes that have sequence 2 go back');
  await expect(dialog.getByLabel('Why?')).toBeFocused();
  await dialog.getByRole('button', { name: 'Halt' }).click();
  await expect(dialog).toBeVisible(); // it wants to know why
  await dialog.getByLabel('Why?').fill('good mail is refused');
  await look(page, 'a question before a halt');
  await dialog.getByRole('button', { name: 'Halt' }).click();
  await expect(channel).toContainText('Halted: nodes stay at sequence 1');
  await expect(channel.getByRole('button', { name: 'Halt…' })).toHaveCount(0);
  await look(page, 'a fleet that is halted');
  await ask('passes?entry=x@new.example'); // the canary has gone back

  await channel.getByRole('button', { name: 'Publish again: sequence 1…' }).click();
  await expect(dialog).toContainText('The halt ends.');
  await page.keyboard.press('Escape');
  await expect(channel).toContainText('Halted');
  await channel.getByRole('button', { name: 'Publish again: sequence 1…' }).click();
  await dialog.getByLabel('Why').fill('ticket 4711');
  await dialog.getByRole('button', { name: 'Publish again' }).click();
  await expect(channel).toContainText('An earlier sequence was published again, and stands');
  await expect(channel).not.toContainText('Halted');
  await expect(channel.getByRole('row').nth(1)).toContainText('3 newest');
  await until(page, async () => {
    for (const name of ['mx1.example', 'mx2.example', 'mx3.example']) await expect(node(page, name).getByRole('cell').nth(2)).toContainText('3', now);
  });
  const journal = await (await page.request.get('/v1/audit')).text();
  expect(journal).toContain('good mail is refused');
  expect(journal).toContain('what sequence 1 had');
});
