// Signing in with an identity provider and with tokens that are bound to an owner; cmd/blockd/e2e/console/signin_test.go runs these.

import { test as plain } from '@playwright/test';
import { expect, mail, token, readToken as bound } from './visit.js';

const { BLOCKD_ISSUER: issuer, BLOCKD_PASSWORD: password, BLOCKD_URL: url } = process.env;

plain.skip(!issuer, 'no provider runs');

/** test gives each test a page; whatever it does wrong is a failure, and what the daemon refuses is told by refused. */
const test = plain.extend({
  page: async ({ page }, use) => {
    const faults = [];
    page.refused = [];
    page.on('pageerror', (error) => faults.push(`error: ${error.message}`));
    page.on('response', (response) => {
      if (response.url().startsWith(`${url}/v1/`) && response.status() >= 400) page.refused.push(`${response.status()} ${response.url()}`);
    });
    page.on('request', (request) => {
      if (![url, issuer].some((known) => request.url().startsWith(known))) faults.push(`asked elsewhere: ${request.url()}`);
    });
    await use(page);
    expect(faults).toEqual([]);
  },
});

async function signIn(page, name) {
  await page.goto('/');
  await page.getByRole('link', { name: 'Sign in with Example' }).click();
  await page.getByLabel('Username:').fill(name);
  await page.getByLabel('Password:').fill(password);
  await page.getByRole('button', { name: 'Login' }).click();
}

test('signs in with the provider, keeps it over a reload, and signs out', async ({ page, context }) => {
  await signIn(page, 'anna');
  await expect(page.locator('#who')).toHaveText('anna@localhost (write)');
  expect(page.url()).toBe(`${url}/`);
  const cookies = (await context.cookies(url)).filter(({ name }) => name.startsWith('blockd'));
  expect(cookies.map(({ name }) => name)).toEqual(['blockd-session']);
  expect(cookies[0]).toMatchObject({ httpOnly: true, sameSite: 'Strict', expires: -1 });
  await page.reload();
  await expect(page.locator('#who')).toHaveText('anna@localhost (write)');
  await page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: 'Entries' }).click();
  await page.getByLabel('Address, domain or network').fill('by-anna.example');
  await page.getByRole('button', { name: 'Block', exact: true }).click();
  await expect(page.locator('#entries')).toContainText('anna@localhost');
  expect(await mail('x@by-anna.example')).toMatch(/^550 /);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await expect(page.locator('main')).toBeHidden(); // what it shows is nobody's business now
  await page.getByRole('link', { name: 'Sign out there, too' }).click();
  await expect(page.locator('body')).toContainText(/signed out/i);
  expect(page.url().startsWith(issuer)).toBe(true);
  await page.goto('/');
  await expect(page.getByRole('link', { name: 'Sign in with Example' })).toBeVisible();
  expect((await context.cookies(url)).filter(({ name }) => name.startsWith('blockd'))).toEqual([]);
});

test('comes back to the view from which somebody signs in', async ({ page }) => {
  await page.goto('/#lists');
  await page.getByRole('link', { name: 'Sign in with Example' }).click();
  await page.getByLabel('Username:').fill('root');
  await page.getByLabel('Password:').fill(password);
  await page.getByRole('button', { name: 'Login' }).click();
  await expect(page.locator('#who')).toHaveText('root@localhost (admin)');
  await expect(page.getByRole('heading', { level: 1, name: 'Lists' })).toBeVisible();
});

test('says why somebody who has signed in elsewhere may do nothing here', async ({ page }) => {
  await signIn(page, 'eve'); // who says that she has an address of Anna's
  await expect(page.locator('#token-fault')).toContainText('nothing there gives you rights here');
  expect(page.url()).toBe(`${url}/`);
  await expect(page.locator('#who')).toBeEmpty();
  await page.goto('/v1/session/callback?code=x&state=y');
  await expect(page.locator('#token-fault')).toContainText('begun in another browser');
});

test('shows a user the own entries, and nothing that leads nowhere', async ({ page }) => {
  await signIn(page, 'uma');
  await expect(page.getByRole('heading', { level: 1, name: 'Blocked and allowed for uma@users.example' })).toBeVisible();
  await expect(page.locator('#own-entries')).toContainText('Nothing is blocked or allowed here.');
  page.refused.length = 0; // what was asked before anybody had signed in
  await expect(page.getByRole('link')).toHaveCount(1); // that skips to the content
  await page.getByLabel('Address or domain').fill('pest@shop.example');
  await page.getByRole('button', { name: 'Block', exact: true }).click();
  await expect(page.locator('#own-entries')).toContainText('pest@shop.example');
  await page.getByLabel('Address of the sender').fill('pest@shop.example');
  await page.getByRole('button', { name: 'Ask', exact: true }).click();
  await expect(page.locator('#own-answer')).toContainText('does not reach uma@users.example');
  expect(await mail('pest@shop.example', 'uma@users.example')).toMatch(/^550 /);
  expect(await mail('pest@shop.example', 'anna@here.example')).toMatch(/^250 /);
  await page.reload();
  await expect(page.locator('#own-entries')).toContainText('pest@shop.example');
  await page.getByLabel('Search in them').fill('nothing of this kind');
  await expect(page.locator('#own-entries')).toContainText('Nothing has "nothing of this kind" in it.');
  await page.getByLabel('Search in them').fill('');
  await page.getByRole('button', { name: 'Remove pest@shop.example' }).click();
  await expect(page.locator('#own-entries')).toContainText('Nothing is blocked or allowed here.');
  expect(await mail('pest@shop.example', 'uma@users.example')).toMatch(/^250 /);
  await expect(page.locator('#link')).toHaveText('live');
  expect(page.refused).toEqual([]);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('button', { name: 'Leave it' }).click();
  await expect(page.getByRole('link', { name: 'Sign in with Example' })).toBeVisible();
});

test('shows the holder of a token of a domain what its mailboxes have', async ({ page }) => {
  await page.goto('/');
  await page.getByLabel('Token', { exact: true }).fill(bound);
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { level: 1, name: 'Blocked and allowed for here.example' })).toBeVisible();
  await page.getByLabel('Whose').fill('bob@here.example');
  await page.getByLabel('Whose').press('Enter');
  await page.getByLabel('Address or domain').fill('for-bob.example');
  await page.getByRole('button', { name: 'Block', exact: true }).click();
  await expect(page.locator('#own-entries')).toContainText('for-bob.example');
  expect(await mail('x@for-bob.example', 'bob@here.example')).toMatch(/^550 /);
  expect(await mail('x@for-bob.example', 'anna@here.example')).toMatch(/^250 /);
  await page.getByLabel('Whose').fill('uma@users.example');
  await page.getByLabel('Whose').press('Enter');
  await expect(page.locator('#own-entries')).toContainText('You may not see what uma@users.example has.');
});

test('takes a token while there is a provider', async ({ page }) => {
  await page.goto('/');
  await page.getByLabel('Token', { exact: true }).fill(token);
  await page.keyboard.press('Enter');
  await expect(page.locator('#who')).toHaveText('helpdesk (write)');
});
